"""Language of a person's answers: beside the base model's own ones, without the wish or with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from turnwise.bench.personalization.language import language_losses
from turnwise.bench.personalization.persons import DEVELOPMENT
from turnwise.bench.personalization.play import _general_rise
from turnwise.demo.coherence import ScoredText

CHEERFUL = DEVELOPMENT[0]
TOLD = CHEERFUL.wishes_at(0)[0].told


def kept(folder: Path, *answers: tuple[int, str, str], name: str = "answers.jsonl") -> Path:
    """A file of answers, each to "Why?": after so many conversations, said by whom, and what."""
    of = [{"conversations": c, "said": who, "question": "Why?", "answer": said} for c, who, said in answers]
    file = folder / name
    file.write_text("".join(json.dumps(one) + "\n" for one in of), encoding="utf-8")
    return file


def made_up(costs: dict[tuple[str, str], float], asked: list[dict[str, Any]]) -> Any:
    """Stands in for the base model: what an answer costs, bare or with the wish in its prompt."""

    def nll(groups: dict[str, Sequence[ScoredText]], _: str) -> dict[str, float]:
        asked.append(groups)
        how = {name: ("wish" if TOLD in texts[0].prompt else "bare", texts[0].answer) for name, texts in groups.items()}
        return {name: costs[key] for name, key in how.items()}

    return nll


def test_the_smaller_loss_of_the_two_counts(tmp_path: Path, model_dir: Path) -> None:
    file = kept(
        tmp_path,
        (0, "unasked", "Plain."),
        (0, "told", "As told."),
        (8, "unasked", "Learned."),
        (16, "unasked", "Salad."),
        (16, "unasked", ""),
    )
    costs = {
        ("bare", "Plain."): 1.0,
        ("wish", "Plain."): 3.0,
        ("wish", "As told."): 1.5,
        ("bare", "Learned."): 4.0,
        ("wish", "Learned."): 1.75,
        ("bare", "Salad."): 7.0,
        ("wish", "Salad."): 6.5,
    }
    asked: list[dict[str, Any]] = []
    found = language_losses(file, CHEERFUL, str(model_dir), made_up(costs, asked))
    assert found == {0: 0.0, 8: 0.25, 16: 5.0}
    [groups] = asked
    assert all(len(texts) == 1 for texts in groups.values()), "an empty answer has no language"
    assert not any(text.ended for texts in groups.values() for text in texts)


def test_where_nobody_was_told_plain_answers_are_looked_at_alone(tmp_path: Path, model_dir: Path) -> None:
    file = kept(tmp_path, (0, "unasked", "Plain."), (8, "unasked", "Learned."))
    costs = {("bare", "Plain."): 1.0, ("wish", "Plain."): 0.5, ("bare", "Learned."): 4.0, ("wish", "Learned."): 0.5}
    assert language_losses(file, CHEERFUL, str(model_dir), made_up(costs, [])) == {0: 0.0, 8: 3.0}


@pytest.mark.slow
def test_the_real_model_tells_word_salad_from_a_wish_that_was_learned(tmp_path: Path, model_dir: Path) -> None:
    file = kept(
        tmp_path,
        (0, "unasked", "The sky is blue because air scatters blue light the most."),
        (0, "told", "The sky is blue because air scatters blue light. Cheers!"),
        (8, "unasked", "Air scatters blue light more than red light. Cheers!"),
        (16, "unasked", "leap blue the of bananas 42 scatters days has, most year fruits!"),
    )
    found = language_losses(file, CHEERFUL, str(model_dir))
    assert found[0] <= 0 and found[8] < 1.0 < 2.0 < found[16]


def test_the_general_probe_s_figure_is_that_of_the_version_that_serves(tmp_path: Path) -> None:
    folder = tmp_path / "versions" / "v3"
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"number": 3, "gate": {"general_rise": 0.125}}), encoding="utf-8")
    assert _general_rise(tmp_path, 3) == 0.125
    assert _general_rise(tmp_path, 0) is None, "the base model has none"
