"""Figures of a candidate's own answers, by hand: who answers what is written down in the test, and no model runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from turnwise.config import GateConfig
from turnwise.training.asking import GivenAnswer
from turnwise.training.gate.answers import (
    OwnAnswers,
    _beyond,
    behind_first,
    known_rises,
    mean_or_none,
    rises,
)
from turnwise.training.gate.figures import Measurements, decide
from turnwise.training.gate.material import Material, choose_asked
from turnwise.training.gate.probes import KnownQuestion, Probe
from turnwise.training.lessons.wished import Wished, wished_runs

END = 257


def bytes_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


TOKENIZER = bytes_tokenizer()


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text).ids


def probe(question: str, answer: str = "", about: str = "turn") -> Probe:
    return Probe(ids(question), ids(answer), 0, about)


def given(text: str, logprob: float = -1.0, ended: bool = True) -> GivenAnswer:
    return GivenAnswer(ids(text), [logprob] * len(ids(text)), ended)


@dataclass
class Script:
    """Who answers what. ``answers`` by who is asked: policy, parent, base, or "told …"; None: no time. ``likes``: the
    mean log-prob of an answer behind a prompt to the base model."""

    answers: dict[str, list[GivenAnswer] | None] = field(default_factory=dict)
    right: dict[str, list[GivenAnswer] | None] = field(default_factory=dict)
    likes: Callable[[str, str], float] = lambda prompt, answer: -1.0
    asked: list[str] = field(default_factory=list)


class Scripted(OwnAnswers):
    def __init__(self, script: Script, material: Material, of_base: bool = True, **limits: Any) -> None:
        super().__init__(material, GateConfig(**limits), TOKENIZER, [END], of_base)
        self.script = script

    def _sample_each(self, groups: Sequence[Sequence[Probe]], whose: Any, *, greedy: bool = False) -> Any:
        return [self._one(probes, whose, greedy) for probes in groups]

    def _one(self, probes: Sequence[Probe], whose: Any, greedy: bool) -> Any:
        prompt = TOKENIZER.decode(probes[0].prompt_ids)
        hints = [hint for told in self._material.tellings for hint in told if hint in prompt]
        who = " ".join(["told", *dict.fromkeys(hints)]) if whose == "base" and hints else str(whose)
        self.script.asked.append(f"{who} greedily" if greedy else who)
        return (self.script.right if greedy else self.script.answers)[who]

    def _to_base(self, probes: Sequence[Probe]) -> list[torch.Tensor]:
        texts = [(TOKENIZER.decode(p.prompt_ids), TOKENIZER.decode(p.answer_ids)) for p in probes]
        return [torch.full((len(a.encode()),), self.script.likes(p, a), dtype=torch.float64) for p, a in texts]


ASKED = [probe("p"), probe("q")]


def material(**more: Any) -> Material:
    return Material(**({"general": [], "turns": [], "asked": ASKED, "recorded": [], "tellings": []} | more))


# -- what is taken at all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "answers"), [([], [given("a")]), (ASKED, None)])
def test_without_answers_what_is_known_stays_as_it_is(asked: list[Probe], answers: list[GivenAnswer] | None) -> None:
    script = Script({"policy": answers})
    known = Measurements(step_kl=0.2, parents_drift_kl=0.1)
    assert Scripted(script, material(asked=asked)).at_its_answers(known) is known
    assert script.asked == (["policy"] if asked else [])


def test_every_figure_of_the_answers_is_taken_beside_those_that_are_known() -> None:
    script = Script({"policy": [given("one two", -1.0), given("three", -2.0)], "base": [given("x"), given("y")]})
    m = Scripted(script, material(recorded=[[5] * 6, [5] * 6])).at_its_answers(Measurements(step_kl=0.2, nll_rise=0.1))
    assert (m.step_kl, m.nll_rise, m.drift_kl) == (0.2, 0.1, None)
    assert m.answer_drift == -0.5 and m.parents_answer_drift == 0.0
    assert (m.off_topic, m.lost_right, m.parents_lost_right) == (None, None, 0.0)
    assert (m.echo, m.repetition, m.length_ratio, m.unended) == (0.0, 0.0, 1.0, 0.0)
    assert script.asked == ["policy"], "nobody is asked in vain"


# -- drift of answers -------------------------------------------------------------------------------------------


def drifting(likes: dict[tuple[bool, str], float]) -> Callable[[str, str], float]:
    """By whether the prompt tells the hint, and the answer."""
    return lambda prompt, answer: likes[("brief" in prompt, answer)]


def test_drift_is_from_the_base_told_or_not_whichever_finds_an_answer_likelier() -> None:
    likes = drifting({(False, "a"): -3.0, (False, "b"): -2.5, (True, "a"): -4.0, (True, "b"): -2.25})
    script = Script({"policy": [given("a", -1.0), given("b", -2.0)]}, likes=likes)
    look = Scripted(script, material(tellings=[["brief"]], recorded=[[5]]), max_answer_drift=50.0)
    answers = script.answers["policy"] or []
    own = look._given(answers)
    assert [TOKENIZER.decode(p.answer_ids) for p in own] == ["a", "b"]
    assert [p.prompt_ids for p in own] == [p.prompt_ids for p in ASKED]
    untold = [torch.tensor([-3.0]), torch.tensor([-2.5])]
    assert look._drift_of(answers, own, untold) == pytest.approx((2.0 + 0.25) / 2)
    assert look.at_its_answers(Measurements()).answer_drift == pytest.approx((2.0 + 0.25) / 2)


@pytest.mark.parametrize(
    ("text", "wished", "drift"),
    [
        ("-a", "", (10.0 + 1.0) / 2),
        ("-a", "-", (0.0 + 1.0) / 2),
        ("a-", "-", (10.0 + 0.0) / 2),  # what is wished for is so wherever it stands
        ("--", "-", 0.0),
        ("-a", "a-", 0.0),
        ("-a", "b", (10.0 + 1.0) / 2),
    ],
)
def test_tokens_that_lessons_show_as_wished_for_are_no_drift(text: str, wished: str, drift: float) -> None:
    look = Scripted(Script(), material(wished=Wished(frozenset(ids(wished)))))
    answer = GivenAnswer(ids(text), [-1.0, -2.0], True)
    said = torch.tensor([-11.0, -3.0], dtype=torch.float64)
    assert look._drift_of([answer], [probe("p", text)], [said]) == pytest.approx(drift)


def parents_drift(of_base: bool, parent: list[GivenAnswer] | None, most: float) -> tuple[float | None, float, Script]:
    script = Script({"policy": [given("a", -1.0), given("a", -1.0)], "parent": parent}, likes=lambda _p, _a: -3.0)
    look = Scripted(script, material(recorded=[[5]]), of_base, max_answer_drift=most)
    m = look.at_its_answers(Measurements())
    return m.answer_drift, m.parents_answer_drift, script


@pytest.mark.parametrize(
    ("of_base", "parent", "most", "had"),
    [
        (False, [given("b", -1.5), given("b", -1.5)], 1.9, 1.5),
        (False, [given("b", -1.5), given("b", -1.5)], 2.0, None),  # at its limit it is not beyond it
        (False, None, 1.9, 0.0),
        (True, [given("b", -1.5), given("b", -1.5)], 1.9, None),
    ],
)
def test_what_the_parent_drifted_is_asked_for_only_beyond_the_limit(
    of_base: bool, parent: list[GivenAnswer] | None, most: float, had: float | None
) -> None:
    drift, parents, script = parents_drift(of_base, parent, most)
    assert (drift, parents) == (2.0, had or 0.0)
    assert ("parent" in script.asked) == (had is not None)


# -- what ties answers to their questions -----------------------------------------------------------------------


def tied(prompt: str, answer: str) -> float:
    """To the base model an answer is likelier behind its own question: by 4 for good ones, by 1 for others."""
    own = prompt[0] == answer[0].lower()
    return -1.0 if not own else (3.0 if answer.islower() else 0.0)


def off_topic(asked: list[Probe], answers: list[GivenAnswer], likes: Any = tied, **known: Any) -> float | None:
    script = Script({"policy": answers}, likes=likes)
    look = Scripted(script, material(asked=asked, recorded=[[5]], **known), max_answer_drift=50.0)
    return look.at_its_answers(Measurements()).off_topic


GOOD = [probe(c, c) for c in "abcdefg"]


def test_the_tie_that_is_lost_is_a_share_of_that_of_good_answers() -> None:
    answers = [given("P"), given("Q")]
    assert off_topic(ASKED, answers, turns=GOOD[:2]) == pytest.approx(1 - 1 / 4)
    assert off_topic(ASKED, [given("p"), given("Q")], turns=GOOD[:2]) == pytest.approx(1 - 2.5 / 4)
    assert off_topic(ASKED, [given("p"), given("q")], turns=GOOD[:2]) == 0.0
    loose = [replace(p, answer_ids=ids(p_text.upper())) for p, p_text in zip(GOOD, "abcdefg", strict=True)]
    assert off_topic(ASKED, [given("p"), given("q")], turns=loose[:2]) == 0.0, "never less than none"


def test_good_answers_are_the_turns_and_every_third_general_one() -> None:
    mixed = [probe(c, c if n % 3 == 0 else c.upper(), "general") for n, c in enumerate("abcdefg")]
    assert off_topic(ASKED, [given("P"), given("Q")], general=mixed) == pytest.approx(1 - 1 / 4)
    turn = [probe("h", "H")]
    tie = (1 + 3 * 4) / 4
    assert off_topic(ASKED, [given("P"), given("Q")], general=mixed, turns=turn) == pytest.approx(1 - 1 / tie)


def test_without_two_answers_on_either_side_and_without_a_tie_nothing_is_said() -> None:
    assert off_topic(ASKED[:1], [given("P")], turns=GOOD) is None
    assert off_topic(ASKED, [given("P"), given("Q")], turns=GOOD[:1]) is None
    assert off_topic(ASKED, [given("P"), given("Q")], turns=GOOD[:1], general=GOOD[1:2]) is not None
    assert off_topic(ASKED, [given("P"), given("Q")], likes=lambda _p, _a: -1.0, turns=GOOD) is None
    assert off_topic(ASKED, [given("P"), given("Q")], likes=lambda p, a: -float(p == a), turns=GOOD) is None


# -- what is right ----------------------------------------------------------------------------------------------


def lost_right(
    counts: Mapping[str, int | None],
    *,
    of_base: bool = True,
    most: float = 0.25,
    tellings: Sequence[Sequence[str]] = (),
) -> tuple[float | None, float, list[str]]:
    """What is lost, what the parent had lost, and who was asked, where so many of 20 are answered right by whom."""
    questions = [KnownQuestion(probe("?", "", "facts"), ("yes",)) for _ in range(20)]
    right = {who: None if n is None else [given("Yes!")] * n + [given("no")] * (20 - n) for who, n in counts.items()}
    script = Script({"policy": [given("a"), given("b")]}, right)
    of = material(questions=questions, recorded=[[5]], tellings=tellings)
    m = Scripted(script, of, of_base, max_lost_right=most).at_its_answers(Measurements())
    assert all(each.endswith(" greedily") for each in script.asked[1:])
    return m.lost_right, m.parents_lost_right, [each.removesuffix(" greedily") for each in script.asked[1:]]


@pytest.mark.parametrize(
    ("base", "ours", "lost"), [(8, 6, 0.25), (20, 20, 0.0), (10, 20, 0.0), (20, 15, 0.25), (8, 7, 0.125)]
)
def test_what_is_lost_is_a_share_of_what_the_base_model_answers_right(base: int, ours: int, lost: float) -> None:
    assert lost_right({"base": base, "policy": ours}) == (lost, 0.0, ["base", "policy"])


def test_where_the_base_model_knows_too_little_or_there_is_no_time_the_policy_is_not_asked() -> None:
    assert lost_right({"base": 7}) == (0.0, 0.0, ["base"])
    assert lost_right({"base": None}) == (None, 0.0, ["base"])
    assert lost_right({"base": 10, "policy": None}) == (None, 0.0, ["base", "policy"])


def test_what_the_hints_cost_the_base_model_is_asked_for_only_beyond_the_limit() -> None:
    both, who = [["verse", "brief"], ["verse"]], {"base": 20, "told verse brief": 12, "told verse": 16}
    every = ["base", "policy", "told verse brief", "told verse"]
    assert lost_right(who | {"policy": 15}, tellings=both) == (0.25, 0.0, ["base", "policy"])
    assert lost_right(who | {"policy": 12}, tellings=both) == (0.2, 0.0, every)
    assert lost_right(who | {"policy": 14}, tellings=both) == (pytest.approx(0.15), 0.0, every)
    later = lost_right(who | {"told verse brief": None, "policy": 8}, tellings=both)
    assert later == (0.5, 0.0, every), "one without time says nothing"
    better = lost_right({"base": 10, "told verse": 20, "policy": 5}, tellings=[["verse"]])
    assert better == (0.5, 0.0, ["base", "policy", "told verse"]), "more than the base model's is not asked for"
    none = lost_right({"base": 10, "told verse": 0, "policy": 0}, tellings=[["verse"]])
    assert none[0] == 1.0


def test_what_the_hints_cost_the_base_model_excuses_half_of_a_loss() -> None:
    told = {"base": 20, "told verse": 5}
    assert lost_right(told | {"policy": 10}, tellings=[["verse"]])[0] == 0.25
    assert lost_right(told | {"policy": 8}, tellings=[["verse"]])[0] == 0.3
    assert lost_right(told | {"policy": 1}, tellings=[["verse"]])[0] == 0.8, "more than telling costs has no excuse"
    one = lost_right({"base": 10, "told verse": 1, "policy": 1}, tellings=[["verse"]])
    assert one[0] == 0.45, "of one that it answers right, one is left"


def test_what_the_parent_had_lost_is_asked_for_only_beyond_the_limit() -> None:
    who = {"base": 20, "parent": 12}
    assert lost_right(who | {"policy": 15}, of_base=False) == (0.25, 0.0, ["base", "policy"])
    assert lost_right(who | {"policy": 10}, of_base=False) == (0.5, 0.4, ["base", "policy", "base", "parent"])
    assert lost_right(who | {"policy": 10}) == (0.5, 0.0, ["base", "policy"])
    assert lost_right({"base": 20, "policy": 10, "parent": None}, of_base=False)[1] == 0.0


# -- words that are wanted said ---------------------------------------------------------------------------------


def lost_words(
    saying: Mapping[str, int | None], *, words: Sequence[str] = ("cheers",), of_base: bool = False, most: float = 0.5
) -> tuple[float | None, list[str]]:
    """What is lost, and who was asked, where so many of 20 answers say "Cheers!" by whom; the others "Ahoy" alone."""
    questions = [KnownQuestion(probe("?", "", "facts"), ("yes",)) for _ in range(20)]
    right = {
        who: None if n is None else [given("Ahoy. Cheers!")] * n + [given("ahoy")] * (20 - n)
        for who, n in ({"base": 0} | saying).items()
    }
    script = Script({"policy": [given("a"), given("b")]}, right)
    of = material(questions=questions, recorded=[[5]], words=words)
    m = Scripted(script, of, of_base, max_lost_words=most).at_its_answers(Measurements())
    return m.lost_words, [each.removesuffix(" greedily") for each in script.asked[1:]]


def test_words_that_most_answers_have_are_not_lost_and_the_parent_is_not_asked() -> None:
    assert lost_words({"policy": 20}) == (0.0, ["base", "policy"])
    assert lost_words({"policy": 10}) == (0.5, ["base", "policy"])
    assert lost_words({"policy": 5}, most=0.75) == (0.75, ["base", "policy"])


def test_words_that_the_parents_answers_have_and_the_candidates_lack_are_lost() -> None:
    every = ["base", "policy", "parent"]
    assert lost_words({"policy": 9, "parent": 20}) == (0.55, every)
    assert lost_words({"policy": 4, "parent": 16}) == (0.75, every)
    assert lost_words({"policy": 8, "parent": 6}) == (0.0, every), "it says them more often"
    assert lost_words({"policy": 0, "parent": 4}) == (0.0, every), "the parent has not learned them"
    assert lost_words({"policy": 0, "parent": 5}) == (1.0, every)
    assert lost_words({"policy": 9, "parent": None}) == (None, every), "no time"
    assert lost_words({"policy": 4, "parent": 16}, words=["ahoy", "cheers"]) == (0.75, every), "the worst of all"


def test_an_answer_that_was_cut_may_have_had_the_words_behind_the_cut() -> None:
    questions = [KnownQuestion(probe("?", "", "facts"), ("yes",)) for _ in range(20)]
    says, cut = [given("Cheers!")] * 20, [given("a long way", ended=False)] * 17
    right = {"base": says, "policy": [*cut, *says[:3]], "parent": says}
    script = Script({"policy": [given("a"), given("b")]}, right)
    of = material(questions=questions, recorded=[[5]], words=["cheers"])
    look = Scripted(script, of, of_base=False)
    assert look.at_its_answers(Measurements()).lost_words == 0.0
    script.right["policy"] = [*cut, given("no"), given("no"), given("Cheers!")]
    assert look.at_its_answers(Measurements()).lost_words == pytest.approx(2 / 3)
    script.right["policy"] = [*cut, given("no", ended=False), *says[:2]]
    assert look.at_its_answers(Measurements()).lost_words is None, "two answers say too little"
    script.right["policy"] = [given("no")] * 20
    assert look.at_its_answers(Measurements()).lost_words == 1.0
    assert script.asked.count("parent greedily") == 1
    right = {"base": says, "policy": [given("no")] * 20, "parent": [*cut[:16], *says[:4]]}
    other = Scripted(replace(script, right=right), of, of_base=False)
    assert other.at_its_answers(Measurements()).lost_words == 1.0, "of the four answers that the parent ended"
    few = replace(script, right=right | {"parent": [*cut, given("no"), *says[:2]]})
    assert Scripted(few, of, of_base=False).at_its_answers(Measurements()).lost_words == 0.0, "two say too little"


def test_without_words_or_parent_or_time_nothing_is_said_of_words() -> None:
    assert lost_words({"policy": 0}, words=()) == (None, ["base"])
    assert lost_words({"policy": 0}, of_base=True) == (None, ["base"])
    assert lost_words({"policy": None}) == (None, ["base", "policy"])


def test_each_part_of_a_step_is_asked_anew_and_the_parent_once() -> None:
    questions = [KnownQuestion(probe("?", "", "facts"), ("yes",)) for _ in range(20)]
    says, plain = [given("Cheers!")] * 20, [given("no")] * 20
    script = Script({"policy": [given("a"), given("b")]}, {"base": plain, "policy": plain, "parent": says})
    of = material(questions=questions, recorded=[[5]], words=["cheers"])
    look = Scripted(script, of, of_base=False, max_lost_words=0.5)
    assert look.at_its_answers(Measurements()).lost_words == 1.0
    script.right["policy"] = [*says[:15], *plain[:5]]
    assert look.at_its_answers(Measurements()).lost_words == 0.25
    script.right["policy"] = [*says[:5], *plain[:15]]
    assert look.at_its_answers(Measurements()).lost_words == 0.75
    assert script.asked.count("parent greedily") == 1 and script.asked.count("policy greedily") == 3


# -- lengths ----------------------------------------------------------------------------------------------------


def letters(*lengths: int) -> list[GivenAnswer]:
    return [given("x" * n) for n in lengths]


def length_ratio(
    ours: list[int], recorded: list[int], *, most: float = 2.0, of_base: bool = True, **others: Any
) -> tuple[float | None, list[str]]:
    script = Script({who.replace("_", " "): letters(*given) if given else None for who, given in others.items()})
    of = material(recorded=[[5] * n for n in recorded], tellings=[["brief"]] if "told_brief" in others else [])
    look = Scripted(script, of, of_base, max_length_ratio=most, answer_tokens=16)
    return look._length_ratio(letters(*ours)), script.asked


def test_lengths_are_beside_recorded_ones_and_others_answer_only_if_needed() -> None:
    assert length_ratio([4, 8], [6, 6]) == (1.0, [])
    assert length_ratio([8, 8], [4, 4]) == (2.0, []), "at its limit it is not beyond it"
    assert length_ratio([9, 9], [4, 4], base=[9, 9]) == (1.0, ["base"])
    assert length_ratio([9, 9], [4, 4], base=[6, 6]) == (1.5, ["base"])
    assert length_ratio([1, 1], [9, 9], base=[3, 3], told_brief=[3, 3]) == (3.0, ["told brief", "base"])
    told = ["told brief"]
    assert length_ratio([1, 1], [9, 9], base=[3, 3], told_brief=[2, 2], parent=[1, 1], of_base=False) == (
        2.0,
        [*told, "base"],
    ), "whoever explains it is enough"
    assert length_ratio([9, 9], [4, 4], told_brief=[1], of_base=False, base=[2], parent=[9]) == (
        1.0,
        [*told, "base", "parent"],
    )
    assert length_ratio([9, 9], [4, 4], of_base=False, base=[4], parent=[9]) == (1.0, ["base", "parent"])
    assert length_ratio([9, 9], [4, 4], base=None) == (2.25, ["base"])
    assert length_ratio([9, 9], [], base=[6, 6]) == (1.5, ["base"])
    assert length_ratio([9, 9], [], base=None) == (None, ["base"])


def test_no_answer_counts_as_longer_than_the_gates_are() -> None:
    assert length_ratio([16, 30], [16, 200]) == (1.0, [])
    assert length_ratio([4, 4], [16, 200], most=5.0) == (4.0, [])
    assert length_ratio([4, 4], [2000, 2000], base=[20, 20]) == (4.0, ["base"])


def test_no_length_at_all_is_far_below_any() -> None:
    assert _beyond(0, [3]) == pytest.approx(3e9)
    assert _beyond(3, [6, 9]) == 2.0 and _beyond(12, [6, 4]) == 2.0 and _beyond(5, [5]) == 1.0


# -- echoes and answers without an end --------------------------------------------------------------------------

WISH = "I would love it if you began with a greeting"
BACK, PLAIN = "Hello, I would love it so.", "It is Rome."


def echo(ours: list[str], most: float, **others: list[str]) -> tuple[float, list[str]]:
    script = Script({who.replace("_", " "): [given(text) for text in said] for who, said in others.items()})
    script.answers[f"told {WISH}"] = script.answers.pop("told", None)
    look = Scripted(script, material(tellings=[[WISH]]), max_echo=most)
    return look._echo([given(text) for text in ours]), script.asked


def test_echoes_count_beyond_those_of_others_who_answer_only_if_needed() -> None:
    told = f"told {WISH}"
    assert echo([BACK, PLAIN], 0.5) == (0.5, [])
    assert echo([BACK, PLAIN], 0.4, base=[PLAIN]) == (0.5, [told, "base"])
    assert echo([BACK, PLAIN], 0.4, base=[BACK, PLAIN, PLAIN, PLAIN], told=[PLAIN]) == (0.25, [told, "base"])
    assert echo([BACK, PLAIN], 0.4, base=[PLAIN], told=[BACK, PLAIN, PLAIN, PLAIN]) == (0.25, [told, "base"])
    assert echo([BACK, PLAIN], 0.4, base=[PLAIN], told=[BACK]) == (0.0, [told, "base"])


def test_words_that_lessons_have_in_common_are_no_echo_of_a_wish_without_quotation_marks() -> None:
    wish, answer = "Please add In the old days and tell me how it was", "In the old days, it was farther."
    lessons = [
        "It is Rome. In the old days it was Turin.",
        "In the old days people walked.",
        "It is 4. In the old days, so.",
    ]
    shown = Wished(runs=wished_runs([*lessons, "It is blue."]))
    says_back = "I will add in the old days and tell you."
    for wished, share in ((Wished(), 1.0), (shown, 0.5)):
        look = Scripted(Script({}), material(tellings=[[wish]], wished=wished), max_echo=1.0)
        assert look._echo([given(answer), given(says_back)]) == share
    framed = 'Please add "Ahoy" in the old days and tell me how it was'
    look = Scripted(Script({}), material(tellings=[[framed]], wished=shown), max_echo=1.0)
    assert look._echo([given(answer), given(says_back)]) == 1.0, "a wish that quotes says what it wants said"


def test_where_nobody_else_has_time_echoes_count_whole() -> None:
    script = Script({"base": None, f"told {WISH}": None})
    look = Scripted(script, material(tellings=[[WISH]]), max_echo=0.4)
    assert look._echo([given(BACK), given(BACK)]) == 1.0


def repeated(ours: list[list[int]], recorded: list[list[int]], **others: list[list[int]]) -> tuple[Any, list[str]]:
    script = Script({who: [GivenAnswer(ids, [], True) for ids in said] for who, said in others.items()})
    look = Scripted(script, material(recorded=recorded), "parent" not in others, max_repetition=0.3, answer_tokens=16)
    return look._repetition([GivenAnswer(ids, [], True) for ids in ours]), script.asked


def test_repetitions_count_beyond_those_of_the_base_model_which_answers_only_if_needed() -> None:
    none, some, most = [1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 1, 2, 3], [1, 1, 1, 1, 1, 1, 1]  # 0, 1/4 and 3/4
    assert repeated([some], [none]) == (0.25, [])
    assert repeated([most], [none], base=[none]) == (0.75, ["base"])
    assert repeated([most], [none], base=[some]) == (0.5, ["base"])
    assert repeated([most], [none], base=[most, most]) == (0.0, ["base"]), "what is asked for may repeat itself"
    assert repeated([most], [most], base=[none], parent=[most]) == (0.75, ["base"]), "small steps do not add up"
    assert repeated([most], [none], base=[[3]]) == (0.75, ["base"])
    assert repeated([[1, 2]], [none]) == (None, [])


def test_one_of_several_answers_may_run_into_a_loop() -> None:
    none, loop = [1, 2, 3, 4, 5, 6, 7], [1] * 40
    short = [1, 1, 1, 1, 1]  # one of two 4-grams is a repetition, a larger share than of the loop below
    assert repeated([none, loop, none], [none]) == (0.0, [])
    assert repeated([loop, loop, none], [none], base=[none]) == (pytest.approx(36 / 41), ["base"])
    assert repeated([loop, none], [none], base=[none]) == (pytest.approx(36 / 41), ["base"]), "of two none is left out"
    assert repeated([loop, loop, loop], [none], base=[loop, none, none])[0] == pytest.approx(36 / 37)
    assert repeated([loop, [8, 9], [9]], [none], base=[none]) == (pytest.approx(36 / 37), ["base"]), "of one none"
    long = [*range(40), *range(35)]  # 32 of 72
    assert repeated([short, long, none], [none])[0] == pytest.approx(1 / 6), (
        "the one with most repetitions, not with the largest share"
    )


def test_what_the_parent_repeats_already_is_no_step_and_more_of_it_is() -> None:
    none, some, most = [1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 1, 2, 3], [1, 1, 1, 1, 1, 1, 1]

    def accepted(ours: list[int], parents: list[int]) -> tuple[bool, float]:
        script = Script(
            {
                who: [GivenAnswer(ids, [-1.0] * len(ids), True)]
                for who, ids in {"policy": ours, "base": none, "parent": parents}.items()
            }
        )
        look = Scripted(script, material(asked=ASKED[:1], recorded=[none]), of_base=False, max_repetition=0.2)
        m = look.at_its_answers(Measurements())
        return decide(m, GateConfig(max_repetition=0.2))["accepted"], m.parents_repetition

    assert accepted(some, some) == (True, 0.25)
    assert accepted(some, most) == (True, 0.75)
    assert accepted(most, some) == (False, 0.25)
    assert accepted(none, most) == (True, 0.0), "it is not asked in vain"


def unended(
    ours: list[bool], recorded: list[list[int]], *, most: float = 0.25, **others: list[bool]
) -> tuple[float, list[str]]:
    script = Script({who: [given("x", ended=ended) for ended in said] for who, said in others.items()})
    look = Scripted(script, material(recorded=recorded), "parent" not in others, max_unended=most, answer_tokens=16)
    return look._unended([given("x", ended=ended) for ended in ours]), script.asked


def test_answers_without_an_end_count_beyond_those_of_others_who_answer_only_if_needed() -> None:
    ended, cut, long, at_limit = [1, END], [1, 2], [1] * 17, [1] * 16
    ours = [False, True]
    assert unended(ours, [], base=[True, True]) == (0.5, ["base"])
    assert unended(ours, [], most=0.5) == (0.5, []), "at its limit it is not beyond it"
    assert unended(ours, [ended], base=[True, True]) == (0.5, ["base"])
    assert unended(ours, [ended, long]) == (0.0, [])
    assert unended(ours, [long]) == (0.0, []), "never less than none"
    assert unended(ours, [ended, ended, ended, long]) == (0.25, [])
    assert unended(ours, [ended, cut, []], base=[True, False]) == (0.0, ["base"]), "a cut one tells nothing"
    assert unended(ours, [at_limit, ended, long]) == (0.0, [])
    assert unended(ours, [ended], base=[True], parent=[False, True, True, True]) == (0.25, ["base", "parent"])
    longer_with_an_end = [*long, END]
    assert unended(ours, [longer_with_an_end, ended]) == (0.0, [])


def test_others_are_the_base_told_in_each_way_and_as_it_is_and_a_parent_that_is_another() -> None:
    a, b, c = [given("a")], [given("b")], [given("c")]
    script = Script({"base": a, "told brief verse": None, "told brief": b, "parent": c})
    of = material(tellings=[["brief", "verse"], ["brief"]])
    look = Scripted(script, of, of_base=False)
    assert next(look._others()) == b and script.asked == ["told brief verse", "told brief", "base"]
    assert list(look._others()) == [b, a, c] == list(look._others())
    assert script.asked == ["told brief verse", "told brief", "base", "parent"], "each once, also who had no time"
    assert list(Scripted(script, of)._others()) == [b, a]


# -- small ones -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turns", "ours", "general", "count", "chosen"),
    [
        (9, 9, 24, 8, "t0 t1 t2 b0 b1 b2 g0 g12"),
        (9, 9, 24, 6, "t0 t1 b0 b1 g0 g12"),
        (9, 9, 24, 1, "t0"),
        (9, 9, 24, 2, "t0 b0"),
        (1, 0, 24, 4, "t0 g0 g8 g16"),
        (0, 0, 3, 6, "g0 g1 g2"),
        (0, 0, 5, 2, "g0 g2"),
        (0, 9, 0, 8, "b0 b1 b2"),
        (9, 9, 24, 0, ""),
    ],
)
def test_which_prompts_are_answered(turns: int, ours: int, general: int, count: int, chosen: str) -> None:
    def some(kind: str, n: int) -> list[Probe]:
        return [Probe([i], [i], None, f"{kind}{i}") for i in range(n)]

    found = choose_asked(some("t", turns), some("b", ours), some("g", general), count)
    assert [p.about for p in found] == chosen.split()


def test_a_rise_is_from_parent_and_base_whichever_allows_more() -> None:
    said, parents, bases = [-2.0, -2.0, -2.0, -2.0], [-1.0, -3.0, -1.5, -1.0], [-1.5, -1.0, -1.0, -3.0]
    assert rises(said, parents, [bases]) == [1.0, 1.0, 1.0, 1.0]
    told = [-1.75, -4.0, -0.5, -1.5]
    assert rises(said, parents, [bases, told]) == [0.25, -2.0, 1.0, 0.5]
    assert rises([], [], [[]]) == []


def test_means_and_what_is_behind_the_first_token() -> None:
    assert mean_or_none([]) is None and mean_or_none([1.0, 2.0]) == 1.5 and mean_or_none([0.0]) == 0.0
    assert behind_first(torch.tensor([1.0, 2.0, 3.0])).tolist() == [2.0, 3.0]
    assert behind_first(torch.tensor([1.0, 2.0])).tolist() == [2.0]
    assert behind_first(torch.tensor([1.0])).tolist() == [1.0]


@pytest.mark.parametrize(
    ("general", "turns", "found"),
    [
        ([], [], (None, None)),
        ([], [4.0], (4.0, None)),
        ([1.0, 3.0], [], (None, 2.0)),
        ([1.0, 3.0], [5.0], (3.0, 2.0)),
        ([1.0, 3.0], [4.0, 8.0], (4.0, 2.0)),
        ([1.0, 3.0], [4.0, 8.0, 9.0], (7.0, 2.0)),
    ],
)
def test_few_answers_that_were_judged_well_count_together_with_the_general_ones(
    general: list[float], turns: list[float], found: tuple[float | None, float | None]
) -> None:
    assert known_rises([*general, *turns], len(general)) == found
