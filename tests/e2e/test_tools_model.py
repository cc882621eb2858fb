"""The embedded model that calls tools, whole: its prompts, its conversion, and calls in each of the three formats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from tests.support.processes import Server, serving
from turnwise.tokens.rendering import load_renderer

pytestmark = [pytest.mark.slow, pytest.mark.long]

QUESTION = "What is the weather in Paris?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOLD = {"name": "get_weather", "description": "Get the current weather in a city."}
FUNCTION = {"type": "function", "function": TOLD | {"parameters": SCHEMA}}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "n": [1]}}}


@pytest.fixture(scope="module")
def server(tools_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("tools") / "home"
    with serving(home, tools_model_dir, train__enabled=False, engine__threads=1) as running:
        yield running


def test_chat_completions_get_a_call(server: Server) -> None:
    client: Any = server.client(timeout=300)
    messages = [{"role": "user", "content": QUESTION}]
    asked = {"model": "turnwise", "messages": messages, "tools": [FUNCTION], "temperature": 0, "max_tokens": 60}
    answer = client.chat.completions.create(**asked).choices[0]
    assert answer.finish_reason == "tool_calls" and not answer.message.content
    called = answer.message.tool_calls[0]
    assert (called.function.name, json.loads(called.function.arguments)) == ("get_weather", {"city": "Paris"})
    # The result goes behind what was sampled, whatever form the call had there.
    messages += [answer.message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": called.id, "content": "18 degrees and sunny"}]
    raw = client.chat.completions.with_raw_response.create(**asked)
    assert raw.headers["x-turnwise-lineage"] == "continued"
    assert raw.parse().usage.completion_tokens > 0  # so small a model may well call again


def test_responses_get_a_call(server: Server) -> None:
    client: Any = server.client(timeout=300)
    tools = [{"type": "function", **TOLD, "parameters": SCHEMA}]
    answer = client.responses.create(model="turnwise", input=QUESTION, tools=tools, temperature=0, max_output_tokens=60)
    called = next(item for item in answer.output if item.type == "function_call")
    assert (called.name, json.loads(called.arguments)) == ("get_weather", {"city": "Paris"})


def test_messages_get_a_call(server: Server) -> None:
    client: Any = Anthropic(base_url=server.url, auth_token=server.token, max_retries=0, timeout=300)
    answer = client.messages.create(
        model="turnwise",
        messages=[{"role": "user", "content": QUESTION}],
        tools=[TOLD | {"input_schema": SCHEMA}],
        max_tokens=60,
        extra_body={"temperature": 0},
    )
    called = next(block for block in answer.content if block.type == "tool_use")
    assert (answer.stop_reason, called.name, called.input) == ("tool_use", "get_weather", {"city": "Paris"})


def test_a_greeting_is_answered_in_a_few_words(server: Server) -> None:
    client: Any = server.client(timeout=300)
    answer = client.chat.completions.create(model="turnwise", messages=[{"role": "user", "content": "Hello"}])
    assert answer.choices[0].finish_reason == "stop"
    assert "help" in answer.choices[0].message.content or "assist" in answer.choices[0].message.content
    assert answer.usage.completion_tokens < 60


CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "one"}],
    [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi\n\nthere  你好 café\t"},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "content": "12°", "tool_call_id": "c1"},
        {"role": "tool", "content": "<b>13</b>", "tool_call_id": "c1"},
        {"role": "user", "content": "ok"},
    ],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "12", "tool_call_id": "c1"},
        {"role": "assistant", "content": "it is 12"},
        {"role": "system", "content": "later"},
        {"role": "user", "content": "b"},
    ],
]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, [FUNCTION]])
def test_prompts_are_the_ids_of_the_models_own_template(
    tools_model_dir: Path, conversation: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> None:
    from transformers import AutoTokenizer

    renderer: Any = load_renderer(tools_model_dir).renderer
    assert type(renderer).__name__ == "Qwen25Renderer"
    tokenizer: Any = AutoTokenizer.from_pretrained(tools_model_dir)
    expected = tokenizer.apply_chat_template(conversation, tools=tools, add_generation_prompt=True, return_dict=False)
    assert renderer.render_ids(conversation, tools=tools, add_generation_prompt=True) == expected
