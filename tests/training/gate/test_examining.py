"""How the gate goes about it: what it looks at, which parts of a step it tries, and what it leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.tiny import batch, no_tick, sample, train_config
from turnwise.config import GateConfig
from turnwise.errors import ModelError
from turnwise.pictures.placed import PlacedPicture
from turnwise.training.asking import AT_ONCE
from turnwise.training.gate import gate, probes
from turnwise.training.gate.figures import FIGURES, Measurements, decide
from turnwise.training.gate.gate import PARTS, Gate, look, part_of
from turnwise.training.gate.material import MOST_HINTS, material_alone, material_of
from turnwise.training.gate.probes import Probe, general_probes, known_questions
from turnwise.training.lessons.wished import Wished
from turnwise.training.lessons.wishes import Standing

LIMITS = GateConfig()
GOOD = Measurements(**{f.name: getattr(LIMITS, f.limit) / 2 for f in FIGURES})


class Weights:
    """A policy that is one number."""

    def __init__(self) -> None:
        self.now = {"w": torch.tensor([9.0])}
        self.weights = SimpleNamespace(initial=lambda: {"w": torch.tensor([1.0])})
        self.loaded: list[float] = []

    def state(self) -> dict[str, torch.Tensor]:
        return dict(self.now)

    def load(self, state: dict[str, torch.Tensor]) -> None:
        self.now = dict(state)
        self.loaded.append(float(state["w"]))


class Played:
    """A gate whose examinations end as they are told, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: dict[str, Any] | BaseException) -> None:
        self.policy = Weights()
        self.gate = Gate(self.policy, "/nowhere", train_config(microbatch_tokens=512), LIMITS)  # type: ignore[arg-type]
        self.gate.__dict__ |= {"_general": [], "_questions": []}
        self.forgot: list[float] = []
        self.gate._base.forget_others = self._forgets  # type: ignore[method-assign]
        self.made: list[tuple[Any, ...]] = []
        self.thorough: list[bool] = []
        left = iter(results)

        def made(*arguments: Any) -> Any:
            self.made.append(arguments)
            return SimpleNamespace(alive=arguments[6])

        def looked(examination: Any, config: GateConfig, *, thorough: bool) -> dict[str, Any]:
            assert config is LIMITS
            examination.alive()
            self.thorough.append(thorough)
            result = next(left)
            if isinstance(result, BaseException):
                raise result
            return dict(result)

        monkeypatch.setattr(gate, "Examination", made)
        monkeypatch.setattr(gate, "look", looked)
        self.ticks: list[tuple[str, int, int]] = []

    def _forgets(self) -> None:
        self.forgot.append(float(self.policy.now["w"]))

    def examine(self, parent: Any = None, **more: Any) -> dict[str, Any]:
        of_batch = batch([sample(1, hint="shorter, please")])
        turns = [sample(n) for n in range(2, 5)]
        wishes = Standing(more.pop("wishes", []), more.pop("taken_back", []), wanted=more.pop("wanted", []))
        return self.gate.examine(parent, of_batch, turns, wishes, lambda *of: self.ticks.append(of), **more)


def said(accepted: bool, **more: Any) -> dict[str, Any]:
    return {"accepted": accepted, "hopeless": False, "held": False, "reasons": [] if accepted else ["no"]} | more


def test_the_whole_step_is_left_where_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, said(True, n=1))
    result = played.examine()
    assert result == said(True, n=1) | {"probes": 3, "general": 0, "answers": 3, "alpha": 1.0}
    assert played.policy.loaded == [9.0] and played.thorough == [True]
    assert played.ticks == [("gate", 0, 4)]
    assert played.forgot == [9.0]


def test_smaller_parts_are_tried_until_one_passes_and_why_not_all_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Played(monkeypatch, said(False, n=1), said(False, n=2), said(True, n=3))
    result = played.examine()
    assert (result["alpha"], result["n"], result["whole"]) == (0.25, 3, said(False, n=1))
    assert played.policy.loaded == [9.0, 5.0, 3.0] and float(played.policy.now["w"]) == 3.0
    assert played.thorough == [True, False, False]
    assert played.ticks == [("gate", 0, 4), ("gate", 1, 4), ("gate", 2, 4)]
    assert len(played.made) == 1 and len(played.forgot) == 1


def test_of_a_step_of_which_no_part_passes_the_first_result_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, *[said(False, n=n) for n in range(4)])
    result = played.examine({"w": torch.tensor([5.0])})
    assert result == said(False, n=0) | {"probes": 3, "general": 0, "answers": 3, "alpha": 0.0}
    assert played.policy.loaded == [9.0, 7.0, 6.0, 5.5, 9.0] and len(played.forgot) == 1
    assert PARTS == (1.0, 0.5, 0.25, 0.125)


@pytest.mark.parametrize("why", ["hopeless", "held"])
def test_what_no_part_can_mend_is_not_tried_in_parts(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    played = Played(monkeypatch, said(False, **{why: True}))
    assert played.examine()["alpha"] == 0.0
    assert played.policy.loaded == [9.0, 9.0] and len(played.forgot) == 1


def test_only_the_whole_step_says_that_there_is_no_hope(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, said(False), said(False, hopeless=True), said(True))
    assert played.examine()["alpha"] == 0.25


@pytest.mark.parametrize("parts", [0, 1])
def test_a_full_memory_leaves_the_whole_step_to_be_examined_again(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    played = Played(monkeypatch, *[said(False)] * parts, torch.OutOfMemoryError("full"))
    with pytest.raises(torch.OutOfMemoryError):
        played.examine()
    assert float(played.policy.now["w"]) == 9.0 and played.forgot == []


def test_what_the_examination_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, said(True), said(True))
    parent = {"w": torch.tensor([5.0])}
    played.examine(parent, wishes=["be brief"])
    [(policy, base, of, material, train, config, _, at_once)] = played.made
    assert (policy, base, of, config) == (played.policy, played.gate._base, parent, LIMITS)
    assert (train.microbatch_tokens, base.microbatch_tokens, at_once) == (512, 512, AT_ONCE)
    assert material.tellings == [["be brief", "shorter, please"], ["be brief"]]
    assert (material.wished, material.taken_back) == (Wished(), False)
    played.gate.in_passes_of(128)
    assert played.gate._at_once == AT_ONCE // 2
    played.gate.in_passes_of(AT_ONCE)
    assert played.gate._at_once == AT_ONCE, "never less than a pass"
    played.gate.in_passes_of(64)
    played.examine(parent)
    *_, (_, base, _, _, train, _, _, at_once) = played.made
    assert (train.microbatch_tokens, base.microbatch_tokens, at_once) == (64, 64, AT_ONCE // 2)


def test_what_was_wished_for_and_taken_back_is_known_and_how_many_tokens_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Played(monkeypatch, said(True))
    wished = Wished(frozenset({3, 5}), frozenset({("a",)}))
    result = played.examine(None, taken_back=["be brief"], wanted=["cheers"], wished=wished)
    [(_, _, _, material, *_)] = played.made
    assert material.words == ["cheers"]
    assert (material.wished.tokens, material.taken_back) == (frozenset({3, 5}), True)
    assert (result["wished_tokens"], result["wished_runs"]) == (2, 1)


def test_weights_that_no_batch_made_are_measured_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    known, all_taken = replace(GOOD, step_kl=0.1), replace(GOOD, step_kl=50.0)

    def made(*arguments: Any) -> Any:
        arguments[6]()
        played.made.append(arguments)
        return SimpleNamespace(
            at_known_answers=lambda: known, at_its_answers=lambda m: all_taken if m is known else None
        )

    monkeypatch.setattr(gate, "Examination", made)
    turns, ticks = [sample(1), sample(2)], []
    parent = {"w": torch.tensor([5.0])}
    result = played.gate.measure(parent, turns, lambda *of: ticks.append(of))
    assert result == decide(all_taken, LIMITS) and ticks == [("gate", 0, 1)] and played.policy.loaded == []
    [(policy, base, of, material, train, config, _, at_once)] = played.made
    assert (policy, base, of, config) == (played.policy, played.gate._base, parent, LIMITS)
    assert train.microbatch_tokens == 512 and at_once == AT_ONCE
    assert material.tellings == [] and material.recorded == [s.response_ids for s in turns]
    assert [p.prompt_ids for p in material.turns] == [p.prompt_ids for p in material.asked]


# -- what is worth its answers ----------------------------------------------------------------------------------


class Looked:
    def __init__(self, known: Measurements, whole: Measurements = GOOD) -> None:
        self.known, self.whole, self.asked = known, whole, 0

    def at_known_answers(self) -> Measurements:
        return self.known

    def at_its_answers(self, m: Measurements) -> Measurements:
        assert m is self.known
        self.asked += 1
        return self.whole


@pytest.mark.parametrize(
    ("known", "thorough", "asked"),
    [
        ({}, False, 1),
        ({"step_kl": LIMITS.max_step_kl}, False, 1),  # at its limit it is not beyond it
        ({"step_kl": None}, False, 1),
        ({"step_kl": 50.0}, False, 0),
        ({"step_kl": 50.0}, True, 1),
        ({"drift_kl": 50.0, "parents_drift_kl": 60.0}, False, 1),
        ({"nll_rise": 50.0}, True, 0),  # no part of it will do
        ({"step_kl": float("nan")}, False, 0),
    ],
)
def test_answers_are_sampled_only_where_they_can_change_something(
    known: dict[str, Any], thorough: bool, asked: int
) -> None:
    m = replace(GOOD, **known)
    examination = Looked(m, replace(GOOD, repetition=0.11))
    result = look(examination, LIMITS, thorough=thorough)  # type: ignore[arg-type]
    assert examination.asked == asked
    expected = decide(examination.whole if asked else m, LIMITS)
    assert (result["reasons"], result["repetition"]) == (expected["reasons"], expected["repetition"])


# -- what is looked at ------------------------------------------------------------------------------------------


def seen(n: int) -> Any:
    return sample(n, pictures=(PlacedPicture("0" * 64, 0, 1, 0, 1, 1, 1, 1),))


def test_a_batch_is_examined_at_its_turns_and_told_the_latest_wishes_first() -> None:
    turns = [sample(1), seen(2), sample(3)]
    ours = batch([sample(4, hint="answer in verse"), seen(5), sample(6, hint=None), sample(7, hint="  be \n brief ")])
    general = [Probe([n], [n], None, "general") for n in range(3)]
    made = material_of(general, [], turns, ours, ["old", "be brief"], 6)
    assert made.general is general and made.questions == []
    assert [p.prompt_ids for p in made.turns] == [turns[0].prompt_ids, turns[2].prompt_ids]
    asked = [turns[0], turns[2], ours.samples[0], ours.samples[2]]
    assert [p.prompt_ids for p in made.asked] == [*[s.prompt_ids for s in asked], [0], [1]]
    assert made.recorded == [s.response_ids for s in (*turns, *ours.samples)]
    assert made.tellings[0][:3] == ["be brief", "old", "answer in verse"]
    assert made.tellings[1:] == [["be brief"]] and len(set(made.tellings[0])) == len(made.tellings[0])


def test_the_base_model_is_told_so_many_hints_and_none_where_there_are_none() -> None:
    def told(wishes: Sequence[str], hint: str | None) -> Any:
        return material_of([], [], [], batch([sample(1, hint=hint)]), wishes, 2).tellings

    assert told([], None) == []
    assert told(["a"], None) == [["a"]] and told([], "b") == [["b"]]
    assert told(list("abcdef"), "g") == [list("fedc"), ["f"]] and MOST_HINTS == 4


def test_weights_that_no_batch_made_are_asked_what_the_turns_ask() -> None:
    turns = [sample(1), seen(2)]
    made = material_alone([], [], turns, 4)
    assert [p.prompt_ids for p in made.turns] == [turns[0].prompt_ids] == [p.prompt_ids for p in made.asked]
    assert made.recorded == [s.response_ids for s in turns] and made.tellings == []


def test_a_part_of_a_step_is_on_the_way() -> None:
    start, whole = {"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])}
    assert part_of(start, whole, 1.0) is whole
    assert part_of(start, whole, 0.125)["w"].item() == 1.25


# -- probes that ship -------------------------------------------------------------------------------------------


class Renderer:
    """A chat template of few words."""

    stop_token_ids = (7, 8)

    def render(self, messages: Sequence[Any], tools: Any) -> Any:
        [message] = messages
        assert tools is None and message.role == "user"
        return SimpleNamespace(ids=(1, len(message.parts[0].text), 2), hint_at=2)

    def encode(self, text: str) -> list[int]:
        return [len(text)]


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    asked: list[Any] = []

    def load(model: Path | str) -> Renderer:
        asked.append(model)
        if model == "broken":
            raise ModelError("it has no chat template")
        return Renderer()

    monkeypatch.setattr(probes, "load_renderer", load)
    rows = {
        "general.json": [{"question": "Why?", "about": "reason", "answer": "So."}],
        "known.json": [{"question": "Who is it?", "right": ["rome", "roma"]}],
    }
    monkeypatch.setattr(probes, "_rows", rows.__getitem__)
    yield asked


def test_general_probes_are_rendered_and_end_as_answers_do(rendered: list[Any]) -> None:
    assert general_probes("model") == [Probe([1, 4, 2], [3, 7], 2, "reason")]
    [question] = known_questions("model")
    assert question.probe == Probe([1, 10, 2], [], 2, "facts") and question.right == ("rome", "roma")
    assert rendered == ["model", "model"]


def test_a_model_without_a_template_has_none_and_says_so(rendered: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert general_probes("broken") == [] and known_questions("broken") == []
    assert "general ability cannot be measured: it has no chat template" in caplog.text


def test_a_hint_is_read_at_its_place() -> None:
    class Letters:
        def encode(self, text: str, *, add_special_tokens: bool) -> Any:
            assert add_special_tokens is False
            return SimpleNamespace(ids=[text.count("be brief"), text.count("\n"), text.count("in verse")])

    plain = Probe([1, 2, 3], [4], 2, "turn")
    told = plain.told(["be brief", "in verse"], Letters())  # type: ignore[arg-type]
    assert (told.prompt_ids[:2], told.prompt_ids[-1]) == ([1, 2], 3)
    assert told.prompt_ids[2] == 1 and told.prompt_ids[4] == 1
    assert (told.answer_ids, told.hint_at, told.about) == ([4], None, "turn")
    assert replace(plain, hint_at=None).told(["be brief"], Letters()).prompt_ids == [1, 2, 3]  # type: ignore[arg-type]


def test_without_turns_that_are_set_aside_the_batch_alone_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, said(True))
    result = played.gate.examine(None, batch([sample(1)]), [], Standing(), no_tick)
    [(_, _, parent, material, *_)] = played.made
    assert parent is None and material.known == [] and [p.prompt_ids for p in material.asked] == [sample(1).prompt_ids]
    assert (result["probes"], result["answers"], played.forgot) == (0, 1, [9.0])
