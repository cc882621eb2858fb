"""`turnwise replay`: a copy is judged and learned once more, the home is not written to, and both outcomes are told."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from typer.testing import CliRunner, Result

from tests.support.versions import new_turn
from tests.training.homes import NO_LIMITS
from turnwise.cli.main import app
from turnwise.config import Config, load_config
from turnwise.errors import JournalError
from turnwise.journal import Answer, Journal
from turnwise.journal.replay.anew import begin_anew
from turnwise.journal.replay.copying import copy_journal
from turnwise.messages import saying
from turnwise.training.update import Trainer
from turnwise.training.worker import work
from turnwise.types import FinishReason, TurnState, Verdict

GOOD, BAD = "Thank you, that is perfect!", "No, that is wrong."
SAID = [GOOD, BAD, GOOD, BAD, BAD, GOOD]

SETTINGS: dict[str, object] = {
    "engine.threads": 1,
    "engine.dtype": "float32",
    "train.when": "always",
    "train.lora_rank": 2,
    "train.min_batch": 2,
    "train.max_batch": 4,
    "train.lessons": 0,
    "train.device": "cpu",
    "train.dtype": "float32",
    "train.threads": 1,
    "gate.enabled": True,
    "gate.answers": 0,
    "gate.probe_share": 0.0,
    **NO_LIMITS,
}


@pytest.fixture
def lived(tmp_path: Path, tiny_chat: Path) -> Config:
    """A home whose judge called everything good, and what was learned of it; a person knew better of one turn."""
    config = load_config(overrides=SETTINGS | {"home": tmp_path / "home", "model.path": str(tiny_chat)})
    tokenizer = Tokenizer.from_file(str(tiny_chat / "tokenizer.json"))
    journal = Journal.open(config)
    for n, said in enumerate(SAID):
        ask = tokenizer.encode(f"What is {n} and {n}?").ids
        turn = new_turn(
            f"turn-{n}",
            session_id=f"session-{n}",
            prompt_ids=ask,
            prompt_tokens=len(ask),
            messages=[saying("user", f"What is {n} and {n}?")],
        )
        journal.turns.begin(turn)
        answer = saying("assistant", f"It is {2 * n}.")
        ids = tokenizer.encode(f"It is {2 * n}.").ids
        journal.turns.finish(turn.id, Answer(answer, None, FinishReason.STOP, ids, [-1.0] * len(ids)))
        journal.turns.react(turn.id, [saying("user", said)])
    for task in journal.judging.claim("judge", 9, 60):
        journal.judging.record(task, Verdict(1, None, "model", "it likes all"))
    journal.verdicts.feedback("turn-1", -1, None)
    batch = journal.batches.claim("trainer", 60, at_once=True)
    assert batch is not None
    trainer = Trainer(config, tiny_chat)
    work(config, journal, trainer, batch, threading.Event(), journal.store.steady)
    assert journal.versions.latest() == 1
    journal.close()
    lines = [
        f"[model]\npath = {json.dumps(str(tiny_chat))}",
        *(
            f"[{section}]\n"
            + "\n".join(f"{k.split('.')[1]} = {json.dumps(v)}" for k, v in SETTINGS.items() if k.startswith(section))
            for section in ("engine", "train", "gate")
        ),
    ]
    (config.home / "config.toml").write_text("\n".join(lines), encoding="utf-8")
    return config


def run(config: Config, *args: str) -> Result:
    return CliRunner().invoke(app, ["replay", *args, "--home", str(config.home)])


def files_of(home: Path) -> dict[str, str]:
    """Each file of a home by what is in it."""
    return {
        str(file.relative_to(home)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(home.rglob("*"))
        if file.is_file() and not file.name.endswith("-shm")
    }


@pytest.mark.long
@pytest.mark.slow
def test_another_judge_and_another_method_are_seen_beside_what_was(lived: Config, tmp_path: Path) -> None:
    before, kept = files_of(lived.home), tmp_path / "kept"
    done = run(lived, "--judge", "signals", "--method", "binary", "--out", str(kept), "--json")
    assert done.exit_code == 0, done.output
    assert files_of(lived.home) == before, "the home was written to"
    told = json.loads(done.stdout)
    assert {(one["before"], one["after"]): one["turns"] for one in told["verdicts"]} == {
        ("good", "good"): 3,
        ("good", "bad"): 3,
    }
    assert (told["before"]["agreed"], told["before"]["compared"]) == (0, 1)
    assert (told["after"]["agreed"], told["after"]["compared"]) == (1, 1)
    assert [v["turns"] for v in told["before"]["versions"]] == [4]
    assert sum(v["turns"] for v in told["after"]["versions"]) == 6
    for side in ("before", "after"):
        assert told[side]["figures"]["drift_kl"] > 0, "it is not the base model"
        assert told[side]["figures"]["general_rise"] is not None
    assert told["before"]["figures"] != told["after"]["figures"]
    assert "no session is set aside" in told["notes"][0]
    copy = load_config(overrides=SETTINGS | {"home": kept, "model.path": lived.model.path})
    journal = Journal.open(copy)
    assert journal.status.figures()["turns"][TurnState.TRAINED] == 6
    assert journal.versions.latest() == told["after"]["versions"][-1]["number"]
    journal.close()
    shown = run(lived, "--judge", "signals")
    assert shown.exit_code == 0 and "agrees with your own scores" in shown.stdout
    assert files_of(lived.home) == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--method", "nonsense"), "train.method"),
        (("--judge", "nonsense"), "judge.kind"),
        (("--set", "home=/elsewhere"), "with --home"),
        (("--judge", "model", "--set", "judge.url=http://127.0.0.1:9/v1"), "gave no verdict at all"),
        (("--judge", "model"), "the judge cannot be asked"),
    ],
)
def test_what_cannot_be_replayed_is_said_and_leaves_the_home_as_it_was(
    lived: Config, args: tuple[str, ...], said: str
) -> None:
    before = files_of(lived.home)
    done = run(lived, *args)
    assert done.exit_code == 1 and said in str(done.exception), done.exception
    assert files_of(lived.home) == before


def test_a_folder_that_is_there_and_a_home_without_answers_are_refused(lived: Config, tmp_path: Path) -> None:
    assert "is there already" in str(run(lived, "--out", str(tmp_path)).exception)
    empty = load_config(overrides={"home": tmp_path / "empty"})
    assert "no journal" in str(run(empty).exception)
    Journal.open(empty).close()
    assert "nothing can be replayed" in str(run(empty).exception)


def test_nothing_but_a_copy_is_ever_begun_anew(lived: Config) -> None:
    journal = Journal.open(lived)
    with pytest.raises(JournalError, match="no copy of it"):
        begin_anew(journal, lived.home)
    assert journal.status.figures()["turns"][TurnState.TRAINED] == 4
    journal.close()


def test_a_copy_holds_what_was_written_last_beside_a_server_that_writes(
    lived: Config, tmp_path: Path, make_turn: Callable[[Journal], str]
) -> None:
    journal = Journal.open(lived)  # its write-ahead log is there
    late = make_turn(journal)
    (tmp_path / "copy").mkdir()
    copied = copy_journal(lived, tmp_path / "copy")
    assert copied.stat().st_mode & 0o077 == 0
    other = Journal.open(lived.model_copy(update={"home": tmp_path / "copy"}))
    assert other.turns.get(late) is not None
    assert begin_anew(other, lived.home) == len(SAID)
    assert other.versions.all() == [] and journal.versions.latest() == 1
    other.close()
    journal.close()


@pytest.fixture
def make_turn() -> Callable[[Journal], str]:
    def make(journal: Journal) -> str:
        turn = new_turn(session_id="late")
        journal.turns.begin(turn)
        return turn.id

    return make
