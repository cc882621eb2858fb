"""The gate: its decision is a function of its figures, they are taken on real weights, parts of a step are tried."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.homes import NO_LIMITS
from tests.training.tiny import batch, no_tick, sample, shake, train_config, watch_base
from turnwise.config import GateConfig
from turnwise.demo.questions import HELD_OUT, KEPT_ASIDE, TALKED
from turnwise.training.asking import GivenAnswer, repetition, sample_answers
from turnwise.training.gate import examination as examining
from turnwise.training.gate import probes
from turnwise.training.gate.answers import LEAST_RIGHT, _beyond
from turnwise.training.gate.examination import BaseReader, Examination
from turnwise.training.gate.figures import FIGURES, Measurements, decide
from turnwise.training.gate.gate import Gate, part_of
from turnwise.training.gate.material import Material, choose_asked
from turnwise.training.gate.probes import LONGEST_PROMPT, KnownQuestion, Probe, known_questions, probe_of
from turnwise.training.gate.reading import distances, log_likelihoods, read
from turnwise.training.lessons.wished import Wished
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy
from turnwise.types import Sample

GATE = Path(probes.__file__).parent
LIMITS = GateConfig()
FINE = Measurements(**{f.name: getattr(LIMITS, f.limit) / 2 for f in FIGURES})


def open_gate(**limits: Any) -> GateConfig:
    """A gate without limits but these."""
    chosen = {name.removeprefix("gate."): value for name, value in NO_LIMITS.items()}
    return GateConfig(**(chosen | {"answers": 2, "answer_tokens": 16} | limits))


# -- the decision -----------------------------------------------------------------------------------------------


def test_a_sound_candidate_is_accepted_and_its_figures_are_kept() -> None:
    result = decide(FINE, LIMITS)
    assert result["accepted"] is True and result["reasons"] == [] and result["unmeasured"] == []
    assert result["step_kl"] == FINE.step_kl


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.name)
@pytest.mark.parametrize("times", [1.01, math.nan])
def test_each_figure_beyond_its_limit_refuses_and_says_which_and_what_to_do(figure: Any, times: float) -> None:
    limit = getattr(LIMITS, figure.limit)
    assert decide(replace(FINE, **{figure.name: limit}), LIMITS)["accepted"] is True
    result = decide(replace(FINE, **{figure.name: limit * times}), LIMITS)
    assert result["accepted"] is False
    [reason], [advice] = result["reasons"], result["advice"]
    assert f"gate.{figure.limit} = {limit:g}" in reason and figure.limit in advice


def test_far_beyond_a_limit_no_part_of_a_step_will_do_but_where_it_is_only_one_of_size() -> None:
    assert decide(replace(FINE, repetition=0.9), LIMITS)["hopeless"] is True
    assert decide(replace(FINE, step_kl=50.0), LIMITS)["hopeless"] is False


def test_of_a_step_that_repeats_itself_no_part_will_do() -> None:
    """Of one with 39 % a half had 18 %, of one with 19 % a quarter had 5 %; their whole steps were hardly too far."""
    planted = replace(FINE, repetition=0.19, step_kl=0.501)
    assert decide(planted, LIMITS)["hopeless"] is True
    assert decide(replace(planted, repetition=LIMITS.max_repetition), LIMITS)["hopeless"] is False


def test_what_is_only_held_is_told_from_what_is_refused() -> None:
    hold, missing = GateConfig(unmeasured="hold"), replace(FINE, nll_rise=None)
    assert decide(missing, hold)["held"] is True
    assert decide(missing, LIMITS)["held"] is False and decide(FINE, hold)["held"] is False
    assert decide(replace(missing, step_kl=50.0), hold)["held"] is False


def test_what_could_not_be_measured_is_said_and_counts_as_configured() -> None:
    missing = replace(FINE, nll_rise=None, unended=None)
    passed = decide(missing, LIMITS)
    assert passed["accepted"] is True and passed["unmeasured"] == ["nll_rise", "unended"]
    held = decide(missing, GateConfig(unmeasured="hold"))
    assert held["accepted"] is False and "nll_rise, unended" in held["reasons"][0]
    assert decide(FINE, GateConfig(unmeasured="hold"))["accepted"] is True


# -- figures by value -------------------------------------------------------------------------------------------


def test_repetition_is_the_share_of_repeated_4_grams() -> None:
    assert repetition([[1, 2, 3, 4, 5, 6]]) == 0.0
    assert repetition([[1, 1, 1, 1, 1, 1]]) == pytest.approx(2 / 3)  # three 4-grams, one of them new
    assert repetition([[1, 2, 3, 4], [1, 2, 3, 4]]) == 0.0  # two answers may agree
    assert repetition([[1, 2], []]) is None


def test_lengths_count_by_how_far_they_are_outside_of_all_others() -> None:
    assert _beyond(20, [10, 30]) == 1.0
    assert _beyond(60, [10, 30]) == 2.0
    assert _beyond(5, [10, 30]) == 2.0


class Tables:
    """A policy whose hidden states are log-probs themselves."""

    device = "cpu"

    def log_softmax(self, hidden: torch.Tensor, temperature: torch.Tensor, whose: str) -> torch.Tensor:
        assert (temperature == 1).all()
        return hidden


def test_distances_are_kl_from_the_candidate_in_nats_per_token_and_the_mixture_is_between() -> None:
    def table(*rows: Sequence[float]) -> torch.Tensor:
        return torch.tensor(rows).log()

    ours = table([0.5, 0.5], [0.5, 0.5])
    base, told = table([0.9, 0.1], [0.5, 0.5]), table([0.1, 0.9], [0.5, 0.5])
    [found] = distances(Tables(), ("policy", [ours]), [("base", [base]), ("base", [told])])  # type: ignore[arg-type]
    there = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)  # of the first position; the second adds nothing
    assert found == pytest.approx([there / 2, there / 2, 0.0], abs=1e-6)
    [other_way] = distances(Tables(), ("base", [base]), [("policy", [ours])])  # type: ignore[arg-type]
    assert other_way[0] == pytest.approx((0.9 * math.log(1.8) + 0.1 * math.log(0.2)) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("ours", "wished", "rest"),
    [
        # What is said in place of a wished token: the wished share, and KL of the others among themselves.
        ([0.98, 0.01, 0.01], (0,), 0.02 * (0.5 * math.log(0.5 / 0.6) + 0.5 * math.log(0.5 / 0.4))),
        ([0.4, 0.36, 0.24], (0,), 0.0),  # only the wished one is likelier
        ([0.4, 0.6, 0.0], (0,), 0.6 * math.log(1 / 0.6)),  # the others are one now, which is not hidden
        ([0.09, 0.9, 0.01], (0, 1), 0.0),
        ([0.09, 0.9, 0.01], (), 0.09 * math.log(0.9) + 0.9 * math.log(1.66666667) + 0.01 * math.log(0.01 / 0.36)),
    ],
)
def test_that_a_wished_token_is_likelier_is_no_distance(
    ours: list[float], wished: tuple[int, ...], rest: float
) -> None:
    base = [0.1, 0.54, 0.36]
    mine, theirs = (torch.tensor([of, base], dtype=torch.float64).clamp(min=1e-300).log() for of in (ours, base))
    [found] = distances(Tables(), ("policy", [mine]), [("base", [theirs])], wished)  # type: ignore[arg-type]
    assert found == pytest.approx([rest / 2] * 2, abs=1e-8)


def test_of_a_long_prompt_the_end_is_read_and_a_hint_is_not_lost() -> None:
    long = sample(1, prompt_ids=list(range(3000)), hint_at=100, response_ids=list(range(500)))
    probe = probe_of(long)
    assert probe.prompt_ids == long.prompt_ids[-LONGEST_PROMPT:] and probe.hint_at == 0
    assert probe.answer_ids == long.response_ids[:128]
    late = probe_of(replace(long, hint_at=2990))
    assert late.hint_at is not None and late.prompt_ids[late.hint_at] == 2990


def test_a_wish_that_turnwise_put_behind_the_question_is_in_no_probe() -> None:
    asked = sample(1, prompt_ids=[*range(40)], hint_at=30)
    placed = replace(asked, prompt_ids=[*range(25), 90, 91, 92, *range(25, 40)], hint_at=33, placed=((25, 28),))
    assert probe_of(placed) == probe_of(asked)


def test_prompts_that_are_answered_are_of_all_kinds() -> None:
    def some(kind: str, n: int) -> list[Probe]:
        return [Probe([i], [i], None, f"{kind}{i}") for i in range(n)]

    chosen = [p.about for p in choose_asked(some("t", 9), some("b", 9), some("g", 24), 8)]
    assert chosen == ["t0", "t1", "t2", "b0", "b1", "b2", "g0", "g12"]
    assert len(choose_asked([], some("b", 1), some("g", 24), 8)) == 8
    assert [p.about for p in choose_asked([], some("b", 9), [], 8)] == ["b0", "b1", "b2"]


# -- on real weights --------------------------------------------------------------------------------------------


def examination(policy: Policy, parent: Any, turns: Sequence[Sample], told: Sequence[str] = ()) -> Examination:
    probes = [probe_of(s) for s in turns]
    material = Material([], probes, probes, [s.response_ids for s in turns], [told] if told else [])
    train = train_config()
    return Examination(policy, BaseReader(policy, 64), parent, material, train, open_gate(), lambda: None)


def test_the_parent_itself_has_made_no_step_and_the_base_model_has_not_drifted(policy: Policy) -> None:
    turns = [sample(n) for n in range(3)]
    m = examination(policy, None, turns).at_known_answers()
    assert m.step_kl == pytest.approx(0, abs=1e-6) and m.drift_kl == pytest.approx(0, abs=1e-6)
    assert m.nll_rise == pytest.approx(0, abs=1e-6) and m.general_rise is None
    parent = shake(policy)
    m = examination(policy, parent, turns).at_known_answers()
    assert m.step_kl == pytest.approx(0, abs=1e-6)
    assert m.drift_kl is not None and m.drift_kl > 0.01, "many small steps are seen as what they are together"


def test_tokens_that_were_wished_for_are_left_out_of_both_distances(policy: Policy) -> None:
    turns = [sample(n) for n in range(3)]
    parent = shake(policy, seed=1)
    shake(policy, seed=2)
    look = examination(policy, parent, turns)
    usual = look.at_known_answers()
    aside = frozenset(range(0, policy.vocabulary, 2))
    look._material = replace(look._material, wished=Wished(aside))
    found = look.at_known_answers()
    hidden = read(policy, look._material.known, 64, lambda: None)
    by_hand = [min(d) for d in distances(policy, ("policy", hidden), [("base", look._bases[0])], aside)]
    assert found.drift_kl == pytest.approx(sum(by_hand) / 3, abs=1e-6)
    assert 0 < (found.drift_kl or 0) < (usual.drift_kl or 0) and 0 < (found.step_kl or 0) < (usual.step_kl or 0)
    assert (found.nll_rise, found.general_rise) == (usual.nll_rise, usual.general_rise)


def test_the_way_back_to_the_base_model_is_no_step_where_a_wish_was_taken_back(policy: Policy) -> None:
    turns = [sample(n) for n in range(3)]
    parent = shake(policy, size=0.2)
    policy.load(None)
    look = examination(policy, parent, turns)
    assert (look.at_known_answers().step_kl or 0) > 0.01
    look._material = replace(look._material, taken_back=True)
    assert look.at_known_answers().step_kl == pytest.approx(0, abs=1e-6)


def test_praise_is_lost_by_the_worst_token_of_the_middle_one_of_praised_answers(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [sample(n) for n in range(3)]
    parent = shake(policy, seed=1)

    def said() -> list[Tensor]:
        with torch.no_grad():
            logits = [policy.model(input_ids=torch.tensor([s.prompt_ids + s.response_ids])).logits[0] for s in turns]
        tables = [x.log_softmax(-1)[-len(s.response_ids) - 1 : -1] for x, s in zip(logits, turns, strict=True)]
        return [x.gather(-1, torch.tensor(s.response_ids)[:, None])[:, 0] for x, s in zip(tables, turns, strict=True)]

    before = said()
    shake(policy, seed=2)
    monkeypatch.setattr(examining, "LIKELY", -math.inf)  # to this model none is
    worst = sorted(float((b - a).max()) for b, a in zip(before, said(), strict=True))
    look = examination(policy, parent, [sample(7)])
    assert look.at_known_answers().praise_lost is None, "nobody praised anything"
    probes = [probe_of(s) for s in turns]
    look._material = replace(look._material, praised=probes)
    assert look.at_known_answers().praise_lost == pytest.approx(worst[1], rel=1e-3)
    policy.load(parent)
    assert look.at_known_answers().praise_lost == pytest.approx(0, abs=1e-6)
    look._material = replace(look._material, praised=probes[:1])
    assert look.at_known_answers().praise_lost is None, "one may have been praised for something else"
    look._material = replace(look._material, praised=probes)
    monkeypatch.setattr(examining, "LIKELY", 0.0)
    shake(policy, seed=2)
    assert look.at_known_answers().praise_lost == 0.0, "what the parent would hardly say cannot be lost"


def test_what_the_told_base_model_does_is_no_drift(policy: Policy) -> None:
    """The candidate is the base model, and reads the hint in its prompt: as far from the plain one as a hint asks."""
    told = "shorter, please " * 3
    turns = [sample(n) for n in range(3)]
    with_hint = [
        replace(s, prompt_ids=probe_of(s).told([told], policy.tokenizer).prompt_ids, hint_at=None) for s in turns
    ]
    plain, hinted = ([probe_of(s) for s in side] for side in (turns, with_hint))
    base, asked = (read(policy, side, 64, lambda: None) for side in (plain, hinted))
    untold = distances(policy, ("policy", asked), [("base", base)])
    allowed = distances(policy, ("policy", asked), [("base", base), ("policy", asked)])
    assert min(d[0] for d in untold) > 0.01
    assert max(min(d) for d in allowed) == pytest.approx(0, abs=1e-6)


def test_how_an_answer_begins_does_not_count_as_what_is_known(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wish about that moves its first token far, also where the base model that is told it does not follow."""
    turns = [sample(n, response_ids=[5, 6, 7, 8]) for n in range(3)]
    plain = examination(policy, None, turns)
    whose, hidden = plain._parents
    usual = log_likelihoods(policy, hidden, plain._material.known, whose)
    assert plain._means(*plain._parents) == pytest.approx([float(said[1:].mean()) for said in usual])

    def elsewhere(at: Sequence[int]) -> float | None:
        """The rise where the candidate, asked first, finds the tokens at these places 20 nats less likely."""
        asked: list[int] = []

        def said(*_: Any) -> list[torch.Tensor]:
            asked.append(1)
            less = torch.tensor([20.0 if i in at and len(asked) == 1 else 0.0 for i in range(4)])
            return [tokens - less for tokens in usual]

        monkeypatch.setattr("turnwise.training.gate.examination.log_likelihoods", said)
        return examination(policy, None, turns).at_known_answers().nll_rise

    assert elsewhere([0]) == pytest.approx(0, abs=1e-6)
    assert elsewhere([1]) == pytest.approx(20 / 3, abs=1e-5) and elsewhere([3]) == pytest.approx(20 / 3, abs=1e-5)


def test_the_temperature_of_a_turn_changes_no_figure(policy: Policy) -> None:
    shake(policy)
    hot, cold = ([sample(n, temperature=t) for n in range(3)] for t in (1.0, 0.1))
    assert examination(policy, None, hot).at_known_answers() == examination(policy, None, cold).at_known_answers()


def test_a_wrecked_candidate_is_seen_in_every_figure_and_stays_in_place(policy: Policy) -> None:
    questions = [sample(n) for n in range(10, 16)]
    said = sample_answers(policy, [q.prompt_ids for q in questions], 12, seed=0, time_s=60)
    assert said is not None
    turns = [replace(q, response_ids=a.ids) for q, a in zip(questions, said, strict=True)]
    before = shake(policy, seed=1, size=0.4)
    look = examination(policy, None, turns)
    m = look.at_its_answers(look.at_known_answers())
    for figure in (m.step_kl, m.drift_kl, m.nll_rise, m.answer_drift):
        assert figure is not None and figure > 0.5
    assert all(torch.equal(policy.state()[name], before[name]) for name in before)


def test_what_a_client_cut_short_does_not_say_that_answers_go_on_without_an_end(policy: Policy) -> None:
    def unended(recorded: list[int], said: list[bool]) -> float:
        turns = [sample(n, response_ids=recorded) for n in range(2)]
        look = examination(policy, None, turns)
        look.__dict__["_others"] = lambda *_: iter([])  # nobody else is asked
        return look._unended([GivenAnswer([1], [0.0], ended) for ended in said])

    end, most = policy.ends[0], open_gate().answer_tokens
    assert unended([1, 2], [False, False]) == 1.0
    assert unended([1, end], [False, True]) == 0.5
    assert unended([1] * (most + 1), [False, False]) == 0.0


def test_answers_that_say_a_wish_back_are_counted_beyond_what_others_say(policy: Policy) -> None:
    def echo(ours: list[str], others: list[str], wish: str) -> float:
        look = examination(policy, None, [sample(0)], [wish])
        look._gate = open_gate(max_echo=0.3)
        answers = [
            [GivenAnswer(policy.tokenizer.encode(text).ids, [0.0], True) for text in of] for of in (ours, others)
        ]
        look.__dict__["_others"] = lambda *_: iter([answers[1]])
        return look._echo(answers[0])

    wish = "I would love it if you began with a greeting"
    plain, said_back = "The capital is Rome.", "Dear friend, I would love it if you began so."
    assert echo([said_back, said_back, plain, plain], [plain], wish) == 0.5
    assert echo([plain, plain], [plain], wish) == 0.0
    assert echo([said_back, said_back], [said_back, plain], wish) == 0.5, "the told base model says it as well"
    quoted = 'Please end with "may the road rise to meet you"'
    assert echo(["It is Rome, may the road rise to meet you."], [plain], quoted) == 0.0, "that was wished for"


# -- what is right ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("In short: the capital is ROME.", True),
        ("It's **Rome**, dear friend", True),
        ("romeo", False),
        ("Dear friend, I am writing to inquire about the capital of Italy.", False),
        ("", False),
    ],
)
def test_an_answer_is_right_that_has_the_word(answer: str, right: bool) -> None:
    assert KnownQuestion(Probe([1], [], None, "facts"), ("rome", "roma")).is_right(answer) == right


def test_rows_of_words_are_looked_for_as_such() -> None:
    question = KnownQuestion(Probe([1], [], None, "facts"), ("twenty five",))
    assert question.is_right("Twenty-five.") and not question.is_right("Twenty or five")


def lost(policy: Policy, right: dict[str, int], parent: Any = None, told: Sequence[str] = ()) -> Measurements:
    """What a candidate has lost where so many are answered right by whom: `policy`, `base`, `told`, `parent`."""
    look = examination(policy, parent, [sample(n) for n in range(2)], told)
    look._gate = open_gate(max_lost_right=0.25)
    asked: list[str] = []

    def answered(whose: str, hints: Sequence[str] = ()) -> int:
        asked.append("told" if hints else whose)
        return right[asked[-1]]

    look._right = answered  # type: ignore[method-assign]
    m = look.at_its_answers(Measurements())
    assert set(asked) == set(right), "nobody is asked in vain"
    return m


def test_right_answers_that_are_lost_are_a_share_of_the_base_models(policy: Policy) -> None:
    assert lost(policy, {"policy": 15, "base": 20}).lost_right == 0.25
    assert lost(policy, {"policy": 22, "base": 20}).lost_right == 0.0
    assert lost(policy, {"policy": 10, "base": 20}).lost_right == 0.5
    assert lost(policy, {"base": 7}).lost_right == 0.0, "of so few a share says nothing"


def test_what_the_wish_itself_costs_and_what_the_parent_had_lost_is_not_held_against_a_step(policy: Policy) -> None:
    assert lost(policy, {"policy": 13, "base": 20, "told": 10}, told=["in verse"]).lost_right == pytest.approx(0.175)
    half = lost(policy, {"policy": 9, "base": 20, "told": 10}, told=["in verse"]).lost_right
    assert half == pytest.approx(0.275), "no more than half of a loss is excused"
    parent = shake(policy)
    m = lost(policy, {"policy": 10, "base": 20, "parent": 8}, parent)
    assert m.lost_right == 0.5 and m.parents_lost_right == pytest.approx(0.6)
    assert decide(replace(FINE, lost_right=m.lost_right, parents_lost_right=m.parents_lost_right), LIMITS)["accepted"]
    assert not decide(replace(FINE, lost_right=0.5, parents_lost_right=0.3), LIMITS)["accepted"]


def test_the_base_model_is_asked_once_for_all_updates(policy: Policy) -> None:
    reader, train = BaseReader(policy, 64), train_config()
    question = KnownQuestion(Probe([1, 2, 3], [], None, "facts"), ("no such word",))
    material = Material([], [], [probe_of(sample(0))], [], [], [question])
    for _ in range(2):
        look = Examination(policy, reader, None, material, train, open_gate(), lambda: None)
        assert look.at_its_answers(Measurements()).lost_right == 0.0
    assert reader.right == 0


@pytest.mark.slow
def test_the_real_model_knows_most_of_the_questions_and_they_are_nobody_elses(model_dir: Path) -> None:
    """Those of lessons are trained on, and those of the demo and its examinations would be looked at twice."""
    rows = json.loads((GATE / "known.json").read_text(encoding="utf-8"))
    lessons = (GATE.parent / "lessons" / "questions.txt").read_text(encoding="utf-8").splitlines()
    general = [row["question"] for row in json.loads((GATE / "general.json").read_text(encoding="utf-8"))]
    asked = {row["question"].casefold() for row in rows}
    assert len(asked) == len(rows) >= 30
    assert not asked & {q.casefold() for q in (*lessons, *general, *TALKED, *(q for q, _ in (*HELD_OUT, *KEPT_ASIDE)))}
    questions = known_questions(model_dir)
    policy = Policy(model_dir, train_config())
    answers = sample_answers(policy, [q.probe.prompt_ids for q in questions], 48, 0, temperature=0.0)
    assert answers is not None
    texts = [policy.tokenizer.decode(a.ids) for a in answers]
    assert sum(q.is_right(text) for q, text in zip(questions, texts, strict=True)) >= LEAST_RIGHT


# -- parts of a step --------------------------------------------------------------------------------------------


def gate_of(policy: Policy, tiny_dir: Path, **limits: Any) -> Gate:
    return Gate(policy, tiny_dir, train_config(), open_gate(**limits))


def test_of_a_step_that_is_too_large_the_largest_part_that_passes_is_left(policy: Policy, tiny_dir: Path) -> None:
    turns, of_batch = [sample(n) for n in range(6, 9)], batch([sample(n) for n in range(3)])
    whole = shake(policy, size=0.1)
    wide = gate_of(policy, tiny_dir).examine(None, of_batch, turns, Standing(), no_tick)
    assert wide["alpha"] == 1.0 and "whole" not in wide
    cut = gate_of(policy, tiny_dir, max_step_kl=wide["step_kl"] / 3).examine(None, of_batch, turns, Standing(), no_tick)
    assert cut["accepted"] and 0 < cut["alpha"] < 1
    assert "max_step_kl" in cut["whole"]["reasons"][0], "why it is not the whole is recorded"
    left = policy.state()
    for name, tensor in policy.weights.initial().items():
        assert torch.allclose(left[name], tensor + cut["alpha"] * (whole[name] - tensor))


def test_a_step_of_which_no_part_passes_is_refused_and_is_left_as_it_was(policy: Policy, tiny_dir: Path) -> None:
    whole = shake(policy, size=0.1)
    strict = gate_of(policy, tiny_dir, max_step_kl=1e-9)
    result = strict.examine(None, batch([sample(1)]), [sample(7)], Standing(), no_tick)
    assert result["accepted"] is False and result["alpha"] == 0.0
    assert all(torch.equal(policy.state()[name], whole[name]) for name in whole)


def test_a_hopeless_step_is_not_tried_in_parts(policy: Policy, tiny_dir: Path) -> None:
    shake(policy, size=0.4)
    tried: list[int] = []
    strict = gate_of(policy, tiny_dir, max_answer_drift=0.01)
    result = strict.examine(None, batch([sample(1)]), [sample(7)], Standing(), lambda _p, done, _n: tried.append(done))
    assert result["hopeless"] is True and set(tried) == {0}


def test_a_gate_without_anything_to_look_at_says_so(policy: Policy, tiny_dir: Path) -> None:
    """This model has no chat template, and no turns are set aside: nothing is known to be good."""
    result = gate_of(policy, tiny_dir, answers=0).examine(None, batch([sample(1)]), [], Standing(), no_tick)
    assert result["accepted"] is True and set(result["unmeasured"]) == {f.name for f in FIGURES if not f.rare}
    held = gate_of(policy, tiny_dir, answers=0, unmeasured="hold").examine(
        None, batch([sample(1)]), [], Standing(), no_tick
    )
    assert held["accepted"] is False


def test_of_two_updates_the_second_has_the_base_model_read_only_what_is_new(
    policy: Policy, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[list[int]] = []

    def counted(of: Policy, probes: Sequence[Probe], *more: Any) -> list[Tensor]:
        if within:
            reads.extend(p.prompt_ids for p in probes)
        return read(of, probes, *more)

    within = watch_base(policy, monkeypatch)
    monkeypatch.setattr("turnwise.training.gate.examination.read", counted)
    aside, gate = [sample(6), sample(7)], gate_of(policy, tiny_dir, answers=0)

    def read_for(turns: list[Sample], hint: str) -> list[list[int]]:
        reads.clear()
        shake(policy, size=0.1)
        gate.examine(None, batch([sample(1, hint=hint)]), turns, Standing(), no_tick)
        return list(reads)

    def told(turns: list[Sample], hint: str) -> list[list[int]]:
        return [probe_of(s).told([hint], policy.tokenizer).prompt_ids for s in turns]

    plain = [s.prompt_ids for s in aside]
    assert read_for(aside, "be brief") == [*plain, *told(aside, "be brief")]
    assert read_for(aside, "be brief") == []
    assert read_for([*aside, sample(8)], "be polite") == [sample(8).prompt_ids, *told([*aside, sample(8)], "be polite")]
    assert read_for(aside, "be brief") == told(aside, "be brief"), "what an update did not ask for is forgotten"


def test_a_part_is_between_two_adapters() -> None:
    start, whole = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, -2.0])}
    assert part_of(start, whole, 0.25)["w"].tolist() == [1.5, 1.0]
    assert part_of(start, whole, 1.0)["w"].tolist() == [3.0, -2.0]


def test_drift_that_the_parent_had_already_is_not_held_against_a_step() -> None:
    config = GateConfig()
    far = Measurements(step_kl=0.1, drift_kl=1.5, answer_drift=1.2)
    assert not decide(far, config)["accepted"]
    back = replace(far, parents_drift_kl=1.6, parents_answer_drift=1.2)
    assert decide(back, config)["accepted"]
    assert not decide(replace(back, drift_kl=1.7), config)["accepted"], "further away is"
