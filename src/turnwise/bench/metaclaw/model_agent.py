"""An agent of ours: a model at any OpenAI-compatible endpoint, with tools to read, write and run in the day's folder.

A day is one conversation. Reading and writing happen from outside, where no link is followed; commands run in the
sandbox. What the model says and what its commands print is only ever text here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpx
import openai

from turnwise.bench.metaclaw.data import Round, Workday
from turnwise.errors import EngineError, EngineUnreachable, FolderFault
from turnwise.sandbox.box import Box
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.limits import BoxLimits

MOST_SHOWN = 3000
"""Characters of a file or of a command's output that the model gets to see."""
MOST_WRITTEN = 200_000
"""Characters of a file that the model writes."""
MOST_TALK = 16_000
"""Characters of a conversation; what is before the current round is left out of a longer one."""
MOST_CALLS = 8
"""Tool calls of one answer."""
LAST_WORD = 8
"""Tokens of what the model says to the day's last feedback, which is nobody's concern."""
REQUEST_S = 600.0
RUN_S = 20.0
PAGES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md")
"""Of the day's files, those that an agent of this bench is told at the beginning."""
MANNER = """You work in a folder with files. Use the tools to read, write and run; paths are relative to the folder.
Today's files are in {day}/, and {day}/README.md says which day it is. When a task is done, say so in one sentence.
Answer a multiple-choice question without tools, with \\bbox{{A}} or \\bbox{{A,C}}."""


def _tool(name: str, what: str, **words: str) -> Any:
    properties = {word: {"type": "string", "description": said} for word, said in words.items()}
    schema = {"type": "object", "properties": properties, "required": list(words)}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": schema}}


TOOLS = [
    _tool("read", "Read a text file.", path="The file, as day01/notes.txt"),
    _tool("write", "Make or replace a text file.", path="The file, as day01/notes.json", content="All of its text"),
    _tool("run", "Run a shell command in the folder.", command="The command, as: ls day01"),
]


@dataclass(frozen=True, slots=True)
class ModelAt:
    """Where a model answers. ``url`` ends with /v1; ``session`` begins the names of its conversations.
    ``label``: what tables call it, where that is not the model's name."""

    url: str
    model: str
    key: str
    session: str
    label: str = ""
    steps: int = 10
    tokens: int = 700
    temperature: float = 0.0
    seed: int = 0


class ModelAgent:
    """Raises EngineError where the endpoint is down, refuses the key or has too much to do."""

    def __init__(self, at: ModelAt, limits: BoxLimits | None = None) -> None:
        self._at, self._limits = at, limits
        self._client = openai.OpenAI(base_url=at.url, api_key=at.key, max_retries=2, timeout=REQUEST_S)

    @property
    def name(self) -> str:
        return self._at.label or self._at.model

    def begin(self, day: Workday, folder: GuestFolder) -> None:
        self._folder, self._box = folder, Box(folder, self._limits)
        self._session = f"{self._at.session}-{day.id}"
        pages = (day.inputs[page].decode("utf-8", "replace") for page in PAGES if page in day.inputs)
        system = "\n\n".join([*(page[:MOST_SHOWN].strip() for page in pages), MANNER.format(day=day.id)])
        self._told: list[dict[str, Any]] = [{"role": "system", "content": system}]

    def answer(self, asked: Round, feedback: str | None) -> tuple[str, int]:
        if sum(len(json.dumps(message)) for message in self._told) > MOST_TALK:
            self._told = self._told[:1]
        question = asked.question if feedback is None else f"{feedback}\n\n{asked.question}"
        self._told.append({"role": "user", "content": question})
        said, step = "", 0
        for step in range(1, self._at.steps + 1):
            try:
                message = self._ask(self._at.tokens)
            except openai.BadRequestError as e:  # too long by now, or a call that the endpoint cannot read back
                self._told = [self._told[0]]
                return f"(refused: {str(e)[:200]})", step
            said = message.content or ""
            calls = [call for call in message.tool_calls or [] if call.type == "function"][:MOST_CALLS]
            if not calls:
                self._told.append({"role": "assistant", "content": said})
                break
            self._told.append(
                {"role": "assistant", "content": said, "tool_calls": [call.model_dump() for call in calls]}
            )
            for call in calls:
                result = self._use(call.function.name, call.function.arguments)
                self._told.append({"role": "tool", "tool_call_id": call.id, "content": result})
        else:
            self._told.append({"role": "assistant", "content": "I stop here."})
        return said, step

    def end(self, feedback: str | None) -> None:
        """Say the last feedback, so that it is a next state, too, and close the session where there is such a thing."""
        if feedback is not None:
            self._told.append({"role": "user", "content": feedback})
            try:
                self._ask(LAST_WORD)
            except openai.BadRequestError:
                return
        root = self._at.url.removesuffix("/v1")
        headers = {"Authorization": f"Bearer {self._at.key}"}
        try:
            httpx.post(f"{root}/v1/sessions/{self._session}/close", headers=headers, timeout=30, trust_env=False)
        except httpx.HTTPError as e:
            raise EngineUnreachable(f"{root} went away: {e}") from e

    def _ask(self, tokens: int) -> Any:
        at = self._at
        try:
            answer = self._client.chat.completions.create(
                model=at.model,
                messages=list(self._told),  # pyright: ignore[reportArgumentType]
                tools=TOOLS,
                max_tokens=tokens,
                temperature=at.temperature,
                seed=at.seed,
                extra_headers={"X-Session-Id": self._session, "X-Turn-Type": "main"},
            )
        except openai.BadRequestError:
            raise
        except openai.APIConnectionError as e:
            raise EngineUnreachable(f"nothing answers at {at.url}: {e}; the day is played anew the next time") from e
        except openai.APIStatusError as e:
            raise EngineError(f"{at.url} answers {e.status_code}: {str(e)[:300]}", e.status_code) from e
        except openai.OpenAIError as e:
            raise EngineError(f"{at.url}: {str(e)[:300]}") from e
        if not answer.choices:
            raise EngineError(f"{at.url} gave an answer without a choice")
        return answer.choices[0].message

    def _use(self, name: str, arguments: str) -> str:
        """What a tool gives back. A fault is told to the model, which may do better."""
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return "error: the arguments are not JSON"
        wanted = {"read": ("path",), "write": ("path", "content"), "run": ("command",)}.get(name)
        if wanted is None:
            return f"error: there is no tool {name[:40]!r}; there are read, write and run"
        if not isinstance(given, dict) or not all(isinstance(given.get(word), str) for word in wanted):
            return f"error: {name} wants {' and '.join(wanted)}, as text"
        words = [given[word].removeprefix("/box/") if word == "path" else given[word] for word in wanted]
        try:
            return self._do(name, words)
        except FolderFault as e:
            return f"error: {e}"
        except FileNotFoundError:
            return f"error: there is no {words[0][:200]}; there are: {', '.join(self._near(words[0]))[:1000]}"

    def _do(self, name: str, words: list[str]) -> str:
        if name == "read":
            return _shown(self._folder.read(words[0]))
        if name == "write":
            if len(words[1]) > MOST_WRITTEN:
                return f"error: a file has at most {MOST_WRITTEN} characters"
            self._folder.write(words[0], words[1].encode("utf-8", "replace"))
            return f"wrote {words[0]}"
        if "\0" in words[0]:
            return "error: a command has no NUL in it"
        ran = self._box.run(words[0], RUN_S)
        ended = f"ended by the limit of {ran.stopped_by}" if ran.stopped_by else f"exit status {ran.status}"
        return f"{_shown(ran.output)}\n({ended})".strip()

    def _near(self, way: str) -> Iterable[str]:
        folder = way.rpartition("/")[0]
        return [f"{folder}/{name}".lstrip("/") for name in self._folder.names(folder)[:30]]


def _shown(content: bytes) -> str:
    text = content[: 4 * MOST_SHOWN].decode("utf-8", "replace").replace("\0", "\ufffd")
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n… ({len(text) - MOST_SHOWN} characters more)"
