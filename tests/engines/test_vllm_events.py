"""The same request to vLLM's own routes and to turnwise in front of the same server: the same ids, the same events.

The server gets turnwise's template for tools, so that both render the same prompt. Answers are compared event by event
(`tests/support/same_events.py`). Where the two speak a format differently, `KNOWN` says why; the SDK's types and the
format's reference decide who is right. Any other difference fails, and so does a known one that is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from tests.conftest import GatewayThread
from tests.engines.event_cases import BAD, CASES, HELLO, OTHERWISE, PATHS, TEMPLATE, Case, spoilt
from tests.support.same_events import Event, chat_steps, differences, known_to, merged, plain
from tests.support.vllm_server import PYTHON, vllm_server
from tests.support.wire import events_of
from turnwise.config import load_config
from turnwise.journal import Journal, WholeTurn

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="no vLLM here; `make test-vllm` installs it and runs this"),
]

TYPES: dict[str, tuple[Any, Any]] = {
    "chat": (ChatCompletion, ChatCompletionChunk),
    "responses": (Response, ResponseStreamEvent),
    "messages": (Message, RawMessageStreamEvent),
}
IDS_TOO = {"return_token_ids": True}
NULL = "null or absent is the same in the SDK's type, and vLLM writes the null"
END = "the token that ends an answer has no text here, so that the tokens' texts are the answer's"
CUT_CALL = "a call that the limit cuts is a call, as in vLLM's own stream; its whole answer has it as text"
KNOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "chat": {
        NULL: (
            *(f"message.{name}: null | –" for name in ("annotations", "audio", "function_call")),
            "service_tier: null | –",
            "completion_tokens_details: null | –",
        ),
        END: ('token: "<|im_end|>" | ""', "bytes: [60, 124, 105, 109, 95, 101, 110, 100, 124, 62] | []"),
        "log-probs have a refusal, if only null, in the reference": ("logprobs.refusal: – | null",),
        "with include_usage all chunks have a usage, of null, in the reference": ('usage: "absent" | "null"',),
        CUT_CALL: ('content: "<tool_call>* | null', "message.tool_calls: – | [*", 'id: "#0" | "#1"'),
    },
    "responses": {
        NULL: (
            *(f"{name}: null | –" for name in ("max_tool_calls", "prompt", "user", "top_logprobs", "phase")),
            *(f"{name}: null | –" for name in ("async", "caller", "namespace")),
            *(f"tools.{name}: null | –" for name in ("allowed_callers", "defer_loading", "output_schema")),
            *(f"{name}: null | –" for name in ("format.description", "format.strict", "text.verbosity")),
        ),
        "the SDK's type does not ask for it": (
            "background: false | –",
            'service_tier: "auto" | –',
            "top_logprobs: 0 | –",
        ),
        "the reference has it": ('completed_at: – | "a completed_at"', "error: – | null", "metadata: null | {}"),
        "the defaults are those of the reference": (
            'text: null | {"format": {"type": "text"}}',
            'tool_choice: "none" | "auto"',
        ),
        "a list in the SDK's type": ("content.logprobs: null | []", "part.logprobs: null | []"),
        "an answer that the limit cuts is incomplete, and so is its last item": (
            'type: "response.completed" | "response.incomplete"',
            'status: "completed" | "incomplete"',
        ),
        "text that is done has the log-probs of its tokens": ("logprobs: [] | [{*",),
        END: ('token: "<|im_end|>" | ""', "bytes: [60, 124, 105, 109, 95, 101, 110, 100, 124, 62] | []"),
        "a stream has the log-prob of the end as a whole answer has it; vLLM's has not": (
            'content.logprobs: [{* | [{*"token": "", "top_logprobs": []}]',
            'part.logprobs: [{* | [{*"token": "", "top_logprobs": []}]',
        ),
        CUT_CALL: (
            'type: "message" | "function_call"',
            'content: [*"<tool_call>* | –',
            'role: "assistant" | –',
            'name: – | "add"',
            "arguments: – | *",
            'call_id: – | "#1"',
            'id: "#1" | "#2"',
        ),
    },
    "messages": {
        "null, not absent, in the SDK's type": ("stop_sequence: – | null",),
        "a prefix cache is filled without being asked; nothing is billed for it": (
            "usage.cache_creation_input_tokens: 0 | –",
        ),
        CUT_CALL: (
            'type: "text" | "tool_use"',
            'text: "<tool_call>* | –',
            'id: "#0" | "#1"',
            'content.id: – | "#0"',
            'name: – | "add"',
            'input: – | {"a": 5}',
        ),
    },
}
"""Why the two differ, and where: `path: theirs | ours`, a path's beginning left out, a star for anything."""


@dataclass(frozen=True)
class Compared:
    """A case's answers from both: how they differ, our record, and vLLM's ids, which it gives with chat alone."""

    differences: set[str]
    turn: WholeTurn
    theirs: list[Event]


@dataclass
class Pair:
    """vLLM, and turnwise in front of it."""

    theirs: str
    ours: str
    headers: dict[str, str]
    journal: Journal
    compared: dict[str, Compared] = field(default_factory=dict)

    def ask(self, path: str, body: Event, more: Event | None = None) -> tuple[httpx.Response, httpx.Response]:
        """The answers of both to one body; the model is called what each calls the base model. ``more`` is for vLLM."""
        theirs = self.ask_vllm(path, body | (more or {}))
        ours = httpx.post(f"{self.ours}{path}", json={"model": "turnwise"} | body, headers=self.headers, timeout=300)
        return theirs, ours

    def ask_vllm(self, path: str, body: Event) -> httpx.Response:
        return httpx.post(f"{self.theirs}{path}", json={"model": "base"} | body, timeout=300)

    def compare(self, case: Case) -> Compared:
        """Ask both; once a case."""
        if case.id not in self.compared:
            theirs, ours = self.ask(PATHS[case.kind], case.body, IDS_TOO if case.kind == "chat" else None)
            assert re.search(case.shows, theirs.text), theirs.text
            turn = self.journal.turns.get(ours.headers["x-turnwise-turn-id"])
            assert turn is not None
            found = differences(read(case.kind, theirs), read(case.kind, ours))
            self.compared[case.id] = Compared(found, turn, bodies_of(theirs))
        return self.compared[case.id]


def bodies_of(response: httpx.Response) -> list[Event]:
    assert response.status_code == 200, response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        return events_of(response.content)
    return [response.json()]


def read(kind: str, response: httpx.Response) -> list[Event]:
    """An answer as events that can be compared; a whole one is a single event."""
    bodies = bodies_of(response)
    whole, event = TYPES[kind]
    if not response.headers["content-type"].startswith("text/event-stream"):
        return plain([{"type": "whole"} | known_to(whole, bodies[0])])
    if kind == "responses":
        assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    if kind == "chat":
        assert response.text.endswith("data: [DONE]\n\n")
    events = plain([known_to(event, body) for body in bodies])
    return merged(chat_steps(events) if kind == "chat" else events)


@pytest.fixture(scope="module")
def pair(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("events")
    template = folder / "template.jinja"
    template.write_text(TEMPLATE)
    flags = ("--logprobs-mode", "processed_logprobs", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with vllm_server(model_dir, folder / "server.log", *flags, "--chat-template", str(template)) as server:
        config = load_config(overrides={"home": folder / "home", "server.port": 0, "engine.url": server.url})
        thread = GatewayThread(config, server.url)
        thread.start(config)
        journal = Journal.open(config)
        token = config.token_path.read_text().strip()
        made = Pair(server.url, thread.url, {"Authorization": f"Bearer {token}"}, journal)
        for case in CASES:  # a long prompt then comes from the prefix cache for both, and they say so
            if case.kind == "chat" and case.tools and not case.body.get("stream"):
                made.ask_vllm(PATHS["chat"], case.body | {"max_tokens": 1})
        yield made
        journal.close()
        thread.stop()


@cache
def pattern(known: str) -> re.Pattern[str]:
    """A known difference, at the top of an event or within something."""
    return re.compile(r"(.*\.)?" + re.escape(known).replace(r"\*", ".*"), re.DOTALL)


def is_known(case: Case, line: str) -> bool:
    reasons = KNOWN[case.kind].items()
    places = [known for why, places in reasons for known in places if why != CUT_CALL or case.name == "cut call"]
    return any(pattern(known).fullmatch(line) for known in places)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_events_are_those_of_vllm(pair: Pair, case: Case) -> None:
    new = sorted(line for line in pair.compare(case).differences if not is_known(case, line))
    assert new == [], "differences `path: theirs | ours` that are not in KNOWN"


@pytest.mark.parametrize("kind", PATHS)
def test_no_known_difference_is_gone(pair: Pair, kind: str) -> None:
    seen = set().union(*(pair.compare(case).differences for case in CASES if case.kind == kind))
    places = [known for reason in KNOWN[kind].values() for known in reason]
    gone = [known for known in places if not any(pattern(known).fullmatch(line) for line in seen)]
    assert gone == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_ids_are_the_same(pair: Pair, case: Case) -> None:
    """Prompts are those that vLLM renders of the conversation, and answers are sampled alike.

    The other formats' answers have the same text and as many tokens, which the test of their events compares.
    """
    body = {"messages": case.messages, "tools": case.tools, "add_generation_prompt": True}
    prompt = pair.ask_vllm("/tokenize", body).json()["tokens"]
    compared = pair.compare(case)
    assert compared.turn.prompt_ids == prompt
    if case.kind == "chat":
        assert [body["prompt_token_ids"] for body in compared.theirs if body.get("prompt_token_ids")] == [prompt]
        choices = [choice for body in compared.theirs for choice in body["choices"]]
        assert [i for choice in choices for i in choice.get("token_ids") or []] == compared.turn.response_ids


def test_counted_tokens_are_the_same(pair: Pair) -> None:
    theirs, ours = pair.ask("/v1/messages/count_tokens", {"messages": HELLO})
    assert theirs.json()["input_tokens"] == ours.json()["input_tokens"]


@pytest.mark.parametrize("kind", PATHS)
def test_bad_requests_are_refused_with_the_same_status(pair: Pair, kind: str) -> None:
    asked = [(change, pair.ask(PATHS[kind], spoilt(kind, change))) for change in BAD[kind]]
    statuses = [(change, theirs.status_code, ours.status_code) for change, (theirs, ours) in asked]
    assert [one for one in statuses if one[1] != one[2] or one[1] not in (400, 404)] == []


@pytest.mark.parametrize(("kind", "change", "theirs", "ours", "why"), OTHERWISE)
def test_requests_that_vllm_takes_otherwise(
    pair: Pair, kind: str, change: Event, theirs: int, ours: int, why: str
) -> None:
    answers = pair.ask(PATHS[kind], spoilt(kind, change))
    assert [answer.status_code for answer in answers] == [theirs, ours], why


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("body", [b"{", b"[]", b""])
def test_bodies_that_are_no_request(pair: Pair, kind: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    theirs = httpx.post(f"{pair.theirs}{PATHS[kind]}", content=body, headers=headers, timeout=60)
    ours = httpx.post(f"{pair.ours}{PATHS[kind]}", content=body, headers=headers | pair.headers, timeout=60)
    assert theirs.status_code == ours.status_code == 400
