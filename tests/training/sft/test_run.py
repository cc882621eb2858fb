"""A fine-tuning from the file to the version: stopped, killed, refused, and beside the trainer of the home."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.homes import Bench, Killed, feed, same
from tests.training.sft.chat_model import conversation, make_chat_model, sft_home, write
from turnwise.config import Config
from turnwise.errors import ConfigError, DataError, LeaseLost, PlaceTaken, TurnwiseError
from turnwise.journal import Journal
from turnwise.training.publish import version_dir
from turnwise.training.sft import course, run
from turnwise.training.sft.course import SftProgress, SftStopped
from turnwise.training.sft.run import SftTeller, fine_tune, look
from turnwise.training.sft.unfinished import SftSettings
from turnwise.training.update import Trainer
from turnwise.training.weights.files import load_version_dir
from turnwise.types import PolicyVersion

SETTINGS = SftSettings(epochs=2, lr=5e-3, batch_tokens=200, eval_share=0.1, warm_up=0.2, context=512)


class Told:
    """What a run says; at `stop_at` steps it is told to stop, or whatever `then` does."""

    def __init__(self, stop_at: int | None = None, then: Callable[[], None] | None = None) -> None:
        self.said: list[str] = []
        self.seen: list[SftProgress] = []
        self.stop = threading.Event()
        self._stop_at, self._then = stop_at, then or self.stop.set

    def report(self, at: SftProgress) -> None:
        self.seen.append(at)
        if at.step == self._stop_at:
            self._then()

    @property
    def teller(self) -> SftTeller:
        return SftTeller(self.said.append, self.report)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data.jsonl", [conversation(n) for n in range(20)])


@pytest.fixture
def home(tmp_path: Path, chat_dir: Path) -> Config:
    return sft_home(tmp_path / "home", chat_dir)


def tuned(
    config: Config, data: Path, told: Told | None = None, settings: SftSettings = SETTINGS, **more: Any
) -> PolicyVersion:
    told = told or Told()
    return fine_tune(config, data, settings, told.stop, told.teller, **more)


def weights(config: Config, number: int) -> dict[str, torch.Tensor]:
    return load_version_dir(version_dir(config.versions_dir, number)).weights


def killed() -> None:
    raise Killed


def test_a_run_learns_and_publishes_a_version_that_says_where_it_came_from(home: Config, data: Path) -> None:
    told = Told()
    version = tuned(home, data, told)
    with closing(Journal.open(home)) as journal:
        assert journal.versions.latest() == version.number == 1
        kept = journal.versions.get(1)
        assert journal.status.last("sft") is None
        assert journal.status.figures()["batches"] == {"done": 1}
    assert kept is not None
    assert kept.parent == 0
    assert kept.source is not None
    import hashlib

    assert kept.source["sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()
    assert (kept.source["kind"], kept.source["file"], kept.source["lr"]) == ("sft", "data.jsonl", 5e-3)
    assert kept.source["conversations"] + kept.source["set_aside"] == 20
    assert kept.metrics["held_out"] < kept.metrics["held_out_before"]
    assert told.seen[0].step == 0
    assert told.seen[-1].step == told.seen[-1].steps
    assert told.seen[-1].held_out == kept.metrics["held_out"]
    meta = json.loads((version_dir(home.versions_dir, 1) / "meta.json").read_text())
    assert meta["source"] == kept.source
    assert not (version_dir(home.versions_dir, 1) / "optimizer.state").exists()
    assert not (home.home / "sft").exists()


def test_every_weight_is_learned_stopped_and_gone_on_with(tmp_path: Path, chat_dir: Path, data: Path) -> None:
    full = {"train.weights": "full"}
    steady, held = (sft_home(tmp_path / name, chat_dir, **full) for name in ("steady", "held"))
    version = tuned(steady, data)
    assert version.metrics["held_out"] < version.metrics["held_out_before"]
    with pytest.raises(SftStopped):
        tuned(held, data, Told(3))
    with pytest.raises(DataError, match=r"train\.weights was full, and is lora"):
        tuned(sft_home(held.home, chat_dir), data)
    tuned(held, data)
    assert "model.norm.weight" in weights(held, 1)
    assert same(weights(steady, 1), weights(held, 1))


def test_a_second_run_goes_on_from_the_first_and_a_rollback_leaves_both(home: Config, data: Path) -> None:
    tuned(home, data)
    second = tuned(home, data)
    assert (second.number, second.parent) == (2, 1)
    assert not same(weights(home, 1), weights(home, 2))
    with closing(Journal.open(home)) as journal:
        journal.versions.serve(0)
        assert journal.versions.latest() == 0
    third = tuned(home, data)
    assert (third.number, third.parent) == (3, 0)
    assert same(weights(home, 1), weights(home, 3)), "the same file on the same parent gives the same weights"


@pytest.mark.parametrize("stop_at", [1, 4, 9])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(
    tmp_path: Path, chat_dir: Path, data: Path, home: Config, stop_at: int
) -> None:
    steady = sft_home(tmp_path / "steady", chat_dir)
    tuned(steady, data)
    first = Told(stop_at)
    with pytest.raises(SftStopped):
        tuned(home, data, first)
    assert first.seen[-1].step == stop_at
    with closing(Journal.open(home)) as journal:
        assert journal.versions.latest() == 0
        assert journal.batches.any_open() is False
        assert journal.batches.waits_for() is None
    again = Told()
    version = tuned(home, data, again)
    assert f"goes on behind step {stop_at} of" in " ".join(again.said)
    assert same(weights(steady, 1), weights(home, 1))
    with closing(Journal.open(steady)) as journal:
        [expected] = journal.versions.all()
    timeless = {"seconds"}
    assert {k: v for k, v in version.metrics.items() if k not in timeless} == {
        k: v for k, v in expected.metrics.items() if k not in timeless
    }


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(
    tmp_path: Path, chat_dir: Path, data: Path, home: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again; what a process does that ends in order is switched off. Real kills: test_process."""
    steady = sft_home(tmp_path / "steady", chat_dir)
    tuned(steady, data)
    monkeypatch.setattr(course, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr(course, "SAVING", 0)
    monkeypatch.setattr(Journal, "close", lambda self: None)
    monkeypatch.setattr("turnwise.journal.queue.batches.Batches.release", lambda self, batch: None)
    for at in (2, 3, 7):
        with pytest.raises(Killed):
            tuned(home, data, Told(at, killed))
    told = Told()
    tuned(home, data, told)
    assert "goes on behind step 7 of" in " ".join(told.said)
    assert same(weights(steady, 1), weights(home, 1))


def test_a_run_killed_between_its_version_and_its_end_is_not_published_twice(
    home: Config, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        m.setattr(run, "_publish", _publish_and_die(run._publish))
        with pytest.raises(Killed):
            tuned(home, data)
    with closing(Journal.open(home)) as journal:
        assert journal.versions.latest() == 1
    assert (home.home / "sft" / "run.json").exists()
    told = Told()
    assert tuned(home, data, told).number == 2
    assert "goes on" not in " ".join(told.said), "it began anew, on top of the version that it had published"


def _publish_and_die(publish: Callable[..., PolicyVersion]) -> Callable[..., PolicyVersion]:
    def both(*args: Any) -> PolicyVersion:
        publish(*args)
        raise Killed

    return both


def stopped(home: Config, data: Path) -> None:
    with pytest.raises(SftStopped):
        tuned(home, data, Told(3))


def test_a_file_that_changed_meanwhile_is_refused_by_its_hash(home: Config, data: Path) -> None:
    stopped(home, data)
    good = data.read_text()
    data.write_text(good.replace("question 3", "question 33"))
    with pytest.raises(DataError, match=r"data.jsonl has changed since it began \(sha256"):
        tuned(home, data)
    data.write_text(good)
    assert tuned(home, data).number == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lr": 1e-3}, "--lr was 0.005, and is 0.001"),
        ({"batch_tokens": 300}, "--batch-tokens was 200, and is 300"),
        ({"epochs": 3}, "--epochs was 2, and is 3"),
    ],
)
def test_other_settings_are_another_run(home: Config, data: Path, changes: dict[str, Any], said: str) -> None:
    stopped(home, data)
    with pytest.raises(DataError, match=said):
        tuned(home, data, settings=replace(SETTINGS, **changes))
    told = Told()
    tuned(home, data, told, replace(SETTINGS, **changes), anew=True)
    assert "goes on" not in " ".join(told.said)


def test_another_file_and_another_parent_are_another_run(home: Config, data: Path, tmp_path: Path) -> None:
    stopped(home, data)
    other = write(tmp_path / "other.jsonl", [conversation(n) for n in range(30, 40)])
    with pytest.raises(DataError, match=r"it learns from data.jsonl, not other.jsonl"):
        tuned(home, other)
    moved = data.rename(tmp_path / "moved.jsonl")
    tuned(home, moved)
    with pytest.raises(SftStopped):
        tuned(home, moved, Told(3))
    with closing(Journal.open(home)) as journal:
        journal.versions.serve(0)
    with pytest.raises(DataError, match=r"it began on version 1, and version 0 serves now .*rollback 1"):
        tuned(home, moved)


def test_a_bad_file_drops_no_unfinished_run(home: Config, data: Path, tmp_path: Path) -> None:
    stopped(home, data)
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match="line 1"):
        tuned(home, tmp_path / "bad.jsonl", anew=True)
    told = Told()
    tuned(home, data, told)
    assert "goes on behind step 3" in " ".join(told.said)


# -- beside the trainer ------------------------------------------------------------------------------------------------


def test_while_a_trainer_works_the_place_is_taken(home: Config, data: Path) -> None:
    with closing(Journal.open(home)) as journal:
        feed(journal, range(4))
        batch = journal.batches.claim("trainer", home.train.lease_s)
        assert batch is not None
        with pytest.raises(PlaceTaken, match=r"in the middle of batch 1; wait"):
            tuned(home, data)
        journal.batches.suspend(batch)  # as a server that is stopped leaves it
        tuned(home, data)
        assert journal.status.figures()["samples_ready"] == 4, "its samples wait again"


def test_while_it_works_no_trainer_and_no_other_run_does(home: Config, data: Path) -> None:
    with closing(Journal.open(home)) as journal:
        feed(journal, range(4))
        seen: list[Any] = []

        def look_around() -> None:
            seen.append(journal.batches.claim("trainer", home.train.lease_s))
            seen.append(journal.batches.waits_for())
            with pytest.raises(PlaceTaken, match="another `turnwise sft`"):
                tuned(home, data)

        told = Told(3, look_around)
        tuned(home, data, told)
        assert seen == [None, "`turnwise sft` has the trainer's place; training goes on when it has ended"]
        after = journal.batches.claim("trainer", home.train.lease_s)
        assert after is not None
        assert after.parent == 1


def test_the_place_stays_taken_while_one_pass_takes_longer_than_the_lease(
    tmp_path: Path, chat_dir: Path, data: Path
) -> None:
    home = sft_home(tmp_path / "home", chat_dir, **{"train.lease_s": 1.0})
    with closing(Journal.open(home)) as journal:
        feed(journal, range(4))
        seen: list[Any] = []

        def pass_of_a_slow_machine() -> None:
            time.sleep(2.5)
            seen.append(journal.batches.claim("trainer", home.train.lease_s))

        tuned(home, data, Told(3, pass_of_a_slow_machine))
        assert seen == [None]
        assert journal.versions.latest() == 1


def test_one_that_was_killed_leaves_the_place_to_the_trainer(make: Callable[..., Bench], chat_dir: Path) -> None:
    bench = make()
    feed(bench.journal, range(4))
    place = bench.journal.tuning.take("sft-1", 60.0, "a-run")
    assert bench.journal.batches.claim("trainer", 60.0) is None
    with bench.journal.store.transaction() as c:
        from turnwise.journal import schema

        c.execute(schema.batches.update().values(lease_until=0.0))
    batch = bench.journal.batches.claim("trainer", 60.0)
    assert batch is not None
    assert len(batch.samples) == 4
    with pytest.raises(LeaseLost):
        bench.journal.batches.renew(place, 60.0)


def test_a_rollback_in_the_middle_takes_the_place_away_and_keeps_the_work(home: Config, data: Path) -> None:
    tuned(home, data)
    with closing(Journal.open(home)) as journal:
        with pytest.raises(LeaseLost):
            tuned(home, data, Told(3, lambda: journal.versions.serve(0)))
        assert journal.versions.latest() == 0
        journal.versions.serve(1)
        told = Told()
        assert tuned(home, data, told).number == 2
        assert "goes on" in " ".join(told.said)


def test_updates_go_on_from_a_fine_tuned_version(home: Config, data: Path) -> None:
    tuned(home, data)
    bench = Bench(home)
    with closing(bench.journal):
        feed(bench.journal, range(4))
        assert bench.claim_and_work()
        [_, learned] = bench.journal.versions.all()
        assert (learned.parent, learned.source) == (1, None)
    assert Trainer(home, Path(home.model.path)).fault_of(1) is None


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def poisoned(folder: Path, chat_dir: Path, mark: str) -> Path:
    """The model with an embedding that is no number for one word of one line."""
    make_chat_model(folder)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    [token] = tokenizer.encode(mark).ids
    state = load_file(folder / "model.safetensors")
    state["model.embed_tokens.weight"][token] = math.nan
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_step_without_a_finite_gradient_is_skipped_and_said(tmp_path: Path, chat_dir: Path) -> None:
    model = poisoned(tmp_path / "model", chat_dir, "~")
    rows = [conversation(n) for n in range(20)]
    rows[6]["messages"][0]["content"] += "~"
    data = write(tmp_path / "data.jsonl", rows)
    config = sft_home(tmp_path / "home", model)
    told = Told()
    version = tuned(config, data, told, replace(SETTINGS, eval_share=0.0))
    skipped = [line for line in told.said if line.startswith("a step is skipped")]
    assert len(skipped) == 2, "once an epoch"
    assert all(", 7" in line or "lines 7" in line for line in skipped)
    assert version.metrics["skipped_steps"] == 2
    assert [p.loss for p in told.seen if p.loss is None] == [None, None]
    assert all(torch.isfinite(t).all() for t in weights(config, 1).values())
    assert math.isfinite(version.metrics["loss"])


def test_where_every_step_is_skipped_nothing_is_published(tmp_path: Path, chat_dir: Path) -> None:
    model = poisoned(tmp_path / "model", chat_dir, "q")
    config = sft_home(tmp_path / "home", model)
    short = write(tmp_path / "short.jsonl", [{"prompt": "q", "completion": "a"}])
    with pytest.raises(DataError, match="no step had a finite gradient"):
        tuned(config, short)
    rows = [{"prompt": f"~ {n} q", "completion": "a"} for n in range(30)]
    with pytest.raises(DataError, match="5 steps in a row"):
        tuned(config, write(tmp_path / "long.jsonl", rows), settings=replace(SETTINGS, batch_tokens=30), anew=True)
    with closing(Journal.open(config)) as journal:
        assert journal.versions.latest() == 0
        assert not journal.batches.any_open()


def test_a_damaged_checkpoint_costs_its_steps_and_nothing_else(
    tmp_path: Path, chat_dir: Path, home: Config, data: Path
) -> None:
    steady = sft_home(tmp_path / "steady", chat_dir)
    tuned(steady, data)
    stopped(home, data)
    [checkpoint] = (home.home / "sft").glob("step-*")
    (checkpoint / "optimizer.state").write_bytes(b"torn")
    told = Told()
    tuned(home, data, told)
    assert "goes on" not in " ".join(told.said)
    assert same(weights(steady, 1), weights(home, 1))


def test_a_torn_record_of_the_run_is_said(home: Config, data: Path) -> None:
    stopped(home, data)
    (home.home / "sft" / "run.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        tuned(home, data)
    assert tuned(home, data, anew=True).number == 1


def test_weights_that_are_not_here_cannot_be_tuned(home: Config, data: Path) -> None:
    elsewhere = home.model_copy(update={"engine": home.engine.model_copy(update={"kind": "upstream"})})
    with pytest.raises(ConfigError, match="weights are not here"):
        tuned(elsewhere, data)
    with pytest.raises(ConfigError, match="skills-only"):
        tuned(home.model_copy(update={"mode": "skills-only"}), data)


def test_a_look_says_what_would_be_learned_and_changes_nothing(home: Config, data: Path) -> None:
    said: list[str] = []
    look(home, data, SETTINGS, said.append)
    assert "18 conversations to learn" in said[-1]
    assert not home.home.exists()


def test_a_model_is_named_that_is_not_there(tmp_path: Path, data: Path) -> None:
    with pytest.raises(TurnwiseError, match="no-such-model"):
        tuned(sft_home(tmp_path / "home", tmp_path / "no-such-model"), data)


def test_the_gates_figures_are_told_and_decide_nothing(tmp_path: Path, chat_dir: Path, data: Path) -> None:
    strict = sft_home(tmp_path / "home", chat_dir, **{"gate.enabled": True, "gate.max_step_kl": 1e-9})
    told = Told()
    version = tuned(strict, data, told)
    assert any("general probe" in line for line in told.said)
    assert any(line.startswith("the gate would have refused it") for line in told.said)
    assert version.gate["accepted"] is True
    assert version.gate["would"]["accepted"] is False
    assert version.gate["would"]["step_kl"] > 0
