"""Speaks with an OpenEnv server. The state of an episode lives in its WebSocket: who closes that has ended the episode.

What a server says is of bounded size and untrusted, and every wait has a limit. No proxy is asked.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from turnwise.environments.base import InfrastructureFailure
from turnwise.errors import DataError

OPEN_S = 20.0
ANSWER_S = 120.0
"""Longest wait for the answer to one message."""
PLACES_S = 120.0
"""Longest wait for a place among the sessions of a server."""
MOST_BYTES = 8 << 20
"""Of one message."""
TOOLS_ALONE = ("Action", "CallToolAction", "ListToolsAction")
"""Titles of the action schemas of servers that offer tools, and say which when they are asked."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a server shows after a reset or a step. ``reward`` is None where it gives none."""

    observation: Mapping[str, Any]
    reward: float | None
    done: bool


class ActionRefused(Exception):
    """The server did not take an action; the text is its own, of bounded length."""


class OpenEnvSession:
    """One episode at a server. Every call raises InfrastructureFailure where the server is why it fails."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._connection: ClientConnection | None = None
        self._held = contextlib.ExitStack()

    def reset(self, asked: Mapping[str, Any]) -> Shown:
        """Begin an episode in a connection of its own; waits for a place where the server is full."""
        until = time.monotonic() + PLACES_S
        while True:
            self.close()
            self._connection = self._connected()
            kind, data = self._ask("reset", asked)
            if kind == "observation":
                return _shown(data)
            if data.get("code") != "CAPACITY_REACHED" or time.monotonic() >= until:
                more = "; raise its max_concurrent_envs" if data.get("code") == "CAPACITY_REACHED" else ""
                raise InfrastructureFailure(f"{self._server} begins no episode: {_message(data)}{more}")
            time.sleep(1.0)

    def step(self, action: Mapping[str, Any]) -> Shown:
        """Do one action. Raises ActionRefused where the server says that it is none, or fails at it."""
        kind, data = self._ask("step", action)
        if kind != "observation":
            raise ActionRefused(_message(data))
        return _shown(data)

    def close(self) -> None:
        """End the episode. May be called again."""
        self._connection = None
        with contextlib.suppress(OSError, WebSocketException):
            self._held.close()

    def _connected(self) -> ClientConnection:
        at = urlsplit(self._server)
        url = at._replace(scheme="wss" if at.scheme == "https" else "ws", path=f"{at.path.rstrip('/')}/ws").geturl()
        try:
            opened = connect(url, open_timeout=OPEN_S, close_timeout=5, max_size=MOST_BYTES, proxy=None)
            return self._held.enter_context(opened)
        except (OSError, WebSocketException) as e:
            raise InfrastructureFailure(f"no OpenEnv server answers at {self._server}: {str(e)[:200]}") from e

    def _ask(self, kind: str, data: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        if self._connection is None:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        try:
            with contextlib.suppress(WebSocketException):  # a full server speaks and closes before it is asked
                self._connection.send(json.dumps({"type": kind, "data": dict(data)}))
            said = self._connection.recv(ANSWER_S)
            answer = json.loads(said)
            found, told = answer["type"], answer["data"]
        except (OSError, WebSocketException) as e:
            what = f"did not answer within {ANSWER_S:.0f} s" if isinstance(e, TimeoutError) else "closed the connection"
            self.close()
            raise InfrastructureFailure(f"{self._server} {what} in the middle of an episode") from e
        except (ValueError, RecursionError, KeyError, TypeError) as e:
            raise InfrastructureFailure(f"{self._server} does not speak as an OpenEnv server does") from e
        if found not in ("observation", "error") or not isinstance(told, dict):
            raise InfrastructureFailure(f"{self._server} answers {kind} with {str(found)[:80]!r}")
        return found, told


def action_schema(server: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The JSON schema of a server's actions, and the tools of one that offers tools. Raises DataError."""
    try:
        answer = httpx.get(f"{server.rstrip('/')}/schema", timeout=OPEN_S, trust_env=False)
        answer.raise_for_status()
        schema = answer.json()["action"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as e:
        raise DataError(f"no OpenEnv server shows its actions at {server}/schema: {str(e)[:200]}") from e
    if not isinstance(schema, dict):
        raise DataError(f"{server}/schema has no schema of actions")
    return schema, _tools(server) if schema.get("title") in TOOLS_ALONE else []


def _tools(server: str) -> list[dict[str, Any]]:
    session = OpenEnvSession(server)
    try:
        session.reset({})
        found = session.step({"type": "list_tools"}).observation.get("tools")
    except (InfrastructureFailure, ActionRefused) as e:
        raise DataError(f"{server} does not say which tools it has: {e}") from e
    finally:
        session.close()
    if not isinstance(found, list) or not found:
        raise DataError(f"{server} offers tools, and names none")
    return found


def _shown(data: Mapping[str, Any]) -> Shown:
    observation, reward = data.get("observation"), data.get("reward")
    is_number = isinstance(reward, (bool, int, float)) and math.isfinite(reward)
    if not isinstance(observation, dict) or not (reward is None or is_number):
        raise InfrastructureFailure("an OpenEnv server gave no observation, or a reward that is no number")
    return Shown(observation, None if reward is None else float(reward), data.get("done") is True)


def _message(data: Mapping[str, Any]) -> str:
    """What a server says went wrong, with what it found in an action where it says that."""
    parts = [str(data.get("message", "it says nothing"))]
    for fault in data.get("errors") or ():
        if isinstance(fault, dict):
            where = ".".join(map(str, fault.get("loc") or ()))
            parts.append(f"{where}: {fault.get('msg', '')}")
    return "; ".join(parts)[:500]
