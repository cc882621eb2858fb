"""`turnwise forget --retrain`: the weights are those of a run that never saw the session, whatever interrupts it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from sqlalchemy import delete, insert, update
from typer.testing import CliRunner

from tests.training.homes import NO_LIMITS, Bench, feed, settings
from tests.training.tiny import make_model
from tests.versions.lives import GONE, close, forget, live, serving
from turnwise.cli.main import app
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal, schema
from turnwise.journal.deletion.erasing import erase_turns, keep_provenance
from turnwise.journal.packing import pack_json
from turnwise.journal.queue import batches, inputs
from turnwise.training.publish import version_dir
from turnwise.types import TurnState
from turnwise.versions.forgetting import forget_session
from turnwise.versions.rebuilding import rebuild as rebuilding

GATE = {**NO_LIMITS, "gate.enabled": True, "gate.answers": 2, "gate.answer_tokens": 16, "gate.max_step_kl": 1e-3}
"""A limit that lets only a part of a step pass, so that what the gate saw is in the weights."""


@pytest.mark.parametrize("method", ["binary", "combined"])
def test_the_weights_are_those_of_a_run_that_never_saw_the_session(make: Callable[..., Bench], method: str) -> None:
    bench, never = make("one", **{"train.method": method}), make("never", **{"train.method": method})
    live(bench)
    live(never, without={5})
    with_it = serving(bench)
    forget(bench)
    assert close(serving(bench), serving(never))
    assert not close(serving(bench), with_it)
    versions = {v.number: v for v in bench.journal.versions.all()}
    assert bench.journal.versions.latest() == 5
    assert (versions[5].parent, versions[4].parent) == (4, 1)
    assert "turn-5" not in versions[4].turn_ids and len(versions[4].turn_ids) == 3
    assert [n for n, v in versions.items() if v.pruned] == [2, 3]
    assert not version_dir(bench.config.versions_dir, 2).exists()
    assert bench.turns() == {TurnState.TRAINED: 11}


@pytest.mark.parametrize("gone", [5, 105])
def test_so_they_are_with_a_gate_that_cuts_steps_also_where_only_the_gate_saw_it(
    make: Callable[..., Bench], gone: int
) -> None:
    changes = GATE | {"gate.probes": 4}
    bench, never = make("one", **changes), make("never", **changes)
    live(bench, probes=True)
    live(never, without={gone}, probes=True)
    parts = [v.gate["alpha"] for v in bench.journal.versions.all()]
    assert any(part < 1 for part in parts), parts
    forget(bench, f"session-{gone}")
    assert close(serving(bench), serving(never))
    rebuilt = [v for v in bench.journal.versions.all() if not v.pruned and v.number > 3]
    assert len(rebuilt) == 2


def test_the_next_update_goes_on_as_it_would_have(make: Callable[..., Bench]) -> None:
    bench, never = make("one"), make("never")
    live(bench)
    live(never, without={5})
    forget(bench)
    for each in (bench, never):
        feed(each.journal, range(12, 16))
        # A rebuilding takes a number of the batches, by which the next one is shuffled.
        while len(each.journal.status.figures()["batches"]) and _batches(each) < _batches(bench):
            each.journal.batches.release(each.journal.tuning.take("test", 60, "run"))
        assert each.claim_and_work()
    assert close(serving(bench), serving(never))


def _batches(bench: Bench) -> int:
    return sum(bench.journal.status.figures()["batches"].values())


class Stopped(BaseException):
    """Stands for SIGKILL: nothing in the program handles it."""


@pytest.mark.slow
@pytest.mark.long
def test_killed_anywhere_the_old_versions_serve_and_the_same_command_goes_on(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    never = make("never")
    live(never, without={5})
    kills = 0
    while True:
        bench = make(f"killed-{kills}")
        live(bench)
        before = serving(bench)
        if not _killed_at(bench, kills * 3, monkeypatch):
            break
        published = bench.journal.versions.latest() > 3
        if not published:
            assert bench.journal.versions.latest() == 3 and close(serving(bench), before), f"kill {kills}"
        bench.expire_lease()
        if bench.journal.rebuilding.unfinished():
            forget(bench)
        assert close(serving(bench), serving(never)), f"kill {kills}"
        assert bench.journal.rebuilding.unfinished() == []
        assert bench.turns() == {TurnState.TRAINED: 11}, f"kill {kills}"
        kills += 1
    assert kills > 3


def _killed_at(bench: Bench, n: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Kill it at the n-th event: a tick, a write to the workspace, or a side of the last transaction."""
    count = 0

    def event() -> None:
        nonlocal count
        count += 1
        if count > n:
            raise Stopped

    def before(real: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **named: object) -> object:
            event()
            done = real(*args, **named)
            event()
            return done

        return counted

    keeper = rebuilding._keeper
    with monkeypatch.context() as patch:
        patch.setattr(rebuilding, "_keeper", lambda *args: before(keeper(*args)))
        patch.setattr(rebuilding.Workspace, "add", before(rebuilding.Workspace.add))
        patch.setattr(rebuilding.Workspace, "move_out", before(rebuilding.Workspace.move_out))
        patch.setattr(bench.journal.rebuilding, "publish", before(bench.journal.rebuilding.publish))
        patch.setattr(bench.journal.batches, "release", lambda *args: None)  # a killed process gives nothing back
        try:
            forget(bench)
        except Stopped:
            return True
    return False


def test_a_session_that_no_version_knows_is_forgotten_and_nothing_is_rebuilt(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    feed(bench.journal, range(20, 21))
    before = serving(bench)
    forget(bench, "session-20")
    assert bench.journal.versions.latest() == 3 and close(serving(bench), before)


def test_where_the_optimisers_state_is_gone_it_begins_earlier_and_says_so(make: Callable[..., Bench]) -> None:
    bench, never = make("one", **{"train.keep_checkpoints": 1}), make("never")
    live(bench)
    live(never, without={5})
    said = forget(bench)
    assert any("version 1 cannot be gone on from" in line for line in said)
    assert close(serving(bench), serving(never))


def test_a_damaged_start_is_left_for_the_one_before_it(make: Callable[..., Bench]) -> None:
    bench, never = make("one"), make("never")
    live(bench)
    live(never, without={5})
    weights = version_dir(bench.config.versions_dir, 1) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50])
    assert any("damaged" in line for line in forget(bench))
    assert close(serving(bench), serving(never))


def test_what_was_not_kept_is_said_before_anything_is_deleted(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    with bench.journal.store.transaction() as c:
        c.exec_driver_sql("UPDATE batches SET read = NULL WHERE id = 3")
    with pytest.raises(TurnwiseError, match="version 3 cannot be rebuilt"):
        forget(bench)
    assert bench.turns() == {TurnState.TRAINED: 12}
    assert bench.journal.rebuilding.unfinished() == []


def test_the_command_says_what_it_would_do_and_does_it(make: Callable[..., Bench], tiny: Path) -> None:
    bench = make("one")
    live(bench)
    config = bench.config.home / "config.toml"
    config.write_text(f'[model]\npath = "{tiny}"\n[train]\nlora_rank = 4\nwhen = "always"\n', encoding="utf-8")
    home = ["--home", str(bench.config.home)]
    said = CliRunner().invoke(app, ["forget", GONE, "--retrain", "--dry-run", *home])
    assert "would be rebuilt on version 1: version 2, version 3" in said.stdout, said.output
    done = CliRunner().invoke(app, ["forget", GONE, "--retrain", "--yes", *home])
    assert done.exit_code == 0, done.output
    assert "version 4 takes the place of version 2: 3 turns" in done.stdout
    assert "version 5 serves from now on" in done.stdout
    again = CliRunner().invoke(app, ["forget", GONE, "--retrain", "--yes", *home])
    assert again.exit_code == 1 and isinstance(again.exception, TurnwiseError)


def test_what_is_not_finished_is_said_and_a_trainer_that_went_on_meanwhile_is_rebuilt_as_well(
    make: Callable[..., Bench],
) -> None:
    bench, never = make("one"), make("never")
    live(bench)
    live(never, without={5})
    stop = threading.Event()
    stop.set()
    with pytest.raises(TurnwiseError, match="the same command goes on"):
        forget(bench, stop=stop)
    shown = CliRunner().invoke(app, ["status", "--home", str(bench.config.home)], env={"COLUMNS": "400"})
    assert f"turnwise forget {GONE} --retrain" in shown.stdout
    for each in (bench, never):
        feed(each.journal, range(12, 16))
        while _batches(each) < _batches(bench):  # the rebuilding took a number, by which the next one is shuffled
            each.journal.batches.release(each.journal.tuning.take("test", 60, "run"))
        assert each.claim_and_work()
    assert bench.journal.versions.latest() == 4, "the trainer went on"
    forget(bench)
    assert close(serving(bench), serving(never))
    assert {2, 3, 4} <= {v.number for v in bench.journal.versions.all() if v.pruned}


def test_a_trainer_at_work_is_waited_for_and_nothing_is_deleted(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    feed(bench.journal, range(12, 16))
    assert bench.journal.batches.claim("trainer", 60, at_once=True) is not None
    with pytest.raises(TurnwiseError, match="in the middle of batch"):
        forget(bench)
    assert _session_is_there(bench.journal)


def _session_is_there(journal: Journal) -> bool:
    return journal.sessions.find(GONE) == GONE


def test_each_update_reads_what_it_would_have_read_of_the_journal(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (batches, inputs):
        monkeypatch.setattr(module, "LAST_HINTS", 5)  # so that others come in for those that are gone
    changes = GATE | {"gate.probes": 4, "train.method": "combined"}
    bench, never = make("one", **changes), make("never", **changes)
    live(bench, probes=True)
    live(never, without={5, 105}, probes=True)
    for gone in (5, 105):
        forget_session(bench.config, bench.journal, f"session-{gone}")

    def read(of: Bench, batch: int) -> tuple[list[object], ...]:
        found = of.journal.updates.again(batch, [])
        samples: list[object] = [(s.turn_id, s.reward, s.hint) for s in found.samples]
        return samples, list(found.hints), list(found.hint_turns), [p.turn_id for p in found.probes]

    for batch in (1, 2, 3):
        assert read(bench, batch) == read(never, batch)
    samples, hints, _, probes = read(bench, 3)
    assert (len(samples), len(hints), len(probes)) == (4, 5, 4)


def test_turns_with_a_skill_in_their_prompts_that_was_made_of_it_are_left_out(make: Callable[..., Bench]) -> None:
    bench, never = make("one"), make("never")
    live(bench)
    live(never, without={5, 9})
    with bench.journal.store.transaction() as c:
        skill = {"id": 7, "name": "brief", "number": 1, "content": b"words", "made_by": "evolver", "created_at": 1.0}
        c.execute(insert(schema.skill_versions).values(skill))
        c.execute(insert(schema.skill_sources).values(version=7, turn_id="turn-5", session_id=GONE))
        c.execute(insert(schema.skill_uses).values(version=7, turn_id="turn-9"))
    forget(bench)
    assert close(serving(bench), serving(never))
    shown = bench.journal.sessions.show("session-9")
    assert shown is not None and shown["turns"][0]["exclusion"] == "forgotten by request"


def test_what_another_sessions_turn_learned_of_its_words_is_left_out(make: Callable[..., Bench]) -> None:
    """A verdict that is gone, since what came back was of the session, is no signal any more."""
    bench, never = make("one"), make("never")
    live(bench)
    live(never, without={5, 6})
    with bench.journal.store.transaction() as c:
        c.execute(delete(schema.verdicts).where(schema.verdicts.c.turn_id == "turn-6"))
    forget(bench)
    assert close(serving(bench), serving(never))
    assert bench.turns() == {TurnState.TRAINED: 10, TurnState.EXCLUDED: 1}


def test_turns_that_were_pruned_stand_in_the_way_and_that_is_said(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    with bench.journal.store.transaction() as c:
        keep_provenance(c, ["turn-9"])
        erase_turns(bench.journal.store, c, ["turn-9"])
    with pytest.raises(TurnwiseError, match="were pruned"):
        forget(bench)
    assert _session_is_there(bench.journal)


def test_a_fine_tuning_behind_the_session_cannot_be_rebuilt(make: Callable[..., Bench]) -> None:
    bench = make("one")
    live(bench)
    with bench.journal.store.transaction() as c:
        c.execute(update(schema.batches).where(schema.batches.c.id == 3).values(source=pack_json({"file": "a.jsonl"})))
    with pytest.raises(TurnwiseError, match=r"fine-tuned on the file a\.jsonl"):
        forget(bench)
    assert _session_is_there(bench.journal)


def test_a_base_model_that_changed_is_refused_by_its_digest(make: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make("one")
    live(bench)
    other = make_model(tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    save_file({name: tensor + 0.01 for name, tensor in weights.items()}, other / "model.safetensors", {"format": "pt"})
    bench.config = settings(bench.config.home, other)
    with pytest.raises(TurnwiseError, match="another base model"):
        forget(bench)
    assert _session_is_there(bench.journal)
