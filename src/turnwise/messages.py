"""The only code that opens a message: what it says and calls, the text it is compared by, and its JSON.

A message is read once where it comes in (`gateway.wire`, or `from_chat` for the journal and for files) and written once
where it leaves (`to_chat`, `gateway.wire`, `engines.upstream`). Pure functions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import jiter
from msgspec.structs import replace

from turnwise.patterns import IGNORECASE, between, pattern
from turnwise.types import Image, Message, Part, Text, Thinking, ToolCall, ToolResult

Content = tuple[Text | Image, ...]
"""What a message says, or what a tool gave back."""

FAILED = "Error:"
"""How a tool's result begins that its client marked as failed, where the words do not say so themselves."""

# What a chat template or a tokenizer could take for one of its own tokens.
_MARK = pattern(
    r"<[|｜][^<>|｜\s]{1,60}[|｜]>|</?(?:s|bos|eos|pad|unk|think|im_start|im_end|(?:start|end)_of_turn|tool_calls?"
    r"|tool_response|tool_result|function_call)>|\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]"
    r"|<</?SYS>>",
    IGNORECASE,
)
LEFT_OUT = "(A picture was here; it is not shown any more.)"
"""What stands in a history in place of a picture that its agent sends no longer."""
MARK_ROUNDS = 8
_NO_BRACKETS = str.maketrans("", "", "<>[]")
_LONE_SURROGATE = pattern("[\ud800-\udfff]")


# -- making -----------------------------------------------------------------------------------------------------------


def saying(role: str, text: str, *more: Part) -> Message:
    """A message of words, with `more` parts behind them."""
    return Message(role, (Text(text), *more) if text else more)


def answer_of(text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> Message:
    """An assistant's message."""
    thought = (Thinking(thinking),) if thinking else ()
    return Message("assistant", (*thought, *((Text(text),) if text else ()), *calls))


def result_of(call_id: str, content: Content) -> Message:
    """A tool's message."""
    return Message("tool", (ToolResult(call_id, content),))


def observed(messages: Sequence[Message], begun: bool = False) -> list[Message]:
    """The messages of a rollout as what they are: behind the first answer a user's is the environment's, so it becomes
    a tool's result that no call asked for. ``begun``: there was an answer before."""
    found = []
    for message in messages:
        begun = begun or message.role == "assistant"
        found.append(result_of("", parts_of(message)) if begun and message.role == "user" else message)
    return found


def failed(result: Message) -> Message:
    """A tool's message that its client marked as failed. No model's template has a mark for it, so the words say it."""
    text = text_of(result)
    if text.lower().startswith("error"):
        return result
    content = (Text(FAILED), *parts_of(result)) if images_of(result) else (Text(f"{FAILED} {text}"),)
    return result_of(call_answered(result) or "", content)


def as_content(role: str, parts: Sequence[Text | Image]) -> Content:
    """Parts as a message of this role has them: words that no image parts are one text."""
    if any(type(part) is Image for part in parts):
        return tuple(parts)
    text = _joined(role, parts)
    return (Text(text),) if text else ()


def with_text(message: Message, text: str) -> Message:
    """The message with other words in place of all it says."""
    kept = [part for part in message.parts if type(part) not in (Text, Image)]
    at = 1 if kept and type(kept[0]) is Thinking else 0
    return replace(message, parts=(*kept[:at], *((Text(text),) if text else ()), *kept[at:]))


def with_images(message: Message, change: Callable[[Image], Image]) -> Message:
    """The message with other images in place of those that it says, or that a tool gave back."""
    if not images_of(message):
        return message

    def changed(parts: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(change(part) if type(part) is Image else part for part in parts)

    first = message.parts[0]
    if type(first) is ToolResult:
        return replace(message, parts=(replace(first, parts=changed(first.parts)),))
    return replace(message, parts=changed(message.parts))


def with_calls(message: Message, calls: Sequence[ToolCall]) -> Message:
    """The message with these calls in place of its own."""
    return replace(message, parts=(*(part for part in message.parts if type(part) is not ToolCall), *calls))


# -- opening ----------------------------------------------------------------------------------------------------------


def parts_of(message: Message) -> Content:
    """What a message says, or a tool gave back, part by part: without thinking and calls."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is ToolResult:
        return parts[0].parts
    return tuple(part for part in parts if type(part) is Text or type(part) is Image)


def text_of(message: Message) -> str:
    """What a message says as one text, with a mark in place of each image."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:  # nearly every message is: all histories are read through here
        return parts[0].text
    content = parts_of(message)
    if len(content) == 1 and type(content[0]) is Text:
        return content[0].text
    return _joined(message.role, content)


def text_of_part(part: Text | Image) -> str:
    """The words; for an image a mark with its digest, which stands for it wherever there is only text."""
    if type(part) is Text:
        return part.text
    assert type(part) is Image
    return f"[image {hashlib.sha256(part.url.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}]"


def thinking_in(message: Message) -> str:
    """What a model thought before it spoke, where that is known."""
    return "".join(part.text for part in message.parts if type(part) is Thinking)


def calls_of(message: Message) -> list[ToolCall]:
    return [part for part in message.parts if type(part) is ToolCall]


def call_answered(message: Message) -> str | None:
    """The id of the call whose result a message is; None for any other message."""
    first = message.parts[0] if message.parts else None
    return first.call_id if type(first) is ToolResult else None


def images_of(message: Message) -> list[Image]:
    return [part for part in parts_of(message) if type(part) is Image]


def answer_text(answer: Message) -> str:
    """An assistant message as text: what it says, then each tool call as ``name(arguments)``."""
    lines = [text_of(answer), *(f"{call.name or 'unknown'}({call.arguments})" for call in calls_of(answer))]
    return "\n".join(line for line in lines if line)


def _joined(role: str, parts: Sequence[Text | Image]) -> str:
    """What a person or a program put into several parts stands apart: a line break comes between two where none is.

    A model's own parts are pieces of one text.
    """
    whole = ""
    for part in parts:
        text = text_of_part(part)
        if role != "assistant" and whole and text and not whole[-1].isspace() and not text[0].isspace():
            whole += " " if role == "tool" and whole == FAILED else "\n"
        whole += text
    return whole


# -- comparing --------------------------------------------------------------------------------------------------------


def canonical(message: Message) -> str:
    """A message as text in which only what a model sees counts.

    Content as a string or as a list of text parts is the same; so are tool calls whatever their ids and the layout of
    their arguments, and marks such as `cache_control`. Clients trim texts, leave reasoning and line breaks of answers
    out when they send them back, and write JSON anew; what was sampled is in the journal, however they lay it out.
    """
    role, text = message.role, text_of(message)
    if role == "assistant":
        text = answer_words(message)
        text = _one_layout(text) if text.startswith(("{", "[")) else text
    calls = calls_of(message)
    if not calls:
        return f"{role}\x1f{text.strip()}"
    known = [[call.name, _arguments(call.arguments)] for call in calls]
    return f"{role}\x1f{text.strip()}\x1f{json.dumps(known, ensure_ascii=False, sort_keys=True)}"


def digest_of(message: Message) -> str:
    """Stands for one message, however a client lays it out. Journals keep it:
    histories of before a change of it are not known again by it."""
    return hashlib.sha256(canonical(message).encode("utf-8", "surrogatepass")).hexdigest()


def without_pictures(message: Message) -> str:
    """What it is compared by where an agent leaves older pictures out of its history: its words alone."""
    words = "\n".join(part.text for part in parts_of(message) if type(part) is Text)
    said = [line for line in words.split("\n") if line != LEFT_OUT]
    return f"{message.role}\x1f" + "\n".join(said).strip()


def with_latest_pictures(messages: Sequence[Message], keep: int) -> list[Message]:
    """The messages with the pictures of the latest ``keep`` of those that have some; in place of older ones stand
    words, as an agent that keeps so many writes them into its history."""
    showing = [at for at, message in enumerate(messages) if images_of(message)]
    older = set(showing[: max(0, len(showing) - keep)])
    return [_in_words(message) if at in older else message for at, message in enumerate(messages)]


def _in_words(message: Message) -> Message:
    parts = parts_of(message)
    words = [part.text for part in parts if type(part) is Text]
    said = "\n".join([*words, *[LEFT_OUT] * len(images_of(message))])
    if (call_id := call_answered(message)) is not None:
        return replace(message, parts=(ToolResult(call_id, (Text(said),)),))
    return with_text(message, said)


def answer_words(answer: Message) -> str:
    """The text of an answer without its reasoning, on one line."""
    return " ".join(_without_thinking(text_of(answer)).split())


def _one_layout(text: str) -> str:
    """JSON without the order of its keys and its white space: clients read an answer as data and write it anew."""
    try:
        read = _numbers(jiter.from_json(text.encode("utf-8", "surrogatepass")))
        return json.dumps(read, ensure_ascii=False, sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _without_thinking(text: str) -> str:
    kept: list[str] = []
    at = 0
    for start, end in between(text, "<think>", "</think>"):
        kept.append(text[at:start])
        at = end
    return "".join([*kept, text[at:]])


def _arguments(arguments: str) -> Any:
    """Arguments as a client may lay them out anew: whole numbers without a fraction, and what was cut off closed."""
    try:
        return _numbers(jiter.from_json((arguments or "{}").encode("utf-8", "surrogatepass"), partial_mode=True))
    except (ValueError, RecursionError):
        return arguments


def _numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:  # above, its digits would be made up
        return int(value)
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    return [_numbers(inner) for inner in value] if isinstance(value, list) else value


# -- OpenAI's chat shape, which is what the journal keeps --------------------------------------------------------------


def from_chat(given: dict[str, Any]) -> Message:
    """A message from OpenAI's chat shape: its JSON in a journal, or a labelled file's. Reads whatever has a role."""
    role = given.get("role") or ""
    content = _content_in(given.get("parts") or given.get("content"))
    name = given.get("name")
    if role in ("tool", "function"):
        return Message(role, (ToolResult(given.get("tool_call_id") or "", content),), name)
    thought = given.get("reasoning_content")
    if thought:
        content = (Thinking(thought), *content)
    calls = given.get("tool_calls")
    return Message(role, (*content, *map(_call_in, calls)) if calls else content, name)


def to_chat(message: Message) -> dict[str, Any]:
    """A message in OpenAI's chat shape, its content one text; where it has images, `parts` are what it is made of."""
    out: dict[str, Any] = {"role": message.role, "content": text_of(message)}
    if message.name is not None:
        out["name"] = message.name
    parts = message.parts
    if not parts or (len(parts) == 1 and type(parts[0]) is Text):
        return out
    content = parts_of(message)
    if len(content) > 1 or (content and type(content[0]) is Image):
        out["parts"] = [chat_part(part) for part in content]
    if (call_id := call_answered(message)) is not None:
        out["tool_call_id"] = call_id
    if thought := thinking_in(message):
        out["reasoning_content"] = thought
    if calls := calls_of(message):
        out["tool_calls"] = [chat_call(call) for call in calls]
    return out


def history_from_chat(given: Sequence[dict[str, Any]]) -> list[Message]:
    return [from_chat(message) for message in given]


def history_to_chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [to_chat(message) for message in messages]


def chat_part(part: Text | Image) -> dict[str, Any]:
    if type(part) is Text:
        return {"type": "text", "text": part.text}
    assert type(part) is Image
    return {"type": "image_url", "image_url": {"url": part.url} | part.said}


def chat_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return ({"id": call.id} if call.id else {}) | {"type": "function", "function": function}


def _content_in(given: Any) -> Content:
    if isinstance(given, str):
        return (Text(given),) if given else ()
    if not isinstance(given, list):
        return ()
    return tuple(part for part in map(_part_in, given) if part is not None)


def _part_in(given: Any) -> Text | Image | None:
    if isinstance(given, str):
        return Text(given)
    if not isinstance(given, dict):
        return None
    image = given.get("image_url")
    if isinstance(image, dict) and isinstance(image.get("url"), str):
        return Image(image["url"], {key: value for key, value in image.items() if key != "url"})
    return Text(given["text"]) if isinstance(given.get("text"), str) else None


def _call_in(given: dict[str, Any]) -> ToolCall:
    function = given.get("function") or {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(function.get("name") or "", arguments, given.get("id") or "")


# -- what may be stored, and what may stand in another prompt ----------------------------------------------------------


def storable(text: str) -> str:
    """The text without halves of surrogate pairs, which no UTF-8 file or database takes."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def clean(text: str) -> str:
    """Text that may go into another prompt: storable, and without marks that a chat template has a meaning for."""
    text = storable(text)
    for _ in range(MARK_ROUNDS):  # taking one mark out may join the halves of another
        if (less := _MARK.sub("", text)) == text:
            return text
        text = less
    return text.translate(_NO_BRACKETS)  # marks in marks in marks: somebody's work
