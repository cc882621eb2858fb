"""A `renderers.Renderer` for Qwen2.5: its own template's ids, and prompts that extend the one before.

`renderers` has none for this family. As in `chatml`, a special token in a message's text is only text.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from renderers.base import Message, RenderedTokens, ToolSpec, reject_assistant_in_extension, trim_to_turn_close

from turnwise.tokens.chatml import ChatMLRenderer, RenderedPieces

_TOOLS = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_HOW_TO_CALL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


class Qwen25Renderer(ChatMLRenderer):
    """Qwen2.5 over a `tokenizers` file. ``default_system`` is what the template says where nobody gave instructions."""

    def __init__(self, tokenizer_file: Path, default_system: str) -> None:
        super().__init__(tokenizer_file, default_system)

    def render(
        self, messages: list[Message], *, tools: list[ToolSpec] | None = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """All messages as ids, each token with the index of its message (-1 for scaffolding)."""
        rendered = RenderedPieces(messages)
        told = bool(messages) and messages[0]["role"] == "system"
        system = _text(messages[0]) if told else self.default_system or ""
        self._turn(rendered, 0 if told else -1, "system", system + _described(tools))
        self._turns(rendered, messages, start=int(told))
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
        previous = trim_to_turn_close(
            previous_prompt_ids, previous_completion_ids, {self._end}, synthesize_close=self._end
        )
        if previous is None or len(previous) < len(previous_prompt_ids) + len(previous_completion_ids):
            return None
        rendered = RenderedPieces(new_messages)
        rendered.add(previous, -1)
        rendered.add(self._newline, -1)
        self._turns(rendered, new_messages)
        rendered.add(self._opening, -1)
        return rendered.result()

    def _turns(self, rendered: RenderedPieces, messages: list[Message], start: int = 0) -> None:
        i = start
        while i < len(messages):
            message = messages[i]
            if message["role"] != "tool":
                text, calls = _text(message), _calls(message)
                self._turn(rendered, i, message["role"], "\n".join([text, *calls] if text else calls))
                i += 1
                continue
            # Results that follow each other share a turn, which counts as the last one's.
            results = []
            while i < len(messages) and messages[i]["role"] == "tool":
                results.append(f"<tool_response>\n{_text(messages[i])}\n</tool_response>")
                i += 1
            self._turn(rendered, i - 1, "user", "\n".join(results))


def _described(tools: list[ToolSpec] | None) -> str:
    if not tools:
        return ""
    return _TOOLS + "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools) + _HOW_TO_CALL


def _text(message: Message) -> str:
    content: Any = message.get("content") or ""
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _calls(message: Message) -> list[str]:
    written = []
    for call in message.get("tool_calls") or []:
        function: Any = call.get("function", {"name": "", "arguments": {}})
        arguments = function["arguments"]
        if isinstance(arguments, str):
            with contextlib.suppress(ValueError, RecursionError):  # a broken string is shown as it is
                arguments = json.loads(arguments)
        shown = json.dumps(arguments, ensure_ascii=False)
        written.append(f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {shown}}}\n</tool_call>')
    return written
