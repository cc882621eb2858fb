"""The documents say only what is true: keys, commands, flags, routes, targets and links are read back from them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from fastapi.routing import APIRoute

from turnwise.cli.main import app
from turnwise.config import Config
from turnwise.config.reference import as_markdown
from turnwise.gateway.app import make_app

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SECTIONS = {name: field.annotation for name, field in Config.model_fields.items() if name != "home"}


@cache
def root() -> Any:
    """The command line, which typer makes anew each time it is asked."""
    return typer.main.get_command(app)


@cache
def commands() -> dict[str, Any]:
    """Every command by its words: "serve", "sessions list", "tasks swe build", …"""
    return dict(leaves("", root()))


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)  # of a group
    if inner is None:
        yield name, command
    for word, each in (inner or {}).items():
        yield from leaves(f"{name} {word}".strip(), each)


def flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def code_of(document: Path) -> list[str]:
    """Everything in a document that is set as code."""
    text = document.read_text(encoding="utf-8")
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r"`([^`\n]+)`", rest)


def test_the_configuration_page_is_made_from_the_tree() -> None:
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == as_markdown(), "run `make docs`"


def unknown_keys(code: str) -> list[str]:
    """Configuration keys in a piece of code that the tree does not have."""
    return [
        f"no key {section}.{key}"
        for section, key in re.findall(r"(?<![\w./])([a-z]+)\.([a-z_]+)(?![\w(/])", code)
        if section in SECTIONS and key not in ("md", "py", "db", "toml", "jsonl")
        if key not in SECTIONS[section].model_fields
    ]


def unknown_commands(code: str) -> list[str]:
    """Commands of turnwise in a piece of code that do not exist, and flags that theirs do not have."""
    known, faults = commands(), []
    groups = {" ".join(name.split()[:depth]) for name in known for depth in (1, 2) if len(name.split()) > depth}
    for line in re.findall(r"(?:^|[\s/(])turnwise((?: +[^\s|;&#)]+)+)", code):
        words = line.split()
        name, *rest = words
        while name in groups and rest:
            name, *rest = f"{name} {rest[0]}", *rest[1:]
        if name in groups:
            continue  # the group as a whole
        if name.startswith("--"):
            command = root()
        elif name in known:
            command = known[name]
        else:
            faults.append(f"no command {name}")
            continue
        faults += [f"{name} has no {f}" for f in re.findall(r"(?<!\S)(--[a-z-]+)", line) if f not in flags(command)]
    return faults


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_keys_commands_and_flags_exist(document: Path) -> None:
    faults = {code: found for code in code_of(document) if (found := unknown_keys(code) + unknown_commands(code))}
    assert faults == {}


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("turnwise frobnicate", "no command frobnicate"),
        (".venv/bin/turnwise frobnicate --hard  # does it", "no command frobnicate"),
        ("turnwise frobnicate | less", "no command frobnicate"),
        ("turnwise nothing list --all", "no command nothing"),
        ("turnwise sessions frobnicate", "no command sessions frobnicate"),
        ("turnwise tasks swe frobnicate", "no command tasks swe frobnicate"),
        ("turnwise tasks swe build --al", "tasks swe build has no --al"),
        ("turnwise sessions list --al", "sessions list has no --al"),
        ("turnwise --al", "--al has no --al"),
        ("train.frobnicate = 1", "no key train.frobnicate"),
    ],
)
def test_what_does_not_exist_is_noticed(code: str, fault: str) -> None:
    assert unknown_keys(code) + unknown_commands(code) == [fault]


@pytest.mark.parametrize(
    "code",
    ["turnwise", "turnwise sessions", "turnwise sessions show ID", "turnwise serve --home DIR", "turnwise@base",
     "import turnwise  # the package", "train.lr = 1e-4", "turnwise --help", "src/turnwise/types.py"],
)  # fmt: skip
def test_what_exists_passes(code: str) -> None:
    assert unknown_keys(code) + unknown_commands(code) == []


FOREIGN = {
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "SGLang's",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "vLLM's",
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "mini-swe-agent's",
    "EXAMPLE_API_KEY": "a name that a person would choose",
    "HEARTBEAT_OK": "what an agent's heartbeat answers, no variable",
}
"""Names in the documents that are not turnwise's to read."""


def test_environment_variables_in_the_documents_are_read() -> None:
    readers = [*(ROOT / "src").rglob("*.py"), ROOT / "tests/clients/install.py"]
    source = "".join(path.read_text(encoding="utf-8") for path in readers)
    read = set(re.findall(r"""["']([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)["']""", source))
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", document.read_text(encoding="utf-8"))
    }
    assert {n for n in read if n.startswith("TURNWISE_")} & named, "the documents name some"
    assert named - read - FOREIGN.keys() == set()
    assert FOREIGN.keys() <= named, "a name that no document has any more"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"
    for path in re.findall(r"`((?:src|tests|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), f"{document.name} names {path}"


def test_make_targets_in_the_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        for code in code_of(document):
            for target in re.findall(r"^make ([a-z-]+)", code):
                assert target in targets, f"{document.name}: make {target}"


def test_every_route_of_the_api_page_exists_and_every_route_stands_there() -> None:
    nothing: Any = None  # the routes are known before anything is served
    routes = {(method, route.path) for route in make_app(Config(), nothing, nothing, nothing, nothing).routes
              if isinstance(route, APIRoute) for method in route.methods}  # fmt: skip
    known = {f"{method} {re.sub(r'{[a-z_]+}', '{id}', path)}" for method, path in routes if not path.startswith("/s/")}
    named = set(re.findall(r"(?:DELETE|GET|HEAD|POST) /[\w/{}]+", (ROOT / "docs/api.md").read_text(encoding="utf-8")))
    assert named == known


DEFINED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def defined_in(file: str) -> list[ast.stmt]:
    return ast.parse((ROOT / "src" / "turnwise" / file).read_text("utf-8")).body


def test_the_tour_names_what_is_there() -> None:
    named = re.findall(
        r"`([a-z_/]+\.py)(?:: ([A-Za-z_]\w*)(?:\.(\w+))?)?`", (ROOT / "docs" / "tour.md").read_text("utf-8")
    )
    assert len(named) > 30
    for file, name, member in named:
        body = defined_in(file)
        for part in filter(None, (name, member)):
            found = [node for node in body if isinstance(node, DEFINED) and node.name == part]
            assert found, f"{file} has no {name}{'.' + member if member else ''}"
            body = found[0].body
