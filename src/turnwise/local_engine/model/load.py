"""Opens a model folder: the runner that fits it, its tokenizer, and the ids that end an answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from turnwise.capabilities import VISION_TYPES
from turnwise.errors import ModelError
from turnwise.local_engine.model.checkpoint import StoredWeights
from turnwise.local_engine.model.eyes import Eyes
from turnwise.local_engine.model.llama import LlamaRunner
from turnwise.local_engine.model.runner import Runner, TransformersRunner, load_model
from turnwise.models import resolve_model
from turnwise.models.architectures import SUPPORTED, refuse_unsupported

VISION_TEXT = {
    "idefics3": "model.text_model.",
    "smolvlm": "model.text_model.",
    "qwen3_vl": "model.language_model.",
}
"""How the names of the weights begin that read, in the models that see."""
_WANTED = ["*.json", "*.jinja", "*.safetensors", "tokenizer.model"]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run. ``eos_ids`` end an answer; ``eyes`` has one that sees pictures."""

    folder: Path
    runner: Runner
    tokenizer: PreTrainedTokenizerBase
    eos_ids: frozenset[int]
    eyes: Eyes | None = None

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        text = self.tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
        assert isinstance(text, str)  # a list only for a list of lists
        return text


def load(name: str, dtype: torch.dtype, max_model_len: int) -> LoadedModel:
    """Load the model that ``name`` means, for contexts of up to ``max_model_len`` tokens. Raises ModelError."""
    folder = _folder(name)
    refuse_unsupported(folder)
    try:
        config = AutoConfig.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as e:
        raise ModelError(f"cannot read the configuration or tokenizer in {folder}: {e}; {SUPPORTED}") from e
    checkpoint = StoredWeights(folder)
    eyes = None
    if config.model_type in VISION_TYPES:
        text: Any = config.get_text_config()
        text.tie_word_embeddings = config.tie_word_embeddings
        begins = VISION_TEXT[config.model_type]
        if not LlamaRunner.supports(text, checkpoint, begins):
            raise ModelError(f"the part of the model in {folder} that reads is no Llama as this engine knows it")
        runner: Runner = LlamaRunner(text, checkpoint, dtype, max_model_len, begins)
        eyes = Eyes(folder, config, checkpoint, dtype)
    elif LlamaRunner.supports(config, checkpoint):
        runner = LlamaRunner(config, checkpoint, dtype, max_model_len)
    else:
        runner = TransformersRunner(load_model(folder, dtype), checkpoint)
    ends = _eos_ids(folder, config.get_text_config().eos_token_id, tokenizer.eos_token_id)
    return LoadedModel(folder, runner, tokenizer, ends, eyes)


def _folder(name: str) -> Path:
    resolved = resolve_model(name)
    if isinstance(resolved, Path):
        return resolved
    try:
        return Path(snapshot_download(resolved, allow_patterns=_WANTED))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as e:
        raise ModelError(f"cannot fetch {resolved} from the hub: {e}; give a local folder instead") from e


def _eos_ids(folder: Path, *known: int | list[int] | None) -> frozenset[int]:
    """All ids that end an answer: the generation config's, the model's and the tokenizer's."""
    found = [*known]
    if (folder / "generation_config.json").exists():
        found.append(GenerationConfig.from_pretrained(folder).eos_token_id)
    return frozenset(i for ids in found for i in (ids if isinstance(ids, list) else [ids]) if i is not None)
