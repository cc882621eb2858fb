"""The weights at a server with the Tinker API: an adapter that is trained there, by losses of the API's own.

All terms of a step are folded into advantages (`hosted/folding.py`). Nothing but log-probs of given tokens, sampled
answers and saved adapters comes back, and what cannot be said so is refused when the configuration is read. An update
begins at what the server saved with the parent version, so that one that was killed, here or there, is done again.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, GenerationConfig

from turnwise.config import Config, recipes
from turnwise.errors import AdapterError, ModelError
from turnwise.loops.lifeline import beat
from turnwise.models.identity import refuse_other_base
from turnwise.training import losses
from turnwise.training.algorithms.base import Seen
from turnwise.training.batching import TokenText
from turnwise.training.gate.gate import look
from turnwise.training.gate.material import Material, material_alone, material_of
from turnwise.training.gate.probes import KnownQuestion, Probe, general_probes, known_questions
from turnwise.training.hosted.adapter import HostedWeights, linear_shapes, read_archive
from turnwise.training.hosted.examination import HostedExamination
from turnwise.training.hosted.folding import Targets, folded_advantage, undone
from turnwise.training.hosted.server import HostedAdapter, TinkerServer
from turnwise.training.lessons.learning import Taught
from turnwise.training.policy import load_tokenizer
from turnwise.training.publish import staged_version, version_dir
from turnwise.training.scores import ScoreHistory
from turnwise.training.step import (
    NotFinite,
    Tick,
    advantages_of,
    hinted_samples,
    hinted_text,
    step_scale,
    without_faults,
)
from turnwise.training.terms import Signals, TermWeights, recipe_of
from turnwise.training.weights.base import BETAS, State
from turnwise.training.weights.files import load_version_dir
from turnwise.types import BASE_VERSION, Batch, PolicyVersion, Sample

log = logging.getLogger(__name__)

STATE = "tinker"
"""Of a version's ``meta.json``: the path of its weights and optimiser at the server."""
SAVED_AT = "saved_at_server"
"""Of a snapshot: such a path, as bytes."""
EPS = 1e-8
"""AdamW's, as torch has it."""


class TinkerBackend:
    """A `Backend` on a server."""

    def __init__(self, config: Config, model: Path | str) -> None:
        self._config, self._gate = config.train, config.gate
        self._recipes = recipes(config.train, config.streams)
        self._versions, self._folder = config.versions_dir, model
        self._server = TinkerServer(config.train, model)
        try:
            self._tokenizer, self._model = load_tokenizer(model), AutoConfig.from_pretrained(model).get_text_config()
        except Exception as e:  # the libraries raise whatever their parsers raise
            raise ModelError(f"cannot read the model {model}: {e}; run `turnwise doctor`") from e
        self._adapter: HostedAdapter | None = None
        self._parent: str | None = None
        self._history = ScoreHistory()
        self._names = itertools.count()

    @property
    def device(self) -> str:
        return f"a server at {self._server.where}"

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, int]]:
        return linear_shapes(self._folder)

    @cached_property
    def _general(self) -> list[Probe]:
        return general_probes(self._folder)

    @cached_property
    def _questions(self) -> list[KnownQuestion]:
        return known_questions(self._folder)

    @cached_property
    def _ends(self) -> list[int]:
        try:
            ends = GenerationConfig.from_pretrained(self._folder).eos_token_id
        except OSError:
            ends = self._model.eos_token_id
        return [] if ends is None else ends if isinstance(ends, list) else [ends]

    @property
    def _trained(self) -> HostedAdapter:
        assert self._adapter is not None, "prepare was not called"
        return self._adapter

    def prepare(self, version: int, fresh: bool = False) -> dict[str, Any]:
        self._server.alive = beat
        self._adapter, self._parent, meta = None, None, {}
        if version != BASE_VERSION:
            there = load_version_dir(version_dir(self._versions, version))
            refuse_other_base(version, there.meta, self._folder)
            self._parent, meta = _path_of(version, there.meta), there.meta
            # What was learned from a file has an optimiser of other steps, which the next update does not go on with.
            self._adapter = self._server.saved(self._parent, with_optimizer=not (fresh or there.meta.get("source")))
        else:
            self._adapter = self._server.begin()
        self._history = ScoreHistory.of(meta.get("metrics", {}))
        return meta

    def without_faults(self, batch: Batch) -> tuple[Batch, dict[str, str]]:
        return without_faults(batch, self._model.vocab_size)

    def signals(self, batch: Batch, tick: Tick) -> Sequence[Signals]:
        samples = batch.samples
        hinted = hinted_samples(samples, self._config)
        plain = [Targets.of(s.prompt_ids, s.response_ids) for s in samples]
        told = [hinted_text(self._tokenizer, samples[i], i) for i in hinted]
        taught = [Targets.of(t.prompt_ids, t.response_ids) for t in told]
        by_base = self._config.teacher == "base"
        with self._living(tick, "scoring"):
            old = self._trained.logprobs(plain if by_base else plain + taught)
            ref = self._server.base_logprobs(plain + taught if by_base else plain)
        by_teacher = dict(zip(hinted, (ref if by_base else old)[len(plain) :], strict=True))
        # One that is not finite must not get into the baseline of the others.
        teacher = {i: t for i, t in by_teacher.items() if torch.isfinite(t).all() and torch.isfinite(old[i]).all()}
        seen = [Seen(s, old[i], None if i not in teacher else _given(teacher[i])) for i, s in enumerate(samples)]
        said = advantages_of(seen, self._config, self._history, self._recipes)
        return [
            Signals(
                tokens=torch.tensor(s.response_ids),
                temperature=torch.ones(len(s.response_ids)),
                old=old[i],
                ref=ref[i],
                # μ is of the turn's own temperature: the weight corrects for that as well, up to its cap.
                weight=losses.importance_weight(
                    old[i], None if s.logprobs is None else torch.tensor(s.logprobs), self._config.tis_cap
                ),
                advantage=said[i][0],
                takes_part=said[i][1],
                sample=s,
                recipe=self._recipes.get(s.stream),
            )
            for i, s in enumerate(samples)
        ]

    def step(
        self, batch: Batch, signals: Sequence[Signals], chosen: Sequence[int], tick: Tick
    ) -> tuple[dict[str, float], list[int]]:
        guilty = [i for i in chosen if not _finite(signals[i])]
        chosen = [i for i in chosen if i not in guilty]
        if not chosen:
            raise NotFinite(f"batch {batch.id}: the log-probs of all samples of a step are not finite")
        config, weights = self._config, TermWeights.of(signals, chosen, self._config)
        texts = [Targets.of(signals[i].sample.prompt_ids, signals[i].sample.response_ids) for i in chosen]
        folded = [self._folded(signals[i], weights.pg[i], weights.kl[i]) for i in chosen]
        told = undone(folded, [len(t.targets) for t in texts], config.tinker_reduction)
        inputs = [
            {"logprobs": text.spread(signals[i].old), "advantages": text.spread(a)}
            for i, text, a in zip(chosen, texts, told, strict=True)
        ]
        clip = {"clip_low_threshold": 1 - config.clip_low, "clip_high_threshold": 1 + config.clip_high}
        with self._living(tick, "training"):
            logprobs = self._trained.learn(texts, "ppo", inputs, **clip)
            if not all(torch.isfinite(logp).all() for logp in logprobs):
                raise NotFinite(f"batch {batch.id}: the server's log-probs are not finite")
            scale = step_scale(signals, chosen, config)
            measured = self._step(config.lr * scale)
        found = self._figures_of(signals, chosen, weights, logprobs)
        return found | measured | {"step_scale": scale}, guilty

    def _folded(self, one: Signals, c_pg: float, c_kl: float) -> Tensor:
        beta = recipe_of(one, self._config).beta_kl
        return folded_advantage(one.advantage, one.weight, one.old, one.ref, c_pg, c_kl, beta)

    def _step(self, lr: float) -> dict[str, float]:
        """Move the weights; the norm of the gradient, where the server says it."""
        config = self._config
        measured = self._trained.step(
            learning_rate=lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            eps=EPS,
            weight_decay=config.weight_decay,
            grad_clip_norm=config.grad_clip,
        )
        norms = [value for name, value in measured.items() if name.rpartition("/")[2] == "grad_norm"]
        return {"grad_norm": norms[0]} if norms else {}

    def _figures_of(
        self, signals: Sequence[Signals], chosen: Sequence[int], weights: TermWeights, logprobs: Sequence[Tensor]
    ) -> dict[str, float]:
        """The metrics of a step, from the log-probs before it. ``kl`` is the estimate k3, as there is no other."""
        config, found = self._config, dict.fromkeys(("loss", "pg", "kl", "k3", "ratio", "clip_fraction", "tokens"), 0.0)
        for i, logp in zip(chosen, logprobs, strict=True):
            one = signals[i]
            loss, clipped = losses.clipped_surrogate(
                logp, one.old, one.advantage, one.weight, config.clip_low, config.clip_high
            )
            pg, kl = weights.pg[i] * loss.sum().item(), weights.kl[i] * losses.k3(logp, one.ref).sum().item()
            found["pg"] += pg
            found["kl"] += kl
            found["loss"] += pg + recipe_of(one, config).beta_kl * kl
            found["ratio"] += losses.ratio(logp, one.old).sum().item()
            found["clip_fraction"] += clipped.sum().item()
            found["tokens"] += one.length
        found["k3"] = found["kl"]
        return found | {name: found[name] / found["tokens"] for name in ("ratio", "clip_fraction")}

    def wishes_kept(self, batch: Batch, tick: Tick) -> list[dict[str, Any]]:
        return []  # asked only of what learned lessons

    def lessons(self, batch: Batch, tick: Tick) -> Sequence[Taught]:
        return []  # refused with the configuration, where hints would make some

    def learn(self, lessons: Sequence[Taught], tick: Tick) -> float:
        raise AssertionError("there are no lessons")

    def lesson_loss(self, lessons: Sequence[Taught], tick: Tick) -> float:
        raise AssertionError("there are no lessons")

    def imitate(self, texts: Sequence[TokenText], lr: float, tick: Tick) -> dict[str, float]:
        learned = [Targets.of(t.prompt_ids, t.response_ids) for t in texts]
        count = sum(t.length for t in learned)
        each = [torch.full((t.length,), 1 / count) for t in learned]
        told = undone(each, [len(t.targets) for t in learned], self._config.tinker_reduction)
        loss, inputs, clip = "cross_entropy", [{"weights": t.spread(a)} for t, a in zip(learned, told, strict=True)], {}
        if self._config.tinker_reduction == "mean":
            # There its mean takes the weights out again. `−clip(ρ, 1, 1) a log π_θ` is the same loss, with weights.
            loss, clip = "cispo", {"clip_low_threshold": 1.0, "clip_high_threshold": 1.0}
            inputs = [
                {"logprobs": [0.0] * len(t.targets), "advantages": t.spread(a)}
                for t, a in zip(learned, told, strict=True)
            ]
        with self._living(tick, "fine-tuning"):
            logprobs = torch.cat(self._trained.learn(learned, loss, inputs, **clip))
            if torch.isfinite(logprobs).all():
                return {"loss": -logprobs.mean().item()} | self._step(lr)
            self.restore(*self.snapshot())  # without it, the server would add this gradient to the next step's
        raise NotFinite("the server's log-probs are not finite")

    def imitation_loss(self, texts: Sequence[TokenText], tick: Tick) -> float:
        with self._living(tick, "held-out loss"):
            found = self._trained.logprobs([Targets.of(t.prompt_ids, t.response_ids) for t in texts])
        return -torch.cat(found).mean().item()

    def figures(self, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        material = material_alone(self._general, self._questions, probes, self._gate.answers)
        with self._living(tick, "gate"):
            return look(self._examination(material), self._gate, thorough=True)

    def examine(self, batch: Batch, probes: Sequence[Sample], tick: Tick) -> dict[str, Any]:
        """The whole step, or none of it. Which earlier wishes still stand the API cannot say: the batch's own do."""
        material = material_of(self._general, self._questions, probes, batch, [], self._gate.answers)
        with self._living(tick, "gate"):
            result = look(self._examination(material), self._gate, thorough=True)
        about = {"probes": len(material.turns), "general": len(material.general), "answers": len(material.asked)}
        return result | about | {"alpha": 1.0 if result["accepted"] else 0.0}

    def _examination(self, material: Material) -> HostedExamination:
        gate, seed = self._gate, self._config.seed
        return HostedExamination(
            self._server, self._trained, self._parent, material, gate, self._tokenizer, self._ends, seed
        )

    def snapshot(self) -> tuple[State, State]:
        path = self._trained.save(f"snapshot-{next(self._names)}")
        return {SAVED_AT: torch.tensor(list(path.encode()), dtype=torch.uint8)}, {}

    def restore(self, weights: State, moments: State) -> None:
        if SAVED_AT not in weights:
            raise AdapterError("this run was begun with another train.backend; set that again, or begin with --anew")
        path = bytes(weights[SAVED_AT].tolist()).decode()
        self._adapter = self._server.saved(path, with_optimizer=True)

    def close(self) -> None:
        self._server.close()

    def stage(self, version: PolicyVersion, *, with_moments: bool = True) -> AbstractContextManager[Callable[[], None]]:
        """``with_moments`` or not, the server keeps weights and optimiser together."""
        name = f"{Path(version.path).name}-{next(self._names)}"
        saved = self._trained.save(name)
        with tempfile.TemporaryDirectory() as there:
            archive = Path(there) / "adapter.tar.gz"
            self._server.download(self._trained.save_for_sampling(name), archive)
            state = read_archive(archive, self._shapes, self._config)
        weights = HostedWeights(self._folder, self._config.lora_rank, self._config.lora_alpha)
        return staged_version(version, weights, state, None, {STATE: saved})

    @contextmanager
    def _living(self, tick: Tick, phase: str) -> Iterator[None]:
        """Inside of this each moment of waiting for the server is a tick."""
        tick(phase, 0, 1)
        self._server.alive = lambda: tick(phase, 0, 1)
        try:
            yield
        finally:
            self._server.alive = beat


def _path_of(version: int, meta: dict[str, Any]) -> str:
    """Where the server has the weights and the optimiser of a version. Raises AdapterError."""
    path = meta.get(STATE)
    if not isinstance(path, str):
        raise AdapterError(
            f"version {version} was not trained by a server with the Tinker API, which takes no weights of ours; set "
            "train.backend back to what it was, roll back to a version of that server (`turnwise versions rollback 0` "
            "is the base model), or start in a new home"
        )
    return path


def _given(logprobs: Tensor) -> Callable[[], Tensor]:
    return lambda: logprobs


def _finite(one: Signals) -> bool:
    return all(torch.isfinite(x).all() for x in (one.old, one.ref, one.weight, one.advantage))
