"""The examination of one update: its candidate, and parts of its step, beside parent, base and told base.

What belongs to others than the candidate is taken once, and only where it is asked for. The weights that are in the
policy when figures are taken are the candidate's, and they are left there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from turnwise.config import GateConfig, TrainConfig
from turnwise.training.asking import GivenAnswer, mean_length, repetition, sample_answers
from turnwise.training.gate.figures import Measurements
from turnwise.training.gate.probes import Probe
from turnwise.training.gate.reading import Alive, distances, log_likelihoods, read
from turnwise.training.lessons.echoes import echoes
from turnwise.training.policy import Policy
from turnwise.training.weights.base import Whose

Weights = dict[str, Tensor] | None
_Key = tuple[tuple[int, ...], tuple[int, ...]]


class BaseReader:
    """What the base model makes of probes: it never changes, so it is kept from update to update."""

    def __init__(self, policy: Policy, microbatch_tokens: int) -> None:
        self._policy = policy
        self.microbatch_tokens = microbatch_tokens
        self._kept: dict[_Key, Tensor] = {}

    def read(self, probes: Sequence[Probe], alive: Alive) -> list[Tensor]:
        """Hidden states [R, H] of each probe's answer."""
        missing = [p for p in probes if _key(p) not in self._kept]
        with self._policy.reference():
            found = read(self._policy, missing, self.microbatch_tokens, alive) if missing else []
        self._kept |= {_key(p): hidden for p, hidden in zip(missing, found, strict=True)}
        return [self._kept[_key(p)] for p in probes]

    def keep_only(self, probes: Sequence[Probe]) -> None:
        """Forget what no later update asks for again."""
        keys = {_key(p) for p in probes}
        self._kept = {key: hidden for key, hidden in self._kept.items() if key in keys}


@dataclass(frozen=True)
class Material:
    """What an update is examined on.

    ``general`` and ``turns`` have good answers; ``asked`` are the prompts that are answered; ``recorded`` are answers
    as they were given so far; ``tellings`` are the hints, in each of the ways in which the base model is told them.
    """

    general: Sequence[Probe]
    turns: Sequence[Probe]
    asked: Sequence[Probe]
    recorded: Sequence[Sequence[int]]
    tellings: Sequence[Sequence[str]]

    @property
    def known(self) -> list[Probe]:
        return [*self.general, *self.turns]


class Examination:
    """Takes the figures of a candidate, and of parts of its step."""

    def __init__(
        self,
        policy: Policy,
        base: BaseReader,
        parent: Weights,
        material: Material,
        train: TrainConfig,
        gate: GateConfig,
        alive: Alive,
    ) -> None:
        self._policy, self._reader, self._parent, self._material = policy, base, parent, material
        self._train, self._gate, self._alive = train, gate, alive

    # -- at answers that are known ------------------------------------------------------------------------------

    def at_known_answers(self) -> Measurements:
        """Distances, and how likely good answers still are: a forward pass over each probe."""
        known = self._material.known
        if not known:
            return Measurements()
        policy = self._policy
        ours = read(policy, known, self._train.microbatch_tokens, self._alive)
        # A step towards what the hints ask of the base model is what was wished for, however far from the parent it is.
        step = [min(d) for d in distances(policy, ("policy", ours), [self._parents, *self._as_bases[1:]])]
        drift = [min(d) for d in distances(policy, ("policy", ours), self._as_bases)]
        said = self._means("policy", ours)
        lost = [
            max(min(base) - own, min(parent, *base[1:]) - own if len(base) > 1 else parent - own)
            for own, parent, base in zip(said, self._parents_said, zip(*self._bases_said, strict=True), strict=True)
        ]
        general = len(self._material.general)
        return Measurements(
            step_kl=_mean(step),
            drift_kl=_mean(drift),
            parents_drift_kl=self._parents_drift,
            nll_rise=_mean(lost[general:]),
            general_rise=_mean(lost[:general]),
        )

    def _means(self, whose: Whose, hidden: Sequence[Tensor]) -> list[float]:
        """How likely each good answer is, per token behind its first one."""
        found = log_likelihoods(self._policy, hidden, self._material.known, whose)
        return [behind_first(said).mean().item() for said in found]

    @cached_property
    def _bases(self) -> list[list[Tensor]]:
        """The base model's hidden states, and under each telling the told base model's."""
        return [self._reader.read(probes, self._alive) for probes in self._told(self._material.known)]

    @property
    def _as_bases(self) -> list[tuple[Whose, list[Tensor]]]:
        return [("base", hidden) for hidden in self._bases]

    @cached_property
    def _bases_said(self) -> list[list[float]]:
        return [self._means("base", hidden) for hidden in self._bases]

    @cached_property
    def _parents(self) -> tuple[Whose, list[Tensor]]:
        if self._parent is None:
            return "base", self._bases[0]
        with self._as_parent():
            known = read(self._policy, self._material.known, self._train.microbatch_tokens, self._alive)
        return "parent", known

    @cached_property
    def _parents_said(self) -> list[float]:
        return self._means(*self._parents)

    @cached_property
    def _parents_drift(self) -> float:
        """How far the parent is from the base already."""
        if self._parent is None:
            return 0.0
        return _mean_of([min(d) for d in distances(self._policy, self._parents, self._as_bases)])

    def _told(self, probes: Sequence[Probe]) -> list[list[Probe]]:
        """The probes as they are, and with the hints in their prompts, once for each telling."""
        tokenizer = self._policy.tokenizer
        return [list(probes), *([p.told(hints, tokenizer) for p in probes] for hints in self._material.tellings)]

    @contextmanager
    def _as_parent(self) -> Iterator[None]:
        """Inside of this the policy is the parent."""
        candidate = self._policy.state()
        self._policy.load(self._parent)
        try:
            yield
        finally:
            self._policy.load(candidate)

    # -- at its own answers -------------------------------------------------------------------------------------

    def at_its_answers(self, m: Measurements) -> Measurements:
        """``m`` with what the candidate's own answers say; without it where there are none, or no time for them."""
        asked = self._material.asked
        answers = self._sample(asked) if asked else None
        if not answers:
            return m
        own, to_base, drift = self._drift_of(answers)
        beyond = drift > self._gate.max_answer_drift
        return replace(
            m,
            answer_drift=drift,
            parents_answer_drift=self._parents_answer_drift if beyond else 0.0,
            off_topic=self._off_topic(own, to_base[0]),
            echo=self._echo(answers),
            repetition=repetition([a.ids for a in answers]),
            length_ratio=self._length_ratio(answers),
            unended=self._unended(answers),
        )

    def _drift_of(self, answers: Sequence[GivenAnswer]) -> tuple[list[Probe], list[list[float]], float]:
        """The answers as probes, what the base model, told or not, makes of them, and how far they are from it."""
        own = [replace(p, answer_ids=a.ids) for p, a in zip(self._material.asked, answers, strict=True)]
        to_base = [self._to_base(probes) for probes in self._told(own)]
        nearest = [max(each) for each in zip(*to_base, strict=True)]
        return own, to_base, _mean_of([_mean_of(a.logprobs) - s for a, s in zip(answers, nearest, strict=True)])

    @cached_property
    def _parents_answer_drift(self) -> float:
        """The same of the parent's own answers; 0 where it is the base model, or had no time."""
        if self._parent is None:
            return 0.0
        with self._as_parent():
            answers = self._sample(self._material.asked)
        return self._drift_of(answers)[2] if answers else 0.0

    def _sample(self, probes: Sequence[Probe]) -> list[GivenAnswer] | None:
        prompts = [p.prompt_ids for p in probes]
        config = self._gate
        return sample_answers(
            self._policy, prompts, config.answer_tokens, self._train.seed, time_s=config.answers_s, alive=self._alive
        )

    def _to_base(self, probes: Sequence[Probe]) -> list[float]:
        """For each answer, the mean log-prob of its tokens to the base model."""
        with self._policy.reference():
            hidden = read(self._policy, probes, self._train.microbatch_tokens, self._alive)
            return [said.mean().item() for said in log_likelihoods(self._policy, hidden, probes)]

    def _off_topic(self, own: Sequence[Probe], said: Sequence[float]) -> float | None:
        """1 − how much the answers are tied to their questions, over how much good answers are."""
        known = self._usual_tie
        return None if known is None or len(own) < 2 else max(0.0, 1 - self._tie(own, said) / known)

    def _tie(self, probes: Sequence[Probe], said: Sequence[float]) -> float:
        """By how much the base model finds answers more likely behind their own questions than behind another's.

        Of refusals, praise and word salad it is near 0: they would do for any question. ``said`` is how likely they are
        behind their own.
        """
        turned = [*probes[1:], probes[0]]
        others = [replace(p, prompt_ids=other.prompt_ids) for p, other in zip(probes, turned, strict=True)]
        return _mean_of([mine - other for mine, other in zip(said, self._to_base(others), strict=True)])

    @cached_property
    def _usual_tie(self) -> float | None:
        """The same of answers that are known to be good."""
        known = [*self._material.turns, *self._material.general[::3]]
        if len(known) < 2:
            return None
        tie = self._tie(known, self._to_base(known))
        return tie if tie > 0 else None

    # -- lengths ------------------------------------------------------------------------------------------------

    def _length_ratio(self, answers: Sequence[GivenAnswer]) -> float | None:
        """How many times longer or shorter the answers are than those of any other; others answer only if needed."""
        most = self._gate.answer_tokens
        length = mean_length([a.ids for a in answers], most)
        usual = [mean_length(self._material.recorded, most)] if self._material.recorded else []
        if not usual or _beyond(length, usual) > self._gate.max_length_ratio:
            usual += [mean_length([a.ids for a in others], most) for others in self._others]
        return _beyond(length, usual) if usual else None

    def _echo(self, answers: Sequence[GivenAnswer]) -> float:
        """By which share more of the answers say a wish back than of any other's; others only if needed.

        The told base model is among them: what it says of a wish that it follows are the words that were wished for.
        """
        share = self._echoing(answers)
        if share > self._gate.max_echo:
            share -= max((self._echoing(others) for others in self._others), default=0.0)
        return max(0.0, share)

    def _echoing(self, answers: Sequence[GivenAnswer]) -> float:
        wishes = {wish for told in self._material.tellings for wish in told}
        texts = [self._policy.tokenizer.decode(a.ids) for a in answers]
        return _mean_of([float(any(echoes(text, wish) for wish in wishes)) for text in texts])

    def _unended(self, answers: Sequence[GivenAnswer]) -> float:
        """By which share more of the answers go on without an end than of any other's; others only if needed.

        A recorded answer that its client cut before this length tells nothing.
        """
        share = _mean_of([float(not a.ended) for a in answers])
        ends, most = self._policy.ends, self._gate.answer_tokens
        told = [float(len(r) > most) for r in self._material.recorded if r and (len(r) > most or r[-1] in ends)]
        usual = _mean_of(told) if told else 0.0
        if share - usual > self._gate.max_unended:
            usual = max([usual, *(_mean_of([float(not a.ended) for a in others]) for others in self._others)])
        return max(0.0, share - usual)

    @cached_property
    def _others(self) -> list[list[GivenAnswer]]:
        """The answers of the base model, of the told base model, and of the parent to the same prompts."""
        with self._policy.reference():
            found = [self._sample(probes) for probes in self._told(self._material.asked)]
        if self._parent is not None:
            with self._as_parent():
                found.append(self._sample(self._material.asked))
        return [answers for answers in found if answers]


def choose_asked(turns: Sequence[Probe], batch: Sequence[Probe], general: Sequence[Probe], count: int) -> list[Probe]:
    """The prompts that are answered: of set-aside turns, of the batch, and for the rest of the general probe.

    About a third of each, where there are as many; of the general ones as different ones as there are.
    """
    third = -(-count // 3)
    chosen = [*turns[:third], *batch[:third]]
    left = count - len(chosen)
    every = max(1, len(general) // left) if left > 0 else 1
    return [*chosen, *general[::every][: max(0, left)]][:count]


def behind_first(said: Tensor) -> Tensor:
    """Log-probs [R] of an answer without its first token; all of it where nothing is left.

    A wish about how answers begin moves that token by many nats, also where the base model that is told it hardly
    follows. What the policy knows is in the others, each behind the good answer's own. The last one stays: answers that
    go on and on are seen there.
    """
    return said[1:] if len(said) > 1 else said


def _beyond(length: float, usual: Sequence[float]) -> float:
    """How many times ``length`` is over the greatest, or under the least; 1 between them."""
    return max(1.0, length / max(usual), min(usual) / max(length, 1e-9))


def _mean(values: Sequence[float]) -> float | None:
    return _mean_of(values) if values else None


def _mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _key(probe: Probe) -> _Key:
    return tuple(probe.prompt_ids), tuple(probe.answer_ids)
