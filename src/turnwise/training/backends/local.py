"""The weights in this process: a model of the machine's own with one adapter, trained by AdamW."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from turnwise.config import Config
from turnwise.errors import AdapterError, EngineError, ModelError
from turnwise.methods import METHODS
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.training.batching import TokenText
from turnwise.training.checkpoints import CheckpointStore
from turnwise.training.gate.gate import Gate
from turnwise.training.lessons.comparing import followed
from turnwise.training.lessons.learning import Taught, learn_step, loss_of, with_base
from turnwise.training.lessons.making import FEWEST, make_lessons
from turnwise.training.lessons.questions import questions_of
from turnwise.training.lessons.wishes import Standing, standing
from turnwise.training.policy import Policy
from turnwise.training.publish import load_adapter_dir, staged_version, version_dir
from turnwise.training.scores import ScoreHistory
from turnwise.training.step import Signals, Tick, compute_signals, step_without_guilty, without_faults
from turnwise.training.supervised import likelihood_loss, rows_of, supervised_step
from turnwise.types import BASE_VERSION, Batch, PolicyVersion, Sample

log = logging.getLogger(__name__)

T = TypeVar("T")
LEAST_ROOM = 64
"""Tokens in a pass: fewer would not fit any more. A longer text goes alone, with its activations computed twice."""


class LocalBackend:
    """A `Backend` on torch, on one device. Optimiser states are looked up in the checkpoints."""

    def __init__(self, config: Config, model: Path | str, checkpoints: CheckpointStore) -> None:
        self._config = config.train
        self._versions = config.versions_dir
        self._checkpoints = checkpoints
        self._model = str(model)
        self.policy = Policy(model, config.train)
        self._folder = model
        self._gate = Gate(self.policy, model, config.train, config.gate)
        self._parent: dict[str, Tensor] | None = None
        self._said: tuple[int, Standing] | None = None  # of the batch with this id
        self._history = ScoreHistory()
        self._room = config.train.microbatch_tokens
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
        if version != BASE_VERSION:
            adapter = load_adapter_dir(version_dir(self._versions, version))
            self._check_scale(version, adapter.lora)
            if not fresh:
                self._go_on_from(version, adapter.meta)
            self._parent, meta = adapter.weights, adapter.meta
        self.policy.load(self._parent)
        self._history = ScoreHistory.of(meta.get("metrics", {}))
        return meta

    def without_faults(self, batch: Batch) -> tuple[Batch, dict[str, str]]:
        return without_faults(batch, self.policy)

    def signals(self, batch: Batch, tick: Tick) -> Sequence[Signals]:
        return compute_signals(self.policy, batch, self._config, tick, self._history)

    def step(
        self, batch: Batch, signals: Sequence[Signals], chosen: Sequence[int], tick: Tick
    ) -> tuple[dict[str, float], list[int]]:
        return step_without_guilty(self.policy, self._optimizer, batch, signals, chosen, self._config, tick)

    def lessons(self, batch: Batch, tick: Tick) -> Sequence[Taught]:
        config = self._config
        if not config.lessons or not METHODS[config.method].hints or not config.w_opd:
            return []
        said = self._standing(batch, tick)
        if not said.wishes and not said.taken_back:
            return []
        seed = config.seed * 1_000_003 + batch.id
        now = self.policy.state()
        self.policy.load(self._parent)  # lessons are the same among the steps on them, when a killed update goes on
        try:
            renderer = self._renderer
            most = config.lessons
            asked = [sample.as_asked() for sample in batch.samples]
            questions = questions_of(asked, renderer, most, config.lesson_prompt, str(seed), spare=most)
            lessons = make_lessons(self.policy, renderer, questions, most, said, config.lesson_tokens, tick)
        except (ModelError, EngineError) as e:
            log.warning("no lessons: the model cannot be asked: %s", e)
            return []
        finally:
            self.policy.load(now)
        told = (len(lessons), len(said.wishes), len(said.taken_back))
        log.info("%d lessons in %d standing wishes, %d taken back", *told)
        if len(lessons) < FEWEST:
            return []
        return with_base(self.policy, lessons, config.microbatch_tokens, tick)

    def _standing(self, batch: Batch, tick: Tick) -> Standing:
        """What the person wishes for now, as far as hints say."""
        if self._said is not None and self._said[0] == batch.id:
            return self._said[1]
        of = {sample.turn_id: sample.as_asked() for sample in batch.hinted}

        def answers_follow(pairs: Sequence[tuple[int, str]]) -> list[bool]:
            samples = [of.get(batch.hint_turns[place]) for place, _ in pairs]
            return followed(self.policy, samples, [wish for _, wish in pairs], self._config.lesson_prompt, tick)

        found = standing(batch.hints, self.policy.states_of, answers_follow)
        self._said = (batch.id, found)
        return found

    def learn(self, lessons: Sequence[Taught], tick: Tick) -> float:
        return learn_step(self.policy, self._optimizer, lessons, self._config, tick)

    def lesson_loss(self, lessons: Sequence[Taught], tick: Tick) -> float:
        return loss_of(self.policy, lessons, self._config.microbatch_tokens, tick, learn=False)

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
                        f"the memory of {self.device} does not hold the longest conversation; lower --context"
                    ) from e
                self._room = max(LEAST_ROOM, self._room // 2)
                log.warning("out of memory: %d tokens in a pass from now on", self._room)
            torch.cuda.empty_cache()

    def figures(self, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        return self._gate.measure(self._parent, probes, tick)

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self.policy.state(), self._optimizer.state_dict()

    def restore(self, adapter: dict[str, Tensor], optimizer: dict[str, Any]) -> None:
        self.policy.load(adapter)
        self._optimizer.load_state_dict(optimizer)

    def examine(self, batch: Batch, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        return self._gate.examine(self._parent, batch, probes, self._standing(batch, tick).wishes, tick)

    def stage(
        self, version: PolicyVersion, adapter: dict[str, Tensor], checkpoint: str | None
    ) -> AbstractContextManager[Callable[[], None]]:
        return staged_version(version, adapter, self.policy.lora_config, checkpoint, self._model)

    def _new_optimizer(self) -> torch.optim.Optimizer:
        config = self._config
        parameters = self.policy.parameters()
        return torch.optim.AdamW(parameters, lr=config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay)

    def _check_scale(self, version: int, lora: dict[str, Any]) -> None:
        """Weights mean nothing without their scale, alpha / rank: under another one they are another policy.

        And the optimiser's state is of yet another.
        """
        for setting, name in (("lora_rank", "r"), ("lora_alpha", "lora_alpha")):
            was, now = lora.get(name), getattr(self._config, setting)
            if was != now:
                raise AdapterError(
                    f"version {version} was trained with train.{setting} = {was}, the configuration says {now}; "
                    f"set train.{setting} back to {was}, or start in a new home"
                )

    def _go_on_from(self, version: int, meta: dict[str, Any]) -> None:
        name = meta.get("checkpoint")
        left = self._checkpoints.load(str(name)) if name else None
        if left is None and meta.get("source"):
            log.info("v%d was fine-tuned; the update starts with a fresh optimiser", version)
            return
        if left is None:
            log.warning("the optimiser state of v%d is gone; the update starts with a fresh one", version)
            return
        self._optimizer.load_state_dict(left.optimizer)
        # The gate let only a part of that step pass. Its momentum would go on with the rest of it: it is cut alike.
        # How large gradients are is as true as before, so their squares stay.
        part = float(meta.get("gate", {}).get("alpha", 1.0))
        for state in self._optimizer.state.values() if part < 1 else ():
            state["exp_avg"].mul_(part)
        for group in self._optimizer.param_groups:  # the configuration, not the checkpoint, sets these
            group.update(lr=self._config.lr, weight_decay=self._config.weight_decay)
