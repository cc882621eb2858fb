"""What a prompt costs: a long session tokenises only what is new, and nobody waits for another's prompt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from transformers import PreTrainedTokenizerFast

from tests.conftest import Running
from tests.gateway.callers import FORMATS, LIMITS, Caller, Talk, user
from tests.gateway.conftest import Agents
from tests.support.wire import nested_calls
from turnwise.tokens.rendering import PromptRenderer

CALL = "<think>\na sum\n</think>\n\n" + nested_calls({"a": 1})


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Characters that the renderer's tokenizer has read so far, for each request (append a 0 to begin one)."""
    counts: list[int] = [0]
    inner = PreTrainedTokenizerFast._encode_plus

    def counting(self: PreTrainedTokenizerFast, text: Any, *args: Any, **more: Any) -> Any:
        counts[-1] += len(text) if isinstance(text, str) else sum(map(len, text))
        return inner(self, text, *args, **more)

    monkeypatch.setattr(PreTrainedTokenizerFast, "_encode_plus", counting)
    return counts


def in_tool_cycles(caller: Caller, request: pytest.FixtureRequest, by_id: bool = False) -> Talk:
    """An agent at work: every answer is a call, and a result of always the same length comes back."""
    caller.gateway.stub.reply = lambda _: CALL
    opening = [user(f"Please. {request.node.name} " + "A long task. " * 40)]
    talk = Talk(caller, opening, tools=True, by_id=by_id)
    talk.body[LIMITS[caller.name]] = 1000
    return talk


def check_only_new(talk: Talk, tokenised: list[int]) -> None:
    for _ in range(10):
        tokenised.append(0)
        talk.ask()
        assert talk.give_results() == 1
    first, *later = tokenised[1:]
    assert first > 500, "the first prompt is rendered as a whole"
    assert 0 < max(later) < 100, tokenised
    assert len(set(later)) == 1, tokenised
    assert all(turn.bridged for turn in talk.turns[1:])


def test_a_long_session_tokenises_only_what_is_new(
    caller: Caller, tokenised: list[int], request: pytest.FixtureRequest
) -> None:
    check_only_new(in_tool_cycles(caller, request), tokenised)


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_a_long_session_of_named_responses_tokenises_only_what_is_new(
    qwen: Agents, how: str, tokenised: list[int], request: pytest.FixtureRequest
) -> None:
    caller = Caller(qwen, "responses", how == "streamed")
    check_only_new(in_tool_cycles(caller, request, by_id=True), tokenised)


class Gate:
    """Holds a method of the renderer up until it is opened."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def hold(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        inner = getattr(PromptRenderer, method)

        def held(renderer: PromptRenderer, *args: Any) -> Any:
            self.entered.set()
            assert self.open.wait(20)
            return inner(renderer, *args)

        monkeypatch.setattr(PromptRenderer, method, held)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()  # whoever still waits


def check_the_loop_goes_on(gateway: Running, gate: Gate, ask: Callable[[], Any]) -> Any:
    """`ask` is held up in the renderer; meanwhile others are answered. Gives what it was answered with."""
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(ask()))
    asking.start()
    assert gate.entered.wait(20), "the renderer is asked"
    assert httpx.get(f"{gateway.url}/healthz", timeout=10).status_code == 200
    assert not answers
    gate.open.set()
    asking.join(20)
    [answer] = answers
    return answer


def test_the_event_loop_goes_on_while_a_prompt_is_rendered(
    caller: Caller, qwen: Agents, gate: Gate, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.hold(monkeypatch, "render")
    asked = [user(f"say: hi from {request.node.name}")]
    turn = check_the_loop_goes_on(qwen, gate, lambda: caller.ask(asked))
    assert turn.response_ids and not turn.bridged


def check_the_loop_goes_on_at_a_bridge(talk: Talk, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    talk.ask()
    talk.give_results()
    gate.hold(monkeypatch, "bridge")
    assert check_the_loop_goes_on(talk.caller.gateway, gate, talk.ask).bridged


def test_the_event_loop_goes_on_while_a_prompt_is_bridged(
    caller: Caller, gate: Gate, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_the_loop_goes_on_at_a_bridge(in_tool_cycles(caller, request), gate, monkeypatch)


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_the_event_loop_goes_on_while_a_prompt_is_bridged_from_a_named_response(
    qwen: Agents, how: str, gate: Gate, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller(qwen, "responses", how == "streamed")
    check_the_loop_goes_on_at_a_bridge(in_tool_cycles(caller, request, by_id=True), gate, monkeypatch)


def test_the_event_loop_goes_on_while_tokens_are_counted(
    qwen: Agents, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": "turnwise", "messages": [user("count me")]}
    gate.hold(monkeypatch, "render")
    url = f"{qwen.url}{FORMATS['messages'][0]}/count_tokens"
    answer = check_the_loop_goes_on(qwen, gate, lambda: httpx.post(url, headers=qwen.auth, json=body, timeout=20))
    assert answer.json()["input_tokens"] > 3
