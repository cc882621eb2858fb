"""The first check of a skill: its failing turns are asked again, and what comes of them decides whether it is used.

The engine is a stand-in behind real HTTP (`scripted_engine`), which follows skills or does not as a test wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select
from tokenizers import Tokenizer
from typer.testing import CliRunner

from tests.evolving.endpoint import ScriptedEndpoint
from tests.evolving.hostile import reply
from tests.evolving.scripted_engine import ScriptedEngine
from tests.evolving.test_evolver import say
from tests.support.models import make_qwen3
from tests.support.servers import running, wait_until
from tests.support.tiny_qwen_vl import make_model
from tests.support.versions import new_turn
from turnwise.cli.main import app
from turnwise.config import Config, load_config
from turnwise.evolving import worker
from turnwise.evolving.endpoint import SkillWriter
from turnwise.evolving.replay import ReplayedAnswer, Replayer, avoids, calls_fit, missing_programs, result_of
from turnwise.evolving.worker import Evolver
from turnwise.journal import Journal, schema
from turnwise.journal.skills.replays import ReplayResult
from turnwise.messages import answer_of, saying
from turnwise.skills.library import KnownSkill, Library
from turnwise.tokens.rendering import load_renderer
from turnwise.types import SkillState, ToolCall, TurnState

SHORTER = "no, that is far too long, give me the number only"
BRIEF = "# Rice\n\n1. Say the number.\n2. Leave the rest away.\n3. Stop there.\n\nExample: 18.\nNot: a story."
LONG, SHORT = "Rice is boiled for about eighteen minutes in a pot.", "18."


@pytest.fixture
def engine(tokenizer: Tokenizer) -> ScriptedEngine:
    """One that follows the skill, and finds an answer that does likelier where the wish stands behind the question."""
    return ScriptedEngine(
        tokenizer,
        says=lambda prompt: SHORT if "Leave the rest away" in prompt else LONG,
        likely=lambda text: -0.5 if "(no, that is far too long" in text and text.endswith(SHORT) else -2.0,
    )


@pytest.fixture
def told(tmp_path: Path, model_dir: Path, engine: ScriptedEngine) -> Iterator[Config]:
    writer = ScriptedEndpoint(lambda _: reply(content=BRIEF))
    with running(writer.app()) as url, running(engine.app()) as engine_url:
        yield load_config(
            overrides={
                "home": tmp_path / "home",
                "gate.probe_share": 0.0,
                "model.path": str(model_dir),
                "engine.url": engine_url,
                "skills.evolver_url": f"{url}/v1",
            }
        )


@pytest.fixture
def journal(told: Config) -> Iterator[Journal]:
    with closing(Journal.open(told)) as opened:
        yield opened


def evolve(config: Config, journal: Journal, again: bool = False) -> None:
    async def once() -> None:
        writer, replayer = SkillWriter(config), Replayer(config, journal, [])
        try:
            evolver = Evolver(config, journal, writer=writer, replayer=replayer)
            await (evolver.ask_again() if again else evolver.step())
        finally:
            await replayer.close()
            await writer.close()

    asyncio.run(once())


def rice(config: Config, journal: Journal) -> tuple[KnownSkill, ReplayResult | None]:
    known = Library(config, journal).sync().skills["boil-rice"]
    return known, journal.replays.of(known.version.id)


def turns(journal: Journal) -> int:
    with journal.store.reading() as c:
        return c.execute(select(func.count()).select_from(schema.turns)).scalar_one()


def test_a_skill_that_helps_its_failing_turns_is_used(told: Config, journal: Journal, engine: ScriptedEngine) -> None:
    for _ in range(3):
        say(journal, SHORTER)
    before = turns(journal)
    evolve(told, journal)
    known, result = rice(told, journal)
    assert known.state is SkillState.CANDIDATE
    assert result == ReplayResult("passed", "it made 3 of 3 failing turns better, and none worse", better=3)
    assert len(engine.asked) == 6 and sum("Leave the rest away" in asked for asked in engine.asked) == 3
    assert turns(journal) == before, "no turn of anybody's comes of it"


def test_one_that_changes_nothing_is_given_up_and_costs_no_sample(
    told: Config, journal: Journal, engine: ScriptedEngine
) -> None:
    engine.says = lambda prompt: LONG
    failing = [say(journal, SHORTER) for _ in range(3)]
    evolve(told, journal)
    known, result = rice(told, journal)
    assert known.state is SkillState.RETIRED and result is not None
    assert (result.state, result.same) == ("failed", 3)
    assert journal.skills.current().generation == 0
    whole = [journal.turns.get(turn) for turn in failing]
    assert {turn.state for turn in whole if turn is not None} == {TurnState.READY}, "they are learned from all the same"
    shown = CliRunner().invoke(app, ["skills", "show", "boil-rice", "--home", str(told.home)])
    assert "it made none of 3 failing turns better" in shown.output
    asked = len(engine.asked)
    evolve(told, journal)
    assert len(engine.asked) == asked, "and nothing is asked once more"


@pytest.mark.parametrize(("thinking", "kept"), [(True, True), (True, False), (False, False)])
def test_a_turn_is_asked_again_as_it_was_asked(tmp_path: Path, thinking: bool, kept: bool) -> None:
    """Whether the model was to think, and whether its earlier thoughts stood in the prompt, is in the turn's record."""
    model = make_model(tmp_path / "model", thinks=True) if thinking else make_qwen3(tmp_path / "model")
    config = load_config(overrides={"home": tmp_path / "home", "model.path": str(model)})
    asked = {"enable_thinking": thinking, "preserve_thinking": kept}
    said = [saying("user", "Where?"), answer_of("There.", "It is far."), saying("user", "And now?")]
    with closing(Journal.open(config)) as journal:
        journal.turns.begin(new_turn("turn-1", messages=said, params={"chat_template_kwargs": asked}))
        turn = journal.turns.get("turn-1")
        assert turn is not None
        ids = asyncio.run(Replayer(config, journal, [])._prompt(turn, [], turn.messages))
    assert ids is not None
    shown = load_renderer(model).decode(ids)
    assert ("It is far." in shown) is kept
    assert shown.endswith("<think>\n" if thinking else "<think>\n\n</think>\n\n")


def test_one_that_makes_a_turn_worse_is_given_up(told: Config, journal: Journal, engine: ScriptedEngine) -> None:
    engine.likely = lambda text: -4.0 if "(no, that is far too long" in text and text.endswith(SHORT) else -2.0
    for _ in range(3):
        say(journal, SHORTER)
    evolve(told, journal)
    known, result = rice(told, journal)
    assert known.state is SkillState.RETIRED and result is not None and result.worse == 3


def test_an_engine_that_is_away_is_asked_again_later(
    told: Config, journal: Journal, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.status = 503
    for _ in range(3):
        say(journal, SHORTER)
    evolve(told, journal)
    known, result = rice(told, journal)
    assert known.state is SkillState.CANDIDATE, "it is used meanwhile"
    assert result is not None and (result.state, result.tries) == ("waits", 1)
    engine.status, engine.says = 200, lambda _: LONG
    evolve(told, journal, again=True)
    assert rice(told, journal)[0].state is SkillState.CANDIDATE and not engine.asked, "not at once"
    monkeypatch.setattr(worker, "AGAIN_S", 0.0)
    evolve(told, journal, again=True)
    known, result = rice(told, journal)
    assert known.state is SkillState.RETIRED and result is not None and (result.state, result.tries) == ("failed", 2)


def test_an_engine_that_hangs_is_waited_for_no_longer_than_that(
    told: Config, journal: Journal, engine: ScriptedEngine
) -> None:
    engine.hangs = True
    hurried = told.model_copy(update={"skills": told.skills.model_copy(update={"replay_s": 0.3})})
    for _ in range(3):
        say(journal, SHORTER)
    evolve(hurried, journal)
    known, result = rice(told, journal)
    assert known.state is SkillState.CANDIDATE
    assert result is not None and (result.state, result.why) == ("waits", "the engine took longer than 0.3 s")


def test_where_nothing_tells_it_goes_on_and_says_so(told: Config, journal: Journal, engine: ScriptedEngine) -> None:
    for _ in range(3):
        say(journal, "no, that is wrong")
    evolve(told, journal)
    known, result = rice(told, journal)
    assert known.state is SkillState.CANDIDATE and engine.asked == []
    assert result is not None and (result.state, result.unclear) == ("unclear", 3)


def test_a_wish_waits_for_nobody(told: Config, journal: Journal, engine: ScriptedEngine) -> None:
    engine.hangs = True
    say(journal, "From now on end every answer with Cheers.")
    evolve(told, journal)
    [known] = Library(told, journal).sync().injected
    assert known.state is SkillState.ACTIVE and journal.replays.of(known.version.id) is None


def test_it_can_be_switched_off(told: Config, journal: Journal, engine: ScriptedEngine) -> None:
    settings = told.skills.model_copy(update={"replay": False})
    for _ in range(3):
        say(journal, SHORTER)

    async def until_it_is_there() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(worker.run(told.model_copy(update={"skills": settings}), stop))
        await asyncio.to_thread(wait_until, lambda: "boil-rice" in Library(told, journal).sync().skills, 60)
        stop.set()
        await running

    asyncio.run(until_it_is_there())
    known, result = rice(told, journal)
    assert (known.state, result, engine.asked) == (SkillState.CANDIDATE, None, [])


@pytest.mark.parametrize(
    ("found", "fault", "tries", "state"),
    [
        (["better", "same", "unclear"], "", 1, "passed"),
        (["better", "better", "worse"], "", 1, "failed"),
        (["same", "same"], "", 1, "failed"),
        (["unclear"], "", 1, "unclear"),
        ([], "", 1, "unclear"),
        ([], "away", 1, "waits"),
        (["better"], "away", 1, "passed"),
        ([], "away", 4, "unclear"),
        (["unclear"], "away", 1, "waits"),
    ],
)
def test_what_the_turns_come_to(found: list[Any], fault: str, tries: int, state: str) -> None:
    assert result_of(found, fault, tries).state == state


READ = {"function": {"name": "read", "parameters": {"properties": {"path": {"type": "string"}}, "required": ["path"]}}}


@pytest.mark.parametrize(
    ("calls", "fit"),
    [
        ([("read", '{"path": "a"}')], True),
        ([("read", '{"path": "a"}'), ("read", "{}")], False),
        ([("read", '{"file": "a"}')], False),
        ([("read", '{"path": 3}')], False),
        ([("read", '{"path": "a", "line": 3}')], False),
        ([("read", '{"path": ')], False),
        ([("read", "[" * 100_000)], False),
        ([("write", "{}")], False),
        ([], None),
    ],
)
def test_calls_are_held_to_their_definitions(calls: list[tuple[str, str]], fit: bool | None) -> None:
    assert calls_fit(ReplayedAnswer("", (), tuple(ToolCall(*call) for call in calls)), [READ]) is fit


@pytest.mark.parametrize(
    "parameters",
    [None, [], {"required": 3}, {"required": [["path"], 1]}, {"properties": [1]}, {"properties": {"path": 1}}],
)
def test_odd_definitions_harm_nobody(parameters: Any) -> None:
    answer = ReplayedAnswer("", (), (ToolCall("read", '{"path": "a"}'),))
    assert calls_fit(answer, [{"function": {"name": "read", "parameters": parameters}}]) is True


@pytest.mark.parametrize(
    ("command", "avoided"),
    [
        ('{"command": "grep -r x"}', True),
        ('{"command": "rg x"}', False),
        ('{"command": "cd repo && grep -r x"}', True),
        ('{"command": "cd repo && rg x"}', False),
        ('{"command": "cat x | rg y"}', False),
        ("{}", None),
    ],
)
def test_a_program_that_is_missing_is_not_run_again(command: str, avoided: bool | None) -> None:
    assert avoids(ReplayedAnswer("", (), (ToolCall("bash", command),)), {"rg"}) is avoided


@pytest.mark.parametrize(
    ("report", "missing"),
    [("bash: line 1: rg: command not found", {"rg"}), ("Exit code 127", {"cd", "cat", "rg"})],
)
def test_the_missing_program_is_the_one_that_the_report_names(report: str, missing: set[str]) -> None:
    call = ToolCall("bash", '{"command": "cd repo && cat x | rg TODO"}')
    turn: Any = SimpleNamespace(answer=answer_of("", calls=[call]), next_state=[saying("tool", report)])
    assert missing_programs(turn) == missing
