"""Environments that are made ahead: they are taken first, those that died are replaced, and none is left."""

from __future__ import annotations

from pathlib import Path

from tests.support.servers import wait_until
from turnwise.environments.base import Action, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.reserve import Reserve


class Prepared:
    """Says of itself what was done with it."""

    fails = False

    def __init__(self, folder: Path) -> None:
        self.folder, self.prepared, self.closed, self.fit = folder, False, False, True

    def prepare(self) -> None:
        if self.fails:
            raise InfrastructureFailure("no room")
        self.prepared = True

    def is_fit(self) -> bool:
        return self.prepared and self.fit

    def reset(self, task: Task) -> Observation:
        return Observation(task.prompt)

    def step(self, action: Action) -> tuple[Observation, bool]:
        return Observation(""), True

    def score(self) -> TaskOutcome:
        return TaskOutcome(0.0, {})

    def close(self) -> None:
        self.closed = True


def test_what_was_made_ahead_is_taken_and_what_died_is_replaced(tmp_path: Path) -> None:
    made: list[Prepared] = []

    def make(kind: str, folder: Path) -> Prepared:
        made.append(Prepared(folder))
        return made[-1]

    reserve = Reserve(make, tmp_path, 2)
    assert reserve.take("a")[1] is made[0] and not made[0].prepared, "the first is made when it is asked for"
    wait_until(lambda: reserve.waiting("a") == 2)
    made[1].fit = False
    folder, environment = reserve.take("a")
    assert environment is made[2] and folder == made[2].folder and made[2].prepared and made[1].closed
    wait_until(lambda: reserve.waiting("a") == 2)
    reserve.close()
    assert [one.closed for one in made] == [False, True, False, True, True], "those in use are their users'"
    assert reserve.take("a")[1] is made[5]
    reserve.close()


def test_a_machine_that_can_make_none_ahead_is_asked_again_when_one_is_needed(tmp_path: Path) -> None:
    made: list[Prepared] = []

    def make(kind: str, folder: Path) -> Prepared:
        made.append(Prepared(folder))
        made[-1].fails = len(made) > 1
        return made[-1]

    reserve = Reserve(make, tmp_path, 1)
    reserve.take("a")
    wait_until(lambda: len(made) == 2 and made[1].closed)
    assert reserve.waiting("a") == 0 and reserve.take("a")[1] is made[2]
    reserve.close()
