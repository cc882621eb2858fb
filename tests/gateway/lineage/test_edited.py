"""An edited message is a branch also where the turn before it had to be rendered anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Running
from tests.gateway.lineage.test_sessions_api import next_state, session_of, user
from tests.gateway.lineage.test_wild import chat, link
from turnwise.types import TurnKind

A1 = "say: The first answer, long enough to be told apart from others."
HEARTBEAT = user("[OpenClaw heartbeat poll] say: HEARTBEAT_OK")


def beaten(gateway: Running) -> tuple[str, list[dict[str, Any]]]:
    """A main turn, and a history in which a heartbeat stays behind it."""
    first, answer = chat(gateway, [user(A1)])
    history = [user(A1), answer, HEARTBEAT]
    beat, answer = chat(gateway, history)
    assert gateway.turn(beat).kind is TurnKind.SIDE
    return first, [*history, answer]


def test_a_message_edited_after_a_heartbeat_branches_off(gateway: Running) -> None:
    first, history = beaten(gateway)
    old, _ = chat(gateway, [*history, user("say: What I asked at first.")])
    edited, answer = chat(gateway, [*history, user("say: What I meant.")])
    assert session_of(gateway, old) == session_of(gateway, first) != session_of(gateway, edited)
    assert link(gateway, edited) == session_of(gateway, first)
    assert [m["content"] for m in next_state(gateway, first)] == ["say: What I asked at first."]
    turn = gateway.turn(edited)
    assert (turn.bridged, turn.prompt_ids) == (False, gateway.stub.sampled[-1][0])
    last, _ = chat(gateway, [*history, user("say: What I meant."), answer, user("thanks")])
    assert session_of(gateway, last) == session_of(gateway, edited)
    assert [m["content"] for m in next_state(gateway, edited)] == ["thanks"]


def test_a_message_edited_under_changed_instructions_branches_off(gateway: Running) -> None:
    def under(text: str) -> dict[str, Any]:
        return {"role": "system", "content": text}

    first, answer = chat(gateway, [under("be brief"), user(A1)])
    history = [under("be long"), user(A1), answer]
    old, _ = chat(gateway, [*history, user("say: What I asked at first.")])
    edited, _ = chat(gateway, [*history, user("say: What I meant.")])
    assert session_of(gateway, old) == session_of(gateway, first) != session_of(gateway, edited)
    assert link(gateway, edited) == session_of(gateway, first)


def test_other_words_after_a_heartbeat_because_no_answer_came_are_the_same_session(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gateway.config.server.__dict__, "engine_return_s", 0.2)
    first, history = beaten(gateway)
    gateway.stub.refuse_with = 502
    with pytest.raises(AssertionError, match="refuses"):
        chat(gateway, [*history, user("say: What I asked at first.")])
    gateway.stub.refuse_with = None
    again, _ = chat(gateway, [*history, user("say: The connection was lost. What I asked at first.")])
    assert session_of(gateway, again) == session_of(gateway, first)
    edited, _ = chat(gateway, [*history, user("say: What I meant.")])
    assert session_of(gateway, edited) != session_of(gateway, first), "now an answer came"


@pytest.mark.parametrize("how", ["extended", "rendered anew"])
def test_in_a_named_session_each_turn_knows_the_one_it_branched_off(gateway: Running, how: str) -> None:
    """The client's id holds for both branches; the turns in it are a tree."""
    named = {"X-Session-Id": f"edited-{how.split()[0]}"}
    system = {"role": "system", "content": "be brief"}
    first, answer = chat(gateway, [system, user(A1)], **named)
    if how == "rendered anew":
        system = {"role": "system", "content": "be long"}
    history = [system, user(A1), answer]
    old, old_answer = chat(gateway, [*history, user("say: What I asked at first.")], **named)
    edited, new_answer = chat(gateway, [*history, user("say: What I meant.")], **named)
    later_old, _ = chat(gateway, [*history, user("say: What I asked at first."), old_answer, user("old")], **named)
    later_new, _ = chat(gateway, [*history, user("say: What I meant."), new_answer, user("new")], **named)
    turns = [gateway.turn(turn) for turn in (old, edited, later_old, later_new)]
    assert {turn.session_id for turn in turns} == {named["X-Session-Id"]}
    assert [turn.parent_id for turn in turns] == [first, first, old, edited]
    assert [next_state(gateway, turn)[0]["content"] for turn in (first, old, edited)] == [
        "say: What I asked at first.",
        "old",
        "new",
    ]
