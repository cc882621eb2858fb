"""A gateway in front of an upstream that takes messages: a second gateway, in OpenAI's and in Anthropic's format."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import GatewayThread, Running
from tests.support.raw_http import Part, Played, answer, plays, sse
from tests.support.servers import wait_until
from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.messages import text_of
from turnwise.types import Exclusion, TurnState, Verdict

TOOL: Any = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.fixture(params=["openai", "anthropic"])
def relay(
    request: pytest.FixtureRequest, gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    """A gateway whose engine is the API of `gateway`."""
    monkeypatch.setenv("TURNWISE_ENGINE_API_KEY", gateway.token)
    settings: dict[str, Any] = {
        "home": tmp_path / "relay",
        "engine.kind": "upstream",
        "engine.url": f"{gateway.url}/v1",
        "engine.api": request.param,
        "engine.model": "turnwise",
        "train.enabled": False,
    }
    config = load_config(overrides=settings)
    thread = GatewayThread(config, gateway.url)
    thread.start(config)
    journal = Journal.open(config)
    token = (config.home / "token").read_text().strip()
    yield Running(thread.url, token, gateway.stub, journal, config)
    journal.close()
    thread.stop()


def ask(gateway: Running, messages: list[Any], **more: Any) -> Any:
    return gateway.client().chat.completions.create(model="turnwise", messages=messages, max_tokens=200, **more)


def test_served_recorded_judged_and_never_trained(relay: Running) -> None:
    first = ask(relay, [{"role": "user", "content": "say: The sky is blue."}])
    answer = first.choices[0].message
    assert (answer.content, first.choices[0].finish_reason) == ("The sky is blue.", "stop")
    assert first.usage.completion_tokens > 0
    turn = relay.turn(first)
    assert (turn.state, turn.response_ids, turn.logprobs, turn.prompt_ids) == (TurnState.WAITING, [], None, [])
    assert text_of(turn.answer) == "The sky is blue."

    history = [{"role": "user", "content": "say: The sky is blue."}, {"role": "assistant", "content": answer.content}]
    ask(relay, [*history, {"role": "user", "content": "No, shorter please."}])
    (task,) = relay.journal.judging.claim("judge", 1, 60.0)
    assert task.turn_id == turn.id
    assert [text_of(m) for m in task.next_state] == ["No, shorter please."]
    relay.journal.judging.record(task, Verdict(score=-1, hint="Be shorter.", judge="test", reason="asked to"))
    after = relay.turn(first)
    assert (after.state, after.exclusion) == (TurnState.EXCLUDED, Exclusion.NOT_TRAINABLE)
    assert relay.journal.status.figures()["samples_ready"] == 0


def test_streams_and_tool_calls_pass_through(relay: Running) -> None:
    text = 'say: Wait. <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    with relay.client().chat.completions.stream(
        model="turnwise", messages=[{"role": "user", "content": text}], tools=[TOOL], max_tokens=200
    ) as events:
        kinds = [event.type for event in events]
        final = events.get_final_completion().choices[0]
    assert kinds.count("content.delta") >= 1
    assert (final.message.content, final.finish_reason) == ("Wait.", "tool_calls")
    (call,) = final.message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("add", '{"a": 1}')


def test_an_error_keeps_its_status_and_the_turn_is_not_lost(relay: Running) -> None:
    relay.stub.refuse_with = 429
    with pytest.raises(openai.RateLimitError) as caught:
        ask(relay, [{"role": "user", "content": "hello"}])
    assert "upstream" in caught.value.message
    wait_until(lambda: relay.journal.status.figures()["excluded"] == {Exclusion.INFRASTRUCTURE: 1})


@dataclass
class Fronted:
    client: httpx.AsyncClient
    upstream: Played
    journal: Journal

    async def ask(self, path: str = "chat/completions", **fields: Any) -> httpx.Response:
        said = "input" if path == "responses" else "messages"
        body = {"model": "turnwise", said: [{"role": "user", "content": "hi"}]} | fields
        return await self.client.post(f"/v1/{path}", json=body)

    def asked(self) -> list[dict[str, Any]]:
        """The bodies that the upstream was asked for answers with."""
        return [request.body for request in self.upstream.received if request.method == "POST"]

    async def failed_turns(self) -> int:
        """How many turns ended without an answer; waits until there is one."""
        await asyncio.to_thread(wait_until, lambda: self.journal.status.figures()["excluded"])
        return self.journal.status.figures()["excluded"][Exclusion.INFRASTRUCTURE]


@contextlib.asynccontextmanager
async def in_front_of(
    home: Path, *answers: Sequence[Part], api: str = "openai", strict: bool = False
) -> AsyncIterator[Fronted]:
    """A gateway whose upstream plays these answers."""
    async with plays(*answers) as played:
        config = load_config(
            overrides={
                "home": home,
                "server.strict": strict,
                "engine.kind": "upstream",
                "engine.url": played.url,
                "engine.api": api,
                "train.enabled": False,
            }
        )
        thread = GatewayThread(config, played.url)
        await asyncio.to_thread(thread.start, config)
        headers = {"Authorization": f"Bearer {(config.home / 'token').read_text().strip()}"}
        journal = Journal.open(config)
        async with httpx.AsyncClient(base_url=thread.url, headers=headers, timeout=20, trust_env=False) as client:
            yield Fronted(client, played, journal)
        journal.close()
        await asyncio.to_thread(thread.stop)


DONE = sse({"choices": [{"delta": {"content": "{}"}, "finish_reason": "stop"}]})
SCHEMA = {"type": "object", "properties": {"a": {"type": ["string", "null"], "default": None}}}
NAMED = {"name": "mine", "description": "how", "schema": SCHEMA, "strict": True}


@pytest.mark.parametrize(
    ("path", "fields", "told"),
    [
        (
            "chat/completions",
            {"response_format": {"type": "json_schema", "json_schema": NAMED}, "reasoning_effort": "low"},
            {"response_format": {"type": "json_schema", "json_schema": NAMED}, "reasoning_effort": "low"},
        ),
        (
            "chat/completions",
            {"response_format": {"type": "json_object"}},
            {"response_format": {"type": "json_object"}},
        ),
        ("chat/completions", {"response_format": {"type": "text"}, "reasoning_effort": None}, {}),
        (
            "responses",
            {"text": {"format": {"type": "json_schema", **NAMED}}, "reasoning": {"effort": "high"}},
            {"response_format": {"type": "json_schema", "json_schema": NAMED}, "reasoning_effort": "high"},
        ),
        ("responses", {"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ("responses", {"text": {"verbosity": "low"}, "reasoning": None}, {"verbosity": "low"}),
        ("chat/completions", {"verbosity": "high"}, {"verbosity": "high"}),
        ("messages", {"max_tokens": 9, "output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        (
            "messages",
            {"max_tokens": 9, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}},
        ),
    ],
)
async def test_the_form_and_the_effort_reach_the_upstream_whole(
    tmp_path: Path, path: str, fields: dict[str, Any], told: dict[str, Any]
) -> None:
    async with in_front_of(tmp_path, DONE) as fronted:
        assert (await fronted.ask(path, **fields)).status_code == 200
        (body,) = fronted.asked()
    assert {key: body[key] for key in ("response_format", "reasoning_effort", "verbosity") if key in body} == told


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_strict_tools_of_a_messages_request_stay_strict(tmp_path: Path, api: str) -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}, "strict": True}]
    async with in_front_of(tmp_path, answer(400, b""), api=api) as fronted:
        await fronted.ask("messages", max_tokens=9, tools=tools, output_config={"effort": "max"})
        (body,) = fronted.asked()
    (tool,) = body["tools"]
    if api == "anthropic":
        assert (tool["strict"], body["output_config"]) == (True, {"effort": "max"})
    else:
        assert (tool["function"]["strict"], body["reasoning_effort"]) == (True, "max")


async def test_strict_tools_of_a_responses_request_stay_strict(tmp_path: Path) -> None:
    tool = {"name": "f", "parameters": {"type": "object"}}
    tools = [{"type": "function", "strict": True, **tool}, {"type": "function", **tool, "name": "g"}]
    async with in_front_of(tmp_path, DONE) as fronted:
        await fronted.ask("responses", tools=tools)
        (body,) = fronted.asked()
    assert [tool["function"].get("strict") for tool in body["tools"]] == [True, None]


@pytest.mark.parametrize(
    ("path", "fields", "named", "api"),
    [
        ("chat/completions", {"logprobs": True}, "logprobs", "anthropic"),
        ("chat/completions", {"logprobs": True, "stream": True}, "logprobs", "anthropic"),
        ("responses", {"include": ["message.output_text.logprobs"]}, "include", "openai"),
    ],
)
async def test_log_probs_that_nobody_has_are_refused_by_name(
    tmp_path: Path, path: str, fields: dict[str, Any], named: str, api: str
) -> None:
    async with in_front_of(tmp_path, DONE, api=api) as fronted:
        refused = await fronted.ask(path, **fields)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, named)
        assert fronted.asked() == []
        assert await fronted.failed_turns() == 1


@pytest.mark.parametrize("fields", [{"reasoning_effort": "none"}, {"response_format": {"type": "json_object"}}])
async def test_a_form_that_the_api_has_no_word_for_is_refused_by_name(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with in_front_of(tmp_path, DONE, api="anthropic") as fronted:
        refused = await fronted.ask(**fields)
        assert refused.status_code == 400
        assert next(iter(fields)) in refused.json()["error"]["message"]
        assert fronted.asked() == []


@pytest.mark.parametrize("index", [1, 1_000_000_000, None])
async def test_a_tool_call_out_of_its_place_is_a_bad_gateway(tmp_path: Path, index: Any) -> None:
    call = {"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    event = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    async with in_front_of(tmp_path, sse(event)) as fronted:
        assert (await fronted.ask(tools=[TOOL])).status_code == 502
        assert await fronted.failed_turns() == 1


@pytest.mark.parametrize(
    ("status", "given", "told"),
    [
        (429, "17", "17"),
        (429, None, "1"),
        (503, None, "1"),
        (529, None, "1"),
        (529, "2.5", "3"),
        (500, "9", "9"),
        (500, None, None),
    ],
)
async def test_any_error_keeps_its_retry_after(
    tmp_path: Path, status: int, given: str | None, told: str | None
) -> None:
    headers = {} if given is None else {"retry_after": given}
    async with in_front_of(tmp_path, answer(status, {"error": {"message": "no"}}, **headers)) as fronted:
        refused = await fronted.ask()
    assert (refused.status_code, refused.headers.get("retry-after")) == (status, told)


def test_status_says_that_nothing_is_trained(relay: Running) -> None:
    status = httpx.get(f"{relay.url}/v1/status", headers=relay.admin).json()
    assert status["engine"] == {"kind": "upstream", "trainable": False}
    assert httpx.get(f"{relay.url}/readyz").status_code == 200
