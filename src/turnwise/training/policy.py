"""The policy in training: a causal language model, and its log-probs of recorded answers.

Which of its weights learn is the business of `weights/`. The vocabulary projection is applied by the caller, to chunks
of response positions: this module never holds logits of a whole batch. It never re-tokenises a recorded turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from turnwise.capabilities import sees_pictures
from turnwise.config import TrainConfig
from turnwise.errors import ModelError
from turnwise.loops.lifeline import beat
from turnwise.models.number_format import many_rows_in_float32, stored_formats
from turnwise.pictures.store import PictureStore
from turnwise.training.batching import Fork, Row, Span, TokenText, merge_prefixes
from turnwise.training.weights.attention import added_to, hiding, look_by_text, seen_by, stretches_of
from turnwise.training.weights.base import State, TrainedWeights, Whose, check_shapes
from turnwise.training.weights.devices import pick_device, pick_dtype
from turnwise.training.weights.eyes import PolicyEyes
from turnwise.training.weights.full import FullWeights
from turnwise.training.weights.laid_out import Projection, laid_out
from turnwise.training.weights.lora import LoraWeights
from turnwise.training.weights.many_rows import use_float32
from turnwise.training.weights.ranks import IDLE, Ranks
from turnwise.training.weights.sharded import ShardedWeights

MOST_STATES = 4096
"""States of the base model that are remembered."""
NextLogits = Callable[[Tensor, Tensor, Tensor, Any], tuple[Tensor, Any]]
"""`Policy.next_logits`, or as much in less time."""
HINT_HEADER = "\n\n[user's hint / instruction]\n"
HEAD_CHUNK = 128
"""Response positions whose logits exist at once: 128 x 49152 float32 are 24 MiB, and a few copies of that."""


def hinted_prompt(prompt_ids: Sequence[int], hint: str | None, hint_at: int | None, tokenizer: Tokenizer) -> list[int]:
    """The teacher's context: the prompt with the hint at the end of its last user message (OpenClaw-RL §4.2).

    The hint's ids are inserted among the recorded ids; the joined text is never tokenised again, which could merge
    tokens across the seams. Without a hint, or a place for it, these are exactly the prompt's own ids.
    """
    if not hint or hint_at is None:
        return list(prompt_ids)
    ids = tokenizer.encode(HINT_HEADER + hint, add_special_tokens=False).ids
    return [*prompt_ids[:hint_at], *ids, *prompt_ids[hint_at:]]


class Policy:
    """A base model and what is trained of it. A new policy is the base model.

    ``pictures`` are those that samples name. Of a model that sees them (``eyes``) the part that reads is trained; what
    sees is frozen. Raises ModelError when the folder cannot be loaded or the model's head is more than a
    projection.
    """

    def __init__(
        self,
        model: Path | str,
        config: TrainConfig,
        ranks: Ranks | None = None,
        pictures: PictureStore | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.device = pick_device(config.device)
        dtype, full = pick_dtype(config.dtype, self.device), config.weights == "full"
        if full and not isinstance(model, Path):
            raise ModelError(f"'{model}' is the name of a model on a hub; train.weights = 'full' takes its folder")
        try:
            loader = AutoModelForImageTextToText if sees_pictures(str(model)) else AutoModelForCausalLM
            base = loader.from_pretrained(model, dtype=torch.float32 if full else dtype)
            self.tokenizer = load_tokenizer(model)
        except Exception as e:  # the libraries raise whatever their parsers raise; all of it means a broken folder
            raise ModelError(f"cannot load the model {model}: {e}; run `turnwise doctor`") from e
        base = cast(PreTrainedModel, nn.Module.to(base, self.device))
        if self.device.type == "cpu" and self.ranks.size == 1 and not full and many_rows_in_float32():
            use_float32(base.get_decoder())
        self.eyes: PolicyEyes | None = None
        if loader is AutoModelForImageTextToText:
            if self.ranks.size > 1 or not isinstance(model, Path):
                raise ModelError(f"{model} sees pictures: it is trained from its folder, in one process")
            self.eyes = PolicyEyes(base, model, pictures)
        reads = base.get_decoder() if self.eyes else None
        weights = (
            FullWeights(base, model, dtype if self.ranks.size == 1 else torch.float32, config, reads)
            if full and isinstance(model, Path)
            else LoraWeights(base, str(model), config, reads)
        )
        self.weights: TrainedWeights = weights
        self.model = weights.model
        self.model.eval()  # no dropout: the same weights give the same log-probs, in training as in scoring
        self._config, self._embeddings = base.config.get_text_config(), cast(nn.Embedding, base.get_input_embeddings())
        self._backbone: nn.Module = base.get_decoder()
        ends = base.generation_config.eos_token_id if base.generation_config else base.config.eos_token_id
        self._ends: list[int] = [] if ends is None else ends if isinstance(ends, list) else [ends]
        self._computes: torch.dtype | None = None
        self._refuse_unusual_head()
        self._recompute = False
        for layer in self._backbone.modules():
            if isinstance(layer, GradientCheckpointingLayer):
                layer.forward = self._sparing(layer.forward)
        self._loads_exactly = dtype == torch.float32 or (isinstance(model, Path) and stored_formats(model) == {dtype})
        self._known_states: dict[tuple[tuple[float, ...] | None, tuple[int, ...]], Tensor] = {}
        # Elsewhere than on a CPU many small kernels may cost more than what a mask hides.
        self.looks_by_text = self.device.type == "cpu" and look_by_text(self._config)
        self.reads_forks = self._reads_forks()
        if self.looks_by_text and not self.reads_forks:  # its layers do not hand on what they are told
            self.looks_by_text = False
            self.reads_forks = self._reads_forks()
        if self.ranks.size > 1:  # what was looked at so far is of a whole model
            sharded = ShardedWeights(weights, base, dtype, self.device)
            self.weights, self._backbone, self._computes = sharded, sharded.backbone, dtype

    @torch.no_grad()
    def _reads_forks(self) -> bool:
        """Whether a row with forks gives the states that each text gives alone: not where layers see a window of the
        text or carry a state along it, or where the attention takes no mask of ours."""
        kinds = set(getattr(self._config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or getattr(self._config, "sliding_window", None):
            return False
        forked = Row([1, 2, 3, 4, 2, 5, 6], [Span(0, 2, 4), Span(1, 5, 7)], [Fork(4, 0)])
        try:
            together = self.hidden([forked])
        except (ValueError, TypeError, RuntimeError):  # it takes no places or no mask of ours
            return False
        alone = self.hidden([Row([1, 2, 3, 4], [Span(0, 2, 4)]), Row([1, 2, 5, 6], [Span(1, 2, 4)])])
        return bool((together - alone).norm() < 0.05 * alone.norm())

    def rows_of(self, texts: Sequence[TokenText]) -> list[Row]:
        """The rows in which this model reads these texts."""
        return merge_prefixes(texts, self.reads_forks, self.looks_by_text)

    def _refuse_unusual_head(self) -> None:
        """Some models scale or cap logits after the projection; training them as if not would be silently wrong."""
        ids = torch.arange(8, device=self.device).unsqueeze(0)
        with torch.no_grad():
            own = self.model(input_ids=ids).logits
            ours = self.logits(self._backbone(input_ids=ids).last_hidden_state)
        if not torch.allclose(own.float(), ours.float(), atol=1e-3):
            raise ModelError("this model changes its logits after the vocabulary projection, which is not supported")

    @property
    def vocabulary(self) -> int:
        """Number of token ids the model knows."""
        return self._embeddings.num_embeddings

    @property
    def ends(self) -> list[int]:
        """The tokens with which the model ends its answer."""
        return list(self._ends)

    def parameters(self) -> list[nn.Parameter]:
        """What is trained, in a fixed order."""
        return list(self.weights.named().values())

    def state(self) -> State:
        """A copy of what is trained, on the CPU, under the names of a version's file."""
        return self.weights.snapshot()

    def load(self, state: State | None) -> None:
        """Put these weights in place; None gives the base model back.

        Raises AdapterError, and changes nothing, when names or shapes are not this model's.
        """
        if state is not None:
            check_shapes(state, self.weights.shapes)
        self.weights.restore(state)

    def start_from(self, state: State | None) -> None:
        """`load` what an update begins at: what it learns of a parent is read with that one's projection."""
        self.load(state)
        self.weights.begin()

    def clip_grad(self, most: float) -> float:
        """Cut the gradient at this norm, over all ranks; gives its norm before."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), most)
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def idle_pass(self, learn: bool = True) -> None:
        """Take part in a pass, with ``learn`` also in its backward one, of which nothing comes."""
        with torch.set_grad_enabled(learn):
            hidden = self.hidden(IDLE)
        if not learn:
            return
        leaf = hidden.detach().requires_grad_()
        (self.logits(leaf).sum() * 0).backward()
        hidden.backward(leaf.grad)

    def reference(self) -> AbstractContextManager[None]:
        """Inside this context the policy is the base model."""
        return self.weights.reference()

    def _sparing(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A layer that, on demand, keeps its input alone for the backward pass and computes the rest once more."""

        def living(*args: Any, **kwargs: Any) -> Any:
            beat()  # from the training thread; a pass of a large model over a long turn takes minutes, a layer does not
            return forward(*args, **kwargs)

        def sparing(*args: Any, **kwargs: Any) -> Any:
            if self._recompute and torch.is_grad_enabled():
                return checkpoint(living, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
            return living(*args, **kwargs)

        return sparing

    def hidden(self, rows: Sequence[Row], recompute: bool = False, depths: Sequence[float] | None = None) -> Tensor:
        """Final hidden states [N, H] at the positions that predict the rows' response tokens, span after span.

        The first token of a response is predicted at the last token of its prompt. With ``recompute`` a layer's
        activations (2 MB a token over all layers of the embedded model) exist for one layer at a time; the backward
        pass then takes the time of a forward pass more, and gives the same gradient. With ``depths`` they are states
        behind these shares of the blocks, without the last norm: [N, len(depths), H].
        """
        self._recompute = recompute
        width = max(len(row.ids) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row.ids)] = torch.tensor(row.ids)
        positions = self._positions(rows)
        dtype, places = self._computes or self._embeddings.weight.dtype, {}
        if (forked := any(row.forks for row in rows)) and self.looks_by_text:
            mask = torch.zeros(1, 1, 1, 1, dtype=dtype)  # it is not read; without one, one of the whole row is made
            places = {"stretches": stretches_of(rows, dtype, self.device)}
        elif forked:
            mask = hiding(rows, width, dtype)
        else:
            mask = torch.tensor([[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows])
        if forked or positions[0].ndim > 1:
            padded = [F.pad(each, (0, width - each.shape[-1])) for each in positions]
            places |= {"position_ids": torch.stack(padded, dim=-2).to(self.device)}
        said = self._said(ids.to(self.device), rows, [(line, 0) for line in range(len(rows))])
        asked = {"use_cache": False, "output_hidden_states": depths is not None}
        made = self._backbone(attention_mask=mask.to(self.device), **asked, **said, **places)
        if depths is None:
            out = made.last_hidden_state
        else:
            blocks = len(made.hidden_states) - 1
            out = torch.stack([made.hidden_states[round(depth * blocks)] for depth in depths], dim=-2)
        return torch.cat([out[i, s.start - 1 : s.end - 1] for i, row in enumerate(rows) for s in row.spans])

    def packed_hidden(self, rows: Sequence[Row], recompute: bool = False) -> Tensor:
        """The same as `hidden`, with the rows behind each other in place of beside each other: nothing is padded.

        Positions begin anew with each row, and none sees another: `transformers` makes such a mask of positions that
        begin anew. Only for models that `packs` says so of.
        """
        self._recompute = recompute
        ids = torch.tensor([i for row in rows for i in row.ids]).unsqueeze(0)
        positions = torch.cat(self._positions(rows), dim=-1).unsqueeze(-2)
        mask = None  # a mask is given only for rows with forks, where positions do not say it all
        if any(row.forks for row in rows):
            seen = torch.block_diag(*[seen_by(row, len(row.ids)) for row in rows]).bool()
            mask = added_to(seen.unsqueeze(0), self._computes or self._embeddings.weight.dtype).to(self.device)
        starts = list(accumulate((len(row.ids) for row in rows), initial=0))
        said = self._said(ids.to(self.device), rows, [(0, start) for start in starts[:-1]])
        out = self._backbone(
            position_ids=positions.to(self.device), attention_mask=mask, use_cache=False, **said
        ).last_hidden_state[0]
        return torch.cat(
            [out[at + s.start - 1 : at + s.end - 1] for at, row in zip(starts, rows, strict=False) for s in row.spans]
        )

    def _said(self, ids: Tensor, rows: Sequence[Row], starts: Sequence[tuple[int, int]]) -> dict[str, Tensor]:
        """The ids, as the model takes them: their embeddings where some of them show pictures."""
        if self.eyes is None or not any(row.shown for row in rows):
            return {"input_ids": ids}
        return self.eyes.put_into(self._embeddings(ids), rows, starts)

    def _positions(self, rows: Sequence[Row]) -> list[Tensor]:
        """Of the ids of each row in their own texts: [W]; or [4, W], the same and then by time, row and column, where a
        picture's rows and columns have positions of their own."""
        grids = [self.eyes.grids(row) if self.eyes else {} for row in rows]
        if not any(grids):
            return [torch.tensor(row.depths()) for row in rows]
        return [torch.tensor([row.depths(), *row.axes(seen)]) for row, seen in zip(rows, grids, strict=True)]

    @cached_property
    def packs(self) -> bool:
        """Whether rows of this model can stand behind each other: whether it then says of each what it says alone."""
        one, other = (Row([(7 * i + n) % self.vocabulary for i in range(40)], [Span(n, 1, 40)]) for n in range(2))
        with torch.no_grad():
            alone = self.hidden([other]).float()
            packed = self.packed_hidden([one, other])[39:].float()
            seen = self.hidden([Row(one.ids + other.ids, [Span(0, 41, 80)])]).float()
        # In bfloat16 nothing is exact: what a row would be that saw the one before it says how far off is too far.
        return bool((packed - alone).norm() < 0.2 * (seen - alone).norm())

    def logits(self, hidden: Tensor, whose: Whose = "policy") -> Tensor:
        """The vocabulary's logits at each position, in float32 or better: [N, H] -> [N, V].

        ``whose`` weights the hidden states came of: they mean something beside that projection alone.
        """
        weight, bias = self.weights.projection(whose)
        logits = F.linear(hidden.to(weight.dtype), weight, bias)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def log_softmax(self, hidden: Tensor, temperature: Tensor, whose: Whose = "policy") -> Tensor:
        """Log-probs over the vocabulary at each position's temperature: [N, H] and [N] -> [N, V]."""
        return at_temperature(self.logits(hidden, whose), temperature)

    @torch.no_grad()
    def token_logprobs(self, hidden: Tensor, temperature: Tensor, tokens: Tensor, whose: Whose = "policy") -> Tensor:
        """Log-probs [N] of ``tokens`` [N], in chunks of positions."""
        parts = zip(hidden.split(HEAD_CHUNK), temperature.split(HEAD_CHUNK), tokens.split(HEAD_CHUNK), strict=True)
        return torch.cat([self.log_softmax(h, t, whose).gather(-1, y.unsqueeze(-1)).squeeze(-1) for h, t, y in parts])

    @contextmanager
    def sampling(self) -> Iterator[NextLogits]:
        """What says which token comes next, for many tokens; the weights must stay as they are meanwhile, and inside of
        this the policy does not become the base model."""
        if self.ranks.size > 1:  # the weights are in pieces, each there for a moment
            yield self.next_logits
            return
        projection, exact = self.weights.projection("policy"), self._loads_exactly
        with laid_out(self._backbone, projection, merge=exact) as project, torch.no_grad():
            yield partial(self.next_logits, project=project)

    @torch.no_grad()
    def next_logits(
        self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, project: Projection | None = None
    ) -> tuple[Tensor, Any]:
        """Logits [B, V] behind the last of ``ids`` [B, T], and the cache for the next call.

        ``mask`` [B, C + T] has 0 at padding, C tokens being in the cache; ``positions`` [B, T]; ``cache`` is None at
        first. ``project``: the vocabulary's projection in another form.
        """
        self._recompute = False
        out = self._backbone(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        # The slice lies in strides, and a projection of such a slice copies the vocabulary's weights for each row.
        last = out.last_hidden_state[:, -1].contiguous()
        if project is None:
            return self.logits(last), out.past_key_values
        logits = project(last.to(self.weights.projection("policy")[0].dtype))
        return logits.to(torch.promote_types(logits.dtype, torch.float32)), out.past_key_values

    def without_end(self, answer: Sequence[int]) -> list[int]:
        """The ids of an answer but the end token."""
        return [i for i in answer if i not in self._ends]

    def states_of(self, texts: Sequence[str]) -> Tensor:
        """The base model's final hidden state [n, H] after each text, in float32 on the CPU."""
        ids = [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        return torch.cat([self._states([one], None) for one in ids])  # each by itself: the same whatever stands beside

    def states_within(self, prompts: Sequence[Sequence[int]], depths: Sequence[float]) -> Tensor:
        """The base model's states [n, len(depths), H] after each prompt, behind these shares of its blocks."""
        return self._states(prompts, tuple(depths))

    @torch.no_grad()
    def _states(self, prompts: Sequence[Sequence[int]], depths: tuple[float, ...] | None) -> Tensor:
        """Those after these prompts: the base model stays as it is, so what was asked is remembered."""
        keys = [(depths, tuple(ids)) for ids in prompts]
        new = [key for key in dict.fromkeys(keys) if key not in self._known_states]
        if new:
            rows = self.rows_of([TokenText(n, [*ids], [ids[-1]]) for n, (_, ids) in enumerate(new)])
            with self.reference():
                found = torch.cat([self.hidden([row], depths=depths).float().cpu() for row in rows])
            for key, state in zip((new[span.sample] for row in rows for span in row.spans), found, strict=True):
                self._known_states[key] = state.clone()
        states = torch.stack([self._known_states[key] for key in keys])
        for oldest in list(self._known_states)[: max(0, len(self._known_states) - MOST_STATES)]:
            del self._known_states[oldest]
        return states


def load_tokenizer(model: Path | str) -> Tokenizer:
    """The tokenizer of a local folder, or of a hub id. In a text, it takes special tokens for no more than text."""
    local = isinstance(model, Path)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json")) if local else Tokenizer.from_pretrained(model)
    tokenizer.encode_special_tokens = True  # a hint that quotes "<|im_end|>" must not end the message it stands in
    return tokenizer


def at_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """Log-probs of these logits, each position's at its own temperature: [N, V] and [N] -> [N, V]."""
    return torch.log_softmax(logits / temperature.unsqueeze(-1), dim=-1)


def sampling_temperature(temperature: float) -> float:
    """Greedy answers (T = 0) are scored at T = 1: every log-prob must be of one proper distribution."""
    return temperature if temperature > 0 else 1.0
