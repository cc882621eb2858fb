"""The gateway's own traffic: noted seldom and at once, and read as a sensor."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

from tests.conftest import Running
from tests.support.servers import wait_until, wait_until_said
from turnwise.errors import JournalUnavailable
from turnwise.journal import Journal
from turnwise.schedule.traffic import RECENT_S, STATUS_KEY, LastRequest, Traffic, last_request, reading
from turnwise.schedule.window import SensorOpinion


class Notes:
    """Takes notes, and has a clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.written: list[tuple[float, int]] = []
        self.fault: JournalUnavailable | None = None
        self.traffic = Traffic(self.note, lambda: self.now)

    def note(self, under_way: int) -> Future[None]:
        done: Future[None] = Future()
        if self.fault is not None:
            done.set_exception(self.fault)
        else:
            self.written.append((self.now, under_way))
            done.set_result(None)
        return done


def test_the_first_request_is_noted_at_once_and_others_at_most_once_a_second() -> None:
    notes = Notes()
    for n in range(100):
        notes.traffic.began(f"turn-{n}")
        notes.traffic.ended(f"turn-{n}")
        notes.now += 0.01
    assert notes.written == [(100.0, 1)]
    notes.now += 1
    notes.traffic.tick()
    assert notes.written[1:] == [(notes.now, 0)], "the last of them is not forgotten"
    notes.now += 100
    notes.traffic.tick()
    assert len(notes.written) == 2


def test_a_long_answer_is_noted_again_and_again() -> None:
    notes = Notes()
    notes.traffic.began("turn")
    for _ in range(300):
        notes.now += 1
        notes.traffic.tick()
    assert 300 / RECENT_S < len(notes.written) <= 31
    assert max(b - a for (a, _), (b, _) in zip(notes.written, notes.written[1:], strict=False)) < RECENT_S


def test_the_end_of_what_was_no_persons_is_no_news() -> None:
    notes = Notes()
    notes.traffic.ended("side")
    assert notes.written == []


def test_a_note_that_could_not_be_written_is_written_later() -> None:
    notes = Notes()
    notes.fault = JournalUnavailable("the disk is full")
    notes.traffic.began("turn")
    notes.fault = None
    notes.now += 1
    notes.traffic.tick()
    assert notes.written == [(101.0, 1)]


@pytest.mark.parametrize(
    ("last", "opinion", "words"),
    [
        (None, "opens", "No request has come"),
        (LastRequest(1, 5.0), "closes", "is being answered"),
        (LastRequest(0, 59.0), "closes", "59 seconds ago"),
        (LastRequest(0, 61.0), "none", "after 10 the gateway is quiet"),
        (LastRequest(3, 599.0), "none", "after 10"),
        (LastRequest(0, 601.0), "opens", "No request for 10 minutes"),
    ],
)
def test_what_the_gateway_says(last: LastRequest | None, opinion: str, words: str) -> None:
    said = reading(last, 10.0)
    assert said.opinion is SensorOpinion(opinion) and words in said.why


def noted(journal: Journal) -> tuple[dict, float] | None:
    return journal.status.last(STATUS_KEY)


def test_a_persons_request_is_noted_at_its_start_and_housekeeping_is_not(gateway: Running) -> None:
    ask = [{"role": "user", "content": "say: hello"}]
    gateway.client(**{"X-Turn-Type": "side"}).chat.completions.create(model="turnwise", messages=ask)  # type: ignore[arg-type]
    wait_until(lambda: "gateway" in gateway.journal.status.figures()["loops"])
    assert noted(gateway.journal) is None and last_request(gateway.journal) is None
    with gateway.client().chat.completions.create(model="turnwise", messages=ask, stream=True) as stream:  # type: ignore[arg-type]
        next(iter(stream))
        wait_until(lambda: noted(gateway.journal) is not None)
        last = last_request(gateway.journal)
        assert last is not None and reading(last, 10.0).opinion is SensorOpinion.CLOSES
        list(stream)
    wait_until(lambda: (last_request(gateway.journal) or LastRequest(1, 0)).under_way == 0)


def test_housekeeping_that_is_sent_again_is_no_sign_of_a_person(gateway: Running) -> None:
    ask = [{"role": "user", "content": "say: hello"}]
    for _ in range(2):
        again = {"X-Turn-Type": "side", "Idempotency-Key": "k1"}
        gateway.client(**again).chat.completions.create(model="turnwise", messages=ask)  # type: ignore[arg-type]
    assert len(gateway.stub.sampled) == 1, "the second was answered from the record"
    wait_until_said(gateway.journal, "gateway", since=time.monotonic())
    assert noted(gateway.journal) is None


def test_a_request_that_is_broken_off_is_under_way_no_longer(gateway: Running) -> None:
    ask = [{"role": "user", "content": "say: " + "word " * 50}]
    stream = gateway.client().chat.completions.create(model="turnwise", messages=ask, stream=True)  # type: ignore[arg-type]
    next(iter(stream))
    stream.close()
    wait_until(lambda: (last_request(gateway.journal) or LastRequest(1, 0)).under_way == 0)
