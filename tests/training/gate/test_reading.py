"""What a refusal says, to the letter; and what weights make of probes: in which order, in which chunks, how often."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.tiny import by_the_model, plain_model, sample, shake, train_config, watch_base
from turnwise.config import GateConfig
from turnwise.training.asking import GivenAnswer
from turnwise.training.gate import reading
from turnwise.training.gate.examination import BaseReader, Examination
from turnwise.training.gate.figures import FIGURES, Measurements, decide, limit_of
from turnwise.training.gate.material import Material
from turnwise.training.gate.probes import Probe, probe_of
from turnwise.training.gate.reading import distances, log_likelihoods, read
from turnwise.training.policy import Policy

LIMITS = GateConfig()
FINE = Measurements(**{f.name: getattr(LIMITS, f.limit) / 2 for f in FIGURES})


# -- what a refusal says ----------------------------------------------------------------------------------------

SMALLER = "lower train.lr, or raise gate."
LOOK = "look at what the batch was judged by (`turnwise sessions list`), or raise gate."
SAID = {
    "step_kl": ("the step is 4.00 nats per token from its parent", "max_step_kl = 0.5", SMALLER),
    "drift_kl": (
        "the policy is 4.00 nats per token from the base model, told the hints or not",
        "max_drift_kl = 0.8",
        "raise train.beta_kl, or go back with `turnwise versions rollback`, or raise gate.",
    ),
    "nll_rise": ("well-judged answers lost 4.00 nats per token", "max_nll_rise = 0.5", SMALLER),
    "general_rise": ("the general probe lost 4.00 nats per token", "max_general_rise = 0.5", SMALLER),
    "answer_drift": (
        "its answers are 4.00 nats per token less likely to the base",
        "max_answer_drift = 0.8",
        LOOK,
    ),
    "off_topic": ("its answers lost 400% of what ties them to the question", "max_off_topic = 0.85", LOOK),
    "lost_right": (
        "400% of what the base answers right is lost, less what the hints excuse",
        "max_lost_right = 0.25",
        LOOK,
    ),
    "echo": ("400% more of its answers say a wish of the person back", "max_echo = 0.3", LOOK),
    "repetition": ("400% more of its 4-grams are repetitions", "max_repetition = 0.15", LOOK),
    "length_ratio": (
        "its answers are 4.00 times longer or shorter than all others",
        "max_length_ratio = 2.5",
        LOOK,
    ),
    "unended": ("400% more of its answers go on without an end", "max_unended = 0.5", LOOK),
}


@pytest.mark.parametrize("name", SAID)
def test_a_refusal_says_what_and_what_to_do(name: str) -> None:
    said, limit, advice = SAID[name]
    result = decide(replace(FINE, **{name: 4.0}), LIMITS)
    assert result["reasons"] == [f"{said} (gate.{limit})"]
    assert result["advice"] == [advice + limit.split(" ")[0]]
    assert result["accepted"] is False and result["unmeasured"] == [] and result["held"] is False


RARE = {
    "praise_lost": (7.25, "of answers that were praised for following the wishes a token lost 7.2 nats", "= 5"),
    "lost_words": (0.75, "75% fewer of its answers have words that the person wants said", "= 0.3"),
}


@pytest.mark.parametrize("name", RARE)
def test_what_is_seldom_taken_is_said_and_not_missed(name: str) -> None:
    value, said, limit = RARE[name]
    result = decide(replace(FINE, **{name: value}), LIMITS)
    assert result["reasons"] == [f"{said} (gate.max_{name} {limit})"]
    assert result["advice"] == [f"{LOOK}max_{name}"]
    without = decide(replace(FINE, **{name: None}), GateConfig(unmeasured="hold"))
    assert without["accepted"] is True and without["unmeasured"] == []


HOPELESS = {
    "praise_lost": None,
    "lost_words": None,
    "step_kl": None,
    "drift_kl": None,
    "nll_rise": 2.0,
    "general_rise": 2.0,
    "answer_drift": 2.0,
    "off_topic": None,
    "lost_right": 3.0,
    "echo": 2.0,
    "repetition": 1.0,
    "length_ratio": 2.0,
    "unended": None,
}


@pytest.mark.parametrize("name", HOPELESS)
def test_from_where_no_part_of_a_step_will_do(name: str) -> None:
    [figure], times = [f for f in FIGURES if f.name == name], HOPELESS[name]
    limit = getattr(LIMITS, figure.limit)
    if times is None:
        assert decide(replace(FINE, **{name: 1e6 * limit}), LIMITS)["hopeless"] is False
    else:
        assert decide(replace(FINE, **{name: times * limit}), LIMITS)["hopeless"] is False
        assert decide(replace(FINE, **{name: times * limit * 1.001}), LIMITS)["hopeless"] is True


def test_all_that_is_against_a_step_is_said_in_one_order() -> None:
    m = replace(FINE, step_kl=4.0, repetition=4.0, echo=None)
    result = decide(m, GateConfig(unmeasured="hold"))
    assert [reason.split(" (")[0] for reason in result["reasons"]] == [
        SAID["step_kl"][0],
        SAID["repetition"][0],
        "not measured: echo",
    ]
    assert result["reasons"][-1] == "not measured: echo (gate.unmeasured = hold)"
    assert result["advice"][-1] == 'set gate.unmeasured = "pass"' and len(result["advice"]) == 3
    assert (result["hopeless"], result["held"], result["unmeasured"]) == (True, False, ["echo"])
    assert {f.name: result[f.name] for f in fields(Measurements)} == {
        f.name: getattr(m, f.name) for f in fields(Measurements)
    }


def test_a_result_where_nothing_was_measured() -> None:
    result = decide(Measurements(), LIMITS)
    assert result["accepted"] is True and result["held"] is False and result["hopeless"] is False
    assert result["unmeasured"] == [f.name for f in FIGURES if f.name not in RARE]
    held = decide(Measurements(), GateConfig(unmeasured="hold"))
    assert held["accepted"] is False and held["held"] is True and len(held["reasons"]) == 1


def test_a_limit_is_what_the_parent_had_where_that_is_more() -> None:
    of = {f.name: f for f in FIGURES}
    m = replace(FINE, parents_drift_kl=0.9, parents_lost_right=0.1)
    assert limit_of(of["drift_kl"], m, LIMITS) == 0.9
    assert limit_of(of["lost_right"], m, LIMITS) == LIMITS.max_lost_right
    assert limit_of(of["step_kl"], m, LIMITS) == LIMITS.max_step_kl


# -- reading ----------------------------------------------------------------------------------------------------


def known(*numbers: int) -> list[Probe]:
    return [probe_of(sample(n)) for n in numbers]


def test_each_probe_is_read_in_its_place_however_they_are_put_into_passes(policy: Policy) -> None:
    shake(policy)
    several = [*known(3, 0, 2), replace(known(0)[0], answer_ids=[5, 6, 7]), *known(1)]
    beats: list[int] = []
    at_once = read(policy, several, 4096, lambda: beats.append(1))
    assert len(beats) == 1
    each = read(policy, several, 1, lambda: beats.append(1))
    assert len(beats) > 2
    assert [len(h) for h in at_once] == [len(p.answer_ids) for p in several]
    for one, other in zip(at_once, each, strict=True):
        assert torch.allclose(one, other, atol=1e-5) and not one.requires_grad
    assert read(policy, [], 64, lambda: None) == []


def test_likelihoods_are_those_of_the_whole_model_at_temperature_1(policy: Policy, tiny_dir: Any) -> None:
    state, some = shake(policy), known(0, 1, 2)
    hidden = read(policy, some, 64, lambda: None)
    said = log_likelihoods(policy, hidden, some)
    model = plain_model(tiny_dir, state, train_config())
    for probe, tokens in zip(some, said, strict=True):
        assert torch.allclose(tokens, by_the_model(model, probe.prompt_ids, probe.answer_ids, 1.0), atol=1e-4)
        assert not tokens.requires_grad
    assert log_likelihoods(policy, [], []) == []


class Tables:
    """A policy whose hidden states are log-probs, each moved by whose they are."""

    device = "cpu"

    def log_softmax(self, hidden: Tensor, temperature: Tensor, whose: str) -> Tensor:
        assert (temperature == 1).all() and len(temperature) == len(hidden)
        return (hidden + torch.tensor([{"policy": 0.0, "base": 0.5, "parent": 1.0}[whose], 0.0])).log_softmax(-1)

    def token_logprobs(self, hidden: Tensor, temperature: Tensor, tokens: Tensor, whose: str) -> Tensor:
        return self.log_softmax(hidden, temperature, whose)[torch.arange(len(tokens)), tokens]


def by_hand(ours: Tensor, other: Tensor) -> float:
    return float((ours.exp() * (ours - other)).sum(-1).mean())


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
def test_distances_are_the_same_in_chunks_of_any_size(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "HEAD_CHUNK", chunk)
    generator = torch.Generator().manual_seed(1)
    ours, base, parent = ([torch.randn(n, 2, generator=generator) for n in (5, 1)] for _ in range(3))
    policy: Any = Tables()
    found = distances(policy, ("policy", ours), [("base", base), ("parent", parent)])
    for i in range(2):
        one = torch.ones(len(ours[i]))
        us, a, b = (
            policy.log_softmax(states[i], one, whose)
            for states, whose in ((ours, "policy"), (base, "base"), (parent, "parent"))
        )
        mixed = ((a.exp() + b.exp()) / 2).log()
        assert found[i] == pytest.approx([by_hand(us, a), by_hand(us, b), by_hand(us, mixed)], abs=1e-6)
    alone = distances(policy, ("policy", ours), [("base", base)])
    assert [each[0] for each in alone] == pytest.approx([each[1] for each in alone], abs=1e-6), "it is its own mixture"


def test_likelihoods_are_of_whose_states_they_are() -> None:
    policy: Any = Tables()
    hidden, probe = [torch.zeros(1, 2)], [Probe([1], [0], None, "turn")]
    assert log_likelihoods(policy, hidden, probe)[0].item() == pytest.approx(math.log(0.5))
    moved = math.log(math.exp(0.5) / (math.exp(0.5) + 1))
    assert log_likelihoods(policy, hidden, probe, "base")[0].item() == pytest.approx(moved)


# -- the base model, which is read once -------------------------------------------------------------------------


def test_the_base_model_reads_only_what_it_has_not_read_and_forgets_what_is_not_asked_again(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Probe]] = []

    def counted(of: Policy, some: Sequence[Probe], tokens: int, alive: Any) -> list[Tensor]:
        assert of is policy and tokens == 64
        asked.append(list(some))
        alive()
        return read(of, some, tokens, alive)

    inside: list[bool] = []
    reference = policy.reference

    @contextmanager
    def as_base() -> Iterator[None]:
        inside.append(True)
        with reference():
            yield

    monkeypatch.setattr(policy, "reference", as_base)
    monkeypatch.setattr("turnwise.training.gate.examination.read", counted)
    base, beats = BaseReader(policy, 64), []

    def alive() -> None:
        beats.append(1)

    plain = read(policy, known(0, 1, 2), 64, lambda: None)
    shake(policy)
    first = base.read(known(0, 1), alive)
    again = base.read([*known(2, 0)], alive)
    assert asked == [known(0, 1), known(2)] and inside == [True, True]
    assert base.read(known(1), alive)[0] is first[1] and len(asked) == 2
    for found, of in ((first[0], 0), (first[1], 1), (again[0], 2), (again[1], 0)):
        assert torch.allclose(found, plain[of], atol=1e-5), "it is the base model that reads"
    other = replace(known(0)[0], answer_ids=[1, 2])
    assert len(base.read([other], alive)[0]) == 2, "another answer to the same prompt is another probe"
    base.forget_others()
    assert base.read(known(1), alive)[0] is first[1], "what was asked for since the start is kept"
    base.forget_others()
    assert base.read(known(1), alive)[0] is first[1]
    base.read(known(0), alive)
    assert asked[-1] == known(0), "what was not asked for between two calls is forgotten"
    assert beats and base.right is None


def test_what_is_known_is_read_by_the_base_model_once_for_all_updates(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances, likelihoods and ties of good answers need no second look; what was answered just now does."""
    reads: list[tuple[bool, list[Probe]]] = []

    def counted(of: Policy, some: Sequence[Probe], tokens: int, alive: Any) -> list[Tensor]:
        reads.append((bool(within), list(some)))
        return read(of, some, tokens, alive)

    within = watch_base(policy, monkeypatch)
    monkeypatch.setattr("turnwise.training.gate.examination.read", counted)
    parent = shake(policy, seed=1)
    shake(policy, seed=2)
    of = Material(known(0, 1, 2), known(5), known(4, 6), [], [["shorter, please"]])
    base = BaseReader(policy, 64)

    def figures() -> Measurements:
        reads.clear()
        look = Examination(policy, base, parent, of, train_config(), GateConfig(answer_tokens=16), lambda: None)
        m = look.at_its_answers(look.at_known_answers())
        base.forget_others()
        return m

    first = figures()
    told = [p.told(["shorter, please"], policy.tokenizer) for p in of.known]
    good = [*of.turns, of.general[0]]
    tied = [replace(good[0], prompt_ids=good[1].prompt_ids), replace(good[1], prompt_ids=good[0].prompt_ids)]
    assert [some for by_base, some in reads if by_base][:3] == [of.known, told, tied]
    again = figures()
    assert again == first
    answered = [[p.prompt_ids for p in some] for by_base, some in reads if by_base]
    own = [p.prompt_ids for p in of.asked]
    assert first.off_topic is not None
    assert answered == [
        [*own, own[1], own[0]],
        [p.told(["shorter, please"], policy.tokenizer).prompt_ids for p in of.asked],
    ]


def test_how_likely_known_answers_are_to_the_base_model_is_as_if_it_read_them_now(
    both_weights: str, tiny_dir: Any
) -> None:
    policy = Policy(tiny_dir, train_config())
    shake(policy, seed=2, size=0.2)
    look = examined(policy, None, Material([], [], [], [], []))
    said = look._known_to_base(known(0, 1, 2))
    for mine, read_anew in zip(said, look._to_base(known(0, 1, 2)), strict=True):
        assert mine.tolist() == pytest.approx(read_anew.tolist(), abs=1e-5)
    model = plain_model(tiny_dir, None, train_config())
    by_plain = [by_the_model(model, p.prompt_ids, p.answer_ids, 1.0) for p in known(0, 1, 2)]
    for mine, plain in zip(said, by_plain, strict=True):
        assert mine.tolist() == pytest.approx(plain.tolist(), abs=1e-4)


# -- the examination of weights ---------------------------------------------------------------------------------


def examined(policy: Policy, parent: Any, of: Material, **more: Any) -> Examination:
    train, config = train_config(seed=11), GateConfig(answer_tokens=40, answers_s=7.0)
    return Examination(policy, BaseReader(policy, 64), parent, of, train, config, more.pop("alive", print), 321)


def test_answers_are_asked_for_as_the_settings_say_and_of_whom_they_are_to_be(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, parent = policy.state(), shake(policy, seed=1)
    ours = shake(policy, seed=2)
    asked: list[dict[str, Any]] = []
    weights: list[dict[str, Tensor]] = []

    def answered(of: Policy, prompts: Any, longest: int, seed: int, **more: Any) -> list[GivenAnswer]:
        assert of is policy and prompts == [p.prompt_ids for p in known(0, 1)]
        asked.append({"longest": longest, "seed": seed, "base": bool(within), **more})
        weights.append(policy.state())
        return []

    within = watch_base(policy, monkeypatch)
    monkeypatch.setattr("turnwise.training.gate.examination.sample_answers", answered)
    look = examined(policy, parent, Material([], [], known(0, 1), [], []), alive=print)
    assert look._sample(known(0, 1)) == []
    look._sample(known(0, 1), "parent")
    look._sample(known(0, 1), "base", greedy=True)
    each = {"seed": 11, "time_s": 7.0, "alive": print, "at_once": 321, "places": [0, 1]}
    assert asked == [
        {"longest": 40, "temperature": 1.0, "base": False, **each},
        {"longest": 40, "temperature": 1.0, "base": False, **each},
        {"longest": 64, "temperature": 0.0, "base": True, **each},
    ]
    for seen, expected in zip(weights, (ours, parent, ours), strict=True):
        assert all(torch.equal(seen[name], expected[name]) for name in base)
    assert all(torch.equal(policy.state()[name], ours[name]) for name in base)


def test_groups_are_asked_at_once_in_the_time_of_all_and_each_gets_its_own(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    given = [GivenAnswer([n], [0.0], True) for n in range(3)]
    answers: list[GivenAnswer] | None = given

    def answered(of: Policy, prompts: Any, longest: int, seed: int, **more: Any) -> list[GivenAnswer] | None:
        asked.append({"prompts": prompts} | {name: more[name] for name in ("time_s", "places")})
        return answers

    monkeypatch.setattr("turnwise.training.gate.examination.sample_answers", answered)
    groups = [known(0, 1), known(2)]
    look = examined(policy, shake(policy, seed=1), Material([], [], groups[0], [], []))
    assert look._sample_each(groups, "base") == [given[:2], given[2:]]
    prompts = [p.prompt_ids for p in known(0, 1, 2)]
    assert asked == [{"prompts": prompts, "time_s": 14.0, "places": [0, 1, 0]}]
    answers = None
    assert look._sample_each(groups, "base") == [None, None]


def test_what_is_general_and_what_a_person_judged_well_are_two_figures(policy: Policy) -> None:
    parent = shake(policy, seed=1)
    general, turns = known(0, 1, 2), known(3, 4, 5)
    shake(policy, seed=2, size=0.2)
    both = examined(policy, parent, Material(general, turns, [], [], [])).at_known_answers()
    alone = examined(policy, parent, Material(general, [], [], [], [])).at_known_answers()
    other = examined(policy, parent, Material([], turns, [], [], [])).at_known_answers()
    assert both.general_rise == pytest.approx(alone.general_rise, abs=1e-5) and alone.nll_rise is None
    assert both.nll_rise == pytest.approx(other.nll_rise, abs=1e-5) and other.general_rise is None
    assert both.general_rise != pytest.approx(both.nll_rise, abs=1e-3)
    for name in ("step_kl", "drift_kl", "parents_drift_kl"):
        mixed = (getattr(alone, name) + getattr(other, name)) / 2
        assert getattr(both, name) == pytest.approx(mixed, abs=1e-5)
    assert examined(policy, parent, Material([], [], [], [], [])).at_known_answers() == Measurements()


def test_one_answer_that_a_person_judged_well_has_no_veto(policy: Policy) -> None:
    """Of fewer than three it is told together with the general probe; alone they stand where there is no such probe."""
    parent = shake(policy, seed=1)
    general = known(0, 1, 2)
    shake(policy, seed=2, size=0.2)

    def of(general: list[Probe], turns: list[Probe]) -> tuple[float | None, float | None]:
        m = examined(policy, parent, Material(general, turns, [], [], [])).at_known_answers()
        return m.nll_rise, m.general_rise

    usual = of(general, [])[1]
    for turns in (known(3), known(3, 4)):
        alone, together = of([], turns)[0], of(general, turns)
        assert alone is not None and usual is not None
        assert together[1] == pytest.approx(usual, abs=1e-5)
        assert together[0] == pytest.approx((3 * usual + len(turns) * alone) / (3 + len(turns)), abs=1e-5)
        assert together[0] != pytest.approx(alone, abs=1e-3)
    assert of(general, known(3, 4, 5))[0] == pytest.approx(of([], known(3, 4, 5))[0], abs=1e-5)


def kl_of(model: Any, other: Any, probe: Probe) -> float:
    """KL(model ‖ other) in nats per token of an answer, by the plain models."""
    with torch.no_grad():
        tables = [m(input_ids=torch.tensor([probe.prompt_ids + probe.answer_ids])).logits[0] for m in (model, other)]
    ours, theirs = (t[len(probe.prompt_ids) - 1 : -1].log_softmax(-1) for t in tables)
    return by_hand(ours, theirs)


def test_distances_are_those_of_whole_models_whatever_is_trained(both_weights: str, tiny_dir: Any) -> None:
    """Each with its own head: where every weight is trained, parent, base and candidate have three."""
    policy = Policy(tiny_dir, train_config())
    parent = shake(policy, seed=1)
    generator = torch.Generator().manual_seed(2)
    ours = {name: t + 0.05 * torch.randn(t.shape, generator=generator) for name, t in parent.items()}
    policy.load(ours)
    m = examined(policy, parent, Material([], known(0, 1, 2), [], [], [])).at_known_answers()
    candidate, before, base = (plain_model(tiny_dir, state, train_config()) for state in (ours, parent, None))
    expected = {
        "step_kl": [kl_of(candidate, before, p) for p in known(0, 1, 2)],
        "drift_kl": [kl_of(candidate, base, p) for p in known(0, 1, 2)],
        "parents_drift_kl": [kl_of(before, base, p) for p in known(0, 1, 2)],
    }
    for name, each in expected.items():
        assert getattr(m, name) == pytest.approx(sum(each) / 3, rel=1e-3), name
    assert min(map(min, expected.values())) > 0.001
