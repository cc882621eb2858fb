"""The documents say only what is true: keys, commands, flags, routes, targets and links are read back from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from turnwise.cli import app
from turnwise.config import Config
from turnwise.reference import as_markdown

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SECTIONS = {name: field.annotation for name, field in Config.model_fields.items() if name != "home"}


def commands() -> dict[str, Any]:
    """Every command by its words: "serve", "sessions list", …"""
    root: Any = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)  # of a group
        found |= {name: command} if inner is None else {f"{name} {word}": c for word, c in inner.items()}
    return found


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_keys_commands_and_flags_exist(document: Path) -> None:
    known = commands()
    for code in code_of(document):
        for section, key in re.findall(r"(?<![\w./])([a-z]+)\.([a-z_]+)(?![\w(/])", code):
            if section in SECTIONS and key not in ("md", "py", "db", "toml", "jsonl"):
                assert key in SECTIONS[section].model_fields, f"{code}: no key {section}.{key}"
        for line in re.findall(r"(?:^|[\s/])turnwise ((?:[a-z]+ ?)+[^|;&#]*)", code):
            words = line.split()
            name = next((n for n in (" ".join(words[:2]), words[0]) if n in known), None)
            if name is None:
                assert words[0] not in {n.split()[0] for n in known} or len(words) == 1, f"{code}: no such command"
                continue
            for flag in re.findall(r"(?<!\S)(--[a-z-]+)", line):
                assert flag in flags(known[name]), f"{code}: {name} has no {flag}"


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


def test_every_route_of_the_api_page_exists() -> None:
    source = (ROOT / "src/turnwise/gateway/app.py").read_text(encoding="utf-8")
    routes = set(re.findall(r'@app\.(?:get|post)\("([^"]+)"\)', source))
    named = set(re.findall(r"(?:GET|POST) (/[\w/{}]+)", (ROOT / "docs/api.md").read_text(encoding="utf-8")))
    named = {re.sub(r"\{id\}", lambda m: "{X}", route) for route in named}
    known = {re.sub(r"\{[a-z_]+\}", "{X}", route) for route in routes}
    assert named - known == set()
    assert {route for route in known if not route.startswith("/s/")} - named == set()
