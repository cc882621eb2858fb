"""A response that continues another: where its instructions and items stand, and what may not be continued."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.gateway.conftest import Agents
from tests.gateway.wire.test_responses import ask, history, streamed, turn
from turnwise.messages import text_of
from turnwise.types import TurnState


def item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


@pytest.mark.parametrize("role", ["developer", "system"])
def test_a_developers_item_stands_where_the_client_put_it(qwen: Agents, role: str) -> None:
    first = ask(qwen, [item("developer", f"be kind to a {role}"), item("user", f"say: first of {role}")])
    second = ask(qwen, [item(role, "be brief"), item("user", "say: second")], previous_response_id=first.id)
    before, after = turn(qwen, first), turn(qwen, second)
    assert (after.session_id, after.parent_id) == (before.session_id, before.id)
    assert after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
    assert [(m.role, text_of(m)) for m in qwen.journal.lookups.messages(after.id)] == [
        ("system", f"be kind to a {role}"),
        ("user", f"say: first of {role}"),
        ("assistant", f"first of {role}"),
        ("system", "be brief"),
        ("user", "say: second"),
    ]


def test_a_developers_item_alone_is_something_new(qwen: Agents) -> None:
    first = ask(qwen, "say: what a developer alone answers")
    second = ask(qwen, [item("developer", "Go on.")], previous_response_id=first.id)
    assert turn(qwen, second).parent_id == turn(qwen, first).id


def test_instructions_stand_in_front_and_hold_for_one_response(qwen: Agents) -> None:
    first = ask(qwen, "say: instructed", instructions="be kind")
    second = ask(
        qwen,
        [item("developer", "be exact"), item("user", "go on")],
        instructions="be brief",
        previous_response_id=first.id,
    )
    roles = [(m.role, text_of(m)) for m in qwen.journal.lookups.messages(turn(qwen, second).id)]
    assert roles[0] == ("system", "be brief")
    assert roles[-2:] == [("system", "be exact"), ("user", "go on")]
    assert ("system", "be kind") not in roles
    with pytest.raises(openai.BadRequestError, match="something new"):
        ask(qwen, [], instructions="be brief", previous_response_id=first.id)


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_a_response_that_is_not_to_be_stored_cannot_be_named_but_is_learned_from(qwen: Agents, how: str) -> None:
    asked = f"say: for once only, {how}"
    first = streamed(qwen, asked, store=False)[1] if how == "streamed" else ask(qwen, asked, store=False)
    assert first.store is False  # type: ignore[attr-defined]  # the SDK's type does not have it
    with pytest.raises(openai.BadRequestError) as refused:
        ask(qwen, "go on", previous_response_id=first.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")
    again = ask(qwen, [item("user", asked), *history(first), item("user", "go on")], store=False)
    before = turn(qwen, first)
    assert (turn(qwen, again).parent_id, before.state) == (before.id, TurnState.JUDGING)


def test_a_response_that_says_nothing_of_storing_can_be_named(qwen: Agents) -> None:
    for more in ({}, {"store": True}):
        first = ask(qwen, f"say: stored {more}", **more)
        assert ask(qwen, "go on", previous_response_id=first.id).previous_response_id == first.id
