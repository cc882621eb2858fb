"""The rules of the house: who may import whom, one name for one thing, folders and files that a reader can take in."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnwise"
MOST_FILES = 14
"""In a folder, `__init__` and `__main__` not counted."""

PLANTED = {
    "Each room stands on those below it": ("tokens/chatml.py", "from turnwise.gateway import errors"),
    "The journal knows no loop, no engine and no wire format": ("journal/blobs.py", "import turnwise.engines.base"),
    "Rows do not leave the journal": ("gateway/metrics.py", "from turnwise.journal.packing import unpack_json"),
    "The gateway asks the table of agents and knows none of them": (
        "gateway/auth.py",
        "from turnwise.agents import codex",
    ),
    "The local engine is a program of its own, as a vLLM server is": ("local_engine/text.py", "import turnwise.types"),
    "Torch stays with the trainer and the local engine": ("gateway/metrics.py", "import torch"),
    "No folder imports in a circle": ("gateway/lineage/history.py", "import turnwise.gateway.turn.opening"),
}
"""An import against each contract of pyproject.toml, and where it is planted."""


def broken(source: Path) -> set[str]:
    """The contracts that a copy of the package breaks."""
    program = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    command = [sys.executable, "-c", program, "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(source), "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=source)
    said = re.findall(r"^(.+?) (KEPT|BROKEN)", done.stdout, re.M)
    assert {name for name, _ in said} == set(PLANTED), done.stdout + done.stderr
    return {name for name, state in said if state == "BROKEN"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The package without its data, to plant something into."""
    shutil.copytree(PACKAGE, tmp_path / "turnwise", ignore=shutil.ignore_patterns("__pycache__", "*.json", "data"))
    return tmp_path


def test_every_contract_is_kept(source: Path) -> None:
    assert broken(source) == set()


@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_import_breaks_its_contract(source: Path, contract: str) -> None:
    file, line = PLANTED[contract]
    path = source / "turnwise" / file
    path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{line}\n", encoding="utf-8")
    assert contract in broken(source)


AGENTS = ("codex", "claude code", "claude_code", "opencode", "openclaw", "qwen_code", "aider", "mini-swe", "smolagents")


def test_the_gateway_speaks_of_no_agent_by_its_name() -> None:
    files = {path: path.read_text(encoding="utf-8").lower() for path in (PACKAGE / "gateway").rglob("*.py")}
    named = {path.relative_to(PACKAGE).as_posix(): [n for n in AGENTS if n in text] for path, text in files.items()}
    assert {name: found for name, found in named.items() if found} == {}


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    folders = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        # Migrations stay for ever, one for each change.
        if path.stem not in ("__init__", "__main__") and path.parent.parent.name != "migrations":
            folders[path.parent.relative_to(PACKAGE).as_posix()].append(path.name)
    full = {folder: sorted(files) for folder, files in folders.items() if len(files) > MOST_FILES}
    assert full == {}


def test_a_file_can_be_read_at_a_sitting() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in files.items()}
    assert {name: count for name, count in lines.items() if count > 410} == {}


def tree() -> str:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return page.split("## Layout", 1)[1].split("```", 2)[1]


def test_the_architecture_page_shows_every_folder_and_file() -> None:
    """In the page's tree a folder stands with its way from the package, and behind it the names of its files."""
    shown: dict[str, set[str]] = {}
    folder = ""
    for line in tree().strip().splitlines()[1:]:
        if found := re.match(r"  ([a-z_/]+/)(?:\s|$)", line):
            folder, line = found.group(1).rstrip("/"), line[found.end() :]
        elif re.match(r"  [a-z]", line):
            folder = ""
        names = re.sub(r"\([^)]*\)", "", line)
        shown.setdefault(folder, set()).update(re.findall(r"\b[a-z_0-9]+\b", names))
    real: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        if path.stem not in ("__init__", "__main__") and "migrations" not in path.parts and "stepped" not in path.parts:
            place = path.parent.relative_to(PACKAGE).as_posix()
            real["" if place == "." else place].add(path.stem)
    differ = {folder: shown.get(folder, set()) ^ real[folder] for folder in real.keys() | shown.keys()}
    assert {folder: names for folder, names in differ.items() if names} == {}


OPENERS = (
    "messages.py",
    "gateway/wire/",
    "engines/upstream/",
    "engines/token_route.py",
    "local_engine/",
    "demo/",
    "bench/",
    "tokens/chatml.py",
    "tokens/pictured.py",
    "tokens/qwen25.py",
    "tokens/qwen_seeing.py",
    "tokens/smolvlm.py",
    "training/sft/conversations.py",
)
"""Who may open a message's dictionary: the one that makes messages of them, the wires, the programs that only speak
HTTP, a route of vLLM's whose log-probs have a field of such a name, our own renderers, which are handed dictionaries as
the interface of `renderers` has them, and the reader of files of conversations."""
OF_A_MESSAGE = {"role", "content", "tool_calls", "tool_call_id", "reasoning_content"}


def opened_fields(source: str) -> list[str]:
    """The fields of a message that a file reads from dictionaries: `x["role"]` and `x.get("content")`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        key = None
        if isinstance(node, ast.Subscript):
            key = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            key = node.args[0] if node.args else None
        if isinstance(key, ast.Constant) and key.value in OF_A_MESSAGE:
            found.append(f"line {key.lineno}: {key.value}")
    return found


def test_nobody_opens_a_message_but_those_who_make_and_write_them() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}
    others = {name: path for name, path in files.items() if not name.startswith(OPENERS)}
    opened = {name: opened_fields(path.read_text(encoding="utf-8")) for name, path in others.items()}
    assert {name: found for name, found in opened.items() if found} == {}


def test_a_planted_look_into_a_message_is_found() -> None:
    assert opened_fields('m["role"]\nm.get("content")\nm.role\nm["id"]') == ["line 1: role", "line 2: content"]
