"""`turnwise versions compare`: the same questions, each version's own answers, figures, a page that runs nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import Result

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.versions.comparing.answering import RawAnswer
from turnwise.versions.comparing.compare import ComparedAnswer, Comparison, VersionSheet, answered
from turnwise.versions.comparing.page import as_html
from turnwise.versions.comparing.questions import HeldOut

Run = Callable[..., Result]
UPSTREAM = ["engine.kind=upstream", "engine.url=http://127.0.0.1:9", "train.enabled=false"]


@pytest.mark.slow
def test_each_version_answers_the_held_out_questions_and_the_page_holds_them(
    two: Journal, run: Run, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = run("versions", "compare", "0", "2", "--questions", "2", "--tokens", "12", "--html", str(page), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [sheet["number"] for sheet in told["versions"]] == [0, 2]
    assert told["questions"][0]["about"] == "set aside"
    assert len(told["questions"]) == 3
    for row in told["questions"]:
        base, other = row["answers"]
        assert 1 <= base["tokens"] <= 12 and 1 <= other["tokens"] <= 12
        # The base model's likeliest tokens are likelier to it than another policy's.
        assert base["base"] > other["base"]
    assert any(a["text"] != b["text"] for a, b in (row["answers"] for row in told["questions"]))
    text = page.read_text(encoding="utf-8")
    assert "version 2" in text and "<script" not in text and "http://" not in text
    assert page.stat().st_mode & 0o077 == 0
    again = run("versions", "compare", "0", "2", "--questions", "2", "--tokens", "12")
    assert again.exit_code == 0 and "log-prob under the base model" in again.stdout


@pytest.mark.slow
def test_a_damaged_version_is_stood_in_for_by_the_one_before_it_and_that_is_said(
    two: Journal, run: Run, settings: Config
) -> None:
    (settings.versions_dir / "v2" / "adapter_model.safetensors").write_bytes(b"half of a fi")
    done = run("versions", "compare", "0", "2", "--questions", "1", "--tokens", "4", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [sheet["number"] for sheet in told["versions"]] == [0, 1]
    assert "version 2 cannot be used" in told["notes"][-1] and "version 1" in told["notes"][-1]


def test_questions_that_do_not_fit_the_engine_are_left_out() -> None:
    asked = [HeldOut([1], "fits", "good", "general"), HeldOut([1] * 9, "too long", "good", "general")]
    fits, other = RawAnswer([5], True, None), RawAnswer([6], True, None)
    assert answered(asked, [[fits, None], [other, None]]) == (asked[:1], [[fits], [other]])
    with pytest.raises(TurnwiseError, match="no question fits"):
        answered(asked[1:], [[None], [None]])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("0", "9"), "there is no published version 9"),
        (("2", "2"), "give two versions"),
        (("0", "1", "--html", "/no/such/folder/page.html"), "there is no folder"),
        (("0", "1", *(f"--set={pair}" for pair in UPSTREAM)), "serves no versions"),
        (("0", "1", "--set", "engine.kind=vllm", "--set", "engine.url=http://127.0.0.1:9"), "no engine answers"),
    ],
)
def test_what_cannot_be_compared_is_said(two: Journal, run: Run, args: tuple[str, ...], said: str) -> None:
    done = run("versions", "compare", *args)
    assert done.exit_code == 1
    assert said in str(done.exception)


def test_a_version_of_another_base_model_is_refused_by_its_digest(two: Journal, run: Run, settings: Config) -> None:
    meta = settings.versions_dir / "v1" / "meta.json"
    meta.write_text(json.dumps({"base_sha256": "0" * 64}), encoding="utf-8")
    done = run("versions", "compare", "0", "1")
    assert done.exit_code == 1 and "another base model" in str(done.exception)


def test_without_set_aside_sessions_the_general_probe_is_asked_alone_and_that_is_said(
    settings: Config, tiny_chat: Path
) -> None:
    from turnwise.errors import TurnwiseError
    from turnwise.training.policy import load_tokenizer
    from turnwise.versions.comparing.questions import held_out

    journal = Journal.open(settings)
    asked, notes = held_out(journal, tiny_chat, load_tokenizer(tiny_chat), 2)
    assert len(asked) == 2 and "set aside" not in {one.about for one in asked}
    assert "general probe alone" in notes[0]
    bare = settings.home / "bare"
    shutil.copytree(tiny_chat, bare)
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        (bare / name).unlink()
    with pytest.raises(TurnwiseError, match="nothing to compare versions on"):
        held_out(journal, bare, load_tokenizer(bare), 2)
    journal.close()


class Tags(HTMLParser):
    """The tags of a page, and what it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.shown = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.shown += data


def test_what_a_person_or_a_model_wrote_is_text_on_the_page_and_never_markup() -> None:
    bad = '</pre><script>alert(1)</script><img src=x onerror="x()">{{ 7*7 }}{% if %}'
    asked = HeldOut([1], bad, bad, bad)
    answer = ComparedAnswer(bad, 3, True, None, None)
    sheets = [VersionSheet(n, 3.0, 1.0, None, None) for n in (0, 1)]
    parsed = Tags()
    parsed.feed(as_html(Comparison(sheets, [(asked, [answer, answer])], [bad])))
    assert parsed.tags.isdisjoint({"script", "img"})
    assert parsed.shown.count(bad) == 6
