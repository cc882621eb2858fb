"""The judge loop against a real SQLite journal."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from turnwise.config import Config, JudgeConfig
from turnwise.journal import Answer, Journal, NewTurn, schema
from turnwise.journal.store import Store
from turnwise.judges.choice import SignalJudge
from turnwise.judges.model import JudgeUnavailable
from turnwise.judges.worker import Worker, run
from turnwise.messages import from_chat, saying
from turnwise.types import Exclusion, FinishReason, JudgeTask, TurnKind, TurnState, Verdict


async def until(condition: Callable[[], object]) -> None:
    """Wait for what another task does; at most 20 seconds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.01)


class Scripted:
    """A judge whose verdicts are given by the test."""

    who = "scripted"

    def __init__(self, answer: Callable[[JudgeTask], Awaitable[Verdict]]) -> None:
        self.answer = answer
        self.calls: list[str] = []

    async def judge(self, task: JudgeTask) -> Verdict:
        self.calls.append(task.turn_id)
        return await self.answer(task)

    async def close(self) -> None:
        return None


async def good(_: JudgeTask) -> Verdict:
    return Verdict(1, None, "model")


async def down(_: JudgeTask) -> Verdict:
    raise JudgeUnavailable("the endpoint is down")


def settings(home: Path, **judge: Any) -> Config:
    return Config(home=home, judge=JudgeConfig(**{"retry_s": 0.01, "max_attempts": 3, **judge}))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(settings(tmp_path))
    yield opened
    opened.close()


def _begin(journal: Journal, turn_id: str, next_state: list[dict[str, Any]], answers: str | None) -> None:
    journal.turns.begin(
        NewTurn(
            id=turn_id, session_id=f"s-{turn_id[:3]}", client="c", source="header", kind=TurnKind.MAIN, parent_id=None,
            branch_of=None, extends_parent=False, bridged=False, version=0, pinned=False, model="turnwise",
            request_hash=turn_id, retry_key=None, temperature=1.0, hint_at=1,
            messages=[saying("user", "How many apples?")], tools=None, params={}, prompt_ids=[1, 2],
            prompt_tokens=2, next_state=next_state, answers=answers,
        )
    )  # fmt: skip


def add_turn(journal: Journal, name: str, reply: str, finish: FinishReason = FinishReason.STOP) -> str:
    """A turn that was answered and has its next state."""
    turn = f"{name}-0"
    _begin(journal, turn, [], None)
    message = saying("assistant", "**Seven** apples")
    journal.turns.finish(turn, Answer(message, None, finish, [3, 4], [-0.1, -0.2]))
    _begin(journal, f"{name}-1", [from_chat({"role": "user", "content": reply})], turn)
    return turn


async def work_until(worker: Worker, done: Callable[[], bool]) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(worker.run(stop))
    try:
        await until(lambda: done() or running.done())
        assert not running.done(), running.exception()
    finally:
        stop.set()
        await asyncio.wait_for(running, 10)


def state(journal: Journal, turn: str) -> TurnState:
    found = journal.turns.get(turn)
    assert found is not None
    return found.state


async def test_a_reply_becomes_a_sample(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "No, that is wrong. Please say it in one plain sentence.")
    await work_until(
        Worker(settings(tmp_path), journal, SignalJudge()), lambda: state(journal, turn) is TurnState.READY
    )
    with journal.store.reading() as c:
        [(reward, hint)] = c.execute(select(schema.samples.c.reward, schema.samples.c.hint)).all()
    assert -1 < reward <= -0.55, "the score times the confidence in it"
    assert hint == "Please say it in one plain sentence."


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("you stopped in the middle of a sentence, that is no use", 0),
        ("you stopped in the middle of a sentence. and no, that is wrong, there are nine apples", -1),
    ],
)
async def test_a_limit_that_cut_the_answer_is_not_held_against_it(
    journal: Journal, tmp_path: Path, reply: str, reward: int
) -> None:
    turn = add_turn(journal, "aaa", reply, FinishReason.LENGTH)
    done = TurnState.READY if reward else TurnState.EXCLUDED
    await work_until(Worker(settings(tmp_path), journal, SignalJudge()), lambda: state(journal, turn) is done)
    with journal.store.reading() as c:
        assert c.execute(select(schema.verdicts.c.score)).scalars().all() == [reward]


async def test_every_turn_is_judged_once(journal: Journal, tmp_path: Path) -> None:
    turns = [add_turn(journal, f"t{i:02d}", "thanks, perfect") for i in range(12)]
    judge = Scripted(good)
    config = settings(tmp_path, concurrency=3)
    await work_until(Worker(config, journal, judge), lambda: all(state(journal, t) is TurnState.READY for t in turns))
    assert sorted(judge.calls) == turns


async def test_an_outage_is_retried_then_excluded_with_its_reason(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")
    judge = Scripted(down)
    await work_until(Worker(settings(tmp_path), journal, judge), lambda: state(journal, turn) is TurnState.EXCLUDED)
    found = journal.turns.get(turn)
    assert found is not None
    assert found.exclusion is Exclusion.NO_VALID_VOTE
    assert len(judge.calls) == 3


async def test_an_outage_that_ends_costs_nothing(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")
    judge = Scripted(lambda task: down(task) if task.attempts == 1 else good(task))
    await work_until(Worker(settings(tmp_path), journal, judge), lambda: state(journal, turn) is TurnState.READY)


class Watched(Journal):
    """Counts how often somebody looks for work."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.looks, claim = 0, self.judging.claim

        def counted(worker: str, limit: int, lease_s: float) -> list[JudgeTask]:
            found = claim(worker, limit, lease_s)
            self.looks += 1
            return found

        self.judging.claim = counted  # type: ignore[method-assign]


async def test_the_lease_is_kept_while_a_vote_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's time is the test's: it goes on by less than a lease, and by more than four of them in all."""
    monkeypatch.setattr("turnwise.judges.worker.POLL_S", 0.01)
    lease_s, now = 0.06, 1000.0
    config = settings(tmp_path, lease_s=lease_s)
    journal, others = (Watched.open(config, lambda: now) for _ in range(2))
    turn = add_turn(journal, "aaa", "hm")
    decided = asyncio.Event()

    async def slow(task: JudgeTask) -> Verdict:
        await decided.wait()
        return await good(task)

    def held_until() -> float:
        with journal.store.reading() as c:
            return c.execute(select(schema.turns.c.lease_until).where(schema.turns.c.id == turn)).scalar_one()

    first, second = Scripted(slow), Scripted(good)
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(config, journal, first).run(stop))
    await until(lambda: first.calls)
    other = asyncio.create_task(Worker(config, others, second).run(stop))
    for _ in range(6):
        now += 0.8 * lease_s
        await until(lambda: held_until() == now + lease_s)  # noqa: B023
        looks = others.looks
        await until(lambda: others.looks > looks + 1)  # noqa: B023
    decided.set()
    await until(lambda: state(journal, turn) is TurnState.READY)
    stop.set()
    await asyncio.wait_for(asyncio.gather(running, other), 10)
    assert (first.calls, second.calls) == ([turn], [])
    for opened in (journal, others):
        opened.close()


async def test_a_verdict_after_a_lost_lease_is_dropped(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")

    async def outrun(task: JudgeTask) -> Verdict:
        journal.verdicts.feedback(task.turn_id, -1, None)  # the person was faster
        return await good(task)

    await work_until(
        Worker(settings(tmp_path), journal, Scripted(outrun)), lambda: state(journal, turn) is TurnState.READY
    )
    with journal.store.reading() as c:
        assert c.execute(select(schema.samples.c.reward)).scalars().all() == [-1.0]


async def test_stopping_does_not_wait_for_a_hanging_vote(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")
    judge = Scripted(lambda _: asyncio.sleep(3600, Verdict(1, None, "model")))
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(settings(tmp_path), journal, judge).run(stop))
    await until(lambda: judge.calls)
    stop.set()
    await asyncio.wait_for(running, 10)
    assert state(journal, turn) is TurnState.JUDGING  # its lease runs out and another worker takes it


async def test_run_opens_the_journal_and_stops(tmp_path: Path) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(run(settings(tmp_path), stop))
    await until((tmp_path / "journal.db").exists)
    stop.set()
    await asyncio.wait_for(running, 20)
