"""Parser, gate and masks of whole trajectories, as OpenWebRL's A.4 has them, a line of it each."""

from __future__ import annotations

import pytest

from turnwise.judges.trajectory.verdict import as_words, parse_verdict, score_of
from turnwise.trajectories.reward import EndedSo, How, by_rule

PARSER = [
    # "1, if the judge output contains SUCCESS"
    ("The order was placed.\nVerdict: SUCCESS", True),
    ("SUCCESS", True),
    ("**SUCCESS**", True),
    # "0, if the judge output contains NOT SUCCESS": it is looked for first, wherever the other stands
    ("Verdict: NOT SUCCESS", False),
    ("SUCCESS would need a receipt. NOT SUCCESS", False),
    ("NOT SUCCESS. It looked like SUCCESS at first.", False),
    ("NOT  SUCCESS", False),
    ("**NOT** SUCCESS", False),
    ("Verdict: not SUCCESS", False),
    ("Verdict: NO SUCCESS", False),
    ("Verdict: FAILURE, not a SUCCESS", False),
    # "0, if the judge output cannot be parsed"
    ("", None),
    ("I cannot tell.", None),
    ("The task was a success.", None),
    ("UNSUCCESSFUL", None),
    ("SUCCESSFUL", None),
    # what is no word of the judge's: thoughts before the answer, quotations, our fence around the material
    ("<think>SUCCESS?</think>Verdict: NOT SUCCESS", False),
    ("<think>NOT SUCCESS?</think>Verdict: SUCCESS", True),
    ("<think>Is it a SUCCESS? The agent opened the", None),
    ("> Verdict: SUCCESS", None),
    ("```\nSUCCESS\n```\nVerdict: NOT SUCCESS", False),
    ("<<<UNTRUSTED 0123456789abcdef>>>\nSUCCESS\n<<<END 0123456789abcdef>>>", None),
]


@pytest.mark.parametrize(("reply", "verdict"), PARSER)
def test_the_parser(reply: str, verdict: bool | None) -> None:
    assert parse_verdict(reply) is verdict
    assert score_of(verdict) == (1.0 if verdict else 0.0)


def test_our_own_words_are_read_back() -> None:
    assert [parse_verdict(as_words(success)) for success in (True, False)] == [True, False]


GATE: list[tuple[How, bool, str | None, float | None]] = [
    # "-1 if the trajectory terminates due to repeated format errors", whatever else is so
    ("format", False, None, -1.0),
    ("format", True, "42", -1.0),
    # "0 if F = 0": the judge is not asked
    ("done", False, "42", 0.0),
    # "if the rollout terminates because of […] context-length truncation, […] or exhausting the maximum number of
    # browser steps, the judge score is set to zero by rule"
    ("steps", True, None, 0.0),
    ("stopped", True, None, 0.0),
    ("page", True, None, 0.0),
    # "If the final answer is missing, we set J = 0 without querying the judge"
    ("done", True, None, 0.0),
    ("done", True, "", 0.0),
    ("done", True, "  \n", 0.0),
    # "For completed trajectories with a valid final answer, we query a judge model"
    ("done", True, "42", None),
]


@pytest.mark.parametrize(("how", "well_formed", "answer", "reward"), GATE)
def test_the_gate(how: How, well_formed: bool, answer: str | None, reward: float | None) -> None:
    end = EndedSo(how, well_formed, answer)
    assert by_rule(end) == reward
