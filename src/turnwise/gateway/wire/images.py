"""Images in messages, for an upstream that can see them: in OpenAI's shape beside the text, whatever the wire format.

In the text of a message, which is what lineage and judges read, a mark with a digest stands for each. Engines that take
token ids see no images, so there the codecs refuse them.
"""

from __future__ import annotations

import hashlib
from typing import Any


def take_images(parts: Any) -> tuple[Any, dict[str, Any]]:
    """Content with a text in place of each image, and what its message has beside the text: ``parts``, if any."""
    if not isinstance(parts, list):
        return parts, {}
    images = [_as_openai(part) for part in parts]
    if not any(images):
        return parts, {}
    marked = [part if image is None else _mark(part, image) for part, image in zip(parts, images, strict=True)]
    told = [image or _text(part) for part, image in zip(parts, images, strict=True)]
    return marked, {"parts": told}


def _as_openai(part: Any) -> dict[str, Any] | None:
    """An image of any wire format as OpenAI's chat has it; None for what is none, or is a file elsewhere."""
    kind = part.get("type") if isinstance(part, dict) else None
    given = part.get("image_url") if kind in ("image_url", "input_image") else None
    if isinstance(given, dict) and isinstance(given.get("url"), str):
        return {"type": "image_url", "image_url": given}
    if isinstance(given, str):
        detail = {"detail": part["detail"]} if isinstance(part.get("detail"), str) else {}
        return {"type": "image_url", "image_url": {"url": given} | detail}
    source = part.get("source") if kind == "image" else None
    url = _url(source) if isinstance(source, dict) else None
    return None if url is None else {"type": "image_url", "image_url": {"url": url}}


def _url(source: dict[str, Any]) -> str | None:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return source["url"]
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type')};base64,{source['data']}"
    return None


def _mark(part: dict[str, Any], image: dict[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(image["image_url"]["url"].encode("utf-8", "surrogatepass")).hexdigest()
    kind = {"input_image": "input_text", "image_url": "text", "image": "text"}[part["type"]]
    return {"type": kind, "text": f"[image {digest[:16]}]"}


def _text(part: Any) -> dict[str, Any]:
    return {"type": "text", "text": part.get("text", "") if isinstance(part, dict) else ""}
