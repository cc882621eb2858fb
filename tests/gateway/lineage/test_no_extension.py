"""A prompt that does not go on from the ids before it: it is rendered anew, and never trained on as if it was sampled.

A history may be another one because of the client, or of the family's template; and a renderer may break its promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from renderers.base import RenderedTokens
from renderers.qwen3 import Qwen3Renderer

from tests.gateway.callers import Caller, Talk, user
from tests.gateway.encoders import Habits
from tests.gateway.turn.test_token_truth import THOUGHT, begin, check_truth, extends
from tests.support.wire import ChatMessage, nested_calls
from turnwise.journal import WholeTurn
from turnwise.messages import from_chat
from turnwise.tokens.rendering import PromptRenderer, load_renderer

CALLED = THOUGHT + "Adding.\n" + nested_calls({"a": 1})


@pytest.fixture(scope="module")
def anew(qwen3_dir: Path) -> Callable[[WholeTurn], list[int]]:
    """The ids of a turn's conversation, rendered as a whole."""
    renderer = load_renderer(qwen3_dir)
    return lambda turn: renderer.render(turn.messages, turn.tools).ids


def other_tools(talk: Talk) -> None:
    talk.give_results()
    name, tool = talk.caller.name, talk.caller.tool
    other = {"function": tool["function"] | {"name": "sub"}} if name == "chat" else {"name": "sub"}
    talk.body["tools"] = [tool, tool | other]
    talk.tools = False  # they stand in the body


def other_instructions(talk: Talk) -> None:
    talk.give_results()
    system: ChatMessage = {"role": "system", "content": "Now be brief."}
    begun = talk.caller.body([system, user("hi")], Habits())
    if talk.key == "messages" and "system" not in begun:
        talk.body["messages"] = [begun["messages"][0], *talk.body["messages"]]
    talk.body |= {key: value for key, value in begun.items() if key in ("system", "instructions")}


def an_answer_of_its_own(talk: Talk) -> None:
    talk.give_results()
    talk._add([{"role": "assistant", "content": "I never sampled this."}])
    talk.say("go on")


def another_answer(talk: Talk) -> None:
    """The client has corrected what was sampled."""
    kept = len(talk.caller.body(talk.opening, Habits())[talk.key])
    talk.body[talk.key] = talk.body[talk.key][:kept]
    talk._add([{"role": "assistant", "content": "Adding, with a correction."}])
    talk.say("go on")


def the_user_speaks(talk: Talk) -> None:
    """The family's template then takes the reasoning out of the past."""
    talk.give_results(user("and now?"))


CHANGES = [other_tools, other_instructions, an_answer_of_its_own, another_answer, the_user_speaks]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_history_that_is_another_one_is_rendered_anew(
    caller: Caller,
    change: Callable[[Talk], None],
    anew: Callable[[WholeTurn], list[int]],
    request: pytest.FixtureRequest,
) -> None:
    talk = begin(caller, CALLED, request)
    before = talk.ask()
    change(talk)
    after = talk.ask()
    assert not after.bridged and not extends(after, before)
    assert after.prompt_ids == anew(after)
    talk.give_results()
    assert extends(talk.ask(), after), "and what comes next goes on from there"
    check_truth(talk.turns, caller.gateway.stub)


# -- a renderer that breaks its promise -------------------------------------------------------------------------------

Lie = Callable[[list[int], int, int], list[int]]
LIES: dict[str, Lie] = {
    "the first id": lambda ids, start, end: [ids[0] + 1, *ids[1:]],
    "the prompt's last id": lambda ids, start, end: [*ids[: start - 1], ids[start - 1] + 1, *ids[start:]],
    "the first sampled id": lambda ids, start, end: [*ids[:start], ids[start] + 1, *ids[start + 1 :]],
    "the last sampled id": lambda ids, start, end: [*ids[: end - 1], ids[end - 1] + 1, *ids[end:]],
    "one left out": lambda ids, start, end: [*ids[: start + 2], *ids[start + 3 :]],
    "one put in": lambda ids, start, end: [*ids[: start + 2], ids[start], *ids[start + 2 :]],
    "two changed over": lambda ids, start, end: [*ids[: start + 1], ids[start + 2], ids[start + 1], *ids[start + 3 :]],
    "the end left out": lambda ids, start, end: ids[: end - 1],
    "the answer left out": lambda ids, start, end: ids[:start] + ids[end:],
}
"""What a bridge may do to ids that were known: all of them, where the answer starts, and where it ends."""


def told(rendered: RenderedTokens | None, lie: Lie, start: int, end: int) -> RenderedTokens:
    assert rendered is not None
    ids = lie(rendered.token_ids, start, end)
    owners = (rendered.message_indices + [-1] * len(ids))[: len(ids)]
    return replace(rendered, token_ids=ids, message_indices=owners)


class Lying:
    """A renderer whose bridges change ids that were known."""

    def __init__(self, honest: Any, lie: Lie) -> None:
        self._honest, self._lie = honest, lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def bridge_to_next_turn(self, prompt: list[int], sampled: list[int], *added: Any, **more: Any) -> RenderedTokens:
        bridged = self._honest.bridge_to_next_turn(prompt, sampled, *added, **more)
        return told(bridged, self._lie, len(prompt), len(prompt) + len(sampled))


@pytest.mark.parametrize("family", ["qwen3", "chatml"])
@pytest.mark.parametrize("lie", LIES)
def test_a_bridge_that_changes_known_ids_is_none(lie: str, family: str, qwen3_dir: Path, model_dir: Path) -> None:
    honest = load_renderer(qwen3_dir if family == "qwen3" else model_dir)
    prompt = honest.render([from_chat(user("two sums"))], None)
    sampled = [*prompt.ids[3:9], honest.stop_token_ids[0]]
    added = [from_chat({"role": "tool", "tool_call_id": "c", "content": "3"})]
    kept = honest.bridge(prompt.ids, sampled, prompt.hint_at, added, None)
    assert kept is not None and kept.ids[: len(prompt.ids) + len(sampled)] == [*prompt.ids, *sampled]
    lying: Any = Lying(honest.renderer, LIES[lie])
    assert (
        PromptRenderer(lying, honest.decode, honest.encode).bridge(prompt.ids, sampled, prompt.hint_at, added, None)
        is None
    )


@pytest.mark.parametrize("lie", ["the last sampled id", "one put in", "the answer left out"])
def test_a_renderer_that_breaks_its_promise_does_not_break_ours(
    caller: Caller,
    lie: str,
    anew: Callable[[WholeTurn], list[int]],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Qwen3Renderer.bridge_to_next_turn
    lies: list[int] = []

    def lying(self: Qwen3Renderer, prompt: list[int], sampled: list[int], *added: Any, **more: Any) -> RenderedTokens:
        lies.append(len(sampled))
        return told(honest(self, prompt, sampled, *added, **more), LIES[lie], len(prompt), len(prompt) + len(sampled))

    talk = begin(caller, CALLED, request)
    talk.ask()
    with monkeypatch.context() as patched:
        patched.setattr(Qwen3Renderer, "bridge_to_next_turn", lying)
        for _ in range(2):
            talk.give_results()
            after = talk.ask()
            assert not after.bridged and after.prompt_ids == anew(after)
    assert len(lies) == 2, "it was asked, and not believed"
    fresh = talk.turns[-1]
    talk.give_results()
    assert extends(talk.ask(), fresh)
    check_truth(talk.turns, caller.gateway.stub)
    assert len({turn.session_id for turn in talk.turns}) == 1, "it is one conversation all the same"
