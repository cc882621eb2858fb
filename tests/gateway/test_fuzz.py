"""No request, however odd, makes the gateway fail or hang, and no stream that is cut leaves a turn open."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.support.in_process import in_process
from tests.support.models import make_qwen3
from tests.support.mutations import BODIES, mutated
from turnwise.config import Config
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.types import Exclusion, TurnState

SAID = [
    *("<think>\nhm,", " let", " me\n</think>", "\n\nAdding", ".\n"),
    *('<tool_call>\n{"name": "add", "argu', 'ments": {"a": ', '1, "b": "two"', "}}\n</tool", "_call>", ""),
]


@pytest.fixture(scope="module", params=["qwen3", "chatml"])
def renderer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PromptRenderer:
    if request.param == "chatml":
        return load_renderer(request.getfixturevalue("model_dir"))
    return load_renderer(make_qwen3(tmp_path_factory.mktemp("model")))


async def ask_all(config: Config, renderer: PromptRenderer, seeds: range) -> Counter[int]:
    """Send mutated requests one after the other; gives how many had which status."""
    statuses: Counter[int] = Counter()
    async with in_process(config, renderer, SAID) as gateway:
        transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for seed in seeds:
                path, body, headers = mutated(seed)
                raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
                try:
                    async with asyncio.timeout(20):
                        response = await client.post(path, content=body, headers=raw)
                except TimeoutError:
                    pytest.fail(f"request {seed} hangs")
                text = response.text
                assert "\n" not in response.headers.get("x-turnwise-session-id", ""), f"request {seed}: a broken header"
                assert response.status_code < 500, f"request {seed}: {text[:500]}"
                assert "internal_error" not in text and "something failed inside" not in text, (
                    f"request {seed}: {text[-500:]}"
                )
                if response.status_code >= 400:
                    error = response.json()["error"]
                    assert error["message"], f"request {seed} is refused without a word"
                statuses[response.status_code] += 1
        await gateway.answering.drain()
        assert gateway.journal.status.figures()["turns"].get(TurnState.SERVED, 0) == 0
    return statuses


async def test_mutated_requests(config: Config, renderer: PromptRenderer) -> None:
    name = type(renderer.renderer).__name__
    statuses = await ask_all(config, renderer, range(1500) if name == "Qwen3Renderer" else range(1500, 3000))
    assert statuses[200] > 100, "enough of them are still requests"
    assert statuses[400] > 500


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_twenty_thousand_mutated_requests(config: Config, renderer: PromptRenderer) -> None:
    name = type(renderer.renderer).__name__
    statuses = await ask_all(config, renderer, range(3000, 13000) if name == "Qwen3Renderer" else range(13000, 23000))
    assert sum(statuses.values()) == 10_000
    assert max(statuses) < 500
    assert statuses[200] > 500, "enough of them are still requests"


@pytest.mark.parametrize("as_error", [False, True])
@pytest.mark.parametrize("path", [path for path, _ in BODIES if not path.endswith("count_tokens")])
async def test_a_stream_cut_at_every_event(config: Config, tmp_path: Path, path: str, as_error: bool) -> None:
    """However it is told that the client is gone: the turn ends as aborted, or as answered, and never stays open."""
    renderer = load_renderer(make_qwen3(tmp_path / "model"))
    body = json.dumps(dict(BODIES)[path] | {"stream": True, "temperature": 0.5}).encode()
    ended: Counter[str] = Counter()
    async with in_process(config, renderer, SAID) as gateway:
        after = 0
        while True:
            turn_id, seen = await gateway.cut(path, body, after, as_error)
            assert turn_id
            turn = gateway.journal.turns.get(turn_id)
            for _ in range(200):
                if turn is None or turn.state is not TurnState.SERVED:
                    break
                await asyncio.sleep(0.01)
                turn = gateway.journal.turns.get(turn_id)
            assert turn is not None
            if turn.state is TurnState.EXCLUDED:
                assert turn.exclusion in (Exclusion.ABORTED, Exclusion.SUPERSEDED)
                ended[turn.exclusion] += 1
            else:
                assert turn.state in (TurnState.WAITING, TurnState.JUDGING)
                ended["answered"] += 1
            if seen < after:
                break
            after += 1
    assert after > 5, "there were events to cut at"
    assert ended[Exclusion.ABORTED] > 3
