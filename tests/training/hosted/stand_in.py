"""A stand-in for a server with the Tinker API, in this process: the same calls, computed by the trainer's own model.

It shows what `TinkerBackend` makes of a server's answers, not that a server answers so: `test_real_server.py` runs the
real client and a real server. Its losses are those that the API's page describes.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from turnwise.config import TrainConfig
from turnwise.errors import AdapterError
from turnwise.training.asking import GivenAnswer, sample_answers
from turnwise.training.batching import row_of
from turnwise.training.hosted.folding import Targets
from turnwise.training.policy import Policy


class StandInServer:
    """What `TinkerServer` is to a backend. ``kept`` are weights by path, ``told`` all that was asked of it."""

    kept: dict[str, tuple[dict[str, Tensor], dict[str, Any]]]

    def __init__(self, config: TrainConfig, model: Path | str) -> None:
        self.config, self.folder, self.where = config, model, "a stand-in"
        self.alive: Callable[[], None] = lambda: None
        self.kept, self.told = {}, []
        self._base = Policy(model, config)

    def begin(self) -> StandInAdapter:
        return StandInAdapter(self)

    def saved(self, path: str, *, with_optimizer: bool) -> StandInAdapter:
        if path not in self.kept:
            raise AdapterError(f"nothing is kept at {path}")
        weights, moments = self.kept[path]
        adapter = StandInAdapter(self)
        adapter.policy.load(weights)
        if with_optimizer:
            adapter.optimizer.load_state_dict(moments)
        return adapter

    beside = saved

    def base_logprobs(self, texts: Sequence[Targets]) -> list[Tensor]:
        return [_said(self._base, text).detach() for text in texts]

    def base_answers(self, prompts: Sequence[Sequence[int]], **how: Any) -> list[GivenAnswer]:
        return sample_answers(self._base, prompts, how["most"], how["seed"]) or []

    def download(self, path: str, target: Path) -> None:
        target.write_bytes(archive_of(self.kept[path][0], self.config.lora_rank, self.config.lora_alpha))

    def close(self) -> None:
        pass


class StandInAdapter:
    def __init__(self, server: StandInServer) -> None:
        self.server, self.policy = server, Policy(server.folder, server.config)
        self.optimizer = self.policy.weights.optimizer(server.config)
        self._sums: list[Tensor] = []

    def logprobs(self, texts: Sequence[Targets]) -> list[Tensor]:
        return [_said(self.policy, text).detach() for text in texts]

    def learn(
        self, texts: Sequence[Targets], loss: str, inputs: Sequence[dict[str, Any]], **settings: float
    ) -> list[Tensor]:
        self.server.alive()
        self.server.told.append((loss, settings, [text.targets for text in texts]))
        found, terms = [], []
        for text, given in zip(texts, inputs, strict=True):
            logp = _said(self.policy, text)
            at = slice(len(text.targets) - text.length, None)
            if loss == "cross_entropy":
                per_token = -torch.tensor(given["weights"][at]) * logp
            else:
                advantage, old = torch.tensor(given["advantages"][at]), torch.tensor(given["logprobs"][at])
                ratio = (logp - old).exp()
                bounded = ratio.clamp(settings["clip_low_threshold"], settings["clip_high_threshold"])
                per_token = (
                    -torch.minimum(ratio * advantage, bounded * advantage)
                    if loss == "ppo"
                    else -bounded.detach() * logp * advantage
                )
            mean = self.server.config.tinker_reduction == "mean"
            terms.append(per_token.sum() / (len(text.targets) * len(texts) if mean else 1))
            found.append(logp.detach())
        torch.stack(terms).sum().backward()
        return found

    def step(self, **adam: float) -> dict[str, float]:
        self.server.alive()
        norm = self.policy.clip_grad(adam["grad_clip_norm"])
        for group in self.optimizer.param_groups:
            group["lr"], group["eps"] = adam["learning_rate"], adam["eps"]
            group["betas"], group["weight_decay"] = (adam["beta1"], adam["beta2"]), adam["weight_decay"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {"stand.in/grad_norm": norm}

    def save(self, name: str) -> str:
        path = f"tinker://run-{id(self)}/weights/{name}"
        moments = torch.load(_bytes_of(self.optimizer.state_dict()), weights_only=True)
        self.server.kept[path] = (self.policy.state(), moments)
        return path

    def save_for_sampling(self, name: str) -> str:
        path = f"tinker://run-{id(self)}/sampler_weights/{name}"
        self.server.kept[path] = (self.policy.state(), {})
        return path

    def answers(self, prompts: Sequence[Sequence[int]], **how: Any) -> list[GivenAnswer]:
        return sample_answers(self.policy, prompts, how["most"], how["seed"]) or []


def _said(policy: Policy, text: Targets) -> Tensor:
    prompt, response = text.inputs[: len(text.inputs) + 1 - text.length], text.targets[-text.length :]
    hidden = policy.hidden([row_of(0, prompt, response)])
    table = policy.log_softmax(hidden, torch.ones(len(hidden)))
    return table.gather(-1, torch.tensor(response).unsqueeze(-1)).squeeze(-1)


def _bytes_of(state: dict[str, Any]) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


def archive_of(state: dict[str, Tensor], rank: int, alpha: float, **settings: Any) -> bytes:
    """An adapter as a server sends it."""
    told = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": None} | settings
    content = save({name: t.contiguous() for name, t in state.items()})
    return tar_of({"adapter_config.json": json.dumps(told).encode(), "adapter_model.safetensors": content})


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
