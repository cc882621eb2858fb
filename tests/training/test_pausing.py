"""A trainer that has no leave stands between two micro-batches, and comes to the weights it would have come to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import wait_until
from tests.training.homes import Bench, Killed, feed, same
from turnwise.errors import ConfigError
from turnwise.journal import Journal
from turnwise.journal.deletion.forgetting import forget
from turnwise.journal.queue.refusals import configuration
from turnwise.journal.skills.records import SkillChange
from turnwise.schedule.asked import ask_to_train, train_request
from turnwise.training import worker
from turnwise.training.leave import Leave
from turnwise.training.update import Trainer
from turnwise.training.worker import run, work
from turnwise.types import SkillState, TurnState


class Window:
    """Stands in for the watch: open or shut as a test says, and shut by itself at the n-th question of a trainer."""

    def __init__(self, shut_at: int | None = None) -> None:
        self.open, self.questions, self.shut_at = True, 0, shut_at
        self.looks: list[tuple[bool, bool]] = []

    def look(self, *, due: bool, stopped: bool) -> Any:
        self.looks.append((due, stopped))
        if due and not stopped:
            self.questions += 1
            if self.questions == self.shut_at:
                self.open = False
        return self

    @property
    def may_train(self) -> bool:
        return self.open

    why = "A request was here 3 seconds ago."

    def close(self) -> None:
        pass


def with_window(make: Callable[..., Bench], name: str, window: Window, **changes: object) -> tuple[Bench, Leave]:
    bench = make(name, **{"train.when": "idle", **changes})
    return bench, Leave(bench.config, bench.journal, window)  # type: ignore[arg-type]


def once(bench: Bench, leave: Leave) -> None:
    batch = bench.journal.batches.claim("trainer", 60)
    assert batch is not None
    trainer = Trainer(bench.config, Path(bench.config.model.path))
    work(bench.config, bench.journal, trainer, batch, bench.stop, bench.clock, leave)


class Standing:
    """A trainer in a thread, that stands at the n-th tick of its update until the test lets it go on."""

    def __init__(self, bench: Bench, leave: Leave, window: Window) -> None:
        self.bench, self.window = bench, window
        self.thread = threading.Thread(target=once, args=(bench, leave), daemon=True)
        self.thread.start()
        wait_until(lambda: self.said().get("state") == "paused" or not self.thread.is_alive(), 60)

    def said(self) -> dict[str, Any]:
        return self.bench.journal.status.figures()["loops"].get("trainer", {})

    def go_on(self) -> None:
        self.window.open = True
        self.join()

    def join(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()


def ticks(make: Callable[..., Bench]) -> tuple[Bench, int]:
    """A home whose update was never held up, and how often it could have been.

    The first update on a machine reads the labelled texts by which wishes are told, which is kept: it is not counted.
    """
    for name in ("first", "reference"):
        window = Window()
        bench, leave = with_window(make, name, window)
        feed(bench.journal, range(4))
        once(bench, leave)
    assert bench.journal.versions.latest() == 1
    return bench, window.questions


def test_a_pause_anywhere_changes_no_weight(make: Callable[..., Bench]) -> None:
    reference, most = ticks(make)
    assert most > 8
    for at in range(1, most + 1, 2):
        window = Window(shut_at=at)
        bench, leave = with_window(make, f"paused-{at}", window)
        feed(bench.journal, range(4))
        trainer = Standing(bench, leave, window)
        said = trainer.said()
        assert said["state"] == "paused" and said["for"] == window.why, said
        assert window.questions == at, "it stands before the next micro-batch"
        trainer.go_on()
        assert same(bench.weights(1), reference.weights(1)), at
        assert bench.turns() == {TurnState.TRAINED: 4}


def test_stopped_while_it_stands_the_next_one_comes_to_the_same_weights(make: Callable[..., Bench]) -> None:
    reference, most = ticks(make)
    for at in (3, most - 2):
        window = Window(shut_at=at)
        bench, leave = with_window(make, f"stopped-{at}", window)
        feed(bench.journal, range(4))
        trainer = Standing(bench, leave, window)
        bench.stop.set()
        trainer.join()
        assert bench.turns() == {TurnState.LEASED: 4}
        bench.stop.clear()
        window.open = True
        once(bench, leave)
        assert same(bench.weights(1), reference.weights(1)), at


def test_killed_while_it_stands_the_next_one_comes_to_the_same_weights(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, most = ticks(make)
    for at in range(1, most + 1, 3):
        window = Window(shut_at=at)
        bench, leave = with_window(make, f"killed-{at}", window)
        feed(bench.journal, range(4))

        def dies(_seconds: float) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(worker.time, "sleep", dies)
            with pytest.raises(Killed):
                once(bench, leave)
        bench.expire_lease()
        window.open = True
        once(bench, leave)
        assert same(bench.weights(1), reference.weights(1)), at


def test_its_lease_is_kept_however_long_it_stands(make: Callable[..., Bench]) -> None:
    window = Window(shut_at=4)
    bench, leave = with_window(make, "long", window)
    feed(bench.journal, range(4))
    trainer = Standing(bench, leave, window)
    for _ in range(10):
        bench.clock.now += 30
        wait_until(lambda: bench.journal.batches.claim("another", 60) is None)
        threading.Event().wait(0.5)
    trainer.go_on()
    assert bench.journal.versions.latest() == 1
    assert bench.journal.versions.all()[0].metrics["seconds"] < 5, "standing is no training"


def bump(bench: Bench) -> None:
    """A skill is made of a failure that is in no batch: generation 1 begins."""
    feed(bench.journal, range(50, 51))
    change = SkillChange("brief", SkillState.ACTIVE, b"---\nname: brief\n---\n", (("turn-50", "session-50"),))
    bench.journal.skills.evolve(bench.journal.skills.current(), "failures", [change])


def test_a_batch_that_was_claimed_before_a_bump_is_not_trained_after_it(make: Callable[..., Bench]) -> None:
    window = Window(shut_at=4)
    bench, leave = with_window(make, "bumped", window)
    feed(bench.journal, range(4))
    trainer = Standing(bench, leave, window)
    bump(bench)
    trainer.go_on()
    assert window.questions == 4, "not another micro-batch after the pause"
    assert bench.journal.versions.latest() == 0
    assert bench.turns() == {TurnState.EXCLUDED: 5}
    assert bench.journal.batches.claim("trainer", 60) is None


def test_what_is_forgotten_while_it_stands_is_not_trained(make: Callable[..., Bench]) -> None:
    window = Window(shut_at=4)
    bench, leave = with_window(make, "forgotten", window)
    feed(bench.journal, range(4))
    trainer = Standing(bench, leave, window)
    forget(bench.journal, "session-0")
    trainer.go_on()
    assert window.questions == 4
    assert bench.journal.versions.latest() == 0
    assert bench.turns() == {TurnState.READY: 3}


def test_a_rollback_while_it_stands_takes_its_batch_back(make: Callable[..., Bench]) -> None:
    window = Window(shut_at=4)
    bench, leave = with_window(make, "rolled-back", window)
    feed(bench.journal, range(4))
    trainer = Standing(bench, leave, window)
    bench.journal.versions.serve(0)
    trainer.go_on()
    assert window.questions == 4
    assert bench.turns() == {TurnState.READY: 4}


def loop(bench: Bench, leave: Leave | None = None) -> threading.Thread:
    thread = threading.Thread(target=run, args=(bench.config, bench.stop, leave), daemon=True)
    thread.start()
    return thread


def test_a_shut_window_takes_no_batch_and_says_why(make: Callable[..., Bench]) -> None:
    window = Window()
    window.open = False
    bench, leave = with_window(make, "shut", window)
    feed(bench.journal, range(4))
    thread = loop(bench, leave)
    wait_until(lambda: bench.journal.status.figures()["loops"].get("trainer", {}).get("for") == window.why, 60)
    assert bench.turns() == {TurnState.READY: 4}
    window.open = True
    wait_until(lambda: bench.journal.versions.latest() == 1, 60)
    bench.stop.set()
    thread.join(30)


@pytest.mark.parametrize("when", ["manual", "idle", "always"])
def test_asked_for_it_trains_at_once_also_less_than_a_batch(make: Callable[..., Bench], when: str) -> None:
    window = Window()
    window.open = False
    bench = make(when, **{"train.when": when, "train.max_age_s": 1e9})
    feed(bench.journal, range(2))
    thread = loop(bench, Leave(bench.config, bench.journal, window))  # type: ignore[arg-type]
    wait_until(lambda: bench.journal.status.figures()["loops"].get("trainer", {}).get("state") == "waiting", 60)
    assert bench.journal.versions.latest() == 0
    asked = ask_to_train(bench.journal)
    wait_until(lambda: bench.journal.versions.latest() == 1, 60)

    def answered() -> bool:
        request = train_request(bench.journal)
        return request is not None and request.id == asked and request.step == "done"

    wait_until(answered, 30)
    request = train_request(bench.journal)
    assert request is not None and "version 1 serves" in request.said
    assert ask_to_train(bench.journal) != asked, "what is done is asked anew"
    feed(bench.journal, range(2, 4))
    wait_until(lambda: bench.journal.versions.latest() == 2, 60)
    bench.stop.set()
    thread.join(30)


def test_asked_for_it_is_not_done_while_a_killed_trainers_batch_is_open(make: Callable[..., Bench]) -> None:
    bench = make("manual", **{"train.when": "manual", "train.max_age_s": 1e9, "train.lease_s": 4.0})
    feed(bench.journal, range(2))
    with closing(Journal.open(bench.config)) as killed:  # with the clock that the loop has
        assert killed.batches.claim("one that was killed", 4.0, True) is not None
    asked = ask_to_train(bench.journal)
    thread = loop(bench, Leave(bench.config, bench.journal))

    def done() -> bool:
        request = train_request(bench.journal)
        assert request is not None and request.id == asked
        if request.step == "done":
            assert bench.journal.versions.latest() == 1, "it is taken up once its lease is over"
        return request.step == "done"

    wait_until(done, 60)
    bench.stop.set()
    thread.join(30)


def test_who_asks_meanwhile_joins(make: Callable[..., Bench]) -> None:
    bench = make()
    assert ask_to_train(bench.journal) == ask_to_train(bench.journal)
    bench.clock.now += 601
    first = train_request(bench.journal)
    assert first is not None and not first.open, "nobody has waited for so long"
    assert ask_to_train(bench.journal) != first.id


def test_when_is_no_part_of_what_a_refusal_depends_on(make: Callable[..., Bench]) -> None:
    """What the gate refused stays refused when only the hour is changed."""
    idle, always = make("idle", **{"train.when": "idle"}).config, make("always").config
    assert configuration(idle) == configuration(always)
    assert configuration(idle) != configuration(make("lr", **{"train.lr": 1e-5}).config)


def test_with_off_there_is_no_loop(make: Callable[..., Bench]) -> None:
    bench = make(**{"train.when": "off"})
    with pytest.raises(ConfigError, match=r'train\.when is "off"'):
        Leave(bench.config, bench.journal)
