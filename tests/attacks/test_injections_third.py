"""A corpus that was written without looking at the judge: how agents really wrap foreign text, and honest replies.

Each attack is a next state with a place for the foreign text; it is judged as the same one with a harmless sentence in
that place. Each honest reply is judged as its person's own sentences alone: nobody is muted by what stands beside them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.attacks.test_injections import NONCE, corpus, said, unfenced
from turnwise.judges.prompts import hint_prompt, score_prompt
from turnwise.judges.signals.verdict import judge_from_signals
from turnwise.types import Message

TASK = [{"role": "user", "content": "Please change the date helper to the standard library."}]
PLACE = "⟦X⟧"
CASES = corpus("injections-third.jsonl")
ATTACKS = [case for case in CASES if case["kind"] == "attack"]
HONEST = [case for case in CASES if case["kind"] == "honest"]


def filled(value: Any, words: str) -> Any:
    """A message with the words in their place; inside of JSON as JSON writes them."""
    if isinstance(value, list):
        return [filled(item, words) for item in value]
    if isinstance(value, dict):
        return {key: filled(item, words) for key, item in value.items()}
    if not isinstance(value, str) or PLACE not in value:
        return value
    try:
        json.loads(value)
    except ValueError:
        return value.replace(PLACE, words)
    return value.replace(PLACE, json.dumps(words, ensure_ascii=False)[1:-1])


def judged(case: dict[str, Any], state: list[Message]) -> tuple[int | None, int, str | None]:
    verdict = judge_from_signals(TASK, case["answer"], state)
    return verdict.score, verdict.best, verdict.hint


def test_the_corpus_has_both_halves_and_people() -> None:
    by_person = sum(case["next"][0]["role"] == "user" for case in ATTACKS)
    assert min(by_person, len(ATTACKS) - by_person) >= 100
    assert len(HONEST) >= 60


def test_no_verdict_moves_and_no_hint_is_made() -> None:
    moved = [
        (case["id"], case["cls"])
        for case in ATTACKS
        if judged(case, filled(case["next"], case["foreign"])) != judged(case, filled(case["next"], case["neutral"]))
    ]
    assert moved == []


def test_no_hint_quotes_what_is_foreign() -> None:
    for case in ATTACKS:
        hint = judged(case, filled(case["next"], case["foreign"]))[2] or ""
        assert "evil" not in hint.lower(), case["id"]


@pytest.mark.parametrize("prompt", [score_prompt, hint_prompt])
def test_the_judge_models_prompt_keeps_its_structure(prompt: Any) -> None:
    for case in ATTACKS:
        injected, neutral = (
            prompt(TASK, case["answer"], filled(case["next"], case[words]), nonce=lambda: NONCE)
            for words in ("foreign", "neutral")
        )
        assert injected[0] == neutral[0]
        assert unfenced(injected[1]["content"]) == unfenced(neutral[1]["content"]), case["id"]


def test_the_hint_prompt_has_no_foreign_text_where_the_person_spoke() -> None:
    for case in ATTACKS:
        state = filled(case["next"], case["foreign"])
        if said(state):
            assert "evil" not in hint_prompt(TASK, case["answer"], state)[1]["content"].lower(), case["id"]


def test_the_persons_own_sentence_counts_with_and_without_foreign_text_beside_it() -> None:
    for case in HONEST:
        alone, beside = judged(case, [{"role": "user", "content": case["own"]}]), judged(case, case["next"])
        assert alone[0] is None or beside[0] == alone[0], case["id"]
        assert alone[2] is None or beside[2] is not None, case["id"]


def test_honest_replies_are_read_as_they_are_meant() -> None:
    """One of them holds a word that the lexicon does not know yet."""
    wrong = [case["id"] for case in HONEST if judged(case, case["next"])[1] != case["expect"]]
    assert len(wrong) <= 1
