"""Scorer, simulator and judge share no code and no phrases: pleasing the one must not please the others by accident."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest

import turnwise

ROOT = Path(turnwise.__file__).parent
SIDES = {
    "scorer": [ROOT / "demo" / "scorer.py"],
    "simulator": [ROOT / "demo" / "simulator.py", *(ROOT / "demo" / "personas").glob("*.py")],
    "judge": sorted((ROOT / "judges").glob("*.py")),
}
LONG_LITERAL = 12


def imports(files: list[Path]) -> set[str]:
    """The turnwise modules that ``files`` import."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("turnwise"):
                found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names if alias.name.startswith("turnwise")}
    return found


def literals(files: list[Path]) -> set[str]:
    """The string literals of ``files`` without docstrings, in lower case."""
    found = set()
    for file in files:
        tree = ast.parse(file.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                found.add(node.value.strip().lower())
    return found


def phrases(files: list[Path], words: int = 4) -> set[tuple[str, ...]]:
    """The runs of ``words`` words within a literal. Grammar and regular-expression marks separate."""
    found = set()
    for literal in literals(files):
        for piece in re.split(r"[\[\]|().?*+\\:;,!\n]", literal):
            tokens = re.findall(r"[a-z']+", piece)
            found |= {tuple(tokens[i : i + words]) for i in range(len(tokens) - words + 1)}
    return found


def test_the_scorer_imports_nothing_of_turnwise():
    assert imports(SIDES["scorer"]) == set()


def test_simulator_and_judge_do_not_import_each_other_nor_the_scorer():
    assert not {m for m in imports(SIDES["simulator"]) if "judge" in m or "scorer" in m}
    assert not {m for m in imports(SIDES["judge"]) if "demo" in m}


@pytest.mark.parametrize(("one", "other"), list(combinations(SIDES, 2)))
def test_no_long_literal_is_in_both(one: str, other: str):
    shared = {text for text in literals(SIDES[one]) & literals(SIDES[other]) if len(text) >= LONG_LITERAL}
    assert not {text for text in shared if not text.startswith("turnwise.")}


def test_scorer_and_simulator_share_no_phrase():
    assert not phrases(SIDES["scorer"]) & phrases(SIDES["simulator"])


def test_the_comparison_sees_what_it_looks_for(tmp_path: Path):
    file = tmp_path / "a.py"
    file.write_text('"""Not this docstring."""\nimport turnwise.demo\nx = "[Keep it short please|no]"\n')
    assert imports([file]) == {"turnwise.demo"}
    assert literals([file]) == {"[keep it short please|no]"}
    assert phrases([file]) == {("keep", "it", "short", "please")}
