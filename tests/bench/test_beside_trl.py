"""What both sides of `bench train --trl` are given; TRL itself is run by `make test-references`."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from turnwise.bench.beside_trl.data import make_conversations, make_sessions
from turnwise.bench.beside_trl.measure import _answers, _peer, packed_tokens
from turnwise.errors import TurnwiseError


def test_the_assistants_runs_are_learned_each_behind_all_before_it() -> None:
    for conversation in make_conversations(5, 4, 200, seed=3):
        found = list(_answers(7, conversation))
        assert {text.sample for text in found} == {7}
        learned = [False] * len(conversation.ids)
        for text in found:
            begun, end = len(text.prompt_ids), len(text.prompt_ids) + len(text.response_ids)
            assert [*text.prompt_ids, *text.response_ids] == conversation.ids[:end]
            learned[begun:end] = [True] * (end - begun)
        assert learned == conversation.learned and any(learned)


def test_thinking_is_in_no_prompt_that_follows() -> None:
    samples = make_sessions(2, 3, 200).samples
    assert samples == make_sessions(2, 3, 200).samples != make_sessions(2, 3, 200, seed=1).samples
    for before, after in pairwise(samples):
        if before.session_id == after.session_id:
            length = len(before.prompt_ids)
            assert after.prompt_ids[:length] == before.prompt_ids
            assert after.prompt_ids[length : length + len(before.response_ids)] != before.response_ids


def test_an_environment_without_trl_is_said() -> None:
    with (
        pytest.raises(TurnwiseError, match=r"TRL failed:(.|\n)*No module named '(datasets|trl)'"),
        _peer(Path(sys.executable), {"model": "/nowhere", "scratch": "/nowhere"}) as ask,
    ):
        ask("update")


def test_packed_rows_of_trl_are_long_enough_for_every_conversation() -> None:
    lengths = [len(c.ids) for c in make_conversations(8, 10, 1000)]
    assert packed_tokens(lengths) >= max(lengths) and packed_tokens([5, 6, 7, 8, 1]) == 26
