"""`turnwise sites` where the sites are not installed, or do not run: each says what to do, and nothing else is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.environments.sites.conftest import needs_sites
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.doctor.checks import _sites
from turnwise.errors import TurnwiseError


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    "words",
    [("sites", "start", "wiki"), ("tasks", "web", "--sites", "shop"), ("tasks", "web", "--families", "wiki-year")],
)
def test_a_missing_installation_is_named(words: tuple[str, ...], tmp_path: Path, nothing_installed: None) -> None:
    where = ("--home", str(tmp_path)) if words[0] == "sites" else ("--out", str(tmp_path / "t"))
    failed = run(*words, *where)
    assert isinstance(failed.exception, TurnwiseError) and "make sites" in str(failed.exception)


def test_doctor_says_so(tmp_path: Path, nothing_installed: None) -> None:
    (finding,) = _sites(load_config(overrides={"home": tmp_path}))
    assert finding.level == "note" and "make sites" in finding.text


@needs_sites
def test_doctor_says_which_run(tmp_path: Path) -> None:
    (finding,) = _sites(load_config(overrides={"home": tmp_path}))
    assert finding.level == "ok" and finding.text == "installed; running: none"


def test_what_does_not_run_is_shown_and_stopping_it_is_no_fault(tmp_path: Path, nothing_installed: None) -> None:
    home = ("--home", str(tmp_path))
    assert run("sites", "list", *home).stdout.count("not running") == 3
    assert run("sites", "stop", "wiki", *home).stdout.strip() == "wiki: was not running"
    assert "is not running" in str(run("sites", "reset", "wiki", *home).exception)
    assert run("sites", "reset", *home).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sites", "start", "bank"), "no site 'bank'"),
        (("sites", "start", "shop", "wiki", "--port", "8000"), "--port is for one site"),
        (("tasks", "web", "--sites", "bank"), "no site 'bank'"),
        (("tasks", "web", "--families", "shop-steal"), "no family 'shop-steal'"),
        (("tasks", "web", "--sites", "shop", "--pages", "click-test"), "go with none of --pages"),
    ],
)
def test_what_there_is_not_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    where = ("--home", str(tmp_path)) if words[0] == "sites" else ()
    assert said in str(run(*words, *where).exception)


def test_the_families_are_shown_without_an_installation(nothing_installed: None) -> None:
    shown = run("tasks", "web", "--sites", "tracker,wiki", "--list")
    assert shown.exit_code == 0 and "tracker-assign" in shown.stdout and "shop" not in shown.stdout
