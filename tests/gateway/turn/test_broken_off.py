"""An engine that ends in the middle of an answer: a whole answer begins again, for its client has seen none of it."""

from __future__ import annotations

import pytest

from tests.gateway.callers import FORMATS, Caller, user
from tests.gateway.conftest import Agents
from tests.gateway.turn.test_token_truth import check_truth
from turnwise.messages import text_of, thinking_in
from turnwise.types import Exclusion

SAID = "<think>\nhm\n</think>\n\none two three four five"


def breaks(qwen: Agents, times: int) -> list[str]:
    """The engine dies in its next answers; gives the list of all that it is asked."""
    asked: list[str] = []

    def reply(prompt: str) -> str:
        asked.append(prompt)
        qwen.stub.die_after = 9 if len(asked) <= times else None
        return SAID

    qwen.stub.reply = reply
    return asked


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_answer_that_breaks_off_is_sampled_again(qwen: Agents, name: str) -> None:
    asked = breaks(qwen, 1)
    more = {"chat": {"logprobs": True}, "responses": {"include": ["message.output_text.logprobs"]}}.get(name, {})
    caller = Caller(qwen, name, False)
    response = caller.post([user(f"break off once, {name}")], **more)
    turn = caller.turn(response)
    assert len(asked) == 2 and asked[0] == asked[1]
    assert text_of(turn.answer).strip() == "one two three four five"
    assert thinking_in(turn.answer).strip() == "hm" and turn.exclusion is None
    check_truth([turn], qwen.stub)
    body = response.json()
    if name == "chat":
        given = body["choices"][0]["logprobs"]["content"]
        assert [token["logprob"] for token in given] == turn.logprobs
        assert body["usage"]["completion_tokens"] == len(turn.response_ids)
    if name == "responses":
        assert len(body["output"][-1]["content"][0]["logprobs"]) < len(turn.response_ids)  # those of the text


def test_an_answer_that_always_breaks_off_fails(qwen: Agents) -> None:
    asked = breaks(qwen, 9)
    response = Caller(qwen, "chat", False).post([user("break off always")])
    assert response.status_code == 502 and "went away" in response.json()["error"]["message"]
    assert len(asked) == 3
    assert qwen.journal.status.figures()["excluded"].get(Exclusion.INFRASTRUCTURE) == 1


def test_what_a_client_has_seen_is_not_taken_back(qwen: Agents) -> None:
    asked = breaks(qwen, 1)
    response = Caller(qwen, "chat", True).post([user("break off in a stream")])
    assert len(asked) == 1 and "went away" in response.text
