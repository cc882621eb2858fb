"""The weights in this process: a model of the machine's own with one adapter, trained by AdamW."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from turnwise.config import Config, TrainConfig, recipes
from turnwise.errors import AdapterError, EngineError, ModelError
from turnwise.methods import METHODS
from turnwise.models.identity import refuse_other_base
from turnwise.pictures.store import PictureStore
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.training.batching import TokenText
from turnwise.training.gate.examination import SEVERAL
from turnwise.training.gate.gate import Gate
from turnwise.training.kinds.announcing import announces
from turnwise.training.kinds.cancelling import cancels
from turnwise.training.kinds.lasting import lasts
from turnwise.training.lessons.comparing import followed
from turnwise.training.lessons.keeping import kept_shares
from turnwise.training.lessons.labels import with_announced
from turnwise.training.lessons.learning import Taught, learn_step, loss_of, with_base
from turnwise.training.lessons.making import FEWEST, Lesson
from turnwise.training.lessons.questions import OpenQuestion, questions_of
from turnwise.training.lessons.quoted import (
    Reaction,
    misses_words,
    praised_words,
    same_wish,
    since_said,
    with_marks,
    words_praised,
)
from turnwise.training.lessons.restating import HintedAnswers, plainly
from turnwise.training.lessons.wished import NOTHING, wished_of
from turnwise.training.lessons.wishes import Standing, standing, wishes_among
from turnwise.training.lessons.wording import Wordings
from turnwise.training.policy import Policy
from turnwise.training.publish import staged_version, version_dir
from turnwise.training.scores import ScoreHistory
from turnwise.training.step import Tick, compute_signals, step_without_guilty, without_faults
from turnwise.training.supervised import likelihood_loss, rows_of, supervised_step
from turnwise.training.terms import WholeSignals
from turnwise.training.weights.base import State
from turnwise.training.weights.devices import with_passes
from turnwise.training.weights.files import META, PublishedWeights, load_version_dir, read_json
from turnwise.training.weights.moments import fits, moments_of, read_moments, set_moments
from turnwise.training.weights.ranks import Ranks
from turnwise.types import BASE_VERSION, PERSONAL, Batch, PolicyVersion, Sample

log = logging.getLogger(__name__)

T = TypeVar("T")
LEAST_ROOM = 64
"""Tokens in a pass: fewer would not fit any more. A longer text goes alone, with its activations computed twice."""


class LocalBackend:
    """A `Backend` on torch, on one device."""

    def __init__(
        self, config: Config, model: Path | str, ranks: Ranks | None = None, pictures: PictureStore | None = None
    ) -> None:
        self._config = train = with_passes(config.train)
        self._recipes = recipes(train, config.streams)
        self._versions = config.versions_dir
        self.policy = Policy(model, train, ranks, pictures or PictureStore(config.home))
        self._folder = model
        self._gate = Gate(self.policy, model, train, config.gate)
        self._parent: dict[str, Tensor] | None = None
        self._followed: dict[tuple[str, str], bool | None] = {}  # which turns' answers follow which wishes
        self._announced: dict[tuple[str, str], float] = {}  # by how much labels announce something, in wishes
        self._said: tuple[int, Standing] | None = None  # of the batch with this id
        self._instructions: dict[str, str | None] = {}  # wishes, restated
        self._in_words: Standing | None = None  # what the update's lessons were made of
        self._wished = NOTHING  # what these lessons show
        self._of_turns = 1  # of so many turns they were made
        self._history = ScoreHistory()
        self._room = train.microbatch_tokens
        self._optimizer = self._new_optimizer()

    @cached_property
    def _renderer(self) -> PromptRenderer:
        """How the model is asked; a model that is no chat model gives no lessons, and needs none."""
        return load_renderer(self._folder)

    @property
    def device(self) -> str:
        return str(self.policy.device)

    def prepare(self, version: int, fresh: bool = False) -> dict[str, Any]:
        self._optimizer, self._parent, meta = self._new_optimizer(), None, {}
        self._said, self._in_words, self._wished, self._instructions, self._announced = None, None, NOTHING, {}, {}
        if version != BASE_VERSION:
            there = load_version_dir(version_dir(self._versions, version))
            refuse_other_base(version, there.meta, self._folder)
            self._refuse(version, there)
            if not fresh:
                self._go_on_from(version, there.meta)
            self._parent, meta = self.policy.weights.mine(there.weights), there.meta
        self.policy.start_from(self._parent)
        self._history = ScoreHistory.of(meta.get("metrics", {}))
        return meta

    def without_faults(self, batch: Batch) -> tuple[Batch, dict[str, str]]:
        return without_faults(batch, self.policy.vocabulary, self.policy.eyes)

    def signals(self, batch: Batch, tick: Tick) -> Sequence[WholeSignals]:
        return self._within_memory(
            lambda room: compute_signals(
                self.policy, batch, self._in_passes_of(room), tick, self._history, self._recipes
            )
        )

    def step(
        self, batch: Batch, signals: Sequence[WholeSignals], chosen: Sequence[int], tick: Tick
    ) -> tuple[dict[str, float], list[int]]:
        return self._within_memory(
            lambda room: step_without_guilty(
                self.policy, self._optimizer, batch, signals, chosen, self._in_passes_of(room), tick
            )
        )

    def lessons(self, batch: Batch, tick: Tick) -> Sequence[Taught]:
        config = self._config
        if not config.lessons or not METHODS[config.method].hints or not config.w_opd:
            return []
        said = self._standing(batch, tick)
        if not said.wishes and not said.taken_back:
            return []
        seed = config.seed * 1_000_003 + batch.id
        now, self._in_words = self.policy.state(), said
        self.policy.load(self._parent)  # lessons are the same among the steps on them, when a killed update goes on
        try:
            renderer = self._renderer
            most = config.lessons
            asked = [sample.as_asked() for sample in batch.samples if sample.stream == PERSONAL and not sample.pictures]
            questions = questions_of(asked, renderer, most, config.lesson_prompt, str(seed), spare=most)
            lessons, self._in_words = self._made(batch, questions, said, tick)
        except (ModelError, EngineError) as e:
            log.warning("no lessons: the model cannot be asked: %s", e)
            return []
        finally:
            self.policy.load(now)
        told = (len(lessons), len(said.wishes), len(said.taken_back))
        log.info("%d lessons in %d standing wishes, %d taken back", *told)
        if len(lessons) < FEWEST:
            return []
        self._wished = wished_of(lessons, self.policy.ends, self.policy.tokenizer.decode)
        self._of_turns = max(1, len(learned_from(batch, self._in_words)))
        return with_base(self.policy, lessons, self._room, tick)

    def _made(
        self, batch: Batch, questions: Sequence[OpenQuestion], said: Standing, tick: Tick
    ) -> tuple[list[Lesson], Standing]:
        """Lessons, and the wishes in the words in which they were made. Raises ModelError and EngineError."""
        policy, renderer, config = self.policy, self._renderer, self._config

        def plain(said: Standing) -> Standing | None:
            return plainly(
                policy,
                renderer,
                said,
                self._instructions,
                self._hinted(batch, tick),
                lambda pairs: self._announces(pairs, tick),
                tick,
            )

        wordings = Wordings(policy, renderer, questions, said, config.lessons, config.lesson_tokens, plain, tick)
        made = wordings.best()
        return made.all, made.words

    def _standing(self, batch: Batch, tick: Tick) -> Standing:
        """What the person wishes for now, as far as hints say."""
        if self._said is not None and self._said[0] == batch.id:
            return self._said[1]

        def ends(pairs: Sequence[tuple[str, str]]) -> list[bool]:
            try:
                return cancels(self.policy, self._renderer, pairs, tick)
            except (ModelError, EngineError):  # it is no chat model, and has no lessons
                return [False] * len(pairs)

        def last(hints: Sequence[str]) -> list[bool]:
            return lasts(self.policy, hints, tick)

        hinted = self._hinted(batch, tick)
        found = standing(batch.hints, self.policy.states_of, hinted.follow, ends, last)
        if found.wishes:
            judged = self._judged(batch, found)
            shown = [praised_words(wish, those) for wish, those in zip(found.wishes, judged, strict=True)]
            wishes = [with_marks(one, wish) if one else wish for one, wish in zip(shown, found.wishes, strict=True)]
            wordings = [[wish, *(one.text for one in some)] for wish, some in zip(wishes, found.before, strict=True)]
            said_of = [[hinted.texts[at] for at in found.said_at(n) if at in hinted.texts] for n in range(len(wishes))]
            wanted = [words_praised(*one) for one in zip(wordings, judged, said_of, strict=True)]
            found = replace(found, wishes=wishes, judged=judged, wanted=list(dict.fromkeys(chain(*wanted))))
            found = with_announced(found, lambda said: self._announces(said, tick))
        self._said = (batch.id, found)
        return found

    def _announces(self, said: Sequence[tuple[str, str]], tick: Tick) -> list[float]:
        new = [pair for pair in dict.fromkeys(said) if pair not in self._announced]
        try:
            self._announced |= dict(zip(new, announces(self.policy, self._renderer, new, tick), strict=True))
        except (ModelError, EngineError):  # it is no chat model, and has no lessons
            return [-1.0] * len(said)
        return [self._announced[pair] for pair in said]

    def _hinted(self, batch: Batch, tick: Tick) -> HintedAnswers:
        """The answers that the hints of a batch were said of."""
        of = {sample.turn_id: sample.as_asked() for sample in batch.hinted if not sample.pictures}
        texts = {x.turn_id: self.policy.tokenizer.decode(self.policy.without_end(x.response_ids)) for x in batch.hinted}

        known = {place: texts[turn] for place, turn in enumerate(batch.hint_turns) if turn in texts}

        own = [x for x in batch.samples if x.stream == PERSONAL and x.reward > 0]
        praised = [self.policy.tokenizer.decode(self.policy.without_end(x.response_ids)) for x in own]

        def follow(pairs: Sequence[tuple[int, str]]) -> list[bool | None]:
            said_of = {
                wish: [known[at] for at, hint in enumerate(batch.hints) if at in known and same_wish(hint, wish)]
                for wish in {wish for _, wish in pairs}
            }
            missed = [
                at in known and misses_words(wish, known[at], said_of[wish], praised, batch.hints[at])
                for at, wish in pairs
            ]
            samples = [None if no else of.get(batch.hint_turns[at]) for no, (at, _) in zip(missed, pairs, strict=True)]
            wishes = [wish for _, wish in pairs]
            found = followed(self.policy, samples, wishes, self._config.lesson_prompt, tick, self._followed)
            return [False if no else yes for no, yes in zip(missed, found, strict=True)]

        return HintedAnswers(known, follow)

    def _judged(self, batch: Batch, found: Standing) -> list[list[Reaction]]:
        """Of each wish the batch's own answers to a person since it was said, and what came back on them."""
        decode, whole = self.policy.tokenizer.decode, self.policy.without_end
        own = [(x.turn_id, decode(whole(x.response_ids)), x.reward) for x in batch.samples if x.stream == PERSONAL]

        def since(wish: int) -> list[Reaction]:
            return since_said(own, {batch.hint_turns[place] for place in found.said_at(wish)})

        return [since(wish) for wish in range(len(found.wishes))]

    def learn(self, lessons: Sequence[Taught], tick: Tick) -> float:
        return self._within_memory(
            lambda room: learn_step(
                self.policy, self._optimizer, lessons, self._of_turns, self._in_passes_of(room), tick
            )
        )

    def lesson_loss(self, lessons: Sequence[Taught], tick: Tick) -> float:
        return self._within_memory(lambda room: loss_of(self.policy, lessons, room, tick, learn=False))

    def imitate(self, texts: Sequence[TokenText], lr: float, tick: Tick) -> dict[str, float]:
        return self._within_memory(
            lambda room: supervised_step(
                self.policy, self._optimizer, rows_of(self.policy, texts), lr, room, self._config.grad_clip, tick
            )
        )

    def imitation_loss(self, texts: Sequence[TokenText], tick: Tick) -> float:
        return self._within_memory(
            lambda room: likelihood_loss(self.policy, rows_of(self.policy, texts), room, tick, learn=False)
        )

    def _in_passes_of(self, room: int) -> TrainConfig:
        """The settings with so many tokens in a pass, which changes no result."""
        return self._config.model_copy(update={"microbatch_tokens": room})

    def _within_memory(self, work: Callable[[int], T]) -> T:
        """Work with half as many tokens in a pass where the memory does not hold them, from then on.

        The result is the same. Raises ModelError where they cannot become fewer.
        """
        while True:
            try:
                return work(self._room)
            except torch.OutOfMemoryError as e:
                if self._room <= LEAST_ROOM:
                    raise ModelError(
                        f"the memory of {self.device} does not hold the longest text; lower engine.max_model_len, "
                        "gate.answer_tokens, or --context of `turnwise sft`"
                    ) from e
                self._room = max(LEAST_ROOM, self._room // 2)
                self._gate.in_passes_of(self._room)
                log.warning("out of memory: %d tokens in a pass from now on", self._room)
            torch.cuda.empty_cache()

    def figures(self, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        return self._within_memory(lambda room: self._gate.measure(self._parent, probes, tick))

    def snapshot(self) -> tuple[State, State]:
        weights = self.policy.weights
        return {n: weights.whole(p) for n, p in weights.named().items()}, moments_of(weights, self._optimizer)

    def restore(self, weights: State, moments: State) -> None:
        self.policy.load(self.policy.weights.mine(weights))
        set_moments(self.policy.weights, self._optimizer, moments)

    def examine(self, batch: Batch, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        said = self._in_words or self._standing(batch, tick)
        praised = self._praised(batch, said, tick)
        return self._within_memory(
            lambda room: self._gate.examine(self._parent, batch, probes, said, tick, self._wished, praised)
        )

    def _praised(self, batch: Batch, said: Standing, tick: Tick) -> list[Sample]:
        """The batch's turns whose answers were praised and follow each of the wishes that stand.

        Many who wish for something go on to praise answers without it, for what else is in them. Where a wish was taken
        back, an answer that still follows it may be one of these, and nothing is said.
        """
        own = [s.as_asked() for s in batch.samples if s.stream == PERSONAL and s.reward > 0 and not s.pictures]
        if not said.wishes or said.taken_back or len(own) < SEVERAL:
            return []
        pairs = [(sample, wish) for sample in own for wish in said.wishes]
        samples, wishes = zip(*pairs, strict=True)
        met = followed(self.policy, samples, wishes, self._config.lesson_prompt, tick, self._followed)
        missed = {sample.turn_id for sample, yes in zip(samples, met, strict=True) if not yes}
        return [sample for sample in own if sample.turn_id not in missed]

    def wishes_kept(self, batch: Batch, tick: Tick) -> list[dict[str, Any]]:
        said = self._in_words or self._standing(batch, tick)
        # One that was restated may be misread, and goes on being told. Marks may have been put around its words.
        own = wishes_among(batch.hints)
        pairs = zip(said.wishes, said.said, strict=True)
        asked = {wish: places for wish, places in pairs if any(same_wish(wish, hint) for hint in own)}
        if not asked:
            return []
        shares = kept_shares(self.policy, self._renderer, list(asked), self._config.lesson_tokens, tick)
        return [
            {"turns": [batch.hint_turns[place] for place in places], "kept": share}
            for places, share in zip(asked.values(), shares, strict=True)
        ]

    def close(self) -> None:
        """There is nothing but this process."""

    def stage(self, version: PolicyVersion, *, with_moments: bool = True) -> AbstractContextManager[Callable[[], None]]:
        weights, moments = self.snapshot()
        return staged_version(version, self.policy.weights, weights, moments if with_moments else None)

    def _new_optimizer(self) -> torch.optim.Optimizer:
        return self.policy.weights.optimizer(self._config)

    def _refuse(self, version: int, there: PublishedWeights) -> None:
        """Raises AdapterError where these weights cannot go on from that version."""
        ours = self.policy.weights
        if there.kind != ours.kind:
            raise AdapterError(
                f'version {version} was trained with train.weights = "{there.kind}", the configuration says '
                f'"{ours.kind}"; set train.weights = "{there.kind}", roll back to a version of the other kind '
                "(`turnwise versions rollback 0` is the base model), or start in a new home"
            )
        ours.refuse(version, there.settings)

    def _go_on_from(self, version: int, meta: dict[str, Any]) -> None:
        """Take up the optimiser's state of a version: where it is damaged, that of the one before; else a fresh one."""
        if meta.get("source"):
            log.info("v%d was fine-tuned; the update starts with a fresh optimiser", version)
            return
        state, of = self._moments_before(version)
        if state is None:
            log.warning("the optimiser state of v%d is gone; the update starts with a fresh one", version)
            return
        set_moments(self.policy.weights, self._optimizer, state)
        # The gate let only a part of that step pass. Its momentum would go on with the rest of it: it is cut alike.
        # How large gradients are is as true as before, so their squares stay.
        part = float(meta.get("gate", {}).get("alpha", 1.0)) if of == version else 1.0
        for state_of in self._optimizer.state.values() if part < 1 else ():
            state_of["exp_avg"].mul_(part)

    def _moments_before(self, version: int) -> tuple[State | None, int]:
        """The optimiser's state of a version, or where that is damaged of its parent; and whose it is."""
        shapes = self.policy.weights.whole_shapes
        while version != BASE_VERSION:
            folder = version_dir(self._versions, version)
            try:
                state = read_moments(folder)
                if state is None or fits(state, shapes):
                    return state, version
                log.warning("the optimiser state of v%d is of other weights; that of its parent is taken", version)
            except ValueError as e:
                log.warning("v%d: %s; the optimiser goes on from the state of its parent", version, e)
            try:
                version = int(read_json(folder / META).get("parent", BASE_VERSION))
            except (AdapterError, ValueError):
                break
        return None, version


def learned_from(batch: Batch, said: Standing) -> set[str]:
    """The turns that an update learns a person's wishes from: those of its batch, and those that say what stands."""
    turns = {sample.turn_id for sample in batch.samples if sample.stream == PERSONAL and (sample.reward or sample.hint)}
    return turns | {batch.hint_turns[place] for places in said.said for place in places}
