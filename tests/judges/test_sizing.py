"""The judge's prompt fits the context of whatever endpoint judges, and shows the head and the tail of what is long."""

import random
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.judges.test_model import good, judging
from tests.support.servers import running
from turnwise.judges.model import JudgeUnavailable
from turnwise.judges.prompts import hint_prompt, score_prompt
from turnwise.judges.sizing import NOTE_TOKENS, shares, shorten, token_bound
from turnwise.messages import from_chat, history_from_chat, saying, text_of
from turnwise.types import JudgeTask, Message

RNG = random.Random(0)
TEXTS = {
    "prose": "The gardener waters the ferns twice a week, but in summer they want more of it. " * 300,
    "numbers": "\n".join(f"{RNG.random():.12f} {RNG.randrange(10**9)}" for _ in range(900)),
    "code": "def f(x):\n    return {k: [v, *g(k)] for k, v in x.items() if not k.startswith('_')}\n" * 250,
    "chinese": "蕨类植物每周浇两次水,夏天要多浇一些。" * 700,
    "hindi": "फ़र्न को सप्ताह में दो बार पानी दें। " * 500,
    "emoji": "👩‍🚀🌿💧" * 1500,
    "log": "[2026-11-21T06:13:46.123Z] ERROR a.b.c.Handler(id=0x7f3a9c) {'k': -1, 'v': [0.1, 0.2]}\n" * 250,
}


def rendered(messages: list[Message]) -> str:
    return "".join(f"<|im_start|>{m.role}\n{text_of(m)}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n"


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("room", [900, 1536, 3584])
def test_a_prompt_fits_its_room(tokenizer: Tokenizer, kind: str, room: int) -> None:
    long = TEXTS[kind]
    for prompt in (score_prompt, hint_prompt):
        messages = prompt(
            [saying("user", long)],
            saying("assistant", long),
            [from_chat({"role": "tool", "content": f"It begins {long} and ends."})],
            room=room,
        )
        assert len(tokenizer.encode(rendered(messages)).ids) <= room
        body = text_of(messages[1])
        assert "| It begins" in body
        assert "and ends." in body
        assert body.count("characters left out") == 3
        assert body.count("<<<END") == 3


def test_what_is_short_stays_whole_and_leaves_its_room_to_what_is_long() -> None:
    def body(answer: str) -> str:
        state = [from_chat({"role": "tool", "content": TEXTS["prose"]})]
        asked = [saying("user", "Water the ferns")]
        return text_of(score_prompt(asked, saying("assistant", answer), state, room=1536)[1])

    short, long = body("Watered."), body(TEXTS["prose"])
    assert "Water the ferns" in short
    assert "Watered." in short
    came_back = [text.split("What came back:")[1] for text in (short, long)]
    assert len(came_back[0]) > 1.5 * len(came_back[1])


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcd efghi", 4),  # ten letters and spaces, 0.35 each: 3.5
        ("12345", 5),
        ("a1b2", 3),
        ("x = [1, 2];", 8),
        ("é", 2),
        ("水", 3),
        ("🌿", 4),
        ("line\nline", 4),
        ("\ud83d", 1),  # half of a pair, which no tokenizer is given
    ],
)
def test_tokens_are_bounded_by_letters_signs_and_bytes(text: str, tokens: int) -> None:
    assert token_bound(text) == tokens


@pytest.mark.parametrize(
    ("needs", "room", "given_"),
    [
        ([10, 20, 30], 60, [10, 20, 30]),
        ([10, 20, 30], 59, [10, 20, 29]),
        ([100, 10, 100], 90, [40, 10, 40]),
        ([100, 10, 100], 91, [40, 10, 41]),
        ([100, 100], 0, [0, 0]),
        ([100, 100], -5, [0, 0]),
        ([7], 3, [3]),
        ([], 9, []),
    ],
)
def test_what_small_parts_leave_goes_to_the_large_ones(needs: list[int], room: int, given_: list[int]) -> None:
    assert shares(needs, room) == given_


def test_a_shortened_text_has_as_much_of_each_end_as_fits() -> None:
    text = "".join(str(n % 10) for n in range(200))  # each digit is a token
    assert shorten(text, 200) == text
    assert shorten(text, 126) == f"{text[:50]}\n(… 100 characters left out …)\n{text[-50:]}"
    assert shorten(text, 127) == shorten(text, 126), "what is left of an odd number is given to no end"
    assert shorten(text, 26) == shorten(text, 0) == "\n(… 200 characters left out …)\n"
    assert token_bound("\n(… 999999 characters left out …)\n") <= NOTE_TOKENS


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=5), st.integers(-10, 9000))
def test_shares_never_exceed_the_room_and_waste_none(needs: list[int], room: int) -> None:
    given_ = shares(needs, room)
    assert all(0 <= g <= n for g, n in zip(given_, needs, strict=True))
    assert sum(given_) == min(sum(needs), max(0, room))


@given(st.text(max_size=600), st.integers(0, 300))
def test_shortened_text_keeps_to_its_bound(text: str, tokens: int) -> None:
    out = shorten(text, tokens)
    assert out == text if token_bound(text) <= tokens else token_bound(out) <= max(tokens, NOTE_TOKENS)


class Endpoint:
    """Chat completions of a model with a context of its own, counted with a real tokenizer."""

    def __init__(self, tokenizer: Tokenizer, context: int, told: int | None) -> None:
        self.tokenizer, self.context, self.told = tokenizer, context, told
        self.prompts: list[int] = []
        self.refused = 0

    def app(self) -> FastAPI:
        app = FastAPI()
        app.add_api_route("/v1/chat/completions", self.complete, methods=["POST"])
        if self.told is not None:
            app.add_api_route("/v1/models", self.models)
        return app

    async def models(self) -> dict[str, Any]:
        entry = {"object": "model", "created": 0, "owned_by": "x"}
        return {
            "object": "list",
            "data": [
                {"id": "small", "max_model_len": 64} | entry,
                {"id": "turnwise@base", "max_model_len": self.told} | entry,
            ],
        }

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        tokens = len(self.tokenizer.encode(rendered(history_from_chat(body["messages"]))).ids)
        if tokens + body["max_tokens"] > self.context:
            self.refused += 1
            message = f"This model's maximum context length is {self.context} tokens"
            return JSONResponse({"error": {"message": message, "type": "BadRequestError", "code": 400}}, 400)
        self.prompts.append(tokens)
        choice = {"index": 0, "message": {"role": "assistant", "content": good(body, 0)}, "finish_reason": "stop"}
        return JSONResponse({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def task(text: str) -> JudgeTask:
    messages = [saying("user", text)]
    return JudgeTask("t", "k", 1, messages, saying("assistant", text), [saying("user", text)])


@pytest.mark.parametrize("kind", TEXTS)
async def test_long_turns_are_judged_within_the_default_context(tokenizer: Tokenizer, kind: str) -> None:
    endpoint = Endpoint(tokenizer, context=4096, told=4096)
    with running(endpoint.app()) as url:
        async with judging(f"{url}/v1") as judge:
            verdict = await judge.judge(task(TEXTS[kind]))
    assert verdict.score == -1
    assert endpoint.refused == 0
    assert len(endpoint.prompts) == 2


async def test_an_endpoint_that_does_not_say_its_length_is_asked_with_less(tokenizer: Tokenizer) -> None:
    endpoint = Endpoint(tokenizer, context=2500, told=None)
    with running(endpoint.app()) as url:
        async with judging(f"{url}/v1") as judge:
            assert (await judge.judge(task(TEXTS["numbers"]))).score == -1
    assert endpoint.refused


async def test_a_context_without_room_says_what_to_change(tokenizer: Tokenizer) -> None:
    endpoint = Endpoint(tokenizer, context=1024, told=1024)
    with running(endpoint.app()) as url:
        async with judging(f"{url}/v1") as judge:
            with pytest.raises(JudgeUnavailable, match=r"lower judge\.max_tokens"):
                await judge.judge(task("Water the plants"))
    assert endpoint.refused == 0
