"""The OpenAI and Anthropic SDKs: streams, tools, errors, one session of ten steps."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from tests.clients.checks import STEPS, assert_one_session_of_steps
from tests.clients.conftest import Bench
from tests.support.scripted_agent import Script, message

pytestmark = pytest.mark.clients

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "run",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
CALL = Script(lambda step: ("run", {"command": f"echo result-{step}"}))


@pytest.mark.parametrize("stream", [False, True])
def test_openai_ten_steps(bench: Bench, stream: bool) -> None:
    bench.stub.reply = CALL
    client = openai.OpenAI(base_url=f"{bench.url}/v1", api_key=bench.token, max_retries=0)

    def ask(history: list[Any]) -> Any:
        if not stream:
            return client.chat.completions.create(model="turnwise", messages=history, tools=[TOOL]).choices[0].message
        with client.chat.completions.stream(model="turnwise", messages=history, tools=[TOOL]) as events:
            for _ in events:
                pass
            return events.get_final_completion().choices[0].message

    history: list[Any] = []
    for step in range(1, STEPS + 1):
        history.append({"role": "user", "content": message(step)})
        answer = ask(history)
        [call] = answer.tool_calls
        assert json.loads(call.function.arguments) == {"command": f"echo result-{step}"}
        history.append(answer.model_dump(exclude_none=True, exclude={"parsed"}))
        history.append({"role": "tool", "tool_call_id": call.id, "content": f"result-{step}"})
        answer = ask(history)
        assert answer.content == f"Step {step} is done."
        history.append({"role": "assistant", "content": answer.content})
    bench.record(f"openai-sdk-{'stream' if stream else 'whole'}")
    turns = assert_one_session_of_steps(bench, "result-{}")
    assert all(turn["bridged"] for turn in turns[1:]), "an unchanged history goes on from the sampled ids"


def test_openai_errors_are_of_their_kind(bench: Bench) -> None:
    client = openai.OpenAI(base_url=f"{bench.url}/v1", api_key=bench.token, max_retries=0)
    hello: Any = [{"role": "user", "content": "hello"}]
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").chat.completions.create(model="turnwise", messages=hello)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nothing", messages=hello)
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="turnwise", messages=[])
    long: Any = [{"role": "user", "content": "word " * 250_000}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="turnwise", messages=long)
    assert refused.value.code == "context_length_exceeded"
    bench.stub.refuse_with = 429
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="turnwise", messages=hello)


ANTHROPIC_TOOL: Any = {
    "name": "run",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_ten_steps(bench: Bench, stream: bool) -> None:
    bench.stub.reply = CALL
    client = anthropic.Anthropic(base_url=bench.url, auth_token=bench.token, max_retries=0)

    def ask(history: list[Any]) -> Any:
        more: Any = {"model": "turnwise", "max_tokens": 200, "tools": [ANTHROPIC_TOOL]}
        if not stream:
            return client.messages.create(messages=history, **more)
        with client.messages.stream(messages=history, **more) as events:
            return events.get_final_message()

    history: list[Any] = []
    for step in range(1, STEPS + 1):
        history.append({"role": "user", "content": message(step)})
        answer = ask(history)
        [call] = [block for block in answer.content if block.type == "tool_use"]
        assert (answer.stop_reason, call.input) == ("tool_use", {"command": f"echo result-{step}"})
        history.append({"role": "assistant", "content": [block.model_dump() for block in answer.content]})
        result = {"type": "tool_result", "tool_use_id": call.id, "content": f"result-{step}"}
        history.append({"role": "user", "content": [result]})
        answer = ask(history)
        assert [block.text for block in answer.content] == [f"Step {step} is done."]
        history.append({"role": "assistant", "content": answer.content[0].text})
    bench.record(f"anthropic-sdk-{'stream' if stream else 'whole'}")
    assert_one_session_of_steps(bench, "result-{}")


def test_anthropic_errors_are_of_their_kind(bench: Bench) -> None:
    client = anthropic.Anthropic(base_url=bench.url, auth_token=bench.token, max_retries=0)
    hello: Any = [{"role": "user", "content": "hello"}]
    with pytest.raises(anthropic.AuthenticationError):
        client.with_options(auth_token="wrong").messages.create(model="turnwise", max_tokens=9, messages=hello)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nothing", max_tokens=9, messages=hello)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="turnwise", max_tokens=9, messages=[])
    long: Any = [{"role": "user", "content": "word " * 250_000}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long") as refused:
        client.messages.create(model="turnwise", max_tokens=9, messages=long)
    assert refused.value.type == "invalid_request_error"
    bench.stub.refuse_with = 429
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(model="turnwise", max_tokens=9, messages=hello)


@anthropic.beta_tool
def run(command: str) -> str:
    """Run a command.

    Args:
        command: the command
    """
    return command.removeprefix("echo ")


def test_anthropic_tool_runner_ten_steps(bench: Bench) -> None:
    """The TypeScript one is in test_agent_libraries.py."""
    bench.stub.reply = CALL
    client = anthropic.Anthropic(base_url=bench.url, auth_token=bench.token, max_retries=0)
    history: list[Any] = []
    for step in range(1, STEPS + 1):
        history.append({"role": "user", "content": message(step)})
        runner = client.beta.messages.tool_runner(model="turnwise", max_tokens=200, tools=[run], messages=[*history])
        for answer in runner:
            history.append({"role": "assistant", "content": answer.content})
            results = runner.generate_tool_call_response()
            history += [results] if results else []
    assert_one_session_of_steps(bench, "result-{}")
