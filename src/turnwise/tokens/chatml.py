"""A `renderers.Renderer` for plain ChatML models such as SmolLM2: messages to token ids, ids back to a message.

A conversation without tools renders to the ids of the model's own chat template. Text that looks like a special token
is encoded as ordinary text, so that no message can forge the end of a turn. Tools, which the template does not know,
are described in the system message and called as `<tool_call>{…}</tool_call>`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from renderers.base import (
    Message,
    ParsedResponse,
    ParsedToolCall,
    RenderedTokens,
    ToolCallParseStatus,
    ToolSpec,
    extract_message_tool_names,
    reject_assistant_in_extension,
    trim_to_turn_close,
)
from tokenizers import Tokenizer

from turnwise.patterns import between

OPEN_TOOL_CALL, CLOSE_TOOL_CALL = "<tool_call>", "</tool_call>"
TOOLS_PREAMBLE = (
    "You may call the functions below. To call one, write a JSON object with its name and arguments between tags, "
    'like this: <tool_call>{"name": "…", "arguments": {…}}</tool_call>\nFunctions:\n'
)


class ChatMLRenderer:
    """ChatML over a `tokenizers` file. `default_system` is put first when a conversation has no system message."""

    is_prefix_stable = True
    later_systems = False
    """Whether the template has a system message anywhere: elsewhere a later one makes another conversation."""

    def __init__(self, tokenizer_file: Path, default_system: str | None) -> None:
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self.tokenizer.encode_special_tokens = True  # in message text, special tokens are only text
        self.default_system = default_system
        self._start = self._special("<|im_start|>")
        self._end = self._special("<|im_end|>")
        self._stops = [self._end]
        end_of_text = self.tokenizer.token_to_id("<|endoftext|>")
        if end_of_text is not None:
            self._stops.append(end_of_text)
        self._newline = self.encode("\n")
        self._opening = [self._start, *self.encode("assistant\n")]

    def _special(self, token: str) -> int:
        token_id = self.tokenizer.token_to_id(token)
        if token_id is None:
            raise ValueError(f"the tokenizer has no {token} token, so it is not a ChatML model")
        return token_id

    def encode(self, text: str) -> list[int]:
        """The ids of a text, in which special tokens are only text."""
        # the same ids as `encode`, without the offsets into the text, which nobody reads: a quarter faster
        return self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def get_stop_token_ids(self) -> list[int]:
        return list(self._stops)

    def render_ids(
        self, messages: list[Message], *, tools: list[ToolSpec] | None = None, add_generation_prompt: bool = False
    ) -> list[int]:
        return self.render(messages, tools=tools, add_generation_prompt=add_generation_prompt).token_ids

    def render(
        self, messages: list[Message], *, tools: list[ToolSpec] | None = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """All messages as ids, each token with the index of its message (-1 for scaffolding)."""
        rendered = RenderedPieces(messages)
        if messages and messages[0]["role"] != "system":
            system = "\n\n".join(part for part in (self.default_system, described(tools)) if part)
            if system:
                self._turn(rendered, -1, "system", system)
        for i, message in enumerate(messages):
            text = text_in(message)
            if i == 0 and message["role"] == "system" and tools:
                text = "\n\n".join(part for part in (text, described(tools)) if part)
            self._turn(rendered, i, message["role"], text)
        if add_generation_prompt:
            rendered.add(self._opening, -1)
        return rendered.result()

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Message],
        *,
        tools: list[ToolSpec] | None = None,
    ) -> RenderedTokens | None:
        """The last prompt and the sampled ids, kept verbatim, then the new messages and the start of an answer."""
        if not new_messages or reject_assistant_in_extension(new_messages):
            return None
        if not self.later_systems and any(message["role"] == "system" for message in new_messages):
            return None
        previous = trim_to_turn_close(
            previous_prompt_ids, previous_completion_ids, {self._end}, synthesize_close=self._end
        )
        if previous is None or len(previous) < len(previous_prompt_ids) + len(previous_completion_ids):
            return None
        rendered = self._collecting(new_messages)
        rendered.add(previous, -1)
        rendered.add(self._newline, -1)
        self._turns(rendered, new_messages)
        rendered.add(self._opening, -1)
        return rendered.result()

    def parse_response(
        self, token_ids: list[int], *, tools: list[ToolSpec] | None = None, prompt_ids: list[int] | None = None
    ) -> ParsedResponse:
        """Sampled ids as a message. Tool calls are looked for only when tools were offered."""
        text = self.tokenizer.decode(token_ids, skip_special_tokens=True)
        return parse_text(text, with_tools=bool(tools))

    def answer_ids(self, message: Message) -> list[int]:
        """The ids with which the model would have given this answer, behind a prompt and up to the end of its turn."""
        return [*self.encode(self._answer_text(message)), self._end]

    def _answer_text(self, message: Message) -> str:
        return text_in(message)

    def _collecting(self, messages: list[Message]) -> RenderedPieces:
        return RenderedPieces(messages)

    def _turns(self, rendered: RenderedPieces, messages: list[Message]) -> None:
        """What goes on from a prompt."""
        for i, message in enumerate(messages):
            self._turn(rendered, i, message["role"], text_in(message))

    def _turn(self, rendered: RenderedPieces, index: int, role: str, text: str) -> None:
        rendered.add([self._start], index)
        rendered.add(self.encode(f"{role}\n{text}"), index)
        rendered.add([self._end], index)
        rendered.add(self._newline, -1)


def parse_text(text: str, *, with_tools: bool) -> ParsedResponse:
    """Split an answer's text into content and tool calls; a broken call is reported, and stays in the content."""
    if not with_tools or OPEN_TOOL_CALL not in text:
        return ParsedResponse(content=text)
    calls: list[ParsedToolCall] = []
    kept: list[str] = []
    end = 0
    for start, stop in between(text, OPEN_TOOL_CALL, CLOSE_TOOL_CALL):
        call = _parse_call(text[start + len(OPEN_TOOL_CALL) : stop - len(CLOSE_TOOL_CALL)].strip())
        calls.append(call)
        kept.append(text[end:start])
        if call.status is not ToolCallParseStatus.OK:
            kept.append(text[start:stop])
        end = stop
    rest = text[end:]
    if OPEN_TOOL_CALL in rest:
        raw = rest[rest.index(OPEN_TOOL_CALL) :]
        calls.append(ParsedToolCall(raw=raw, status=ToolCallParseStatus.UNCLOSED_BLOCK))
    kept.append(rest)
    return ParsedResponse(content="".join(kept), tool_calls=calls)


def _parse_call(raw: str) -> ParsedToolCall:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return ParsedToolCall(raw=raw, status=ToolCallParseStatus.INVALID_JSON)
    if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not body["name"]:
        return ParsedToolCall(raw=raw, status=ToolCallParseStatus.MISSING_NAME)
    arguments = body.get("arguments", {})
    if not isinstance(arguments, dict):
        return ParsedToolCall(raw=raw, status=ToolCallParseStatus.MALFORMED_STRUCTURE)
    return ParsedToolCall(raw=raw, name=body["name"], arguments=arguments)


def described(tools: list[ToolSpec] | None) -> str | None:
    """What a system message says of tools; None where there are none."""
    if not tools:
        return None
    return TOOLS_PREAMBLE + "\n".join(json.dumps(_spec(tool), ensure_ascii=False) for tool in tools)


def _spec(tool: Any) -> ToolSpec:
    function = tool.get("function", tool)
    return ToolSpec(
        name=function["name"], description=function.get("description", ""), parameters=function.get("parameters", {})
    )


def text_in(message: Message) -> str:
    """What a message says, and its calls as a model writes them."""
    written = [{"name": name, "arguments": arguments} for name, arguments in calls_in(message)]
    calls = [f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>" for call in written]
    return "\n".join(part for part in (words_in(message), *calls) if part)


def words_in(message: Message) -> str:
    """What a message says, its parts as one text."""
    content: Any = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def calls_in(message: Message) -> Iterator[tuple[str, Any]]:
    """The calls of a message, as names and arguments read; a broken string of arguments stays as it is."""
    for call in message.get("tool_calls") or []:
        function: Any = call.get("function", {"name": "", "arguments": {}})
        arguments = function["arguments"]
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        yield function["name"], arguments


class RenderedPieces:
    """Collects ids with the message each belongs to."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.ids: list[int] = []
        self.indices: list[int] = []

    def add(self, ids: list[int], index: int) -> None:
        self.ids += ids
        self.indices += [index] * len(ids)

    def result(self) -> RenderedTokens:
        return RenderedTokens(
            token_ids=self.ids,
            message_indices=self.indices,
            message_roles=[message["role"] for message in self.messages],
            message_tool_names=extract_message_tool_names(self.messages),
        )
