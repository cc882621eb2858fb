"""The heads that ship: what they were made of, whose states they judge by, and what the one over words leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.judges.test_signals import said
from tests.support.servers import running
from turnwise.config import Config
from turnwise.judges.signals.fit import DATA, PHRASES, rows_digest, tables
from turnwise.judges.signals.head import FOLDER, WORDS, Head, head_for, tokenizer_digest
from turnwise.judges.signals.reading import Reading
from turnwise.judges.signals.states import ReplyJudge

HERE = Path(__file__).parent
ROWS = [HERE / name for name in ("next-states-dev.jsonl", "cases.jsonl", "blind.jsonl")]
HEADS = {path.stem: Head.read(path) for path in sorted(FOLDER.glob("*.npz"))}
EMBEDDED = "smollm2-135m-instruct"
REPLY = Reading("Add 3 and 4", "7", ("That's wrong, use metric units.",))


@pytest.mark.parametrize("name", HEADS)
def test_a_head_says_what_it_was_made_of_and_that_is_what_is_here(name: str) -> None:
    about = HEADS[name].about
    assert about["model"] == name
    assert about["rows_sha256"] == rows_digest([*tables(name == WORDS), DATA / PHRASES, *ROWS]), (
        "the rows changed: run `make heads`"
    )
    assert about["command"].startswith("python -m turnwise.judges.signals.fit ")
    assert (len(about["weights_sha256"]) == 64) is (name != WORDS)
    assert (FOLDER / f"{name}.npz").stat().st_size < 160_000


def pooling(vectors: Callable[[int, int], np.ndarray]) -> Starlette:
    """A stand-in for the engine: ``vectors`` gives the states for a number of layers and of spans."""

    async def answer(request: Request) -> JSONResponse:
        asked = await request.json()
        found = vectors(len(asked["layers"]), 1 + len(asked["spans"]))
        return JSONResponse({"data": [{"data": found.reshape(-1).tolist()}]})

    return Starlette(routes=[Route("/pooling", answer, methods=["POST"])])


async def chosen(app: Starlette, model_dir: Path, tmp_path: Path) -> tuple[str, tuple[float, float, float]]:
    """Which head judges by this engine, and the chances that it gives to a reproach."""
    config = Config.model_validate({"home": tmp_path, "model": {"path": str(model_dir)}})
    with running(app) as url:
        judge = ReplyJudge(config, url)
        opinion = await judge.opinion(REPLY)
        await judge.close()
        return judge.who or "", opinion.score


async def test_the_head_of_the_model_that_serves_judges(model_dir: Path, tmp_path: Path) -> None:
    head = HEADS[EMBEDDED]
    assert [found.name for found in head_for(tokenizer_digest(model_dir / "tokenizer.json"))] == [EMBEDDED]
    own = head.probed.reshape(len(head.layers), 2, -1)

    def states(layers: int, spans: int) -> np.ndarray:
        return np.concatenate([own[:, :1], *[own[:, 1:]] * (spans - 1)], 1)

    who, _ = await chosen(pooling(states), model_dir, tmp_path)
    assert who == f"hidden states of {EMBEDDED}"


@pytest.mark.parametrize("width", ["its own", "another"])
async def test_another_model_with_its_tokenizer_is_judged_by_words_and_that_is_said(
    model_dir: Path, tmp_path: Path, width: str
) -> None:
    size = len(HEADS[EMBEDDED].probed) // 4 if width == "its own" else 64
    noise = np.random.default_rng(1)
    app = pooling(lambda layers, spans: noise.standard_normal((layers, spans, size)))
    who, score = await chosen(app, model_dir, tmp_path)
    assert who.startswith(f"the words alone (no head was fitted for {model_dir.name}")
    assert score == HEADS[WORDS].opinion_of_words(REPLY.sentences).score


@pytest.mark.parametrize(
    "reply",
    [
        "asdf qwer", "blorp fnord", "qwertz uiop yxcv", "...", "?", "a", "12345", "zażółć gęślą jaźń",
        "kiva juttu kiitos paljon", "jól van köszönöm szépen", "хорошо", "とてもいいです", "🙂",
    ],
)  # fmt: skip
def test_the_head_over_words_has_no_opinion_of_words_that_it_never_met(reply: str) -> None:
    verdict = said(reply)
    assert (verdict.score, verdict.hint) == (None, None)


@pytest.mark.parametrize("reply", ["that's not how i wanted it", "this isn't what I asked for", "not good at all"])
def test_the_head_over_words_takes_what_is_denied_for_no_praise(reply: str) -> None:
    assert said(reply).score != 1
