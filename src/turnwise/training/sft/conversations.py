"""Reading a file of conversations: one JSON object a line, checked to the last field before anything is trained.

What is not understood is refused by its line number, with what to do about it; nothing is guessed. The file is read
once, line by line, and no line of it is longer than LONGEST_LINE in here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from turnwise.errors import DataError, PictureRefused
from turnwise.messages import from_chat, images_of, with_images
from turnwise.types import Image, Message, Text, Thinking, ToolCall

LONGEST_LINE = 16 << 20
"""Bytes: a context of a million tokens, written in JSON."""
SHOWN_FAULTS = 5
ROLES = ("system", "developer", "user", "assistant", "tool")
TAKEN = 'a line is {"messages": […]} as OpenAI\'s API has them, or {"prompt": …, "completion": …}'
_FOREIGN = {
    "conversations": "that is the form of ShareGPT; write its turns as messages with role and content",
    "instruction": 'that is the form of Alpaca; write "prompt" (instruction and input) and "completion" (output)',
    "text": "a text does not say which of it is an answer; write messages, or prompt and completion",
    "chosen": "pairs of answers are for other methods; write the chosen one as messages",
}


Take = Callable[[Image], Image]
"""Looks at a picture and names it by its hash. Raises PictureRefused."""


class Unfit(Exception):
    """What is wrong with a line, and what to do."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """``messages`` of line ``line``; the answers at the places ``taught`` are learned, all else is context.

    ``keep_pictures``: of how many messages, the latest ones, an answer's prompt shows the pictures; None: of all.
    ``keep_thinking``: what was thought before the last question stays in a prompt whose template drops it.
    """

    line: int
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    taught: frozenset[int]
    keep_pictures: int | None = None
    keep_thinking: bool = False


@dataclass(frozen=True, slots=True)
class DataFile:
    """What a file holds. ``sha256`` is of all its bytes; ``broken`` lines were left out because that was asked for;
    ``pictures`` is a digest of those that it shows, where it shows some."""

    path: Path
    sha256: str
    conversations: list[Dialogue]
    broken: int
    pictures: str = ""


def read_data(
    path: Path, *, skip_broken: bool = False, alive: Callable[[], None] = lambda: None, take: Take | None = None
) -> DataFile:
    """The conversations of a file. ``alive`` is called with every line; ``take`` takes pictures in, None where the
    model sees none.

    Raises DataError for a file that cannot be read or holds nothing, and for broken lines: the first of them by their
    numbers, unless ``skip_broken``.
    """
    if not path.is_file():
        raise DataError(f"{path} is no file; give a file with one conversation a line")
    found: list[Dialogue] = []
    faults: list[str] = []
    broken = 0
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for number, line in _lines(file, digest.update):
                alive()
                try:
                    if (conversation := _conversation(number, line, take)) is not None:
                        found.append(conversation)
                except Unfit as e:
                    broken += 1
                    if len(faults) < SHOWN_FAULTS:
                        faults.append(f"  line {number}: {e}")
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e}") from e
    if broken and not skip_broken:
        more = f"\n  and {broken - len(faults)} more" if broken > len(faults) else ""
        lines = "line of it is" if broken == 1 else "lines of it are"
        said = "\n".join(faults) + more
        raise DataError(
            f"{path} cannot be trained on: {broken} {lines} no conversation that can be learned\n{said}\n"
            "Mend them, or leave them out with --skip-broken."
        )
    if not found:
        why = f": all of its {broken} lines are broken, such as\n" + "\n".join(faults) if broken else ""
        raise DataError(f"{path} holds no conversation{why}\n{TAKEN}")
    return DataFile(path, digest.hexdigest(), found, broken)


def _lines(file: BinaryIO, seen: Callable[[bytes], None]) -> Iterator[tuple[int, bytes | None]]:
    """Each line with its number; None for one that is longer than LONGEST_LINE, of which no more is kept."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        seen(line)
        whole = len(line) <= LONGEST_LINE or line.endswith(b"\n")
        rest = line
        while not whole and (rest := file.readline(LONGEST_LINE)):
            seen(rest)
            if rest.endswith(b"\n"):
                break
        yield number, line if whole else None


def _conversation(number: int, line: bytes | None, take: Take | None) -> Dialogue | None:
    """What a line says; None for an empty one. Raises Unfit."""
    if line is None:
        raise Unfit(f"it is longer than {LONGEST_LINE >> 20} MiB; cut the conversation into several")
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        return None
    try:
        row = json.loads(line.decode("utf-8"))
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as e:
        raise Unfit(f"it is not UTF-8 (byte {e.start + 1}); convert the file, for instance with iconv") from None
    except UnicodeEncodeError:
        raise Unfit("it has half of a character (a lone surrogate such as \\ud83d); write the whole one") from None
    except (ValueError, RecursionError) as e:
        array = line.lstrip().startswith(b"[")
        hint = "write one object a line, for instance with jq -c '.[]'" if array else "write one JSON object a line"
        raise Unfit(f"it is no JSON ({e}); {hint}") from None
    if isinstance(row, list):
        raise Unfit("it is a list; write one object a line, for instance with jq -c '.[]'")
    if not isinstance(row, dict):
        raise Unfit(f"it is no object; {TAKEN}")
    messages, taught = _messages_of(row)
    if not taught:
        raise Unfit("it has no answer to learn: no assistant message, or each has weight 0; add one, or take it out")
    keep = row.get("keep_pictures")
    if keep is not None and not (type(keep) is int and keep >= 1):
        raise Unfit('"keep_pictures" is the number of messages whose pictures are shown: 1 or more')
    asked = row.get("chat_template_kwargs")
    if asked is not None and not isinstance(asked, dict):
        raise Unfit('"chat_template_kwargs" is an object, as {"preserve_thinking": true}')
    thoughts = False if asked is None else asked.get("preserve_thinking", False)
    if not isinstance(thoughts, bool):
        raise Unfit('"preserve_thinking" in "chat_template_kwargs" is true or false')
    return Dialogue(number, _seen(messages, take), _tools(row.get("tools")), frozenset(taught), keep, thoughts)


def _seen(messages: list[Message], take: Take | None) -> list[Message]:
    """The messages with their pictures taken in. Raises Unfit."""
    found = []
    for i, message in enumerate(messages):
        if images_of(message):
            if take is None:
                raise Unfit(
                    f"message {i} has a picture, and this model sees none; choose one that does, or take it out"
                )
            if message.role not in ("user", "tool"):
                raise Unfit(
                    f"message {i} is of the role {message.role} and has a picture; only user and tool show some"
                )
            try:
                message = with_images(message, take)
            except PictureRefused as e:
                raise Unfit(f"message {i}: {e}") from None
        found.append(message)
    return found


def _messages_of(row: dict[str, Any]) -> tuple[list[Message], list[int]]:
    """The messages of a row and which of them are learned. Raises Unfit."""
    if "messages" in row:
        messages, weights = _read_messages(row["messages"], "messages")
        return messages, [i for i, m in enumerate(messages) if m.role == "assistant" and weights[i]]
    if "prompt" in row and "completion" in row:
        prompt, _ = _read_messages(_as_messages(row["prompt"], "user"), "prompt")
        completion, weights = _read_messages(_as_messages(row["completion"], "assistant"), "completion", len(prompt))
        taught = [len(prompt) + i for i, m in enumerate(completion) if m.role == "assistant" and weights[i]]
        return [*prompt, *completion], taught
    keys = ", ".join(sorted(map(str, row))[:8]) or "none"
    why = next((said for key, said in _FOREIGN.items() if key in row), TAKEN)
    raise Unfit(f"its keys are {keys[:200]}: {why}")


def _as_messages(given: Any, role: str) -> Any:
    return [{"role": role, "content": given}] if isinstance(given, str) else given


def _read_messages(given: Any, where: str, before: int = 0) -> tuple[list[Message], list[bool]]:
    """Messages and which of them have weight; ``before`` say how many stand in front of them. Raises Unfit."""
    if not isinstance(given, list) or not given:
        raise Unfit(f'"{where}" is no list of messages; {TAKEN}')
    messages: list[Message] = []
    weights: list[bool] = []
    called = False
    for i, one in enumerate(given):
        message, weight = _message(one, f"{where}[{i}]")
        if message.role == "assistant" and not before and not messages:
            raise Unfit(f"{where}[{i}] answers nothing; put the message that it answers before it")
        if message.role == "tool" and not called and not before:
            raise Unfit(f"{where}[{i}] is a tool's result, and no answer before it calls a tool; add the call")
        called = called or any(type(part) is ToolCall for part in message.parts)
        messages.append(message)
        weights.append(weight)
    return messages, weights


def _message(given: Any, where: str) -> tuple[Message, bool]:
    """A message, and whether it counts. Raises Unfit."""
    if not isinstance(given, dict):
        raise Unfit(f"{where} is no object with role and content")
    role = given.get("role")
    if role not in ROLES:
        raise Unfit(f"{where} has the role {str(role)[:40]!r}; it must be one of {', '.join(ROLES)}")
    if given.get("function_call") is not None:
        raise Unfit(f"{where} has a function_call; write it as tool_calls")
    calls, thought, weight = given.get("tool_calls"), _thought(given, where), given.get("weight", 1)
    if weight not in (0, 1):
        raise Unfit(f"{where} has the weight {str(weight)[:40]}; OpenAI's form has 0 and 1")
    if (calls or thought) and role != "assistant":
        raise Unfit(f"{where} is of the role {role}, and only an assistant calls tools and thinks")
    content = _content(given.get("content"), where)
    message = from_chat(
        {
            "role": "system" if role == "developer" else role,
            "content": content,
            "tool_call_id": _word(given, "tool_call_id", where),
            "name": _word(given, "name", where),
            "reasoning_content": thought,
            "tool_calls": [_call(call, f"{where}.tool_calls[{k}]") for k, call in enumerate(_list(calls, where))],
        }
    )
    said = any(type(part) in (Text, ToolCall) for part in message.parts)
    if role == "assistant" and not said and weight:
        raise Unfit(f"{where} is an answer without words and calls; take it out, give it weight 0, or say what it was")
    return message, bool(weight)


def _thought(given: dict[str, Any], where: str) -> str:
    said = [given[key] for key in ("reasoning_content", "reasoning", "thinking") if given.get(key)]
    if said and not isinstance(said[0], str):
        raise Unfit(f"{where} has thinking that is no text")
    return said[0] if said else ""


def _content(given: Any, where: str) -> str | list[dict[str, Any]]:
    """What a message says: words, or parts that are words or pictures. Raises Unfit."""
    if given is None or isinstance(given, str):
        return given or ""
    if not isinstance(given, list):
        raise Unfit(f"{where}.content is no text and no list of parts")
    for part in given:
        kind = part.get("type") if isinstance(part, dict) else None
        address = part.get("image_url") if kind == "image_url" else None
        shown = isinstance(address, dict) and isinstance(address.get("url"), str)
        if kind == "text" and "image_url" in part:
            raise Unfit(f"{where}.content has a part that is a text and a picture; write two")
        if not shown and (kind != "text" or not isinstance(part.get("text"), str)):
            what = 'an image_url without {"url": …}' if kind == "image_url" else f"the type {str(kind)[:40]!r}"
            raise Unfit(f"{where}.content has a part of {what}; text and image_url can be learned")
    if all(part["type"] == "text" for part in given):
        return "".join(part["text"] for part in given)
    return given


def _word(given: dict[str, Any], key: str, where: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise Unfit(f"{where}.{key} is no text")
    return value


def _list(given: Any, where: str) -> list[Any]:
    if given is not None and not isinstance(given, list):
        raise Unfit(f"{where}.tool_calls is no list")
    return given or []


def _call(given: Any, where: str) -> dict[str, Any]:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise Unfit(f"{where} has no function with a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _read_arguments(arguments, where)
    if arguments is not None and not isinstance(arguments, dict):
        raise Unfit(f"{where} has arguments that are no object")
    written = json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": _word(given, "id", where), "function": {"name": function["name"], "arguments": written}}


def _read_arguments(text: str, where: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise Unfit(f"{where} has arguments that are no JSON; the model would learn to write them so") from None


def _tools(given: Any) -> list[dict[str, Any]] | None:
    if given is None or given == []:
        return None
    if not isinstance(given, list):
        raise Unfit('"tools" is no list')
    for k, tool in enumerate(given):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Unfit(f'tools[{k}] is no {{"type": "function", "function": {{"name": …}}}}')
        if not isinstance(function.get("parameters", {}), dict) or not isinstance(function.get("description", ""), str):
            raise Unfit(f"tools[{k}] has a description that is no text, or parameters that are no object")
    return given


def has_thinking(message: Message) -> bool:
    return any(type(part) is Thinking for part in message.parts)
