"""What strangers' clients send that asks for nothing special: taken, and what it means is done."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.gateway.callers import Caller, user
from tests.gateway.conftest import Agents
from tests.support.wire import ChatMessage
from turnwise.messages import history_to_chat, text_of, to_chat
from turnwise.types import TurnState

BEGUN: ChatMessage = {"role": "assistant", "content": "The sky is"}
NEUTRAL: dict[str, Any] = {
    "ignore_eos": False,
    "skip_special_tokens": False,
    "truncation": "auto",
    "add_generation_prompt": True,
    "continue_final_message": False,
    "min_tokens": 0,
    "best_of": 1,
    "length_penalty": 1.0,
    "stop_token_ids": [],
    "echo": False,
    "prompt_logprobs": None,
    "use_beam_search": None,
}


def prompt_of(caller: Caller) -> str:
    prompt, _, _ = caller.gateway.stub.sampled[-1]
    return caller.gateway.stub.tokenizer.decode(prompt, skip_special_tokens=False)


@pytest.mark.parametrize("fields", [NEUTRAL, NEUTRAL | {"skip_special_tokens": True, "max_tool_calls": None}])
def test_values_that_change_nothing(caller: Caller, fields: dict[str, Any]) -> None:
    if caller.name == "messages":
        pytest.skip("no client of this format sends them")
    assert text_of(caller.ask([user("say: fine")], **fields).answer) == "fine"


def test_a_limit_on_calls_of_tools_that_are_not_offered(qwen: Agents) -> None:
    response = qwen.openai.responses.create(model="turnwise", input="say: fine", truncation="auto", max_tool_calls=3)
    assert response.output_text == "fine"


def test_a_conversation_of_instructions_alone_and_its_reaction(caller: Caller, request: pytest.FixtureRequest) -> None:
    asked: list[ChatMessage] = [{"role": "system", "content": f"Greet, {request.node.callspec.id}."}]
    if caller.name == "messages":
        body = {"model": "turnwise", "max_tokens": 50, "system": asked[0]["content"], "messages": []}
        first = caller.turn(caller.send(body))
    else:
        first = caller.ask(asked)
    assert history_to_chat(first.messages) == asked
    second = caller.ask([*asked, to_chat(first.answer), user("No, shorter.")])
    assert second.session_id == first.session_id
    again = caller.gateway.journal.turns.get(first.id)
    assert again is not None and again.state is TurnState.JUDGING


def test_an_assistant_message_that_says_nothing(qwen: Agents) -> None:
    asked: list[Any] = [user("hi"), {"role": "assistant", "content": None}, user("say: still here")]
    answer = qwen.openai.chat.completions.create(model="turnwise", messages=asked)
    assert answer.choices[0].message.content == "still here"


# -- the beginning of an answer ----------------------------------------------------------------------------------------


def test_an_answer_goes_on_from_the_beginning_that_the_client_wrote(
    caller: Caller, request: pytest.FixtureRequest
) -> None:
    asked = [user(f"What colour, {request.node.callspec.id}?")]
    caller.gateway.stub.reply = lambda prompt: " blue." if prompt.endswith("The sky is") else "What?"
    response = caller.post([*asked, BEGUN])
    turn = caller.turn(response)
    assert "assistant\n<think>\n\n</think>\n\nThe sky is" in prompt_of(caller), "thinking lies behind what was begun"
    assert prompt_of(caller).endswith("The sky is")
    told = json.dumps(caller.answer(response))
    assert "blue." in told and "The sky is" not in told, "the client has the beginning already"
    assert (history_to_chat(turn.messages), text_of(turn.answer)) == (asked, "The sky is blue.")
    prompt, sampled, _ = caller.gateway.stub.sampled[-1]
    assert (turn.prompt_ids, turn.response_ids) == (prompt, sampled), "only what was sampled is the answer's"
    assert turn.logprobs is not None and len(turn.logprobs) == len(sampled)


def test_the_whole_answer_begins_the_next_request(caller: Caller, request: pytest.FixtureRequest) -> None:
    asked = [user(f"Which colour, {request.node.callspec.id}?")]
    caller.gateway.stub.reply = lambda prompt: " blue."
    first = caller.ask([*asked, BEGUN])
    whole: ChatMessage = {"role": "assistant", "content": "The sky is blue."}
    second = caller.ask([*asked, whole, user("No, it is grey.")])
    assert second.session_id == first.session_id
    again = caller.gateway.journal.turns.get(first.id)
    assert again is not None and again.state is TurnState.JUDGING


def test_a_retry_of_it_has_the_same_answer_and_another_beginning_has_its_own(
    caller: Caller, request: pytest.FixtureRequest
) -> None:
    asked, key = [user(f"Colour, {request.node.callspec.id}?")], {"Idempotency-Key": request.node.callspec.id}
    caller.gateway.stub.reply = lambda prompt: " blue."
    first, again = (caller.post([*asked, BEGUN], headers=key) for _ in range(2))
    assert first.headers["x-turnwise-turn-id"] == again.headers["x-turnwise-turn-id"]
    assert "The sky is" not in json.dumps(caller.answer(again))
    other = caller.post([*asked, {"role": "assistant", "content": "Skies are"}], headers=key)
    assert other.headers["x-turnwise-turn-id"] != first.headers["x-turnwise-turn-id"]


def test_marks_in_a_beginning_are_only_text_in_plain_chatml(gateway: Any) -> None:
    asked: list[Any] = [user("say: fine"), {"role": "assistant", "content": "<|im_end|>"}]
    answer = gateway.client().chat.completions.create(model="turnwise", messages=asked)
    prompt, _, _ = gateway.stub.sampled[-1]
    end = gateway.stub.tokenizer.token_to_id("<|im_end|>")
    assert prompt.count(end) == 2, "those of the system's and the person's messages"
    assert text_of(gateway.turn(answer).answer) == "<|im_end|>fine"


def test_an_empty_beginning_is_none(caller: Caller) -> None:
    if caller.name == "responses":
        pytest.skip("an item without text is one more answer there")
    turn = caller.ask([user("say: fine"), {"role": "assistant", "content": ""}])
    assert text_of(turn.answer) == "fine"
    assert prompt_of(caller).endswith("<|im_start|>assistant\n")


def test_the_beginning_counts_as_prompt(qwen: Agents) -> None:
    body = {"model": "turnwise", "messages": [user("hi"), BEGUN]}
    counted = qwen.anthropic.messages.count_tokens(**body)  # type: ignore[arg-type]
    answer = qwen.anthropic.messages.create(**body, max_tokens=9)  # type: ignore[call-overload]
    assert counted.input_tokens == answer.usage.input_tokens


# -- documents of text -------------------------------------------------------------------------------------------------

TEXT = {"type": "text", "media_type": "text/plain", "data": "Grass is green."}
PARTS = {"type": "content", "content": [{"type": "text", "text": "Grass is green."}]}


@pytest.mark.parametrize("source", [TEXT, PARTS, PARTS | {"content": "Grass is green."}])
@pytest.mark.parametrize("within", [False, True], ids=["message", "tool result"])
def test_a_document_of_plain_text_is_text(qwen: Agents, source: dict[str, Any], within: bool) -> None:
    document = {"type": "document", "source": source, "title": "On grass", "citations": {"enabled": True}}
    use = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [document]}
    asked = [user("hi"), {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    said = {"type": "text", "text": "say: read"}
    body = {"messages": asked if within else [{"role": "user", "content": [document, said]}]}
    response = httpx.post(
        f"{qwen.url}/v1/messages", headers=qwen.auth, json={"model": "turnwise", "max_tokens": 9} | body, timeout=30
    )
    assert response.status_code == 200, response.text
    turn = qwen.journal.turns.get(response.headers["x-turnwise-turn-id"])
    assert turn is not None
    assert text_of(turn.messages[-1]).startswith("On grass\nGrass is green.")
    if not within:
        assert response.headers["x-turnwise-ignored"] == "citations"
