"""The examination of an update at the answers that its candidate gives itself, beside parent, base and told base.

Who answers, and what the base model makes of answers, is asked of whatever holds the weights: this module runs no
model. What belongs to others than the candidate is taken once, and only where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf

import torch
from tokenizers import Tokenizer
from torch import Tensor

from turnwise.config import GateConfig
from turnwise.training.asking import GivenAnswer, mean_length, repetition
from turnwise.training.gate.figures import Measurements
from turnwise.training.gate.material import Material
from turnwise.training.gate.probes import Probe
from turnwise.training.lessons.echoes import QUOTED, echoes
from turnwise.training.lessons.quoted import times
from turnwise.training.weights.base import Whose

RIGHT_TOKENS = 64
"""Longest answer to a known question, in tokens."""
LEAST_RIGHT = 8
"""Of them a base model that answers fewer right has too few to lose for a share to mean anything."""
LEARNED = 0.25
"""Share of its answers with words from which a policy has learned to say them."""
SEVERAL = 3
"""Answers of which one may be left out, and that say something by themselves."""


class OwnAnswers:
    """Takes the figures of a candidate's own answers.

    ``ends``: the tokens that end one; ``of_base``: whether the parent is the base model.
    """

    def __init__(
        self, material: Material, gate: GateConfig, tokenizer: Tokenizer, ends: Sequence[int], of_base: bool
    ) -> None:
        self._material, self._gate = material, gate
        self._tokenizer, self._ends, self._of_base = tokenizer, ends, of_base
        self._to_known: dict[Whose, list[tuple[str, bool]]] = {}

    def at_known_answers(self) -> Measurements:
        """Distances, and how likely good answers still are."""
        raise NotImplementedError

    def _sample(
        self, probes: Sequence[Probe], whose: Whose = "policy", *, greedy: bool = False
    ) -> list[GivenAnswer] | None:
        """Answers to the probes' prompts, at temperature 1, or where they are ``greedy`` at 0 and RIGHT_TOKENS long at
        most; None where there is no time for them."""
        return self._sample_each([probes], whose, greedy=greedy)[0]

    def _sample_each(
        self, groups: Sequence[Sequence[Probe]], whose: Whose, *, greedy: bool = False
    ) -> list[list[GivenAnswer] | None]:
        """The same of several groups of probes, asked at once."""
        raise NotImplementedError

    def _to_base(self, probes: Sequence[Probe]) -> list[Tensor]:
        """For each answer, the log-probs [R] of its tokens to the base model."""
        raise NotImplementedError

    def _known_to_base(self, probes: Sequence[Probe]) -> list[Tensor]:
        """The same of answers that later examinations ask of as well."""
        return self._to_base(probes)

    def _told(self, probes: Sequence[Probe]) -> list[list[Probe]]:
        """The probes as they are, and with the hints in their prompts, once for each telling."""
        return [list(probes), *([p.told(hints, self._tokenizer) for p in probes] for hints in self._material.tellings)]

    def at_its_answers(self, m: Measurements) -> Measurements:
        """``m`` with what the candidate's own answers say; without it where there are none, or no time for them."""
        asked = self._material.asked
        answers = self._sample(asked) if asked else None
        if not answers:
            return m
        own = self._given(answers)
        swapped = behind_others(own) if len(own) > 1 and self._usual_tie is not None else []
        said = self._to_base([*own, *swapped])  # in one reading, since each question is there twice
        drift = self._drift_of(answers, own, said[: len(own)])
        beyond = drift > self._gate.max_answer_drift
        self._to_known.pop("policy", None)
        lost = self._lost_right("policy")
        wrong = lost is not None and lost > self._gate.max_lost_right
        repeats = self._repetition(answers)
        stutters = repeats is not None and repeats > self._gate.max_repetition
        return replace(
            m,
            answer_drift=drift,
            parents_answer_drift=self._parents_answer_drift if beyond else 0.0,
            off_topic=self._off_topic(said) if swapped else None,
            lost_right=lost,
            lost_words=self._lost_words(),
            parents_lost_right=self._parents_lost_right if wrong else 0.0,
            echo=self._echo(answers),
            repetition=repeats,
            parents_repetition=self._parents_repetition if stutters else 0.0,
            length_ratio=self._length_ratio(answers),
            unended=self._unended(answers),
        )

    def _given(self, answers: Sequence[GivenAnswer]) -> list[Probe]:
        """The answers behind the prompts that they were given to."""
        return [replace(p, answer_ids=a.ids) for p, a in zip(self._material.asked, answers, strict=True)]

    def _drift_of(self, answers: Sequence[GivenAnswer], own: Sequence[Probe], said: Sequence[Tensor]) -> float:
        """How far answers are from the base model, told or not. ``own``: as probes; ``said``: how likely their tokens
        are to it untold."""
        to_base = [said, *(self._to_base(probes) for probes in self._told(own)[1:])]
        far = [[self._apart(a, tokens) for a, tokens in zip(answers, each, strict=True)] for each in to_base]
        return mean_of([min(each) for each in zip(*far, strict=True)])

    def _apart(self, answer: GivenAnswer, said: Tensor) -> float:
        """By how many nats per token an answer is less likely to who ``said`` its tokens; wished ones count for 0."""
        own = torch.tensor(answer.logprobs, dtype=said.dtype, device=said.device)
        wished = torch.tensor([y in self._material.wished.tokens for y in answer.ids], device=said.device)
        return (own - said).masked_fill(wished, 0.0).mean().item()

    @cached_property
    def _parents_answer_drift(self) -> float:
        """The same of the parent's own answers; 0 where it is the base model, or had no time."""
        answers = self._parents_answers
        if not answers:
            return 0.0
        own = self._given(answers)
        return self._drift_of(answers, own, self._to_base(own))

    def _off_topic(self, said: Sequence[Tensor]) -> float:
        """1 − how much the answers are tied to their questions, over how much good answers are."""
        assert self._usual_tie is not None
        return max(0.0, 1 - tie_of(said) / self._usual_tie)

    @cached_property
    def _usual_tie(self) -> float | None:
        """How much answers that are known to be good are tied to their questions; None where too few are, or not."""
        known = [*self._material.turns, *self._material.general[::3]]
        if len(known) < 2:
            return None
        tie = tie_of(self._known_to_base([*known, *behind_others(known)]))
        return tie if tie > 0 else None

    # -- what is right ------------------------------------------------------------------------------------------

    def _lost_right(self, whose: Whose) -> float | None:
        """The share of the questions that the base model answers right that is lost; told the hints only if needed.

        What telling it the hints costs excuses half of a loss: lessons have the plain answers whole.
        """
        base = self._bases_right()
        if base is None or base < LEAST_RIGHT:
            return None if base is None else 0.0
        ours = self._right(whose)
        if ours is None:
            return None
        lost = 1 - ours / base
        if lost > self._gate.max_lost_right:
            lost = max(lost / 2, 1 - ours / max(1, min([base, *self._told_right])))
        return max(0.0, lost)

    @cached_property
    def _parents_lost_right(self) -> float:
        return 0.0 if self._of_base else self._lost_right("parent") or 0.0

    def _bases_right(self) -> int | None:
        return self._right("base")

    @cached_property
    def _told_right(self) -> list[int]:
        """How many the base model that is told the hints answers right, for each telling."""
        found = [self._right("base", hints) for hints in self._material.tellings]
        return [right for right in found if right is not None]

    def _right(self, whose: Whose, hints: Sequence[str] = ()) -> int | None:
        """How many of the known questions are answered right; None without any, and without time."""
        said = self._answers(whose, hints)
        if said is None:
            return None
        return sum(q.is_right(text) for q, (text, _) in zip(self._material.questions, said, strict=True))

    def _answers(self, whose: Whose, hints: Sequence[str] = ()) -> list[tuple[str, bool]] | None:
        """The answers to the known questions, and whether each has its end; those of the candidate as it is and of its
        parent are kept."""
        if whose in self._to_known:
            return self._to_known[whose]
        questions = self._material.questions
        probes = [q.probe.told(hints, self._tokenizer) if hints else q.probe for q in questions]
        answers = self._sample(probes, whose, greedy=True) if probes else None
        if answers is None:
            return None
        said = [(self._tokenizer.decode(a.ids), a.ended) for a in answers]
        if whose != "base":
            self._to_known[whose] = said
        return said

    # -- what the person wants said -----------------------------------------------------------------------------

    def _lost_words(self) -> float | None:
        """By which share fewer of the candidate's answers have words that are wanted said than of its parent's.

        The largest one of all words. The parent is taken to have them in every answer, and asked only where that could
        be too many; words that it says in fewer than a quarter of them it has not learned. An answer that was cut may
        have had them behind the cut: without them it says nothing.
        """
        words, most = self._material.words, self._gate.max_lost_words
        ours = None if self._of_base or not words else self._answers("policy")
        if ours is None:
            return None
        told = {one: [n for n, (text, ended) in enumerate(ours) if ended or times(one, text)] for one in words}
        told = {one: places for one, places in told.items() if len(places) >= SEVERAL}
        lost = [1 - sum(times(one, ours[n][0]) > 0 for n in places) / len(places) for one, places in told.items()]
        if lost and max(lost) > most:
            theirs = self._answers("parent")
            if theirs is None:
                return None
            lost = []
            for one, places in told.items():
                both = [n for n in places if theirs[n][1] or times(one, theirs[n][0])]
                before, now = (sum(times(one, each[n][0]) > 0 for n in both) for each in (theirs, ours))
                if before >= max(SEVERAL, LEARNED * len(both)):
                    lost.append(1 - now / before)
        return max([0.0, *lost]) if told else None

    # -- beside the answers of others ---------------------------------------------------------------------------

    def _length_ratio(self, answers: Sequence[GivenAnswer]) -> float | None:
        """How many times longer or shorter the answers are than those of any other."""
        most = self._gate.answer_tokens
        length = mean_length([a.ids for a in answers], most)
        recorded = [mean_length(self._material.recorded, most)] if self._material.recorded else []

        def beside(others: Sequence[Sequence[GivenAnswer]]) -> float:
            usual = recorded + [mean_length([a.ids for a in each], most) for each in others]
            return _beyond(length, usual) if usual else inf

        found = self._beside_others(beside, self._gate.max_length_ratio)
        return found if found < inf else None

    def _echo(self, answers: Sequence[GivenAnswer]) -> float:
        """By which share more of the answers say a wish back than of any other's.

        The told base model is among them: what it says of a wish that it follows are the words that were wished for.
        """
        share = self._echoing(answers)
        return self._beside_others(
            lambda others: max(0.0, share - max(map(self._echoing, others), default=0.0)), self._gate.max_echo
        )

    def _echoing(self, answers: Sequence[GivenAnswer]) -> float:
        # A wish that quotes says itself which of its words are to be said.
        runs = self._material.wished.runs
        wishes = {wish: () if QUOTED.search(wish) else runs for told in self._material.tellings for wish in told}
        texts = [self._tokenizer.decode(a.ids) for a in answers]
        return mean_of([float(any(echoes(text, wish, wanted) for wish, wanted in wishes.items())) for text in texts])

    def _repetition(self, answers: Sequence[GivenAnswer]) -> float | None:
        """By how much more of their 4-grams are repetitions than of the base model's; None where they have no 4-gram.

        Not beside the parent's, nor beside recorded ones, which parents gave: many small steps would add up.
        """
        share = _repeated(answers)
        if share is None:
            return None
        return self._beside_others(
            lambda others: max(0.0, share - max([_repeated(each) or 0.0 for each in others], default=0.0)),
            self._gate.max_repetition,
            with_parent=False,
        )

    @cached_property
    def _parents_repetition(self) -> float:
        """The same of the parent's own answers; 0 where it is the base model, or had no time."""
        answers = self._parents_answers
        return (self._repetition(answers) or 0.0) if answers else 0.0

    def _unended(self, answers: Sequence[GivenAnswer]) -> float:
        """By which share more of the answers go on without an end than of any other's.

        A recorded answer that its client cut before this length tells nothing.
        """
        ends, most = self._ends, self._gate.answer_tokens
        told = [float(len(r) > most) for r in self._material.recorded if r and (len(r) > most or r[-1] in ends)]
        recorded, share = mean_of(told) if told else 0.0, _unended(answers)
        return self._beside_others(
            lambda others: max(0.0, share - max([recorded, *map(_unended, others)])), self._gate.max_unended
        )

    def _beside_others(
        self,
        figure: Callable[[Sequence[Sequence[GivenAnswer]]], float],
        limit: float,
        *,
        with_parent: bool = True,
    ) -> float:
        """A figure beside the answers of as many others as it needs to come within its limit.

        Their answers took two fifths of an update's time in a profile of one that had learned a wish about length.
        """
        beside: list[list[GivenAnswer]] = []
        others = self._others(with_parent)
        while (found := figure(beside)) > limit and (more := next(others, None)):
            beside.append(more)
        return found

    def _others(self, with_parent: bool = True) -> Iterator[list[GivenAnswer]]:
        """The answers of the told base model, of the plain one, and of the parent to the same prompts.

        What was wished for explains most of what is unlike the recorded answers. Base model and parent are asked when
        they are needed first.
        """
        yield from self._bases_answers
        if with_parent and not self._of_base and (answers := self._parents_answers):
            yield answers

    @cached_property
    def _bases_answers(self) -> list[list[GivenAnswer]]:
        """Those of the base model, told in each way and then plain, where there was time for them."""
        plain, *told = self._told(self._material.asked)
        return [answers for answers in self._sample_each([*told, plain], "base") if answers]

    @cached_property
    def _parents_answers(self) -> list[GivenAnswer] | None:
        """Those of the parent, where there is one beside the base model; None where it had no time."""
        return None if self._of_base else self._sample(self._material.asked, "parent")


def behind_others(probes: Sequence[Probe]) -> list[Probe]:
    """Each answer behind the question of the next one."""
    turned = [*probes[1:], *probes[:1]]
    return [replace(p, prompt_ids=other.prompt_ids) for p, other in zip(probes, turned, strict=True)]


def tie_of(said: Sequence[Tensor]) -> float:
    """By how much the base model finds answers more likely behind their own questions than behind another's.

    Of refusals, praise and word salad it is near 0: they would do for any question. ``said`` is how likely their tokens
    are behind their own, and then, as many again, `behind_others`.
    """
    half = len(said) // 2
    return mean_of([(mine - other).mean().item() for mine, other in zip(said[:half], said[half:], strict=True)])


def rises(said: Sequence[float], parents: Sequence[float], bases: Sequence[Sequence[float]]) -> list[float]:
    """By how much each good answer became less likely. ``bases``: what the base model says of it, and the told one."""
    return [
        max(min(base) - own, min(parent, *base[1:]) - own if len(base) > 1 else parent - own)
        for own, parent, base in zip(said, parents, zip(*bases, strict=True), strict=True)
    ]


def known_rises(lost: Sequence[float], general: int) -> tuple[float | None, float | None]:
    """``nll_rise`` and ``general_rise``, of what each good answer lost; the first ``general`` are the general ones.

    Fewer than SEVERAL well-judged answers say too little by themselves, and are taken together with the general ones:
    one praised answer that has little to do with its question ("Bingo! Every time you're playing …") stopped a step.
    """
    turns = lost[general:]
    few = 0 < len(turns) < SEVERAL
    return mean_or_none(lost if few else turns), mean_or_none(lost[:general])


def behind_first(said: Tensor) -> Tensor:
    """Log-probs [R] of an answer without its first token; all of it where nothing is left.

    A wish about how answers begin moves that token by many nats, also where the base model that is told it hardly
    follows. What the policy knows is in the others, each behind the good answer's own. The last one stays: answers that
    go on and on are seen there.
    """
    return said[1:] if len(said) > 1 else said


def _repeated(answers: Sequence[GivenAnswer]) -> float | None:
    """The share of the 4-grams of answers that are repetitions; None without any 4-gram.

    Of SEVERAL answers that have any the one that repeats itself most is left out: at temperature 1 one of them may run
    into a loop by chance. An honest step was refused for such a one; weights that make loops make them in others, too.
    """
    said = [a.ids for a in answers if repetition([a.ids]) is not None]
    if len(said) >= SEVERAL:
        said.remove(max(said, key=lambda ids: len(ids) * (repetition([ids]) or 0.0)))
    return repetition(said)


def _unended(answers: Sequence[GivenAnswer]) -> float:
    """The share of answers that go on without an end."""
    return mean_of([float(not a.ended) for a in answers])


def _beyond(length: float, usual: Sequence[float]) -> float:
    """How many times ``length`` is over the greatest, or under the least; 1 between them."""
    return max(1.0, length / max(usual), min(usual) / max(length, 1e-9))


def mean_or_none(values: Sequence[float]) -> float | None:
    """Their mean; None of none."""
    return mean_of(values) if values else None


def mean_of(values: Sequence[float]) -> float:
    """Of one or more."""
    return sum(values) / len(values)
