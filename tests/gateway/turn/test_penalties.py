"""Penalties and min-p reach the engine from every format that has them; most clients that send one always do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.callers import Caller, user

BENT = {"frequency_penalty": 0.3, "presence_penalty": 0.2, "repetition_penalty": 1.1, "min_p": 0.05}


def only_openai(caller: Caller) -> None:
    if caller.name == "messages":
        pytest.skip("the format has no penalties")


@pytest.mark.parametrize("fields", [{"frequency_penalty": 0.3}, BENT], ids=["browser-use", "all"])
def test_the_engine_is_asked_with_them_and_they_are_recorded(caller: Caller, fields: dict[str, Any]) -> None:
    only_openai(caller)
    turn = caller.ask([user("say: one two")], **fields)
    (asked,) = caller.gateway.stub.asked
    assert {name: asked.get(name) for name in fields} == fields
    row = caller.gateway.journal.lookups.turn(turn.id)
    assert row is not None
    assert {name: row.params[name] for name in fields} == fields


def test_those_that_change_nothing_are_not_passed_on(caller: Caller) -> None:
    only_openai(caller)
    caller.ask([user("say: one")], frequency_penalty=0, presence_penalty=0.0, repetition_penalty=1, min_p=0)
    assert not BENT.keys() & caller.gateway.stub.asked[0].keys()
