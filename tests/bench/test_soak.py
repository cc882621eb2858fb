"""What a soak calls a fault is found where it is planted, and nowhere else. The soak itself is in tests/attacks."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.support.versions import answered, publish
from turnwise.bench.soak import checks
from turnwise.bench.soak.checks import Check, Kept
from turnwise.bench.soak.clock import Clock
from turnwise.bench.soak.disk import small_disk
from turnwise.bench.soak.ledger import Asked, FaultPhase, Ledger, Rollback
from turnwise.bench.soak.memory import MemorySample, draw, growth_since
from turnwise.bench.soak.wires import PATHS, Stream, body_of, text_of
from turnwise.journal import Journal, schema
from turnwise.journal.packing import pack_json
from turnwise.messages import saying
from turnwise.types import TurnState

KEY = "c0-0-0."


@dataclass
class Planted:
    """A soak of one answer and two versions in which all is well."""

    journal: Journal
    ledger: Ledger
    asked: Asked

    def kept(self) -> Kept:
        return checks.read(self.journal)

    def all(self, serving: int = 2, answered_by: int = 2) -> list[Check]:
        kept = self.kept()
        return [
            checks.answers_are_kept(self.ledger.asked, kept),
            checks.answers_are_kept_once(self.ledger.asked, kept),
            checks.trained_once(kept),
            checks.batches_ended(kept),
            checks.nothing_hung(self.ledger.asked),
            checks.refusals_are_announced(self.ledger),
            checks.everything_recovered(self.ledger),
            checks.last_version_serves(self.ledger, kept, serving, answered_by),
            checks.journal_is_whole(kept),
            checks.it_learned(kept),
        ]

    def found(self, **serving: int) -> list[str]:
        return [check.name for check in self.all(**serving) if check.faults]


@pytest.fixture
def planted(journal: Journal) -> Planted:
    turn = answered(journal, messages=[saying("user", f"hi ({KEY})")])
    publish(journal)
    publish(journal)
    ledger = Ledger()
    asked = Asked(KEY, "chat", False, 1.0, False, ended_s=2.0, status=200, turn_id=turn, text="yes", whole=True)
    ledger.add(asked)
    return Planted(journal, ledger, asked)


def change(planted: Planted, table: str, **values: object) -> None:
    with planted.journal.store.transaction() as c:
        c.execute(update(schema.metadata.tables[table]).values(values))


def test_where_all_is_well_nothing_is_found(planted: Planted) -> None:
    assert planted.found() == []
    assert all(check.looked_at for check in planted.all() if check.name not in ("faults it did not recover from",))


def test_an_answer_that_is_gone_or_another_is_lost(planted: Planted) -> None:
    planted.asked.turn_id = "turn-nobody-knows"
    assert planted.found() == ["answers lost", "answers kept twice"]


def test_an_answer_of_another_text_is_lost(planted: Planted) -> None:
    planted.asked.text = "no"
    assert planted.found() == ["answers lost"]


def test_a_request_that_counts_twice_is_found(planted: Planted) -> None:
    answered(planted.journal, session_id="another", messages=[saying("user", f"hi ({KEY})")])
    assert planted.found() == ["answers kept twice"]


def test_a_turn_in_two_versions_is_found(planted: Planted) -> None:
    turns = {v.batch_id: planted.kept().batch_turns[v.batch_id] for v in planted.kept().versions}
    change(planted, "batches", turn_ids=pack_json(next(iter(turns.values()))))
    assert planted.found() == ["turns trained twice"]


def test_a_turn_that_a_late_score_took_into_a_second_version_is_no_fault(planted: Planted) -> None:
    [turn] = planted.journal.versions.all()[-1].turn_ids
    assert "taken" in planted.journal.verdicts.feedback(turn, -1, None)
    publish(planted.journal, turn)
    assert [turn in v.turn_ids for v in planted.journal.versions.all()] == [False, True, True]
    assert planted.found(serving=3, answered_by=3) == []


def test_a_batch_without_an_end_is_found(planted: Planted) -> None:
    change(planted, "batches", state="open")
    assert planted.found() == ["turns trained twice", "batches without their end"]
    change(planted, "batches", state="lost")
    assert "batches without their end" in planted.found()


def test_the_last_batch_may_wait_for_the_next_trainer(planted: Planted) -> None:
    turn = answered(planted.journal, session_id="another")
    planted.journal.verdicts.feedback(turn, 1, None)
    changed = planted.journal.store.config.train.model_copy(update={"min_batch": 1})
    planted.journal.store.config = planted.journal.store.config.model_copy(update={"train": changed})
    assert planted.journal.batches.claim("trainer", 60) is not None
    assert planted.found() == []


def test_a_turn_that_stays_leased_is_found(planted: Planted) -> None:
    with planted.journal.store.transaction() as c:
        of_batches = schema.turns.c.state == TurnState.TRAINED
        c.execute(update(schema.turns).where(of_batches).values(state=TurnState.LEASED))
    assert planted.found() == ["batches without their end"]


def test_a_hang_and_a_refusal_without_a_cause_are_found(planted: Planted) -> None:
    planted.ledger.add(Asked("c1-0-0.", "chat", False, 1.0, False, ended_s=200.0, late=True))
    assert planted.found() == ["requests that hung"]
    for status in (500, 503, 507, None):
        planted.ledger.asked[1:] = [Asked("c1-0-0.", "chat", False, 1.0, False, ended_s=2.0, status=status)]
        assert planted.found() == ["refusals that nothing explains"], status


@pytest.mark.parametrize(
    ("kind", "about", "status"),
    [("kill", "engine", 503), ("kill", "gateway", None), ("disk", "full", 507), ("hang", "trainer", 507)],
)
def test_a_refusal_with_its_cause_is_none(planted: Planted, kind: str, about: str, status: int | None) -> None:
    refused = Asked("c1-0-0.", "chat", False, 5.0, False, ended_s=6.0, status=status, error="refused")
    planted.ledger.add(refused)
    planted.ledger.phases.append(FaultPhase(kind, about, 1.0, 4.0))
    assert planted.found() == []
    planted.ledger.phases[0] = FaultPhase("rollback", "v1", 1.0, 4.0)
    assert planted.found() == ["refusals that nothing explains"]
    planted.ledger.asked[1] = replace(refused, status=500)
    planted.ledger.phases[0] = FaultPhase(kind, about, 1.0, 4.0)
    assert planted.found() == ["refusals that nothing explains"], "nothing explains a 500"


def test_a_fault_that_it_does_not_recover_from_is_found(planted: Planted) -> None:
    planted.ledger.phases.append(FaultPhase("kill", "engine", 1.0))
    assert planted.found() == ["faults it did not recover from"]


def test_the_wrong_version_is_found(planted: Planted) -> None:
    assert planted.found(serving=1, answered_by=1) == ["wrong versions serving"]
    assert planted.found(serving=2, answered_by=1) == ["wrong versions serving"]
    planted.ledger.rollbacks.append(Rollback(to=1, newest=2, clear=True))
    assert planted.found(serving=1, answered_by=1) == []
    assert planted.found(serving=2, answered_by=2) == ["wrong versions serving"]
    planted.ledger.rollbacks[0] = Rollback(to=0, newest=1, clear=True)
    assert planted.found() == [], "version 2 came after the rollback"


def test_memory_that_grows_is_found_after_the_warm_up(tmp_path: Path) -> None:
    def life(mb_a_minute: float) -> list[MemorySample]:
        started = [MemorySample(t, "gateway", 1, 50.0 + t) for t in range(0, 100, 2)]
        return started + [MemorySample(t, "gateway", 1, 200 + mb_a_minute * t / 60) for t in range(100, 1300, 2)]

    flat, grows = growth_since(life(0.5), 0.0), growth_since(life(30), 0.0)
    assert checks.memory_is_flat(flat).faults == []
    assert len(checks.memory_is_flat(grows).faults) == 1
    short = growth_since(life(30)[:80], 0.0)
    assert not short[0].judged and checks.memory_is_flat(short).faults == []
    ledger = Ledger()
    ledger.phases.append(FaultPhase("kill", "engine", 5.0, 9.0))
    draw(life(0.5), ledger, 100.0, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_a_program_with_a_clock_of_its_own(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    code = "import time; input(); print(time.time(), time.time_ns(), time.monotonic()); input(); print(time.time())"
    environment = {**os.environ, **clock.environment}
    with subprocess.Popen(
        [sys.executable, "-uc", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        clock.step(3600)
        print(file=program.stdin, flush=True)
        wall, ns, monotonic = map(float, program.stdout.readline().split())
        clock.step(-3600)
        print(file=program.stdin, flush=True)
        after = float(program.stdout.readline())
        program.wait(20)
    import time

    assert abs(wall - time.time() - 3600) < 120 and abs(ns / 1e9 - wall) < 60
    assert abs(after - time.time() + 3600) < 120
    assert abs(monotonic - time.monotonic()) < 120, "a monotonic clock is not stepped"


def test_a_disk_becomes_full_and_free_and_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    with small_disk(place) as disk:
        if disk is None:
            pytest.skip("only root on Linux may mount one")
        assert disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (place / "much").write_bytes(b"x" * 1_000_000)
        assert disk.free()
        (place / "much").write_bytes(b"x" * 1_000_000)
        assert place.is_mount()
    assert not place.is_mount()


@pytest.mark.parametrize("wire", PATHS)
def test_a_conversation_with_a_tool_in_every_format(wire: str) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "call": "b", "content": "c"}]
    body = body_of(wire, messages, 4, True, True)
    assert body["stream"] is True and len(body["tools"]) == 1
    assert len(body["input" if wire == "responses" else "messages"]) == 3


def test_answers_are_read_in_every_format() -> None:
    assert text_of("chat", {"choices": [{"message": {"content": None}}]}) == ""
    assert text_of("messages", {"content": [{"type": "text", "text": "a"}, {"type": "tool_use"}]}) == "a"
    item = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
    assert text_of("responses", {"output": [{"type": "reasoning"}, item]}) == "a"
    stream = Stream("chat")
    stream.line('data: {"choices": [{"delta": {"content": "a"}}]}')
    assert (stream.text, stream.whole) == ("a", False)
    stream.line('data: {"error": {"message": "x"}}')
    stream.line("data: [DONE]")
    assert (stream.whole, stream.error) == (False, '{"message": "x"}')
