"""The conversation of a rollout as an agent and its model have it: what was told, what was answered, and as a line for
`turnwise sft`. Actions of a script are written as the model would have given them: as calls of tools, or in a block.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from turnwise.environments.base import Action, Instructions, Kind, Observation, Task
from turnwise.errors import ConfigError
from turnwise.messages import LEFT_OUT

Form = Literal["calls", "blocks"]
"""How a model acts: by calls of tools, or by text in which no tool is offered."""
NOT_RUN = "Not run."
KEPT_THINKING = {"chat_template_kwargs": {"preserve_thinking": True}}
"""Beside a conversation: all that was thought stays in its prompts (OpenWebRL §4.2)."""
JPEG = b"\xff\xd8"
"""How such a file begins."""


@runtime_checkable
class InBlocks(Protocol):
    """What a kind has beside `Kind` whose tasks can be played without tools."""

    def instructions_in_blocks(self, task: Task) -> Instructions:
        """How a model is told to act that is offered no tool."""
        ...

    def in_block(self, action: Action) -> str:
        """The answer that asks for this action; `read` gives the action back."""
        ...


def instructions_of(kind: Kind, task: Task, form: Form) -> Instructions:
    """How a model is told to act. Raises ConfigError where tasks of this kind are not played in this form."""
    if form == "calls":
        return kind.instructions(task)
    return _in_blocks(kind).instructions_in_blocks(task)


def _in_blocks(kind: Kind) -> InBlocks:
    if not isinstance(kind, InBlocks):
        raise ConfigError(f"tasks of {kind.name} are played by calls of tools alone; leave out `--form blocks`")
    return kind


class RolloutTranscript:
    """The messages of one rollout in OpenAI's shape, in the order in which they were said.

    ``keep_pictures``: the observations, the latest ones, whose pictures are kept; in place of older ones stand a few
    words (OpenWebRL §4.1). All else stays: what was told of each call, and what was answered.
    """

    def __init__(self, instructions: Instructions, keep_pictures: int = 1) -> None:
        self.tools = list(instructions.tools)
        self.messages: list[Any] = [{"role": "system", "content": instructions.system}]
        """As the model is told them by now."""
        self.files: dict[str, bytes] = {}
        """Every picture that was heard, by the name that `line` gives it."""
        self.answers = 0
        self.answered = 0
        """Characters of all answers, arguments of calls among them."""
        self.pictures = self.left_out = 0
        """How many were heard, and of how many only words are left."""
        self._keep = keep_pictures
        self._heard: dict[int, tuple[str, list[str]]] = {}
        """Of each message that had pictures its words and the names of their files, by where it stands."""
        self._with_pictures: deque[tuple[int, str, int]] = deque()
        """Messages that have pictures, oldest first, each with its words and their number."""
        self.thought = False
        """Whether an answer came with thoughts."""
        self._silent: set[int] = set()
        """Where the answers stand that say nothing, as one that ended in its thoughts: nothing is learned of them."""
        self._ended_at = 0
        """How many messages there were with the last answer."""
        self._calls: Sequence[str] = ()
        """Ids of the tool calls that wait for their result."""

    def hear(self, observation: Observation) -> None:
        """Each call gets its result; what is seen beside them, or without one, is told as the user's."""
        results = observation.results if self._calls else ()
        if self._calls and not results:
            results = (observation.text, *(NOT_RUN for _ in self._calls[1:]))
        for call, result in zip(self._calls, results, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call, "content": result})
        text = "" if observation.text in results else observation.text
        if not self._calls:  # in blocks: what came of each call stands before what is seen
            results = [result for result in observation.results if result != text]
            text = "\n\n".join(part for part in ("\n".join(results), text) if part)
        if observation.images:
            self._leave_out(self._keep - 1)
            self._with_pictures.append((len(self.messages), text, len(observation.images)))
            self.pictures += len(observation.images)
            self._heard[len(self.messages)] = text, [self._filed(data) for data in observation.images]
            self.messages.append({"role": "user", "content": [*_words(text), *map(_picture, observation.images)]})
        elif text:
            self.messages.append({"role": "user", "content": text})

    def _leave_out(self, keep: int) -> None:
        """Have words in place of the pictures of all observations but so many."""
        while len(self._with_pictures) > keep:
            at, text, pictures = self._with_pictures.popleft()
            self.left_out += pictures
            words = [*([text] if text else []), *[LEFT_OUT] * pictures]
            self.messages[at] = {"role": "user", "content": "\n".join(words)}

    def drop_pictures(self) -> None:
        """Have words in place of all pictures, of which nothing is kept any more."""
        self._leave_out(0)
        self._heard.clear()
        self.files.clear()

    def say(self, content: str, calls: Sequence[dict[str, Any]] = (), thought: str = "") -> None:
        """An answer with its tool calls, each with the id under which its result is told, and what was thought."""
        self._calls = [str(call["id"]) for call in calls]
        more: dict[str, Any] = {"tool_calls": list(calls)} if calls else {}
        more |= {"reasoning_content": thought} if thought else {}
        if not content and not calls:
            self._silent.add(len(self.messages))
        self.thought = self.thought or bool(thought)
        self.messages.append({"role": "assistant", "content": content} | more)
        self.answers, self._ended_at = self.answers + 1, len(self.messages)
        self.answered += len(content) + sum(len(str(call["function"]["arguments"])) for call in calls)

    def act(self, kind: Kind, action: Action, form: Form) -> None:
        """An action of a script, as a model would have asked for it."""
        if form == "blocks":
            return self.say(_in_blocks(kind).in_block(action))
        named = [(call.name, json.dumps(dict(call.arguments), ensure_ascii=False)) for call in action.calls]
        functions = [{"name": name, "arguments": arguments} for name, arguments in named]
        calls = [{"id": f"call_{self.answers}_{i}", "type": "function", "function": f} for i, f in enumerate(functions)]
        return self.say(action.text, calls)

    def line(self, folder: str | None = None) -> str:
        """The conversation up to its last answer, as a line of a file for `turnwise sft`, with every picture that was
        heard: `files` are to lie in this ``folder`` beside that file, and each answer is learned from the pictures that
        it was given with. Raises ValueError where there are some, and no folder."""
        if self.files and folder is None:
            raise ValueError("the pictures of this conversation need a folder beside its line")
        messages = list(self.messages)
        for at in self._silent:
            messages[at] = messages[at] | {"weight": 0}
        for at, (text, names) in self._heard.items():
            pictures = [_at(f"{folder}/{name}") for name in names]
            messages[at] = {"role": "user", "content": [*_words(text), *pictures]}
        more: dict[str, Any] = {"tools": self.tools} if self.tools else {}
        more |= {"keep_pictures": self._keep} if self._heard else {}
        more |= KEPT_THINKING if self.thought else {}
        return json.dumps({"messages": messages[: self._ended_at], **more}, ensure_ascii=False)

    def _filed(self, data: bytes) -> str:
        name = f"{hashlib.sha256(data).hexdigest()}.{_kind_of(data)}"
        self.files[name] = data
        return name


def _words(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _at(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _picture(data: bytes) -> dict[str, Any]:
    return _at(f"data:image/{_kind_of(data)};base64,{base64.b64encode(data).decode()}")


def _kind_of(data: bytes) -> str:
    return "jpeg" if data.startswith(JPEG) else "png"
