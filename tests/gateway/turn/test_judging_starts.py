"""Judging starts when a reply arrives, while what answers it is still being generated: in every format and engine."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gateway.callers import FORMATS, Caller, Talk, user
from tests.gateway.conftest import Agents
from tests.gateway.starting import gateway_on, settings, stub_engine
from tests.support.servers import wait_until
from turnwise.messages import text_of
from turnwise.types import TurnState


@pytest.fixture(scope="module", params=["token ids", "upstream"])
def slow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, qwen3_dir: Path) -> Iterator[Agents]:
    """A gateway over an engine that takes token ids, or one whose engine is the API of that one."""
    homes = tmp_path_factory.mktemp("homes")
    with (
        stub_engine(qwen3_dir) as (stub, engine_url),
        gateway_on(settings(homes / "first", qwen3_dir), stub, engine_url) as first,
    ):
        if request.param == "token ids":
            yield first
            return
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("TURNWISE_ENGINE_API_KEY", first.token)
            relaying = settings(
                homes / "relay",
                qwen3_dir,
                engine__kind="upstream",
                engine__url=f"{first.url}/v1",
                engine__model="turnwise",
                train__enabled=False,
            )
            with gateway_on(relaying, stub, first.url) as relay:
                yield relay


@pytest.mark.parametrize("how", ["whole", "streamed"])
@pytest.mark.parametrize("name", FORMATS)
def test_the_turn_before_is_judged_while_its_reply_is_answered(slow: Agents, name: str, how: str) -> None:
    talk = Talk(Caller(slow, name, how == "streamed"), [user(f"say: first of {name} {how}")])
    first = talk.ask()
    assert first.state is TurnState.WAITING
    talk.say("say: one two three four five six seven eight")
    slow.stub.token_delay_s = 0.3
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(talk.ask)
        try:
            claimed = wait_until(lambda: slow.journal.judging.claim("judge", 1, 60.0) or answering.done())
            under_way = slow.journal.status.figures()["turns"][TurnState.SERVED]
            done = answering.done()
        finally:
            slow.stub.token_delay_s = 0.0
        second = answering.result()
    assert not done and claimed is not True, "the judge has the turn before its reply is answered"
    assert under_way == 1
    [task] = claimed
    assert task.turn_id == first.id
    assert [text_of(m) for m in task.next_state] == ["say: one two three four five six seven eight"]
    assert (second.session_id, second.state) == (first.session_id, TurnState.WAITING)
