"""A model that sees and thinks: what it thought at a step stays in the prompts of later ones (OpenWebRL §4.2), where
its pictures do not. Agent, renderer, template and gateway are real; the engine says what the test has it say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.thinker import Thinking, thinking_gateway
from tests.support.tiny_vision import png
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Action, Instructions, Observation
from turnwise.messages import LEFT_OUT
from turnwise.types import MODEL_NAME

SIDE = 20
RED = png((200, 20, 20), SIDE, SIDE)
STEPS = 4
CLICK = {
    "type": "function",
    "function": {
        "name": "click",
        "description": "clicks",
        "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Thinking]:
    with thinking_gateway(tmp_path, (SIDE, SIDE)) as thinking:
        yield thinking


def played(gateway: Thinking, keep: int, tools: tuple[dict[str, Any], ...] = ()) -> ModelActor:
    """Steps of an agent that is shown a page with a picture at each."""
    url = f"{gateway.url}/s/a/v1"
    actor = ModelActor(
        url, gateway.token, MODEL_NAME, {}, Instructions("Look.", tools), lambda text: Action((), text), None, keep
    )
    for page in range(STEPS):
        assert actor.act(Observation(f"page {page}", (f"result {page}",) if page else (), (RED,))) is not None
    assert len(gateway.thinker.prompts) == STEPS
    return actor


@pytest.mark.parametrize("keep", [1, 2])
def test_what_was_thought_at_a_step_stays_in_the_prompts_of_later_ones(gateway: Thinking, keep: int) -> None:
    actor, prompts = played(gateway, keep), gateway.thinker.prompts
    assert [answer.thought.strip() for answer in actor.spent] == [f"saw page {page}" for page in range(STEPS)]
    for step, ids in enumerate(prompts):
        shown = gateway.thinker.prompt(step)
        assert shown.count(LEFT_OUT) == max(0, step + 1 - keep)
        for before in range(step):
            assert f"<think>\nsaw page {before}\n</think>\n\nstep {before}<|im_end|>" in shown
        assert shown.endswith("<|im_start|>assistant\n<think>\n")
        went_on = step and ids[: len(prompts[step - 1])] == prompts[step - 1]
        assert went_on == (0 < step < keep)


def test_thoughts_before_calls_of_tools_stay_as_they_were_sampled(gateway: Thinking) -> None:
    call = '<tool_call>\n{{"name": "click", "arguments": {{"x": {}}}}}\n</tool_call>'
    gateway.thinker.says = lambda step: f"saw page {step}\n</think>\n\n{call.format(step)}"
    actor = played(gateway, 1, (CLICK,))
    assert all(message["tool_calls"] for message in actor.transcript.messages if message["role"] == "assistant")
    last = gateway.thinker.prompt(STEPS - 1)
    for before in range(STEPS - 1):
        told = f"<think>\nsaw page {before}\n</think>\n\n{call.format(before)}<|im_end|>"
        result = f"<tool_response>\nresult {before + 1}\n</tool_response>"
        assert told in last and last.index(told) < last.index(result)


def test_thoughts_without_an_end_stay_and_are_closed(gateway: Thinking) -> None:
    """An answer that was cut in its thoughts says nothing; in a prompt that is written anew they have their end."""
    gateway.thinker.says = lambda step: f"and on {step}" if step < 2 else f"saw page {step}\n</think>\n\nstep {step}"
    actor = played(gateway, 1)
    assert [message["content"] for message in actor.transcript.messages if message["role"] == "assistant"] == [
        "", "", "step 2", "step 3",
    ]  # fmt: skip
    last = gateway.thinker.prompt(STEPS - 1)
    assert all(f"<think>\nand on {before}\n</think>\n\n<|im_end|>" in last for before in range(2))
