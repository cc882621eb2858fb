"""vLLM's own route for token ids, which takes pictures beside them: `POST /inference/v1/generate`.

A server has it from 0.32 on, started with `--enable-scale-out`. It puts a picture's placeholders into the ids itself,
so each picture goes as one placeholder, and the ids that it made are held against ours: what was answered to other ids
is no answer.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from turnwise.engines.events import in_the_form_of
from turnwise.errors import EngineError
from turnwise.pictures.placed import ShownPicture
from turnwise.pictures.reading import pixels_of

ROUTE = "/inference/v1/generate"
NO_PICTURES = (
    "the vLLM server at {url} takes no pictures beside token ids; start it with --enable-scale-out (vLLM 0.32 or later)"
)
_OF_THE_REQUEST = ("model", "stream", "stream_options", "return_token_ids", "priority")
"""The rest of a completion's fields are parameters of the sampling here."""
_MAKERS = ThreadPoolExecutor(2, "pictures")
"""Few, since what they make is large."""


async def pictured(body: dict[str, Any], pictures: Sequence[ShownPicture]) -> bytes:
    """A request for a completion of ids, with the pictures that their placeholders show, for this route.

    The pictures are sent as the pixels that the trainer reads, whatever their files are: a photo of 12 million pixels
    takes 30 MB. Made in another thread, two at a time. Raises PictureRefused.
    """
    return await asyncio.get_running_loop().run_in_executor(_MAKERS, _pictured, body, pictures)


def _pictured(body: dict[str, Any], pictures: Sequence[ShownPicture]) -> bytes:
    sampling = {name: value for name, value in body.items() if name not in (*_OF_THE_REQUEST, "prompt")}
    asked = {name: body[name] for name in _OF_THE_REQUEST if name in body} | {
        "token_ids": once_each(body["prompt"], pictures),
        "content_parts": [{"type": "image_url", "url": _as_png(picture.data)} for picture in pictures],
        "sampling_params": sampling,
        "output_mode": "text",
    }
    return json.dumps(asked, separators=(",", ":")).encode()


def once_each(ids: Sequence[int], pictures: Sequence[ShownPicture]) -> list[int]:
    """The ids [L] with one placeholder for each picture, in place of all that its processor writes for it."""
    out: list[int] = []
    last = 0
    for placed in (picture.placed for picture in pictures):
        out += [*ids[last : placed.start], placed.placeholder]
        last = placed.end
    return [*out, *ids[last:]]


def as_completion(event: dict[str, Any]) -> dict[str, Any]:
    """An event of this route as `/v1/completions` would have it. Raises EngineError."""
    with in_the_form_of(ROUTE):
        choices = [choice | {"logprobs": _logprobs(choice.get("logprobs"))} for choice in event.get("choices") or ()]
        return event | {"choices": choices}


class OtherIds(EngineError):
    """The server answers to other ids than ours."""


def is_to_these_ids(event: dict[str, Any], ids: Sequence[int]) -> bool:
    """Whether an event says what its answer is to: the first one with a choice does. Raises OtherIds."""
    if not event.get("choices"):
        return False
    if event.get("prompt_token_ids") != list(ids):
        raise OtherIds(
            "the vLLM server makes other ids of the pictures than the model's folder here; let both serve the same "
            "folder, and see that vLLM is 0.32 or later",
            502,
        )
    return True


def _logprobs(said: dict[str, Any] | None) -> dict[str, Any] | None:
    content = None if said is None else said.get("content")
    return None if content is None else {"token_logprobs": [each.get("logprob") for each in content]}


def _as_png(data: bytes) -> str:
    out = io.BytesIO()
    pixels_of(data).save(out, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
