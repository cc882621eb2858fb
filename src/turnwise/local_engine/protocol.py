"""The wire shapes: the part of vLLM's completions API that the gateway uses, field for field.

A field that is not listed is refused by name rather than ignored. No behaviour lives here.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnwise.errors import EngineError
from turnwise.local_engine.pooling import MAX_TOKENS
from turnwise.local_engine.requests import Output, RequestParams

MOST_PICTURES = 100
"""In one prompt."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StreamOptions(_Strict):
    include_usage: bool = False


class PlaceholderRange(_Strict):
    """Where a picture stands in the prompt: so many ids from ``offset`` on."""

    offset: int = Field(ge=0)
    length: int = Field(ge=1)


class Features(_Strict):
    """The pictures of a prompt, in their order. Hashes and places are called as on vLLM's token-id route; where that
    has tensors of its own classes, ``files`` has the picture's file in base64, whose SHA-256 is its hash."""

    mm_hashes: dict[Literal["image"], Annotated[list[str], Field(max_length=MOST_PICTURES)]]
    mm_placeholders: dict[Literal["image"], list[PlaceholderRange]]
    files: dict[Literal["image"], list[str]]

    def given(self) -> list[tuple[str, int, int, bytes]]:
        """Hash, start, end and file of each. Raises EngineError (400)."""
        hashes, places = self.mm_hashes.get("image", []), self.mm_placeholders.get("image", [])
        files = self.files.get("image", [])
        if not len(hashes) == len(places) == len(files):
            raise EngineError("features: there must be a hash, a place and a file for each picture", 400)
        try:
            read = [base64.b64decode(file, validate=True) for file in files]
        except (binascii.Error, ValueError) as e:
            raise EngineError(f"features: a picture's file is no base64: {e}", 400) from e
        return [
            (sha256, at.offset, at.offset + at.length, data)
            for sha256, at, data in zip(hashes, places, read, strict=True)
        ]


class CompletionRequest(_Strict):
    """Body of ``POST /v1/completions``. ``prompt`` is token ids: this engine never sees messages."""

    model: str = "base"
    prompt: Annotated[list[int], Field(min_length=1)]
    max_tokens: int = Field(16, ge=1)
    temperature: float = Field(1.0, ge=0, le=100)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1)
    min_p: float = Field(0.0, ge=0, le=1)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, ge=0.01, le=10)
    seed: int | None = None
    priority: int = Field(0, ge=0, le=1, description="1: nobody waits for it.")
    stop: str | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=16)] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: Annotated[bool, Field(description="Only false.")] = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    logprobs: int | None = Field(None, ge=0, le=0)
    prompt_logprobs: Annotated[int, Field(ge=0, le=0, description="Not streamed, and of the base model.")] | None = None
    n: int = Field(1, ge=1, le=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    features: Annotated[Features | None, Field(description="Of a model that sees pictures.")] = None

    def sampling(self) -> RequestParams:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return RequestParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(self.top_k, 0),
            min_p=self.min_p,
            frequency_penalty=self.frequency_penalty,
            presence_penalty=self.presence_penalty,
            repetition_penalty=self.repetition_penalty,
            seed=self.seed,
            priority=self.priority,
            stop=tuple(s for s in stop if s),
            stop_token_ids=frozenset(self.stop_token_ids or ()),
            ignore_eos=self.ignore_eos,
        )


class PoolingRequest(_Strict):
    """Body of ``POST /pooling``, of vLLM's shape: token ids in, vectors out.

    ``layers`` and ``spans`` are ours: behind how many blocks the hidden states are taken, and of which (begin, end)
    stretches of the input a mean is wanted. For each layer the first vector is the last token's, then one a span.
    """

    model: str = "base"
    input: Annotated[list[int], Field(min_length=1, max_length=MAX_TOKENS)]
    layers: Annotated[list[int], Field(min_length=1, max_length=4)]
    spans: Annotated[list[tuple[int, int]], Field(max_length=16)] = []
    encoding_format: Literal["float"] = "float"


class LoadAdapter(_Strict):
    """Body of ``POST /v1/load_lora_adapter``."""

    lora_name: Annotated[str, Field(min_length=1)]
    lora_path: Annotated[str, Field(min_length=1)]
    load_inplace: bool = False


class UnloadAdapter(_Strict):
    """Body of ``POST /v1/unload_lora_adapter``."""

    lora_name: Annotated[str, Field(min_length=1)]
    lora_int_id: int | None = None


def choice(
    body: CompletionRequest,
    out: Output,
    pieces: list[str],
    *,
    with_prompt: bool,
    of_prompt: list[float] | None = None,
) -> dict[str, Any]:
    """``choices[0]`` of a whole answer or of a chunk. ``pieces`` are the texts of the single tokens; ``of_prompt`` the
    log-probs of the prompt's tokens from the second one on, where they were asked for."""
    asked = {} if of_prompt is None else {"prompt_logprobs": _of_prompt(body.prompt, of_prompt)}
    return {
        "index": 0,
        "text": out.text,
        "logprobs": None
        if body.logprobs is None
        else {
            "tokens": pieces,
            "token_logprobs": out.logprobs,
            "top_logprobs": [{piece: logprob} for piece, logprob in zip(pieces, out.logprobs, strict=True)],
            "text_offset": [],
        },
        "finish_reason": out.finish,
        "stop_reason": out.stop_reason,
        "token_ids": out.token_ids if body.return_token_ids else None,
        "prompt_token_ids": body.prompt if body.return_token_ids and with_prompt else None,
        **asked,
    }


def _of_prompt(ids: list[int], logprobs: list[float]) -> list[dict[str, dict[str, float]] | None]:
    """As vLLM has it: nothing is said of the first token."""
    return [None, *({str(token): {"logprob": value}} for token, value in zip(ids[1:], logprobs, strict=True))]


def pooled(body: PoolingRequest, identity: str, created: int, vectors: list[list[float]]) -> dict[str, Any]:
    """The answer of ``/pooling``: one item, whose data are the vectors."""
    return {
        "id": identity,
        "object": "list",
        "created": created,
        "model": body.model,
        "data": [{"index": 0, "object": "pooling", "data": vectors}],
        "usage": usage(len(body.input), 0, 0),
    }


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def error(message: str, status: int) -> dict[str, Any]:
    """vLLM's error body."""
    kinds = {
        400: "BadRequestError",
        401: "AuthenticationError",
        403: "PermissionDeniedError",
        404: "NotFoundError",
        429: "RateLimitError",
        503: "ServiceUnavailableError",
    }
    return {
        "error": {"message": message, "type": kinds.get(status, "InternalServerError"), "param": None, "code": status}
    }
