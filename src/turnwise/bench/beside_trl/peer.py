"""TRL's side of the bench, in its own environment: imports nothing of turnwise.

``python peer.py JOB`` reads the job, loads the model, and answers each word on its standard input ("update" or
"tune") with the seconds that it took, a line of JSON. GRPO's own loss and log-probs are called on recorded turns, since
its trainer would sample answers itself; SFTTrainer's own `train` is run, and its steps are timed.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer


def load(job: dict[str, Any]) -> Any:
    return AutoModelForCausalLM.from_pretrained(job["model"], dtype=getattr(torch, job["dtype"]))


def lora(job: dict[str, Any]) -> LoraConfig:
    return LoraConfig(
        r=job["lora_rank"], lora_alpha=job["lora_alpha"], target_modules="all-linear", task_type="CAUSAL_LM"
    )


def padded(rows: list[list[int]], left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of the width of the longest, as TRL pads prompts (left) and completions (right)."""
    width = max(len(row) for row in rows)
    ids, mask = (torch.zeros((len(rows), width), dtype=torch.long) for _ in range(2))
    for i, row in enumerate(rows):
        at = slice(width - len(row), width) if left else slice(0, len(row))
        ids[i, at], mask[i, at] = torch.tensor(row), 1
    return ids, mask


class Updates:
    """Old and reference log-probs of all turns, then the optimiser steps, by GRPOTrainer's own functions."""

    def __init__(self, job: dict[str, Any], out: str) -> None:
        self._job = job
        args = GRPOConfig(
            output_dir=out, use_cpu=job["device"] == "cpu", bf16=False, gradient_checkpointing=False, beta=job["kl"],
            epsilon=job["clip_low"], epsilon_high=job["clip_high"], loss_type="grpo", report_to=[],
            per_device_train_batch_size=job["rows"], num_generations=job["rows"], temperature=1.0,
            max_completion_length=4096, learning_rate=job["lr"],
        )  # fmt: skip
        tokenizer = AutoTokenizer.from_pretrained(job["model"])
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        self._trainer = GRPOTrainer(
            model=load(job),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=args,
            train_dataset=Dataset.from_list([{"prompt": "a"}] * job["rows"]),
            processing_class=tokenizer,
            peft_config=lora(job),
        )
        self._trainer.create_optimizer()
        self._model: Any = self._trainer.model
        self._model.train()

    def run(self) -> float:
        trainer, model, turns = self._trainer, self._model, self._job["turns"]
        started = time.perf_counter()
        groups = [[turns[i] for i in step[at : at + self._job["rows"]]] for step in self._job["steps"]
                  for at in range(0, len(step), self._job["rows"])]  # fmt: skip
        inputs = [self._inputs(group) for group in groups]
        with torch.no_grad():
            for one in inputs:
                given = (
                    torch.cat([one["prompt_ids"], one["completion_ids"]], 1),
                    torch.cat([one["prompt_mask"], one["completion_mask"]], 1),
                    one["completion_ids"].size(1),
                )
                one["old_per_token_logps"] = trainer._get_per_token_logps_and_entropies(model, *given)[0]
                with model.disable_adapter():
                    one["ref_per_token_logps"] = trainer._get_per_token_logps_and_entropies(model, *given)[0]
        waiting = iter(inputs)
        for step in self._job["steps"]:
            parts = -(-len(step) // self._job["rows"])
            trainer.current_gradient_accumulation_steps = parts
            for _ in range(parts):
                trainer._compute_loss(model, next(waiting)).backward()
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
        return time.perf_counter() - started

    def _inputs(self, turns: list[dict[str, Any]]) -> dict[str, Any]:
        prompt_ids, prompt_mask = padded([t["prompt"] for t in turns], left=True)
        completion_ids, completion_mask = padded([t["response"] for t in turns], left=False)
        return {
            "prompt_ids": prompt_ids, "prompt_mask": prompt_mask, "completion_ids": completion_ids,
            "completion_mask": completion_mask, "advantages": torch.tensor([t["reward"] for t in turns]),
            "num_items_in_batch": completion_mask.sum(),
        }  # fmt: skip


class Timer(TrainerCallback):
    def __init__(self) -> None:
        self.seconds, self._begun = 0.0, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._begun = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds += time.perf_counter() - self._begun


def tune(job: dict[str, Any], out: str, packing: bool) -> float:
    """One epoch of SFTTrainer over the conversations, without its first step, which warms up; seconds of its steps."""
    rows = [
        {"input_ids": c["ids"], "labels": [i if ours else -100 for i, ours in zip(c["ids"], c["learned"], strict=True)]}
        for c in job["conversations"]
    ]
    args = SFTConfig(
        output_dir=out, use_cpu=job["device"] == "cpu", bf16=False, gradient_checkpointing=False, report_to=[],
        per_device_train_batch_size=1 if packing else job["batch"], num_train_epochs=1, learning_rate=job["lr"],
        max_length=job["packed_tokens"] if packing else 4096, packing=packing,
        save_strategy="no", logging_strategy="no", disable_tqdm=True,
        dataset_kwargs={"skip_prepare_dataset": not packing},
    )  # fmt: skip
    timer = Timer()
    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    trainer = SFTTrainer(
        model=load(job), args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        peft_config=lora(job), callbacks=[timer],
    )  # fmt: skip
    trainer.train()
    return timer.seconds


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(job["threads"])
    answers, sys.stdout = sys.stdout, sys.stderr  # the libraries print; only the answers go out
    updates = Updates(job, job["scratch"])
    for line in sys.stdin:
        what = line.strip()
        seconds = updates.run() if what == "update" else tune(job, job["scratch"], packing=what == "tune packed")
        print(json.dumps({"seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
