"""The program that makes heads, on labelled rows and a model of a few kilobytes: its heads judge as their rows say."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.judges.signals.small_model import WIDTH, Pooling, small_model, states
from tests.support.servers import running
from turnwise.config import Config
from turnwise.judges.cases import Case
from turnwise.judges.signals import fit as program
from turnwise.judges.signals import head as heads
from turnwise.judges.signals import hidden
from turnwise.judges.signals.fit import (
    TRIES,
    _asked,
    _without_places,
    features,
    labelled,
    quoting,
    rows_digest,
    tables,
    weights_digest,
)
from turnwise.judges.signals.fitting import Rows
from turnwise.judges.signals.head import NO_OPINION, Head, tokenizer_digest
from turnwise.judges.signals.prompt import Question
from turnwise.judges.signals.reading import Reading, read_parts
from turnwise.judges.signals.states import ReplyJudge, StatesUnavailable
from turnwise.judges.signals.verdict import MIN_OWN
from turnwise.messages import saying

WORDS = {
    1: ["perfect", "lovely", "great", "brilliant", "superb", "thanks", "neat", "wonderful"],
    -1: ["wrong", "shorter", "useless", "broken", "bad", "terrible", "awful", "sloppy"],
    0: ["tomorrow", "later", "maybe", "whatever", "meanwhile", "anyway", "soon", "hm"],
}
ALSO = {1: "cheers", -1: "please", 0: "today"}
OURS = [
    (label, label == -1, f"task {label} {n}", f"{word} {ALSO[label]}")
    for label, words in WORDS.items()
    for n, word in enumerate(words)
]
QUOTED = [
    *((1, True, f"ours {n}", f'{word} "so long my friend!" please') for n, word in enumerate(("say", "add", "put"))),
    *((1, True, f"ours {n} too", f'{word} "so long my friend!" please') for n, word in enumerate(("end", "close"))),
    *((0, False, f"theirs {n}", f'{word} reads "do not sit here!"') for n, word in enumerate(("sign", "page"))),
    *((0, False, f"its {n}", f'{word} reads "do not sit here!"') for n, word in enumerate(("door", "mail", "log"))),
]
"""Whether the quoted words are the person's, whether they say how to answer, the task, and what was said."""
DENIED = (-1, False, "a denied task", "not perfect")


def row(label: int, directive: bool, task: str, said: str) -> str:
    return f"{label}\t{int(directive)}\t{task}\tan answer\t{said}"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our own rows, few of them, in place of those that ship."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ours.tsv").write_text("\n".join(row(*one) for one in OURS), encoding="utf-8")
    (folder / "denied.tsv").write_text(row(*DENIED), encoding="utf-8")
    (folder / "phrases.tsv").write_text("\n".join(row(*one) for one in QUOTED), encoding="utf-8")
    monkeypatch.setattr(program, "DATA", folder)
    monkeypatch.setattr(program, "SET_ASIDE", folder / "set-aside.txt")
    (folder / "set-aside.txt").write_text("ours-1\nours-9\n", encoding="utf-8")
    return folder


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """A labelled file of somebody's, in which one row has a tool's result alone."""
    tool = {"task": "t", "action": "a", "next_state": [{"role": "tool", "content": "ok"}], "label": 0, "id": "tool"}
    person = tool | {"next_state": "superb indeed", "label": 1, "id": "person"}
    path = tmp_path / "more.jsonl"
    path.write_text("\n".join(map(json.dumps, (tool, person))), encoding="utf-8")
    return path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the program with these arguments, and gives what it printed."""

    def run(*arguments: Any) -> str:
        monkeypatch.setattr(sys, "argv", ["fit", *map(str, arguments)])
        program.main()
        return capsys.readouterr().out

    return run


def figure(printed: str, after: str, name: str) -> float:
    line = next(line for line in printed.splitlines() if after in line)
    return float(line.split(f"'{name}': ")[1].split(",")[0])


# -- rows -------------------------------------------------------------------------------------------------------------


def test_what_is_denied_is_for_the_head_over_words_alone() -> None:
    assert [path.name for path in tables(words=False)] == ["ours.tsv"]
    assert [path.name for path in tables(words=True)] == ["denied.tsv", "ours.tsv"]


def test_rows_in_which_a_person_says_something_are_kept_with_their_readings(more: Path) -> None:
    cases, readings, persons, counts = labelled([more], words=False)
    assert set(persons) == {""} and set(counts) == {1.0} and len(persons) == len(counts) == 25
    assert [case.id for case in cases] == [*(f"ours-{n}" for n in range(1, 25)), "person"]
    assert [readings[i].sentences for i in (0, 24)] == [("perfect cheers",), ("superb indeed",)]
    assert (readings[0].task, readings[0].action) == ("task 1 0", "an answer")
    assert len(labelled([], words=True).cases) == 25


def test_people_stand_by_twelve_and_count_half_for_the_words(data: Path) -> None:
    people = [row(1, False, f"task {n}", f"ta number {n}") for n in range(25)]
    (data / "people.tsv").write_text("\n".join(people), encoding="utf-8")
    (data / "orders.tsv").write_text(row(-1, True, "a task", "keep it short"), encoding="utf-8")
    for words, of_people, of_orders in ((True, 0.5, []), (False, 1.0, [1.0])):
        found = labelled([], words)
        counts: dict[str, list[float]] = {}
        for case, count in zip(found.cases, found.counts, strict=True):
            counts.setdefault(case.id.split("-")[0], []).append(count)
        assert counts["people"] == [of_people] * 25 and set(counts["ours"]) == {1.0}
        assert counts.get("orders", []) == of_orders
        assert [p for p in found.persons if p] == ["0"] * 12 + ["1"] * 12 + ["2"]


def test_the_digest_of_the_rows_is_of_what_they_say_and_of_no_order_or_place(tmp_path: Path) -> None:
    one, other = tmp_path / "x" / "a.tsv", tmp_path / "b.tsv"
    one.parent.mkdir()
    one.write_bytes(b"first")
    other.write_bytes(b"second")
    assert rows_digest([other, one]) == rows_digest([one, other]) == hashlib.sha256(b"first\nsecond").hexdigest()


def test_the_digest_of_the_weights_is_of_all_their_files_and_of_no_other(tmp_path: Path) -> None:
    for name, content in (("b.safetensors", b"2"), ("a.safetensors", b"1"), ("config.json", b"{}")):
        (tmp_path / name).write_bytes(content)
    both = hashlib.sha256(b"1").digest() + hashlib.sha256(b"2").digest()
    assert weights_digest(tmp_path) == hashlib.sha256(both).hexdigest()


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("--words a.jsonl", "--words a.jsonl"),
        ("--model /home/ann/models/tiny /data/a.jsonl", "--model tiny a.jsonl"),
        ("--model m --cache /tmp/c.npz tests/a.jsonl", "--model m tests/a.jsonl"),
        ("--out heads --model m --layers 3,5", "--model m --layers 3,5"),
        ("--cache a --out b", ""),
    ],
)
def test_a_command_is_kept_without_where_things_lay(line: str, kept: str) -> None:
    assert _without_places(line.split()) == kept.split()


def test_features_of_a_reply_and_its_sentences_are_those_that_a_head_judges_by() -> None:
    """Of two layers: the last token's and the reply's; for each sentence the last token's and the sentence's."""
    vectors = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
    whole, each = features(vectors)
    assert whole.tolist() == [0, 1, 2, 3, 8, 9, 10, 11]
    assert each.tolist() == [[0, 1, 4, 5, 8, 9, 12, 13], [0, 1, 6, 7, 8, 9, 14, 15]]


# -- the head over words ----------------------------------------------------------------------------------------------


def test_the_head_over_words_judges_as_its_rows_say_and_tells_what_it_was_made_of(
    made: Callable[..., str], more: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "heads"
    printed = made("--words", more, "--out", out)
    assert printed.startswith("26 replies\ncross-validated: {'100%': ")
    assert "phrases, cross-validated: {'rows': 10, " in printed
    assert f"written: {out / 'words.npz'}" in printed
    head = Head.read(out / "words.npz")
    assert (head.name, head.layers, head.tokenizer, head.probe) == ("words", [], "", [])
    for label, _, _, said in OURS:
        opinion = head.opinion_of_words((said,))
        assert np.argmax(opinion.score) - 1 == label
        assert (opinion.directive[0] > 0.5) is (label == -1)
    assert head.opinion_of_words(("blorp fnord qwertz",)).score == NO_OPINION
    about = head.about
    assert (about["model"], about["rows"], about["weights_sha256"]) == ("words", 26, "")
    assert about["rows_sha256"] == rows_digest([data / "denied.tsv", data / "ours.tsv", data / "phrases.tsv", more])
    assert about["command"] == "python -m turnwise.judges.signals.fit --words more.jsonl"
    assert about["python"] == platform.python_version()
    assert about["cross_validated"]["100%"] == figure(printed, "cross-validated", "100%")
    with np.load(out / "words.npz") as f:
        kinds = {f[name].dtype for name in ("score", "directive", "own")}
        assert kinds == {np.dtype(np.float16)}, "it has many weights and is shipped"


def test_what_a_person_wants_said_is_told_from_orders_that_they_quote(made: Callable[..., str], tmp_path: Path) -> None:
    """By what stands around a quotation: the quoted words themselves are in no reading."""
    made("--words", "--out", tmp_path)
    head = Head.read(tmp_path / "words.npz")
    for own, _, _, said in QUOTED:
        sentence = said.partition('"')[0] + '""' + said.rpartition('"')[2]
        assert (head.opinion_of_words((sentence,)).own[0] >= MIN_OWN) is bool(own)
    assert head.opinion_of_words(('blorp fnord "" qwertz',)).own == [0.0], "words that it does not know"


def test_of_replies_that_quote_a_phrase_the_sentences_that_do_so_are_learned_from() -> None:
    """Of rows that are labelled as a whole those of one sentence alone."""
    said = [
        'Thanks. Say "so long my friend!" now.',
        'say "so long my friend!" now',
        'say "Bye"',
        'Ok. Say "it is so hot!" now.',
    ]
    readings = [read_parts([], saying("assistant", "a"), [saying("user", one)]) for one in said]
    cases = [Case(str(n), "", [], saying("assistant", "a"), [], -1, True, "") for n in range(4)]
    each = [np.array([[n, i] for i in range(len(r.sentences))], np.float32) for n, r in enumerate(readings)]
    rows = Rows(cases, readings, np.arange(4), np.zeros((4, 1), np.float32), each, np.ones(4, np.float32))
    found = quoting(rows, 3)
    assert [case.id for case in found.cases] == ["1", "3"]
    assert [x.tolist() for x in found.each] == [[[1, 0]], [[3, 1]]]


def test_what_is_written_is_calibrated_and_so_are_its_figures(
    made: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a temperature that leaves nothing sure, and a slope that makes every sentence directive."""
    monkeypatch.setattr(program, "temperature", lambda odds, labels: 1e6)
    monkeypatch.setattr(program, "slope", lambda odds, directive: (0.0, 5.0))
    printed = made("--words", "--out", tmp_path)
    opinion = Head.read(tmp_path / "words.npz").opinion_of_words(("perfect cheers",))
    assert opinion.score == pytest.approx([1 / 3] * 3, abs=1e-3)
    assert opinion.directive == pytest.approx([1 / (1 + np.exp(-5))], abs=1e-3)
    assert "'sure': (0, None)" in printed
    assert "'hints 0.7': (0.32, 1.0)" in printed, "of 25 replies 8 are directive"


# -- the head of a model ----------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "models" / "tiny", [" ".join(one[2:]) for one in OURS] + ["superb indeed an answer"])


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is learned is not looked at."""
    monkeypatch.setattr(hidden, "LEAST_STEPS", 1)
    monkeypatch.setattr(hidden, "PASSES", 2)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Pooling:
    """A server on loopback in place of an engine of one's own, for as long as the program asks it."""
    pooling = Pooling()

    @contextlib.contextmanager
    def started(config: Config) -> Iterator[str]:
        with running(pooling.app) as url:
            yield url

    monkeypatch.setattr(program, "own_engine", started)
    return pooling


def test_the_head_of_a_model_judges_by_that_models_states(
    made: Callable[..., str],
    engine: Pooling,
    model: Path,
    more: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: Path,
) -> None:
    printed = made("--model", model, more, "--out", tmp_path)
    assert printed.startswith("25 replies\n0 of 35 rows\ncross-validated: ")
    head = Head.read(tmp_path / "tiny.npz")
    assert head.layers == [16, 20], "of 30: about 0.53 and 0.67"
    assert head.tokenizer == tokenizer_digest(model / "tokenizer.json")
    assert head.probed == pytest.approx(states(head.probe, [(0, len(head.probe))], [16, 20])[:, :2].ravel(), abs=1e-3)
    assert head.about["weights_sha256"] == weights_digest(model)
    assert head.about["rows_sha256"] == rows_digest([data / "ours.tsv", data / "phrases.tsv", more])
    assert head.about["command"] == "python -m turnwise.judges.signals.fit --model tiny more.jsonl"
    with np.load(tmp_path / "tiny.npz") as f:
        assert f["score"].dtype == np.float32
    monkeypatch.setattr(heads, "FOLDER", tmp_path)
    heads._read.cache_clear()
    config = Config.model_validate({"home": tmp_path, "model": {"path": str(model)}})

    async def guesses(judge: ReplyJudge) -> list[int]:
        readings = [Reading(task, "an answer", (said,)) for _, _, task, said in OURS]
        found = [int(np.argmax((await judge.opinion(reading)).score)) - 1 for reading in readings]
        await judge.close()
        return found

    with running(engine.app) as url:
        judge = ReplyJudge(config, url)
        found = asyncio.run(guesses(judge))
    assert judge.who == "hidden states of tiny"
    right = np.mean([guess == one[0] for guess, one in zip(found, OURS, strict=True)])
    assert right >= 0.8, "a few numbers hold most of its words"


@pytest.mark.usefixtures("few_steps")
def test_a_cache_spares_the_engine_the_rows_that_it_was_asked_before(
    made: Callable[..., str], engine: Pooling, model: Path, more: Path, tmp_path: Path
) -> None:
    asked = ["--model", model, "--out", tmp_path, "--name", "mine", "--layers", "3,5", "--cache", tmp_path / "c.npz"]
    made(*asked)
    assert len(engine.bodies) == 1 + 34, "the fixed text and each row"
    assert engine.bodies[0]["layers"] == [3, 5]
    first = Head.read(tmp_path / "mine.npz")
    made(*asked, more)
    assert len(engine.bodies) == 1 + 34 + 1 + 1, "the fixed text, and the row that is new"
    made(*asked)
    again = Head.read(tmp_path / "mine.npz")
    assert len(engine.bodies) == 1 + 34 + 1 + 1 + 1
    assert again.score.tolist() == first.score.tolist()
    assert again.about == first.about
    made("--model", model, "--out", tmp_path, "--name", "plain", "--layers", "3,5")
    assert Head.read(tmp_path / "plain.npz").score.tolist() == first.score.tolist(), "a cache changes nothing"
    before = len(engine.bodies)
    made(*asked, "--layers", "3,6")
    assert len(engine.bodies) == before + 35, "other layers are another question"


def test_rows_set_aside_teach_nothing_and_nothing_is_written(
    made: Callable[..., str], engine: Pooling, model: Path, data: Path, tmp_path: Path
) -> None:
    """Those set aside say the opposite of all others, which is of no use to a head that never saw them."""
    turned = [*OURS, *((-label, False, f"aside {n}", said) for n, (label, _, _, said) in enumerate(OURS) if label)]
    (data / "ours.tsv").write_text("\n".join(row(*one) for one in turned), encoding="utf-8")
    (data / "set-aside.txt").write_text("\n".join(f"ours-{n}" for n in range(25, 41)), encoding="utf-8")
    printed = made("--model", model, "--out", tmp_path / "heads", "--aside")
    assert "40 replies" in printed
    assert figure(printed, "16 rows set aside:", "100%") < 0.35
    assert not (tmp_path / "heads").exists()


def test_a_model_that_is_no_folder_here_is_refused_with_words(
    made: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        made("--model", "someone/model")
    assert ended.value.code == 2
    assert "--model must be a folder, or the name of a model that is here" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--words", "--model", "m"]])
def test_either_words_or_a_model_is_asked_for(made: Callable[..., str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        made(*arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("busy", [TRIES - 1, TRIES])
async def test_a_busy_engine_is_asked_ten_times(model: Path, tmp_path: Path, busy: int) -> None:
    pooling = Pooling(busy)
    config = Config.model_validate({"home": tmp_path, "model": {"path": str(model)}})
    with running(pooling.app) as url:
        judge = ReplyJudge(config, url)
        question = Question([5, 6, 7], [(0, 3)], [])
        try:
            if busy < TRIES:
                assert (await _asked(judge, question, [4])).shape == (1, 2, WIDTH)
            else:
                with pytest.raises(StatesUnavailable, match="busy"):
                    await _asked(judge, question, [4])
        finally:
            await judge.close()
    assert len(pooling.bodies) == TRIES == 10
