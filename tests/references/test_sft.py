"""Supervised fine-tuning beside TRL's SFTTrainer: which tokens are learned, and the weights after a whole run.

`make test-references` runs this in an environment of its own that has TRL; elsewhere it is skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

trl = pytest.importorskip("trl", reason="see `make test-references`")
datasets = pytest.importorskip("datasets")

from peft import LoraConfig  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM  # noqa: E402

from tests.support.models import make_tokenizer  # noqa: E402
from turnwise.config import TrainConfig  # noqa: E402
from turnwise.messages import history_from_chat  # noqa: E402
from turnwise.tokens.rendering import load_renderer  # noqa: E402
from turnwise.training.policy import Policy  # noqa: E402
from turnwise.training.sft.conversations import Dialogue  # noqa: E402
from turnwise.training.sft.encoding import Encoded, Told, encode, texts_of  # noqa: E402
from turnwise.training.sft.schedule import cosine  # noqa: E402
from turnwise.training.supervised import rows_of, supervised_step  # noqa: E402

MARKS = {"<|endoftext|>": True, "<|im_start|>": True, "<|im_end|>": True}
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML, with what TRL needs to know which part of it the assistant writes."""
LR, STEPS, WARM_UP, RANK, ALPHA = 5e-3, 6, 2, 4, 8


def make_model(folder: Path) -> Path:
    tokenizer = make_tokenizer(MARKS)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.25,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        pad_token_id=None,
    )
    torch.manual_seed(7)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    return folder


def conversations() -> list[list[dict[str, str]]]:
    """Of one to three turns, of several lengths, with and without a system message."""
    found = []
    for n in range(7):
        messages = [{"role": "system", "content": "Be kind."}] if n % 2 else []
        for turn in range(1 + n % 3):
            messages.append({"role": "user", "content": f"question {n}, {turn}" + " and more" * n})
            messages.append({"role": "assistant", "content": f"answer {n * 5 % 7}" + " indeed" * turn})
        found.append(messages)
    return found


def ours(folder: Path) -> list[Encoded]:
    renderer = load_renderer(folder)
    found = []
    for n, messages in enumerate(conversations()):
        taught = frozenset(i for i, m in enumerate(messages) if m["role"] == "assistant")
        one = encode(renderer, Dialogue(n, history_from_chat(messages), None, taught), 4096, Told())
        assert one is not None
        found.append(one)
    return found


def trainer(folder: Path, out: Path, **changes: Any) -> Any:
    """TRL's, with all conversations in each step."""
    data = datasets.Dataset.from_list([{"messages": messages} for messages in conversations()])
    arguments: dict[str, Any] = {
        "output_dir": str(out),
        "max_steps": STEPS,
        "per_device_train_batch_size": len(conversations()),
        "learning_rate": LR,
        "lr_scheduler_type": "cosine",
        "warmup_steps": WARM_UP,
        "weight_decay": 0.1,
        "adam_beta1": 0.9,
        "adam_beta2": 0.98,
        "max_grad_norm": 0.5,
        "assistant_only_loss": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "logging_steps": 1,
        "save_strategy": "no",
        "loss_type": "nll",
        "max_length": None,
    }
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    return trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=trl.SFTConfig(**(arguments | changes)),
        train_dataset=data,
        processing_class=AutoTokenizer.from_pretrained(folder),
        peft_config=lora,
    )


def test_the_same_tokens_are_learned(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    theirs = list(trainer(folder, tmp_path / "out").train_dataset)
    for mine, row in zip(ours(folder), theirs, strict=True):
        [text] = mine.texts
        labels = [i if any(s <= k < e for s, e in text.taught) else -100 for k, i in enumerate(text.ids)]
        expected = row["labels"] if "labels" in row else [
            i if learned else -100 for i, learned in zip(row["input_ids"], row["assistant_masks"], strict=True)
        ]  # fmt: skip
        assert list(text.ids) == row["input_ids"][: len(text.ids)]
        assert labels == expected[: len(text.ids)]
        assert set(expected[len(text.ids) :]) <= {-100}, "behind the last answer stands a line break at most"


@pytest.mark.parametrize("padding_free", [False, True])
def test_a_whole_run_gives_the_same_losses_and_weights(tmp_path: Path, padding_free: bool) -> None:
    folder = make_model(tmp_path / "model")
    theirs = trainer(folder, tmp_path / "out", **({"padding_free": True} if padding_free else {}))
    config = TrainConfig(lora_rank=RANK, lora_alpha=ALPHA, device="cpu", microbatch_tokens=256, dtype="float32")
    policy = Policy(folder, config)
    start = policy.state()
    with torch.no_grad():
        for name, parameter in theirs.model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(start[name.replace(".default", "")])
    theirs.train()
    losses = [entry["loss"] for entry in theirs.state.log_history if "loss" in entry]

    optimizer = torch.optim.AdamW(policy.parameters(), betas=(0.9, 0.98), weight_decay=0.1)
    texts = [text for n, one in enumerate(ours(folder)) for text in texts_of(one, n)]
    found = []
    for step in range(STEPS):
        lr = LR * cosine(step, STEPS, WARM_UP)
        rows = rows_of(policy, texts)
        found.append(supervised_step(policy, optimizer, rows, lr, 200, 0.5, lambda *_: None)["loss"])
    assert found == pytest.approx(losses, abs=2e-5)
    assert found[-1] < found[0] - 0.1
    learned = {n.replace(".default", ""): p for n, p in theirs.model.named_parameters() if p.requires_grad}
    assert learned.keys() == start.keys()
    for name, weight in policy.state().items():
        assert torch.allclose(weight, learned[name], atol=2e-5), name
        if "lora_B" in name:
            assert not torch.equal(weight, start[name])
