"""A week with the real gateway, judge, evolver and small model: skills come, are used, leave, and come back.

The clock is the test's. What goes wrong is scripted, and so is the model that writes skills; all the rest is real.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.evolving.endpoint import ScriptedEndpoint
from tests.evolving.hostile import reply
from tests.support.processes import engine_process
from tests.support.servers import running, wait_until
from turnwise.config import Config, load_config
from turnwise.evolving.endpoint import SkillWriter
from turnwise.evolving.worker import Evolver
from turnwise.gateway import server
from turnwise.journal import Journal
from turnwise.judges.choice import SignalJudge
from turnwise.judges.worker import Worker
from turnwise.skills.library import Library
from turnwise.skills.serving import HEAD
from turnwise.types import SkillState

DAY_S = 86_400.0
WRONG = "no, that is wrong"
DATES = """# Dates in reports

1. Write year-month-day.
2. Name the time zone.
3. Keep the year.

Example: 2026-11-22
Not: 22/11"""
DATE_SKILL = reply(name="tidy-dates", description="How to write dates in reports", content=DATES)
RICE_SKILL = reply()


@dataclass
class Week:
    """A person at a running turnwise."""

    client: OpenAI
    journal: Journal
    library: Library
    config: Config
    tokenizer: Tokenizer
    now: list[float]
    sessions: Any = field(default_factory=itertools.count)

    def ask(self, question: str, then: str | None = None, **headers: str) -> str:
        """A question, and perhaps what the person says of the answer; gives the turn that answered the question."""
        session = {"X-Session-Id": f"session-{next(self.sessions)}"} | headers
        messages: list[Any] = [{"role": "user", "content": question}]
        first = self._complete(messages, session)
        if then is not None:
            said = first.choices[0].message.content or ""
            self._complete(
                [*messages, {"role": "assistant", "content": said}, {"role": "user", "content": then}], session
            )
        return first.id.removeprefix("chatcmpl-")

    def _complete(self, messages: list[Any], headers: dict[str, str]) -> Any:
        return self.client.chat.completions.create(
            model="turnwise", messages=messages, max_tokens=8, extra_headers=headers
        )

    def prompt(self, turn_id: str) -> str:
        turn = self.journal.turns.get(turn_id)
        assert turn is not None
        return self.tokenizer.decode(turn.prompt_ids, skip_special_tokens=False)

    def states(self) -> dict[str, SkillState]:
        return {name: known.state for name, known in self.library.sync().skills.items()}

    def lying(self) -> dict[str, bytes]:
        return {file.parent.name: file.read_bytes() for file in self.config.skills_dir.glob("*/SKILL.md")}

    def next_day(self) -> None:
        self.now[0] += DAY_S


@contextmanager
def looping(config: Config, now: list[float]) -> Iterator[None]:
    """The judge and the evolver, as they run in their own processes, in a thread."""
    stop, loop = asyncio.Event(), asyncio.new_event_loop()

    async def both() -> None:
        journals = [Journal.open(config, clock=lambda: now[0]) for _ in range(2)]
        writer = SkillWriter(config)
        judge = Worker(config, journals[0], SignalJudge())
        await asyncio.gather(judge.run(stop), Evolver(config, journals[1], writer=writer).run(stop))
        await writer.close()
        for journal in journals:
            journal.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(both()), daemon=True)
    thread.start()
    yield
    loop.call_soon_threadsafe(stop.set)
    thread.join(timeout=30)
    assert not thread.is_alive()


@pytest.fixture
def week(tmp_path: Path, model_dir: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Week]:
    now = [1_800_000_000.0]
    opened = SimpleNamespace(open=lambda config: Journal.open(config, clock=lambda: now[0]))
    monkeypatch.setattr(server, "Journal", opened)
    endpoint = ScriptedEndpoint(lambda prompt: DATE_SKILL if "dates" in prompt.split("## Skills")[0] else RICE_SKILL)
    with running(endpoint.app()) as evolver_url, engine_process(model_dir, threads=1) as engine_url:
        config = load_config(
            overrides={
                "home": tmp_path / "home",
                "server.port": 0,
                "skills.evolver_url": f"{evolver_url}/v1",
                "skills.withhold_share": 0.4,
            }
        )
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        journal = Journal.open(config, clock=lambda: now[0])
        key = (config.home / "token").read_text().strip()
        client = OpenAI(base_url=f"{thread.url}/v1", api_key=key, max_retries=0, timeout=60)
        with looping(config, now):
            yield Week(client, journal, Library(config, journal), config, tokenizer, now)
        journal.close()
        thread.stop()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_week_of_skills(week: Week) -> None:
    dates = [f"How should I write {what} in a report?" for what in ("dates", "the dates", "dates and times")]
    for question in dates[:2]:
        assert HEAD not in week.prompt(week.ask(question, WRONG)), "Monday: there is nothing yet"
    week.next_day()
    week.ask(dates[2], WRONG)
    wait_until(lambda: week.states() == {"tidy-dates": SkillState.CANDIDATE})  # the third failure of its kind

    week.next_day()
    told = wait_until(
        lambda: next(iter(t for t in [week.ask(dates[0])] if "## tidy-dates" in week.prompt(t)), None), 60
    )
    assert week.journal.skills.used(told), "Wednesday: turns of the kind carry it, but for those that go without"
    assert HEAD not in week.prompt(week.ask("What is the capital of Mongolia?")), "and no others"
    side = week.ask(dates[0], **{"X-Turn-Type": "side"})
    assert HEAD not in week.prompt(side) and week.journal.skills.used(side) == (), "and no side turn"

    week.ask("What is the capital of Mongolia?", "Please end every answer with Cheers.")
    wait_until(lambda: week.states().get("wish-end-every-answer-cheers") is SkillState.ACTIVE)
    wish = wait_until(lambda: "Please end every answer with Cheers." in week.prompt(week.ask("Name a river.")), 60)
    assert wish, "a wish that was said once is in whatever is asked next"
    kept, before = week.journal.skills.current().number, week.lying()

    week.next_day()
    rice = "How long do I boil rice?"
    for _ in range(3):
        week.ask(rice, WRONG)
    wait_until(lambda: week.states().get("boil-rice") is SkillState.CANDIDATE)
    version = week.library.sync().skills["boil-rice"].version.id
    for _ in range(40):  # Thursday and later: with it turns go wrong, and without it they do not
        if week.states()["boil-rice"] is SkillState.RETIRED:
            break
        turn = week.ask(rice)
        stood = version in week.journal.skills.used(turn)
        week.journal.verdicts.feedback(turn, -1 if stood else 1, None)
        week.next_day()
    wait_until(lambda: week.states()["boil-rice"] is SkillState.RETIRED)
    wait_until(lambda: "## boil-rice" not in week.prompt(week.ask(rice)), 60)
    trial = week.journal.skills.trials([version])[version]
    assert trial.bad_with >= 8 and trial.good_without > 0
    assert week.states()["tidy-dates"] is SkillState.CANDIDATE and "boil-rice" not in week.lying()

    week.library.rollback(kept)
    assert week.lying() == before, "the library of Wednesday, byte for byte"
