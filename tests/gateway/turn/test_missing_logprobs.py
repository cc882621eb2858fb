"""Log-probs that the engine leaves out: missing in the record, and missing for the client that asked for them.

Never 0.0, which would say that the token was certain; and never those of some tokens as if they were all.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.callers import Caller, user
from tests.support.wire import events_of, nested_calls
from turnwise.types import TurnState

ASKING: dict[str, dict[str, Any]] = {
    "chat": {"logprobs": True},
    "responses": {"include": ["message.output_text.logprobs"]},
    "messages": {},  # this format has no field for them
}
SAID = {
    "a token": "a",  # only the one that ends the answer has no log-prob
    "text": "one two día 🤖 five",
    "thinking": "<think>\nhm so\n</think>\n\none two three",
    "calls": "one two three\n" + nested_calls({"a": 1}, {"a": 2}),
}


def lists_of_logprobs(value: Any) -> list[list[float] | None]:
    """The log-probs at every place of an answer that has a field for them, in order; None where it says null."""
    if isinstance(value, list):
        return [found for item in value for found in lists_of_logprobs(item)]
    if not isinstance(value, dict):
        return []
    found: list[list[float] | None] = []
    for key, inner in value.items():
        if key == "logprobs":
            tokens = inner["content"] if isinstance(inner, dict) else inner
            found.append(None if tokens is None else [token["logprob"] for token in tokens])
        else:
            found += lists_of_logprobs(inner)
    return found


@pytest.mark.parametrize("fault", ["absent", "null", "short"])
@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
def test_missing_log_probs_are_missing_for_record_and_client(
    caller: Caller, fault: str, kind: str, asked: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = caller.gateway.stub
    monkeypatch.setattr(stub, "logprobs", fault)
    stub.token_delay_s = 0.005 if fault == "absent" else 0.0  # tokens one by one, and many in one step
    stub.reply = lambda _: SAID[kind]
    more = ASKING[caller.name] if asked else {}
    response = caller.post([user(f"Please. {request.node.name}")], tools=True, **more)
    turn = caller.turn(response)
    assert turn.logprobs is None
    assert turn.response_ids == stub.sampled[-1][1]
    assert turn.state is TurnState.WAITING, "a turn to learn from all the same"
    whole = lists_of_logprobs(caller.answer(response))
    if caller.name == "chat" and not caller.stream:
        assert whole == [None], "null, as without asking"
    elif caller.name == "responses":
        assert not any(whole)
    else:
        assert caller.name == "chat" or whole == []
    if caller.stream:
        events = lists_of_logprobs(events_of(response.content))
        given = [value for values in events for value in values or []]
        assert given in ([], [-0.125]), "what had gone out before the first one was missing, and nothing after it"
        assert asked or given == []
    assert '"logprob":0' not in response.text.replace(" ", "")


@pytest.mark.parametrize("kind", SAID)
def test_log_probs_that_are_there_are_given(caller: Caller, kind: str, request: pytest.FixtureRequest) -> None:
    caller.gateway.stub.reply = lambda _: SAID[kind]
    response = caller.post([user(f"Please. {request.node.name}")], tools=True, **ASKING[caller.name])
    assert len(caller.turn(response).logprobs or []) == len(caller.gateway.stub.sampled[-1][1])
    given = [values for values in lists_of_logprobs(caller.answer(response)) if values]
    assert bool(given) == (caller.name != "messages")
    assert all(value < 0 for values in given for value in values)


def test_an_answer_from_the_record_says_that_it_has_none(caller: Caller, request: pytest.FixtureRequest) -> None:
    """A retry is given the answer that was recorded; the log-probs went with the first."""
    name = request.node.callspec.id
    asked, key = [user(f"say: again for {name}")], {"Idempotency-Key": f"logprobs-{name}"}
    first, again = (caller.post(asked, headers=key, **ASKING[caller.name]) for _ in range(2))
    assert first.headers["x-turnwise-turn-id"] == again.headers["x-turnwise-turn-id"]
    assert not any(lists_of_logprobs(caller.answer(again)))
    if caller.name == "chat" and not caller.stream:
        assert json.loads(again.text)["choices"][0]["logprobs"] is None
