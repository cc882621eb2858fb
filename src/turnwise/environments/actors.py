"""Who acts in an environment: a model at a gateway, or a script that shows what a task's verifier is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import openai

from turnwise.environments.base import Action, CutOff, InfrastructureFailure, Instructions, Kind, Observation, Task
from turnwise.environments.reading import called
from turnwise.environments.transcript import KEPT_THINKING, Form, RolloutTranscript, instructions_of
from turnwise.trajectories.record import AnswerCost

REQUEST_S = 600.0
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


class RecordedActor:
    """Somebody who asks no model, and whose conversation is written down as a model would have had it, in
    ``transcript``."""

    def __init__(self, actor: Actor, kind: Kind, task: Task, form: Form, keep_pictures: int = 1) -> None:
        self._actor, self._kind = actor, kind
        self._form: Form = form
        self.transcript = RolloutTranscript(instructions_of(kind, task, form), keep_pictures)

    def act(self, observation: Observation) -> Action | None:
        self.transcript.hear(observation)
        action = self._actor.act(observation)
        if action is not None:
            self.transcript.act(self._kind, action, self._form)
        return action


class ModelActor:
    """A model at an OpenAI-compatible ``url`` (with `/v1`). ``read`` says what an answer without a call asks for;
    ``asked`` is sent beside model, messages and tools; of pictures those of the ``keep_pictures`` latest observations.
    What was said is in ``transcript``.

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
        asked: Mapping[str, Any] | None = None,
        keep_pictures: int = 1,
    ) -> None:
        self._client = openai.OpenAI(
            base_url=url,
            api_key=key,
            default_headers=dict(headers),
            max_retries=2,
            timeout=REQUEST_S,
            http_client=openai.DefaultHttpxClient(trust_env=False),  # the gateway is no proxy's business
        )
        self._model, self._read, self._asked = model, read, dict(asked or {})
        self.transcript = RolloutTranscript(instructions, keep_pictures)
        self.spent: list[AnswerCost] = []
        """What each answer took, and thought."""
        self.unreadable = 0
        """Answers so far in which no call was found."""

    def act(self, observation: Observation) -> Action | None:
        self.transcript.hear(observation)
        try:
            message = self._ask(observation)
        except openai.BadRequestError as e:
            if e.code in LIMITS:
                raise CutOff(LIMITS[e.code]) from e
            raise InfrastructureFailure(f"the gateway refuses a request: {str(e)[:300]}") from e
        except openai.OpenAIError as e:
            raise InfrastructureFailure(f"the gateway cannot be asked: {str(e)[:300]}") from e
        said = message.content or ""
        calls = [call for call in message.tool_calls or [] if call.type == "function"]
        thought = getattr(message, "reasoning_content", None)  # no field of OpenAI's own
        self.transcript.say(said, [call.model_dump() for call in calls], thought if isinstance(thought, str) else "")
        if not calls:
            action = self._read(said)
            self.unreadable += not action.calls
            return action
        return Action(tuple(called(call.function.name, call.function.arguments) for call in calls), said)

    def _ask(self, observation: Observation) -> Any:
        asked: dict[str, Any] = {"tools": self.transcript.tools} if self.transcript.tools else {}
        if self.transcript.thought:
            asked["extra_body"] = KEPT_THINKING
        answer = self._client.chat.completions.create(
            model=self._model, messages=self.transcript.messages, **asked, **self._asked
        )
        if not answer.choices:
            raise InfrastructureFailure("the gateway gave an answer without a choice")
        message, usage = answer.choices[0].message, answer.usage
        thought = str(getattr(message, "reasoning_content", None) or "")
        tokens = (usage.prompt_tokens, usage.completion_tokens) if usage is not None else (0, 0)
        self.spent.append(AnswerCost(*tokens, thought, observation.images[-1] if observation.images else None))
        return message
