"""Measures whether answers are still language: their likelihood under the base model, in a process of its own.

``python -m turnwise.demo.coherence IN OUT`` scores the texts of a JSON file. The plain prompt shows how far a policy
has moved; the prompt with the person's wish in it is the fair one, since short answers are unlikely without it. Torch
is imported only in that process; it never talks to the server and never generates.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from turnwise.errors import TurnwiseError

CRITERION_NATS = 0.5
"""Most that answers may lose against the base model's own answers to the wish, in nats per token."""

_BATCH_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class ScoredText:
    """An ``answer`` to score after ``prompt``. ``ended``: the model ended it, so its end token is scored with it."""

    prompt: str
    answer: str
    ended: bool


class CoherenceError(TurnwiseError):
    """The base model could not score the texts."""


def with_wish(prompt: str, wish: str) -> str:
    """The prompt with the person's wish written into it."""
    return f"{prompt}\n\n{wish}"


def mean_nll(groups: dict[str, Sequence[ScoredText]], model: str, *, timeout_s: float = 600.0) -> dict[str, float]:
    """Mean negative log-likelihood per answer token of each group of texts under ``model``, in nats at temperature 1.

    ``model`` is a folder or a hub id. Tokens count equally whichever answer they are in. Raises CoherenceError when
    the scoring process fails, takes longer than ``timeout_s``, or a group has no tokens.
    """
    with tempfile.TemporaryDirectory(prefix="turnwise-coherence-") as scratch:
        task, result = Path(scratch) / "task.json", Path(scratch) / "result.json"
        texts = {name: [asdict(text) for text in group] for name, group in groups.items()}
        task.write_text(json.dumps({"model": model, "groups": texts}), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "turnwise.demo.coherence", str(task), str(result)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise CoherenceError(f"scoring the answers' language took more than {timeout_s:.0f} s") from None
        if done.returncode:
            raise CoherenceError(f"scoring the answers' language failed:\n{done.stderr.strip()[-2000:]}")
        return json.loads(result.read_text(encoding="utf-8"))


def _score(task: Path, result: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from turnwise.models.number_format import AUTO, processor_format

    job = json.loads(task.read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(job["model"])
    # bfloat16 halves the time on CPUs that have it; its rounding error averages out over thousands of tokens.
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=processor_format(AUTO)).eval()
    means: dict[str, float] = {}
    with torch.inference_mode():
        for name, texts in job["groups"].items():
            pairs = [_ids(tokenizer, text) for text in texts]
            # Of like length together, so that little is padded.
            pairs = sorted((pair for pair in pairs if pair[1]), key=lambda pair: len(pair[0]) + len(pair[1]))
            if not pairs:
                raise CoherenceError(f"the answers of {name!r} are all empty")
            total = sum(_batch_nll(model, batch, torch) for batch in _batches(pairs))
            means[name] = total / sum(len(answer) for _, answer in pairs)
    result.write_text(json.dumps(means), encoding="utf-8")


def _ids(tokenizer, text: dict) -> tuple[list[int], list[int]]:
    """Prompt and answer ids, tokenised apart, as the server does."""
    messages = [{"role": "user", "content": text["prompt"]}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    answer = tokenizer(text["answer"], add_special_tokens=False)["input_ids"]
    return prompt, answer + ([tokenizer.eos_token_id] if text["ended"] and answer else [])


def _batches(pairs: list[tuple[list[int], list[int]]]):
    batch: list[tuple[list[int], list[int]]] = []
    for pair in pairs:
        if batch and (len(batch) + 1) * (len(pair[0]) + len(pair[1])) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(pair)
    yield batch


def _batch_nll(model, batch: list[tuple[list[int], list[int]]], torch) -> float:
    """Sum of −log p over the answer tokens of ``batch``; padding on the right, where causal attention ignores it."""
    width = max(len(prompt) + len(answer) for prompt, answer in batch)
    ids = torch.zeros((len(batch), width), dtype=torch.long)
    for row, (prompt, answer) in enumerate(batch):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
    hidden = model.model(ids, use_cache=False).last_hidden_state
    total = 0.0
    for row, (prompt, answer) in enumerate(batch):
        # The logits at position i speak of token i + 1: the last prompt token's are the first answer token's.
        at = slice(len(prompt) - 1, len(prompt) + len(answer) - 1)
        logprobs = model.lm_head(hidden[row, at]).float().log_softmax(-1)
        total -= logprobs.gather(1, torch.tensor(answer)[:, None]).sum().item()
    return total


if __name__ == "__main__":
    _score(Path(sys.argv[1]), Path(sys.argv[2]))
