"""Who acts in an environment: a model at a gateway, or a script that shows what a task's verifier is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import openai

from turnwise.environments.base import Action, CutOff, InfrastructureFailure, Instructions, Observation
from turnwise.environments.reading import called

REQUEST_S = 600.0
NOT_RUN = "Not run."
LIMITS = {"context_length_exceeded": "the context is full", "step_limit": "the limit of steps"}
"""Refusals of the gateway that end an episode, by their code."""


class Actor(Protocol):
    """Plays one episode."""

    def act(self, observation: Observation) -> Action | None:
        """The next action, None where the actor has finished. Raises CutOff where a limit ends it."""
        ...


class ScriptedActor:
    """Does its actions one after the other: a task's oracle, or with none somebody who does nothing."""

    def __init__(self, actions: Sequence[Action] = ()) -> None:
        self._rest = iter(actions)

    def act(self, observation: Observation) -> Action | None:
        return next(self._rest, None)


class ModelActor:
    """A model at an OpenAI-compatible ``url`` (with `/v1`). ``read`` says what an answer without a call asks for.

    Raises InfrastructureFailure where it cannot be asked, and CutOff where the gateway takes no more of it.
    """

    def __init__(
        self,
        url: str,
        key: str,
        model: str,
        headers: Mapping[str, str],
        instructions: Instructions,
        read: Callable[[str], Action],
    ) -> None:
        self._client = openai.OpenAI(
            base_url=url, api_key=key, default_headers=dict(headers), max_retries=2, timeout=REQUEST_S
        )
        self._model, self._tools, self._read = model, list(instructions.tools), read
        self._told: list[Any] = [{"role": "system", "content": instructions.system}]
        self._calls: list[str] = []
        """Ids of the tool calls that wait for their result."""

    def act(self, observation: Observation) -> Action | None:
        self._hear(observation)
        try:
            message = self._ask()
        except openai.BadRequestError as e:
            if e.code in LIMITS:
                raise CutOff(LIMITS[e.code]) from e
            raise InfrastructureFailure(f"the gateway refuses a request: {str(e)[:300]}") from e
        except openai.OpenAIError as e:
            raise InfrastructureFailure(f"the gateway cannot be asked: {str(e)[:300]}") from e
        said = message.content or ""
        calls = [call for call in message.tool_calls or [] if call.type == "function"]
        self._calls = [call.id for call in calls]
        dumped = {"tool_calls": [call.model_dump() for call in calls]} if calls else {}
        self._told.append({"role": "assistant", "content": said} | dumped)
        if not calls:
            return self._read(said)
        return Action(tuple(called(call.function.name, call.function.arguments) for call in calls), said)

    def _hear(self, observation: Observation) -> None:
        """Each call gets its result; what is seen beside them, or without one, is told as the user's."""
        results = observation.results if self._calls else ()
        if self._calls and not results:
            results = (observation.text, *(NOT_RUN for _ in self._calls[1:]))
        for call, result in zip(self._calls, results, strict=True):
            self._told.append({"role": "tool", "tool_call_id": call, "content": result})
        if observation.text and observation.text not in results:
            self._told.append({"role": "user", "content": observation.text})

    def _ask(self) -> Any:
        asked: dict[str, Any] = {"tools": self._tools} if self._tools else {}
        answer = self._client.chat.completions.create(model=self._model, messages=self._told, **asked)
        if not answer.choices:
            raise InfrastructureFailure("the gateway gave an answer without a choice")
        return answer.choices[0].message
