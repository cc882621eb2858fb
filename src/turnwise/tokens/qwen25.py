"""A `renderers.Renderer` for Qwen2.5: its own template's ids, and prompts that extend the one before.

`renderers` has none for this family. As in `chatml`, a special token in a message's text is only text.
"""

from __future__ import annotations

import json

from renderers.base import Message, RenderedTokens, ToolSpec

from turnwise.tokens.chatml import ChatMLRenderer, RenderedPieces, calls_in, words_in

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

    later_systems = True

    def render(
        self, messages: list[Message], *, tools: list[ToolSpec] | None = None, add_generation_prompt: bool = False
    ) -> RenderedTokens:
        """All messages as ids, each token with the index of its message (-1 for scaffolding)."""
        rendered = RenderedPieces(messages)
        told = bool(messages) and messages[0]["role"] == "system"
        system = words_in(messages[0]) if told else self.default_system or ""
        self._turn(rendered, 0 if told else -1, "system", system + described(tools))
        self._turns(rendered, messages, start=int(told))
        if add_generation_prompt:
            rendered.add(self._opening, -1)
        return rendered.result()

    def _answer_text(self, message: Message) -> str:
        text, calls = words_in(message), _calls(message)
        return "\n".join([text, *calls] if text else calls)

    def _turns(self, rendered: RenderedPieces, messages: list[Message], start: int = 0) -> None:
        i = start
        while i < len(messages):
            message = messages[i]
            if message["role"] != "tool":
                self._turn(rendered, i, message["role"], self._answer_text(message))
                i += 1
                continue
            # Results that follow each other share a turn, which counts as the last one's.
            results = []
            while i < len(messages) and messages[i]["role"] == "tool":
                results.append(f"<tool_response>\n{words_in(messages[i])}\n</tool_response>")
                i += 1
            self._turn(rendered, i - 1, "user", "\n".join(results))


def described(tools: list[ToolSpec] | None) -> str:
    """What stands behind a system message of tools, as these models were taught."""
    if not tools:
        return ""
    return _TOOLS + "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools) + _HOW_TO_CALL


def _calls(message: Message) -> list[str]:
    written = [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls_in(message)]
    return [f'<tool_call>\n{{"name": "{name}", "arguments": {shown}}}\n</tool_call>' for name, shown in written]
