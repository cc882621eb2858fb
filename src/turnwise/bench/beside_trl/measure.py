"""Runs both trainers in turns, on the same texts with the same adapter, and makes the report of it."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from turnwise.bench.beside_trl.data import MaskedConversation, make_conversations, make_sessions, response_tokens
from turnwise.bench.peers import PeerEnvironment
from turnwise.bench.report import BenchReport, Figure
from turnwise.config import Config, TrainConfig
from turnwise.errors import TurnwiseError
from turnwise.models import resolve_model
from turnwise.training.batching import TokenText
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step, plan
from turnwise.training.supervised import rows_of, supervised_step
from turnwise.training.weights.devices import with_passes
from turnwise.types import Batch

TRL = PeerEnvironment("trl", ("torch==2.13.0", "trl==1.16.0", "peft", "accelerate", "datasets", "transformers"))
SESSIONS, TURNS = 2, 10
CONVERSATIONS, TOGETHER = 8, 4
"""Conversations that are learned, and how many of them share an optimiser step."""
ROWS = 4
"""Turns that TRL reads in one pass."""
ANSWER_LIMIT_S = 1800.0


def bench_beside_trl(config: Config, python: Path, version: str, repeats: int) -> BenchReport:
    """An update, and a fine-tuning, of both; ``python`` is one that has TRL. Raises TurnwiseError."""
    train = with_passes(config.train.model_copy(update={"method": "binary"}))  # TRL knows no hints
    model = resolve_model(config.model.path)
    policy = Policy(model, train)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=train.lr, betas=(0.9, 0.98), weight_decay=train.weight_decay)
    batch = make_sessions(SESSIONS, TURNS, policy.vocabulary)
    conversations = make_conversations(CONVERSATIONS, TURNS, policy.vocabulary)
    times: dict[str, list[float]] = {"update": [], "tune": []}
    theirs: dict[str, list[float]] = {"update": [], "tune": [], "tune packed": []}
    with _peer(python, _job(policy, str(model), train, batch, conversations)) as ask:
        for round_ in range(repeats + 1):  # the first warms up and is not counted
            found = {"update": _update(policy, optimizer, batch, train)}
            found["tune"] = _tune(policy, optimizer, conversations, train)
            seconds = {what: ask(what) for what in theirs}
            if round_:
                for kept, new in ((times, found), (theirs, seconds)):
                    for what, spent in new.items():
                        kept[what].append(spent)
    trained, learned = response_tokens(batch.samples), sum(sum(c.learned) for c in conversations)
    update = f"update: {SESSIONS} sessions of {TURNS} turns"
    return BenchReport(
        command="turnwise bench train --trl",
        figures=[
            _figure(update, trained, times["update"], theirs["update"], "GRPO's functions"),
            _figure("fine-tuning", learned, times["tune"], theirs["tune"], "SFTTrainer"),
            _figure("fine-tuning", learned, times["tune"], theirs["tune packed"], "SFTTrainer, packing"),
        ],
        notes=[
            f"TRL {version}, turn about with turnwise on the same random ids: LoRA rank {train.lora_rank} on all "
            f"linear layers, {policy.model.dtype} base, {torch.get_num_threads()} threads, device {policy.device}, no "
            f"gradient checkpointing; best of {repeats}. Tokens are those that are trained on; a ratio is turnwise to "
            "TRL's.",
            f"An update: log-probs of the old weights and of the reference, then {len(plan(batch, train))} optimiser "
            "steps with KL, over turns whose thinking the next prompts leave out. TRL reads "
            f"{ROWS} turns in a pass, padded, by GRPOTrainer's own functions.",
            f"Fine-tuning: {CONVERSATIONS} conversations of {TURNS // 2} to {TURNS * 3 // 2} turns, {TOGETHER} a step, "
            "the assistant's tokens alone. With `packing` TRL puts conversations into one row, where each sees those "
            "before it unless flash attention is there, which it is not here.",
        ],
    )


def _figure(what: str, tokens: int, ours: Sequence[float], theirs: Sequence[float], name: str) -> Figure:
    mine, other = tokens / min(ours), tokens / min(theirs)
    return Figure(what, f"{mine:.1f} tokens/s", f"{name} {other:.1f} tokens/s", f"{mine / other:.2f}")


def packed_tokens(lengths: Sequence[int]) -> int:
    """The length of TRL's packed rows: what an optimiser step reads. In a shorter row the ends of conversations would
    be cut off, and a faster peer would have learned less."""
    return max(sum(lengths[at : at + TOGETHER]) for at in range(0, len(lengths), TOGETHER))


def _update(policy: Policy, optimizer: torch.optim.Optimizer, batch: Batch, train: TrainConfig) -> float:
    started = time.perf_counter()
    signals = compute_signals(policy, batch, train, lambda *_: None)
    for chosen in plan(batch, train):
        optimiser_step(policy, optimizer, batch, signals, chosen, train, lambda *_: None)
    return time.perf_counter() - started


def _tune(
    policy: Policy, optimizer: torch.optim.Optimizer, conversations: Sequence[MaskedConversation], train: TrainConfig
) -> float:
    started = time.perf_counter()
    for at in range(0, len(conversations), TOGETHER):
        texts = [t for i, c in enumerate(conversations[at : at + TOGETHER]) for t in _answers(i, c)]
        rows = rows_of(policy, texts)
        supervised_step(policy, optimizer, rows, train.lr, train.microbatch_tokens, train.grad_clip, lambda *_: None)
    return time.perf_counter() - started


def _answers(place: int, conversation: MaskedConversation) -> Iterator[TokenText]:
    """Each of the assistant's runs of ids behind all that stands before it."""
    ids, learned = conversation.ids, conversation.learned
    begun: int | None = None
    for i, ours in enumerate([*learned, False]):
        if ours and begun is None:
            begun = i
        elif not ours and begun is not None:
            yield TokenText(place, ids[:begun], ids[begun:i])
            begun = None


def _job(
    policy: Policy, model: str, train: TrainConfig, batch: Batch, conversations: Sequence[MaskedConversation]
) -> dict[str, Any]:
    return {
        "model": model,
        "dtype": str(policy.model.dtype).removeprefix("torch."),
        "device": policy.device.type,
        "threads": torch.get_num_threads(),
        "lora_rank": train.lora_rank,
        "lora_alpha": train.lora_alpha,
        "lr": train.lr,
        "kl": train.beta_kl,
        "clip_low": train.clip_low,
        "clip_high": train.clip_high,
        "rows": ROWS,
        "batch": TOGETHER,
        "packed_tokens": packed_tokens([len(c.ids) for c in conversations]),
        "turns": [{"prompt": s.prompt_ids, "response": s.response_ids, "reward": s.reward} for s in batch.samples],
        "steps": plan(batch, train),
        "conversations": [{"ids": c.ids, "learned": [int(w) for w in c.learned]} for c in conversations],
    }


@contextmanager
def _peer(python: Path, job: dict[str, Any]) -> Iterator[Callable[[str], float]]:
    """The peer's process, as a function from what it is to do to the seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="turnwise-trl-") as scratch, tempfile.TemporaryFile() as said:
        place = Path(scratch) / "job.json"
        place.write_text(json.dumps(job | {"scratch": scratch}), encoding="utf-8")
        process = subprocess.Popen(
            [python, "-P", Path(__file__).with_name("peer.py"), place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
        )

        def ask(what: str) -> float:
            assert process.stdin is not None and process.stdout is not None
            too_long = threading.Timer(ANSWER_LIMIT_S, process.kill)
            too_long.start()
            try:
                process.stdin.write(f"{what}\n".encode())
                process.stdin.flush()
                return float(json.loads(process.stdout.readline())["seconds"])
            except (OSError, ValueError) as e:
                said.seek(0)
                raise TurnwiseError(f"TRL failed:\n{said.read()[-1500:].decode(errors='replace')}") from e
            finally:
                too_long.cancel()

        try:
            yield ask
        finally:
            process.kill()
            process.wait()
