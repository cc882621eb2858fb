"""A version is not taken from the engine while an answer is made with it, and it is once that answer has ended."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.gateway.callers import FORMATS, Caller, user
from tests.gateway.conftest import Agents
from tests.gateway.starting import gateway_on, settings, stub_engine
from tests.support.servers import wait_until
from tests.support.versions import publish
from turnwise.gateway.versions import KEEP_LOADED
from turnwise.messages import text_of


@pytest.fixture
def served(tmp_path: Path, qwen3_dir: Path) -> Iterator[Agents]:
    with (
        stub_engine(qwen3_dir) as (stub, url),
        gateway_on(settings(tmp_path / "home", qwen3_dir), stub, url) as gateway,
    ):
        yield gateway


def take_up(gateway: Agents) -> str:
    """Publish a version and wait until it serves; gives the engine's name for it."""
    number = publish(gateway.journal)
    url = f"{gateway.url}/v1/status"
    wait_until(lambda: httpx.get(url, headers=gateway.admin).json()["version"]["number"] == number)
    return f"v{number}"


@pytest.mark.parametrize("how", ["whole", "streamed"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_version_in_use_stays_loaded_until_its_answer_has_ended(served: Agents, name: str, how: str) -> None:
    stub = served.stub
    first = take_up(served)
    stub.token_delay_s = 0.8
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(Caller(served, name, how == "streamed").ask, [user("say: a b c d e f g h i j k l m n o")])
        try:
            wait_until(lambda: stub.sampled)
            later = [take_up(served) for _ in range(KEEP_LOADED + 2)]
            kept = {"base", *later[-KEEP_LOADED:]}
            wait_until(lambda: stub.known == kept | {first} or asking.done())  # the others that nobody uses are gone
            loaded, under_way = set(stub.known), not asking.done()
        finally:
            stub.token_delay_s = 0.0
        turn = asking.result()
    assert under_way, "the answer was under way all the time"
    assert loaded == kept | {first}
    assert (turn.version, text_of(turn.answer)) == (1, "a b c d e f g h i j k l m n o")
    assert [model for _, _, model in stub.sampled] == [first]
    wait_until(lambda: stub.known == kept)


def test_pinned_versions_leave_without_a_new_publication(served: Agents) -> None:
    """Who compares old versions asks for many; the engine keeps the one that serves and the one used last."""
    published = [take_up(served) for _ in range(5)]
    wait_until(lambda: served.stub.known == {"base", *published[-KEEP_LOADED:]})
    caller = Caller(served, "chat", False)
    for pinned in published[:4]:
        turn = caller.ask([user(f"say: {pinned}")], model=f"turnwise@{pinned}")
        assert (turn.version, text_of(turn.answer)) == (int(pinned[1:]), pinned)
        wait_until(lambda pinned=pinned: served.stub.known == {"base", published[-1], pinned})
