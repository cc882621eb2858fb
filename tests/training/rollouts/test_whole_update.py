"""From recorded rollouts to a published version: beside a person's turns, killed and resumed, and with a bad step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import select

from tests.support.rows import turn_row
from tests.support.versions import new_turn
from tests.training.homes import Bench, Killed, feed, same, settings
from tests.training.tiny import sample
from turnwise.journal import Answer, Journal
from turnwise.journal.schema.rollouts import task_groups
from turnwise.messages import saying
from turnwise.training.backends.local import LocalBackend
from turnwise.types import FinishReason, Rollout


def play(
    journal: Journal,
    group: str,
    outcomes: list[float | None],
    first: int,
    steps: int = 2,
    odd: dict[str, list[int]] | None = None,
) -> list[str]:
    """Record a group of rollouts with ids of `tiny`; gives their turns."""
    turns = []
    for i, outcome in enumerate(outcomes):
        session, before = f"{group}-{i}", None
        for step in range(steps):
            one = sample(first + 10 * i + step)
            new = new_turn(
                f"{session}-{step}",
                session_id=session,
                parent_id=before,
                prompt_ids=one.prompt_ids,
                prompt_tokens=len(one.prompt_ids),
                rollout=Rollout("web", group, group, len(outcomes)),
                version=journal.versions.latest(),
            )
            journal.turns.begin(new)
            response = (odd or {}).get(new.id, one.response_ids)
            logprobs = [-4.0] * len(response)
            journal.turns.finish(new.id, Answer(saying("assistant", "…"), None, FinishReason.STOP, response, logprobs))
            before = new.id
            turns.append(new.id)
        journal.rollouts.post(session, outcome, None if outcome is not None else "the box broke")
    return turns


def bench(home: Path, model: Path, **changes: object) -> Bench:
    return Bench(settings(home, model, **({"streams.web.groups": 2, "gate.enabled": False} | changes)))


def states(one: Bench, turns: list[str]) -> list[str]:
    return [turn_row(one.journal, turn).state for turn in turns]


def test_a_version_learns_from_rollouts_and_from_a_person_in_one_update(tmp_path: Path, tiny_dir: Path) -> None:
    one = bench(tmp_path, tiny_dir)
    feed(one.journal, range(4))
    turns = play(one.journal, "x", [1.0, 0.0], 20) + play(one.journal, "y", [0.0, 0.5, None], 60)
    assert one.claim_and_work()
    assert states(one, turns) == ["trained"] * 8 + ["excluded"] * 2
    version = one.journal.versions.get(1)
    assert version is not None
    assert len(version.turn_ids) == 12
    assert version.metrics["web_pg"] != 0
    assert version.metrics["samples"] == 12
    assert version.metrics["score_weight"] == 4, "an outcome is no score of the person's"
    with one.journal.store.reading() as c:
        assert set(c.execute(select(task_groups.c.state)).scalars()) == {"used"}
    assert not one.claim_and_work()


def test_what_won_is_likelier_in_the_version_that_learned_from_it(tmp_path: Path, tiny_dir: Path) -> None:
    one = bench(tmp_path, tiny_dir, **{"streams.web.groups": 1})
    play(one.journal, "x", [1.0, 0.0], 20, steps=1)
    assert one.claim_and_work()
    moved = one.weights(1)
    assert any(bool(t.abs().max() > 0) for name, t in moved.items() if "lora_B" in name)


def test_killed_between_two_steps_it_comes_to_the_same_weights(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of whole groups, and two passes over them."""
    parts = {"streams.web.minibatch": 1}
    whole = bench(tmp_path / "whole", tiny_dir, **parts)
    killed = bench(tmp_path / "killed", tiny_dir, **parts)
    for one in (whole, killed):
        play(one.journal, "x", [1.0, 0.0], 20)
        play(one.journal, "y", [0.0, 0.5], 60)
    assert whole.claim_and_work()
    step, made = LocalBackend.step, 0

    def dies(self: LocalBackend, *given: Any) -> Any:
        nonlocal made
        made += 1
        if made == 3:
            raise Killed
        return step(self, *given)

    monkeypatch.setattr(LocalBackend, "step", dies)
    with pytest.raises(Killed):
        killed.claim_and_work()
    killed.expire_lease()
    assert killed.claim_and_work()
    assert same(whole.weights(1), killed.weights(1))


def test_a_step_that_the_model_cannot_read_is_left_out_and_the_group_trains(tmp_path: Path, tiny_dir: Path) -> None:
    one = bench(tmp_path, tiny_dir, **{"streams.web.groups": 1})
    turns = play(one.journal, "x", [1.0, 0.0], 20, odd={"x-0-1": [5, 99_999]})
    assert one.claim_and_work()
    assert states(one, turns) == ["trained", "excluded", "trained", "trained"]
    assert all(torch.isfinite(t).all() for t in one.weights(1).values())


def test_a_group_that_the_gate_refused_is_tried_again_whole(tmp_path: Path, tiny_dir: Path) -> None:
    one = bench(tmp_path, tiny_dir, **{"streams.web.groups": 1})
    turns = play(one.journal, "x", [1.0, 0.0], 20)
    batch = one.journal.batches.claim("trainer", 60)
    assert batch is not None
    one.journal.batches.refuse(batch, {"accepted": False, "reasons": ["too far"]}, {})
    assert states(one, turns) == ["ready"] * 4
    again = one.journal.batches.claim("trainer", 60)
    assert again is not None
    assert [s.turn_id for s in again.samples] == turns
