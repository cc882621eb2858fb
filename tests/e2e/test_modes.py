"""`mode` and `train.when` by the real `turnwise serve`: which loops run, and whether a skill stands in a prompt."""

from __future__ import annotations

import contextlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from tests.conftest import Running
from tests.skills.texts import text
from tests.support.models import make_tiny_model
from tests.support.processes import Server, serving
from tests.support.servers import wait_until
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.skills.library import Library
from turnwise.skills.skill_file import parse
from turnwise.skills.vectors import PACKAGE
from turnwise.types import SkillState

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec(PACKAGE) is None, reason="the word vectors are not installed"),
]
FAST = {"engine__threads": 1, "train__threads": 1, "train__lora_rank": 2}
ASK = "How should I write the dates in this report?"


@pytest.fixture
def skilled(tmp_path: Path) -> Path:
    """A home of its own whose library has a skill that fits `ASK`."""
    config = load_config(overrides={"home": tmp_path / "skilled"})
    with contextlib.closing(Journal.open(config)) as journal:
        Library(config, journal).add([parse(text("tidy-dates"), "tidy-dates")], SkillState.ACTIVE, "person")
    return config.home


def ask(server: Server) -> str:
    """The id of the turn of a question that the skill fits."""
    answer = server.client().chat.completions.create(
        model="turnwise", messages=[{"role": "user", "content": ASK}], max_tokens=8
    )
    return answer.id.removeprefix("chatcmpl-")


def used(server: Server, turn: str) -> tuple[int, ...]:
    with contextlib.closing(server.journal()) as journal:
        return journal.skills.used(turn)


def has_torch(process: psutil.Process | None) -> bool:
    return process is not None and any("libtorch" in part.path for part in process.memory_maps())


def test_weights_only_puts_no_skill_into_a_prompt_and_trains(skilled: Path, tmp_path: Path, model_dir: Path) -> None:
    tiny = make_tiny_model(tmp_path / "tiny", model_dir)
    settings: dict[str, Any] = FAST | {"train__min_batch": 1, "gate__enabled": False, "train__lessons": 0}
    with serving(skilled, tiny, mode="weights-only", **settings) as server:
        turn = ask(server)
        assert used(server, turn) == ()
        assert server.loop("evolver") is None
        with contextlib.closing(server.journal()) as journal:
            journal.verdicts.feedback(turn, -1, "Be brief.")
            wait_until(lambda: journal.versions.latest() == 1, 120)


def test_skills_only_serves_any_upstream_with_skills_and_without_torch(
    skilled: Path, gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_ENGINE_API_KEY", gateway.token)
    upstream = {"engine__kind": "upstream", "engine__url": f"{gateway.url}/v1", "engine__model": "turnwise"}
    with serving(skilled, None, mode="skills-only", **upstream) as server:
        turn = ask(server)
        assert len(used(server, turn)) == 1
        wait_until(lambda: server.loop("evolver"))
        assert server.loop("trainer") is None
        assert not any(has_torch(server.loop(name)) for name in ("gateway", "judge", "evolver"))
        told = [t.messages for t in map(gateway.journal.turns.get, ids(gateway)) if t is not None]
        assert "year-month-day" in str(told), "the upstream was told the skill"
        status = CliRunner().invoke(app, ["status", "--home", str(skilled)], env={"COLUMNS": "200"}).output
        assert "the server that runs has no trainer" in status, "whatever the file in the home says"


def ids(gateway: Running) -> list[str]:
    newest = gateway.journal.turns.newest_answered(None)
    return [] if newest is None else [newest]


def test_off_judges_and_trains_nothing(tmp_path: Path, model_dir: Path) -> None:
    tiny = make_tiny_model(tmp_path / "tiny", model_dir)
    settings: dict[str, Any] = FAST | {"train__min_batch": 1, "gate__probe_share": 0.0}
    with serving(tmp_path / "home", tiny, train__when="off", **settings) as server:
        client = server.client()
        answer = client.chat.completions.create(
            model="turnwise", messages=[{"role": "user", "content": "hello"}], max_tokens=8
        )
        history = [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": answer.choices[0].message.content or ""},
            {"role": "user", "content": "That's wrong. Please answer in one short sentence."},
        ]
        client.chat.completions.create(model="turnwise", messages=history, max_tokens=8)  # type: ignore[arg-type]
        wait_until(lambda: server.status()["samples_ready"] == 1, 60)
        assert server.loop("trainer") is None
        assert server.status()["version"]["number"] == 0
