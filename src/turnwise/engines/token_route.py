"""vLLM's own route for token ids, which takes pictures beside them: `POST /inference/v1/generate`.

A server has it from 0.32 on, started with `--enable-scale-out`. It puts a picture's placeholders into the ids itself,
so each picture goes as one placeholder, and the ids that it made are held against ours: what was answered to other ids
is no answer.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from turnwise.errors import EngineError
from turnwise.pictures.placed import ShownPicture
from turnwise.pictures.reading import pixels_of

ROUTE = "/inference/v1/generate"
NO_PICTURES = (
    "the vLLM server at {url} takes no pictures beside token ids; start it with --enable-scale-out (vLLM 0.32 or later)"
)
_OF_THE_REQUEST = ("model", "stream", "stream_options", "return_token_ids", "priority")
"""The rest of a completion's fields are parameters of the sampling here."""


def pictured(body: dict[str, Any], pictures: Sequence[ShownPicture]) -> dict[str, Any]:
    """A request for a completion of ids, with the pictures that their placeholders show, for this route.

    The pictures are sent as the pixels that the trainer reads, whatever their files are. Takes CPU time. Raises
    PictureRefused.
    """
    sampling = {name: value for name, value in body.items() if name not in (*_OF_THE_REQUEST, "prompt")}
    return {name: body[name] for name in _OF_THE_REQUEST if name in body} | {
        "token_ids": once_each(body["prompt"], pictures),
        "content_parts": [{"type": "image_url", "url": _as_png(picture.data)} for picture in pictures],
        "sampling_params": sampling,
        "output_mode": "text",
    }


def once_each(ids: Sequence[int], pictures: Sequence[ShownPicture]) -> list[int]:
    """The ids [L] with one placeholder for each picture, in place of all that its processor writes for it."""
    out: list[int] = []
    last = 0
    for placed in (picture.placed for picture in pictures):
        out += [*ids[last : placed.start], placed.placeholder]
        last = placed.end
    return [*out, *ids[last:]]


def as_completion(event: dict[str, Any]) -> dict[str, Any]:
    """An event of this route as `/v1/completions` would have it."""
    choices = [choice | {"logprobs": _logprobs(choice.get("logprobs"))} for choice in event.get("choices") or ()]
    return event | {"choices": choices}


def refuse_other_ids(event: dict[str, Any], ids: Sequence[int]) -> None:
    """Raises EngineError where an answer's first event says that it is to other ids than these."""
    if event.get("choices") and list(event.get("prompt_token_ids") or ()) != list(ids):
        raise EngineError(
            "the vLLM server makes other ids of the pictures than the model's folder here; let both serve the same "
            "folder, and see that vLLM is 0.32 or later",
            502,
        )


def _logprobs(said: dict[str, Any] | None) -> dict[str, Any] | None:
    content = None if said is None else said.get("content")
    return None if content is None else {"token_logprobs": [each["logprob"] for each in content]}


def _as_png(data: bytes) -> str:
    out = io.BytesIO()
    pixels_of(data).save(out, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
