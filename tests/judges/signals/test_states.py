"""What the engine is asked for hidden states, what its answers and its faults mean, and which head judges by them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.judges.signals.small_model import WIDTH, Pooling, small_model, states
from tests.support.servers import running
from turnwise.config import Config
from turnwise.engines.choose import LOCAL_ENGINE_KEY
from turnwise.errors import EngineError
from turnwise.judges.signals import head as heads
from turnwise.judges.signals.head import tokenizer_digest, words_head
from turnwise.judges.signals.prompt import Question
from turnwise.judges.signals.reading import Reading
from turnwise.judges.signals.states import ReplyJudge, StatesUnavailable, head_name, model_folder

QUESTION = Question([5, 6, 7, 8], [(1, 3), (2, 3)], [0])
REPLY = Reading("Add 3 and 4", "7", ("too long", "shorter please"))
PROBE = [3, 1, 4, 1, 5]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "tiny", ["Add 3 and 4 7 too long shorter please"])


def settings(model: Path | str, home: Path, **engine: Any) -> Config:
    return Config.model_validate({"home": home, "model": {"path": str(model)}, "engine": engine})


@asynccontextmanager
async def asking(app: Starlette, config: Config) -> AsyncIterator[ReplyJudge]:
    with running(app) as url:
        judge = ReplyJudge(config, url)
        try:
            yield judge
        finally:
            await judge.close()


def always(response: Callable[[], Response]) -> Starlette:
    async def answer(request: Request) -> Response:
        return response()

    return Starlette(routes=[Route("/pooling", answer, methods=["POST"])])


@pytest.mark.parametrize("key", ["an-engines-key", None])
async def test_the_engine_is_asked_with_its_key_for_layers_and_spans_of_the_base_model(
    model: Path, tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LOCAL_ENGINE_KEY, raising=False)
    if key is not None:
        monkeypatch.setenv(LOCAL_ENGINE_KEY, key)
    pooling = Pooling()
    async with asking(pooling.app, settings(model, tmp_path)) as judge:
        found = [await judge.ask(QUESTION, [3, 9]) for _ in range(2)]
    assert pooling.bodies[0] == {
        "model": "base", "input": [5, 6, 7, 8], "layers": [3, 9], "spans": [[1, 3], [2, 3]],
    }  # fmt: skip
    assert pooling.headers[1].get("authorization") == (key and f"Bearer {key}")
    assert found[0].shape == (2, 3, WIDTH) and found[0].dtype == np.float32
    assert found[0] == pytest.approx(states([5, 6, 7, 8], [(1, 3), (2, 3)], [3, 9]))


@pytest.mark.parametrize("status", [400, 404, 405, 422])
async def test_a_question_that_the_engine_refuses_is_its_error(model: Path, tmp_path: Path, status: int) -> None:
    refusal = {"error": {"message": "there is no layer 99"}}
    async with asking(always(lambda: JSONResponse(refusal, status)), settings(model, tmp_path)) as judge:
        with pytest.raises(EngineError, match="refuses to give hidden states: there is no layer 99") as caught:
            await judge.ask(QUESTION, [99])
    assert caught.value.status == status


def rows(data: Any) -> Callable[[], Response]:
    return lambda: JSONResponse({"data": [{"data": data}]})


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (lambda: JSONResponse({"error": {"message": "the queue is full"}}, 503), "now: the queue is full"),
        (lambda: JSONResponse({"error": {"message": "slow down"}}, 429), "now: slow down"),
        (lambda: PlainTextResponse("oh no", 500), "now: oh no"),
        (lambda: PlainTextResponse("<html>"), "cannot be read"),
        (lambda: JSONResponse({}), "cannot be read"),
        (lambda: JSONResponse([]), "cannot be read"),
        (lambda: JSONResponse({"data": []}), "cannot be read"),
        (rows(["x"]), "cannot be read"),
        (rows([1.0, 2.0]), "cannot be read"),  # three rows are asked for
    ],
)
async def test_an_engine_that_gives_no_states_now_makes_the_turn_wait(
    model: Path, tmp_path: Path, response: Callable[[], Response], words: str
) -> None:
    async with asking(always(response), settings(model, tmp_path)) as judge:
        with pytest.raises(StatesUnavailable, match=words):
            await judge.ask(QUESTION, [3])


async def test_an_engine_that_is_away_makes_the_turn_wait_and_is_asked_again_later(model: Path, tmp_path: Path) -> None:
    with running(Pooling().app) as url:
        pass
    judge = ReplyJudge(settings(model, tmp_path), url)
    with pytest.raises(StatesUnavailable, match=r"the engine gives no hidden states now: .* cannot be reached"):
        await judge.ask(QUESTION, [3])
    await judge.close()
    await ReplyJudge().close()  # one that never asked has nothing to close


# -- which head judges ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where heads lie; the one over words is there as it ships."""
    found = tmp_path / "heads"
    found.mkdir()
    (found / "words.npz").write_bytes((heads.FOLDER / "words.npz").read_bytes())
    monkeypatch.setattr(heads, "FOLDER", found)
    return found


def head(path: Path, model: Path, layers: list[int], own: bool = True) -> None:
    """A head of this model: its directive sentences are those whose state is as the last word's of this reply."""
    size = 2 * len(layers) * WIDTH
    probed = states(PROBE, [(0, len(PROBE))], layers)[:, :2].reshape(-1)
    np.savez(
        path, layers=np.array(layers), tokenizer=np.array(tokenizer_digest(model / "tokenizer.json")),
        probe=np.array(PROBE), probed=probed if own else -probed, score=np.zeros((3, size)),
        score_bias=np.log([0.5, 0.2, 0.3]), directive=np.zeros(size), directive_bias=1.0,
        own=np.zeros(size), own_bias=2.0,
        known=np.zeros(0, np.uint32), about=np.array(json.dumps({})),
    )  # fmt: skip


async def test_of_several_heads_for_a_tokenizer_the_first_that_fits_judges(
    model: Path, folder: Path, tmp_path: Path
) -> None:
    """The first asks for a layer that the model does not have, the states of the second are another model's."""
    head(folder / "a-deeper.npz", model, [99])
    head(folder / "b-another.npz", model, [2, 4], own=False)
    head(folder / "c-mine.npz", model, [2, 4])
    head(folder / "d-mine-too.npz", model, [3])
    pooling = Pooling()

    async def answer(request: Request) -> Response:
        deep = 99 in (await request.json())["layers"]
        return JSONResponse({"error": {"message": "no layer 99"}}, 400) if deep else await pooling.answer(request)

    app = Starlette(routes=[Route("/pooling", answer, methods=["POST"])])
    config = settings(model, tmp_path)
    async with asking(app, config) as judge:
        assert judge.who is None
        opinion = await judge.opinion(REPLY)
        assert judge.who == "hidden states of c-mine"
        assert opinion.score == pytest.approx((0.5, 0.2, 0.3))
        assert opinion.directive == pytest.approx([1 / (1 + np.exp(-1))] * 2)
        asked = len(pooling.bodies)
        await judge.opinion(REPLY)
    assert [body["input"] for body in pooling.bodies[:2]] == [PROBE, PROBE]
    assert pooling.bodies[0]["spans"] == [[0, len(PROBE)]]
    assert len(pooling.bodies) == asked + 1, "the head is chosen once"
    assert head_name(config) == "a-deeper", "as far as shows without asking the engine"


async def test_a_sentence_that_the_question_leaves_out_is_not_directive(
    model: Path, folder: Path, tmp_path: Path
) -> None:
    head(folder / "mine.npz", model, [2])
    long = Reading("Add 3 and 4", "7", ("too " * 130, "shorter please", "long " * 130))
    async with asking(Pooling().app, settings(model, tmp_path)) as judge:
        found = await judge.opinion(long)
    assert found.directive == [pytest.approx(0.731, abs=1e-3), 0.0, pytest.approx(0.731, abs=1e-3)]
    assert found.own == [pytest.approx(0.881, abs=1e-3), 0.0, pytest.approx(0.881, abs=1e-3)]


async def test_while_the_engine_is_busy_no_head_is_chosen(model: Path, folder: Path, tmp_path: Path) -> None:
    head(folder / "mine.npz", model, [2])
    async with asking(Pooling(busy=1).app, settings(model, tmp_path)) as judge:
        with pytest.raises(StatesUnavailable, match="busy"):
            await judge.opinion(REPLY)
        assert judge.who is None
        await judge.opinion(REPLY)
        assert judge.who == "hidden states of mine"


@pytest.mark.parametrize("why", ["engine", "no engine", "no configuration", "hub", "tokenizer", "no head"])
async def test_where_no_states_can_be_had_the_words_alone_judge_and_that_is_said(
    model: Path, folder: Path, tmp_path: Path, why: str
) -> None:
    config: Config | None = settings(model, tmp_path)
    url: str | None = "http://127.0.0.1:9"
    match why:
        case "engine":
            config, said = (
                settings(model, tmp_path, kind="vllm", url=url),
                'engine.kind = "vllm" gives no hidden states',
            )
        case "no engine":
            url, said = None, "no engine was named"
        case "no configuration":
            config, said = None, "no engine was named"
        case "hub":
            config, said = settings("someone/model", tmp_path), "the model is no local folder"
        case "tokenizer":
            (model / "tokenizer.json").write_text("{}")
            said = f"{model / 'tokenizer.json'} cannot be read: "
        case _:
            said = "no head was fitted for tiny; see docs/judge.md"
    judge = ReplyJudge(config, url)
    opinion = await judge.opinion(REPLY)
    await judge.close()
    assert (judge.who or "").startswith(f"the words alone ({said}")
    assert opinion == words_head().opinion_of_words(REPLY.sentences)
    if config is not None:
        assert head_name(config) is None


def test_the_folder_and_the_head_of_a_configuration(model: Path, folder: Path, tmp_path: Path) -> None:
    config = settings(model, tmp_path)
    head(folder / "mine.npz", model, [2])
    assert (model_folder(config), head_name(config)) == (model, "mine")
    assert model_folder(settings("someone/model", tmp_path)) is None
    assert head_name(settings(tmp_path / "none", tmp_path)) is None, "a model that is not there has none"
    (model / "tokenizer.json").unlink()
    (model / "vocab.json").write_text("{}")
    assert head_name(config) is None, "nor has one with another kind of tokenizer"
