"""Who acts in an environment: a model at a gateway, and two that show what a task's verifier is worth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import openai

from turnwise.environments.base import InfrastructureFailure, Observation

REQUEST_S = 600.0
SUBMIT = "submit"
MANNER = (
    "You solve a task in a Linux shell. Your folder is the working directory. In each answer give exactly one command: "
    "call the tool `run`, or write it in one ```bash block. You then see its output. Each command starts anew in the "
    f"folder; files stay. There is no network. When the task is done, give the command: {SUBMIT}"
)
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "run",
        "description": f"Run a shell command in the folder; `{SUBMIT}` ends the task.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


class Actor(Protocol):
    """Plays one episode."""

    def act(self, observation: Observation) -> str | None:
        """The next action; empty where none could be read, None where the actor has finished."""
        ...


class ScriptedActor:
    """Gives its commands one after the other: a task's oracle, or with none somebody who does nothing."""

    def __init__(self, commands: tuple[str, ...] = ()) -> None:
        self._rest = iter(commands)

    def act(self, observation: Observation) -> str | None:
        return next(self._rest, None)


class ModelActor:
    """A model at an OpenAI-compatible ``url`` (with `/v1`). Raises InfrastructureFailure where it cannot be asked."""

    def __init__(self, url: str, key: str, model: str, headers: Mapping[str, str]) -> None:
        self._client = openai.OpenAI(
            base_url=url, api_key=key, default_headers=dict(headers), max_retries=2, timeout=REQUEST_S
        )
        self._model = model
        self._told: list[Any] = [{"role": "system", "content": MANNER}]
        self._calls: list[str] = []
        """Ids of the tool calls that wait for their result."""

    def act(self, observation: Observation) -> str | None:
        if self._calls:
            for n, call in enumerate(self._calls):
                result = observation.text if n == 0 else "Not run: give one command in an answer."
                self._told.append({"role": "tool", "tool_call_id": call, "content": result})
        else:
            self._told.append({"role": "user", "content": observation.text})
        try:
            message = self._ask()
        except openai.BadRequestError as e:
            if _code(e) in ("context_length_exceeded", "step_limit"):  # the conversation is full: its end
                return None
            raise InfrastructureFailure(f"the gateway refuses a request: {str(e)[:300]}") from e
        except openai.OpenAIError as e:
            raise InfrastructureFailure(f"the gateway cannot be asked: {str(e)[:300]}") from e
        said = message.content or ""
        calls = [call for call in message.tool_calls or [] if call.type == "function"]
        self._calls = [call.id for call in calls]
        dumped = {"tool_calls": [call.model_dump() for call in calls]} if calls else {}
        self._told.append({"role": "assistant", "content": said} | dumped)
        command = called(calls[0].function.name, calls[0].function.arguments) if calls else fenced(said)
        return None if command.strip() == SUBMIT else command

    def _ask(self) -> Any:
        answer = self._client.chat.completions.create(model=self._model, messages=self._told, tools=[TOOL])
        if not answer.choices:
            raise InfrastructureFailure("the gateway gave an answer without a choice")
        return answer.choices[0].message


def called(name: str, arguments: str) -> str:
    """The command of a tool call; empty where there is none in it."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    command = given.get("command") if isinstance(given, dict) and name == "run" else None
    return command if isinstance(command, str) else ""


def fenced(text: str) -> str:
    """The command of the only ```bash block of an answer; empty where there is none, or several."""
    parts = text.split("```")
    blocks = [part.partition("\n") for part in parts[1::2]] if len(parts) % 2 else []
    commands = [body.strip() for kind, _, body in blocks if kind.strip() in ("bash", "sh", "shell")]
    return commands[0] if len(commands) == 1 else ""


def _code(error: openai.APIStatusError) -> str | None:
    return error.code
