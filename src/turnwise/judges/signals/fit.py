"""Fits the weights of the free signals: a three-class logistic regression that starts from weights set by hand.

``python -m turnwise.judges.signals.fit CASES.jsonl`` writes ``weights.json``. Each weight has a Gaussian prior around
the value in ``PRIOR``, so that a kind of evidence seen in few cases keeps the judgement of its author. Never run by a
loop.

scikit-learn's LogisticRegression (1.9.1) has a prior around 0 alone and takes no offset: with it 49 of the 50 weights
are others (``test_the_shipped_weights_are_the_fitted_ones``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from turnwise.judges.cases import Case, read_cases, read_table
from turnwise.judges.signals.verdict import WEIGHTS_FILE, Weights, features

CLASSES = (-1, 0, 1)
DATA = Path(__file__).with_name("data")

# Log-odds that each kind of evidence adds to (bad, neutral, good), before any data.
PRIOR: dict[str, tuple[float, float, float]] = {
    "bias": (0.0, 0.3, 0.0),
    "tool.tests_passed": (-1.0, -1.0, 2.0),
    "tool.tests_failed": (2.2, -1.2, -1.0),
    "tool.check_passed": (-0.8, -0.6, 1.8),
    "tool.check_failed": (2.0, -0.8, -1.0),
    "tool.bad_call": (2.0, -0.8, -1.0),
    "tool.command_not_found": (2.0, -0.6, -1.0),
    "tool.exit_nonzero": (1.5, -0.2, -0.8),
    "tool.nothing_ran": (-0.5, 2.2, -1.0),
    "tool.expected_failure": (-1.2, -0.8, 2.2),
    "tool.content": (0.0, 0.0, 0.0),
    "tool.several": (0.0, 0.0, 0.0),
    "reply.silent": (0.0, 0.6, 0.0),
    "reply.praise": (-0.7, -0.4, 1.1),
    "reply.success": (-0.5, -0.5, 1.1),
    "reply.adopted": (-0.5, -0.3, 0.9),
    "reply.conceded": (-0.5, -0.4, 1.1),
    "reply.thanks": (-0.3, 0.0, 0.4),
    "reply.opens_well": (-0.5, -0.3, 0.8),
    "reply.praise_then_wish": (-0.8, -0.3, 1.0),
    "reply.only_positive": (-0.4, -0.3, 0.7),
    "reply.rejected": (1.1, -0.5, -0.6),
    "reply.reproached": (1.2, -0.5, -0.7),
    "reply.defect": (0.8, -0.4, -0.4),
    "reply.revise": (0.8, -0.4, -0.4),
    "reply.incredulous": (0.8, -0.4, -0.3),
    "reply.sarcasm": (1.4, -0.5, -1.0),
    "reply.gave_up": (0.9, -0.1, -0.7),
    "reply.only_negative": (0.5, -0.3, -0.3),
    "reply.acknowledged": (-0.3, 0.6, -0.1),
    "reply.deferred": (-0.4, 1.0, -0.5),
    "reply.new_topic": (-0.4, 0.9, -0.3),
    "reply.outside": (-0.4, 1.0, -0.4),
    "reply.accident": (-0.4, 1.0, -0.4),
    "reply.only_neutral": (-0.3, 0.6, -0.3),
    "reply.no_kind": (0.0, 0.3, 0.0),
    "reply.only_asks": (-0.2, 0.8, -0.4),
    "reply.answers_a_question": (-0.5, 1.0, -0.4),
    "reply.builds_on": (-0.3, 0.0, 0.4),
    "reply.standing_rule": (0.0, 0.2, 0.0),
    "reply.quotes_answer": (0.5, -0.2, -0.2),
    "reply.terse": (0.1, 0.0, 0.0),
    "reply.exclaims": (0.0, -0.3, 0.3),
    "reply.shouts": (0.3, -0.2, 0.0),
    "reply.imperative": (0.5, -0.2, -0.3),
    "reply.next_step": (-0.4, -0.2, 0.7),
    "reply.only_imperative": (0.7, -0.3, -0.4),
    "reply.reasks": (1.2, -0.5, -0.4),
    "reply.restates_task": (0.4, -0.2, -0.2),
    "reply.elsewhere": (-0.1, 0.3, -0.1),
}

# How far data may move a weight from its prior (variance), set once by cross-validation.
VARIANCE = 0.3
STEPS = 400


def fit(cases: list[Case], variance: float = VARIANCE) -> Weights:
    """Maximum a-posteriori weights for ``cases``: gradient descent on a convex loss."""
    names = list(PRIOR)
    prior = np.array([PRIOR[n] for n in names])
    x = np.zeros((len(cases), len(names)))
    for row, case in enumerate(cases):
        for name, value in features(case.messages, case.answer, case.next_state).items():
            x[row, names.index(name)] = value
    y = np.array([[float(case.label == c) for c in CLASSES] for case in cases])
    w = prior.copy()
    # A step of 1/L is safe: L bounds the curvature of the cross-entropy plus that of the prior.
    rate = 1.0 / (0.5 * float(np.linalg.norm(x, 2) ** 2) + 1.0 / variance) if len(cases) else 0.0
    for _ in range(STEPS):
        p = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        w -= rate * (x.T @ (p - y) + (w - prior) / variance)
    return {
        n: (round(float(a), 3), round(float(b), 3), round(float(c), 3)) for n, (a, b, c) in zip(names, w, strict=True)
    }


def folds(cases: list[Case], k: int = 10) -> list[list[int]]:
    """``k`` disjoint index lists with like shares of each label, the same for the same cases."""
    order = sorted(range(len(cases)), key=lambda i: (cases[i].label, cases[i].id))
    return [order[f::k] for f in range(k)]


def own_cases() -> list[Case]:
    """The labelled replies and tool outputs that were written for fitting and ship with the package."""
    return read_table(DATA / "replies.tsv", "user") + read_table(DATA / "outputs.tsv", "tool")


def cross_validation_weights(cases: list[Case], k: int = 10) -> list[Weights]:
    """For each case the weights fitted on our own cases and on the folds that do not hold it."""
    out: list[Weights] = [{}] * len(cases)
    for fold in folds(cases, k):
        held = set(fold)
        weights = fit(own_cases() + [case for i, case in enumerate(cases) if i not in held])
        for i in fold:
            out[i] = weights
    return out


def main() -> None:
    """Command line: fit on our own cases and on a file of labelled ones, and write the weights."""
    parser = argparse.ArgumentParser(prog="python -m turnwise.judges.signals.fit", description=main.__doc__)
    parser.add_argument("cases", type=Path, help="labelled next states, one JSON object a line")
    parser.add_argument("--out", type=Path, default=WEIGHTS_FILE, help="where to write the weights")
    arguments = parser.parse_args()
    weights = fit(own_cases() + read_cases(arguments.cases))
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in weights.items())
    arguments.out.write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
