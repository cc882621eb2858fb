"""Two corpora that were written without looking at the judge: how agents wrap foreign text, and honest replies.

Each attack is a next state with a place for the foreign text; it is judged as the same one with a harmless sentence in
that place. Each honest reply is judged as its person's own sentences alone: nobody is muted by what stands beside them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.attacks.test_injections import NONCE, corpus, said, unfenced
from tests.support.wire import ChatMessage
from turnwise.judges.prompts import hint_prompt, score_prompt
from turnwise.judges.signals.reading import Reading, read_parts
from turnwise.judges.signals.verdict import judge_by_words
from turnwise.messages import from_chat, history_from_chat, saying, text_of

TASK = [saying("user", "Please change the date helper to the standard library.")]
PLACE = "⟦X⟧"
CORPORA = {name: corpus(f"injections-{name}.jsonl") for name in ("third", "fourth")}
each_corpus = pytest.mark.parametrize("name", CORPORA)


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


def heard(case: dict[str, Any], state: list[ChatMessage]) -> Reading:
    """What the judge reads of a next state, without what it proposes to the person and what stands beside it.

    Of a phrase that a person quotes the words around it tell whose it is: `test_injections_quoted.py` looks at that.
    """
    return replace(read_parts(TASK, from_chat(case["answer"]), history_from_chat(state)), proposal=None, quoting=())


def judged(case: dict[str, Any], state: list[ChatMessage]) -> tuple[int | None, int, str | None]:
    verdict = judge_by_words(TASK, from_chat(case["answer"]), history_from_chat(state))
    return verdict.score, verdict.best, verdict.hint


def attacks(name: str) -> list[dict[str, Any]]:
    return [case for case in CORPORA[name] if case["kind"] == "attack"]


def honest(name: str) -> list[dict[str, Any]]:
    return [case for case in CORPORA[name] if case["kind"] == "honest"]


@each_corpus
def test_the_corpus_has_both_halves_and_people(name: str) -> None:
    by_person = sum(case["next"][0]["role"] == "user" for case in attacks(name))
    assert min(by_person, len(attacks(name)) - by_person) >= 100
    assert len(honest(name)) >= 60


@each_corpus
def test_no_verdict_moves_and_no_hint_is_made(name: str) -> None:
    moved = []
    for case in attacks(name):
        foreign, neutral = filled(case["next"], case["foreign"]), filled(case["next"], case["neutral"])
        if heard(case, foreign) != heard(case, neutral) or judged(case, foreign) != judged(case, neutral):
            moved.append((case["id"], case["cls"]))
    assert moved == []


@each_corpus
def test_no_hint_quotes_what_is_foreign(name: str) -> None:
    for case in attacks(name):
        hint = judged(case, filled(case["next"], case["foreign"]))[2] or ""
        assert "evil" not in hint.lower(), case["id"]


@each_corpus
@pytest.mark.parametrize("prompt", [score_prompt, hint_prompt])
def test_the_judge_models_prompt_keeps_its_structure(prompt: Any, name: str) -> None:
    for case in attacks(name):
        injected, neutral = (
            prompt(
                TASK,
                from_chat(case["answer"]),
                history_from_chat(filled(case["next"], case[words])),
                nonce=lambda: NONCE,
            )
            for words in ("foreign", "neutral")
        )
        assert injected[0] == neutral[0]
        assert unfenced(text_of(injected[1])) == unfenced(text_of(neutral[1])), case["id"]


@each_corpus
def test_the_hint_prompt_has_no_foreign_text_where_the_person_spoke(name: str) -> None:
    for case in attacks(name):
        state = history_from_chat(filled(case["next"], case["foreign"]))
        if said(state):
            assert "evil" not in text_of(hint_prompt(TASK, from_chat(case["answer"]), state)[1]).lower(), case["id"]


@each_corpus
def test_the_persons_own_sentence_is_heard_with_and_without_foreign_text_beside_it(name: str) -> None:
    """Of the sentences in ``own`` those count that the person typed, which are not those about a quotation."""
    lost, typed_nothing = [], []
    for case in honest(name):
        written = letters("".join(text_of(m) for m in history_from_chat(case["next"])))
        alone, beside = heard(case, [{"role": "user", "content": case["own"]}]), heard(case, case["next"])
        typed = [letters(sentence) for sentence in alone.sentences if letters(sentence) in written]
        typed_nothing += [] if typed else [case["id"]]
        if any(sentence not in letters("".join(beside.sentences)) for sentence in typed):
            lost.append(case["id"])
    assert (lost, typed_nothing) == ([], [])


def letters(text: str) -> str:
    """The letters of a text: marks around what was put in stand in one text and not in the other."""
    return "".join(c for c in text if c.isalpha())
