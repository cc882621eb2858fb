"""Content of any wire format as typed parts: words and images. All else is refused by name.

An image stays what it is: an upstream is told it in its own shape, and a model that sees none refuses it
(`refuse_images`). In the text of a message, which is what lineage and judges read, a mark with a digest stands for it.
"""

from __future__ import annotations

from typing import Any

from turnwise.gateway.errors import ApiError
from turnwise.messages import Content, as_content, images_of, text_of
from turnwise.types import Image, Message, Text

_WORDS = {
    "chat": ("messages", "image_url"),
    "responses": ("input", "input_image"),
    "messages": ("messages", "image"),
}
"""Where a format has its messages, and what it calls an image."""


def read_content(role: str, given: str | list[Any], kinds: tuple[str, ...], param: str) -> Content:
    """A string, or a list of images and of text parts of these `kinds`. Raises ApiError (400) for any other part."""
    if isinstance(given, str):
        return (Text(given),) if given else ()
    return as_content(role, [_image(part) or _text(part, kinds, param) for part in given])


def read_text(role: str, given: str | list[Any], kinds: tuple[str, ...], param: str) -> str:
    """The same where no image may stand, as one text."""
    if isinstance(given, str):
        return given
    return text_of(Message(role, as_content(role, [_text(part, kinds, param) for part in given])))


def image_field(format_name: str) -> tuple[str, str]:
    """Where a format has its messages, and what it calls an image."""
    return _WORDS[format_name]


def refuse_images(messages: list[Message], format_name: str, why: str = "this is a text model") -> None:
    """For a model that reads text alone, or an engine that is told no more. Raises ApiError (400) in the words of the
    format."""
    for i, message in enumerate(messages):
        if images_of(message):
            param, kind = _WORDS[format_name]
            text = f"message {i}: {why}; content of type {kind!r} is not supported"
            raise ApiError(400, text, param=param, code="unsupported_content")


def no_text(kind: Any, param: str) -> ApiError:
    """The refusal of a part that is neither words nor an image."""
    message = f"{param}: this is a text model; content of type {kind!r} is not supported"
    return ApiError(400, message, param=param, code="unsupported_content")


def _text(part: Any, kinds: tuple[str, ...], param: str) -> Text:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in kinds:
        raise no_text(kind, param)
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise ApiError(400, f"{param}: a text part needs a string 'text'", param=param, code="invalid_value")
    return Text(text)


def _image(part: Any) -> Image | None:
    """An image of any wire format; None for what is none, or is a file elsewhere."""
    kind = part.get("type") if isinstance(part, dict) else None
    given = part.get("image_url") if kind in ("image_url", "input_image") else None
    if isinstance(given, dict) and isinstance(given.get("url"), str):
        return Image(given["url"], {key: value for key, value in given.items() if key != "url"})
    if isinstance(given, str):
        return Image(given, {"detail": part["detail"]} if isinstance(part.get("detail"), str) else {})
    source = part.get("source") if kind == "image" else None
    url = _url(source) if isinstance(source, dict) else None
    return None if url is None else Image(url)


def _url(source: dict[str, Any]) -> str | None:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return source["url"]
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type')};base64,{source['data']}"
    return None
