"""What a rollout tells the gateway: that it begins, and how it ended. A gateway that is started again is waited for.

Everything that is told may be told again: the gateway takes the same word as the first time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx

UNDER_WAY_S = 120.0
"""Longest wait for an answer that is still under way."""
PLACES_S = 600.0
"""Longest wait for a place among the open groups of a stream."""
FINAL = (
    "session_not_found",
    "group_closed",
    "other_outcome",
    "rollout_ended",
    "group_full",
    "group_mismatch",
    "not_a_rollout",
)
"""Refusals that will be the same next time."""
_REQUEST_S = 30.0


@dataclass(frozen=True, slots=True)
class GatewayAt:
    """A running gateway. ``person`` is the token that may announce rollouts and post outcomes; ``patience_s``: how long
    one that does not answer is waited for."""

    url: str
    agent: str
    person: str
    patience_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the gateway did not take something; ``final``: and never will. ``code`` is its word for that."""

    why: str
    final: bool
    code: str = ""


def announce(gateway: GatewayAt, session: str, said: Mapping[str, object]) -> Refused | None:
    """Say that a session is a rollout, before its first request. None: it is. One in whose place it is to be played may
    have been lost before the gateway heard of it."""
    refused = _post(gateway, session, "rollout", said)[0]
    if refused is not None and refused.code == "no_such_rollout" and "instead_of" in said:
        alone = {key: value for key, value in said.items() if key != "instead_of"}
        return _post(gateway, session, "rollout", alone)[0]
    return refused


def steps_answered(gateway: GatewayAt, session: str, said: Mapping[str, object]) -> int:
    """How many steps of a rollout under way were answered: it is announced once more, which changes nothing."""
    return _post(gateway, session, "rollout", said)[1]


def post_outcome(gateway: GatewayAt, session: str, said: Mapping[str, object]) -> tuple[Refused | None, int]:
    """Say how a rollout ended; gives also how many steps the gateway has of it."""
    return _post(gateway, session, "outcome", said)


def _post(gateway: GatewayAt, session: str, what: str, said: Mapping[str, object]) -> tuple[Refused | None, int]:
    url = f"{gateway.url}/v1/sessions/{quote(session, safe='')}/{what}"
    headers = {"Authorization": f"Bearer {gateway.person}"}
    begun = time.monotonic()
    while True:
        waited = time.monotonic() - begun
        try:
            response = httpx.post(url, headers=headers, json=said, timeout=_REQUEST_S, trust_env=False)
            told = response.json()
        except (httpx.HTTPError, ValueError) as e:
            if waited < gateway.patience_s:
                time.sleep(0.5)
                continue
            return Refused(f"the gateway did not take the {what} ({type(e).__name__})", False), 0
        if response.status_code == 200:
            return None, int(told.get("steps", 0))
        fault = told.get("error", {}) if isinstance(told, dict) else {}
        code = fault.get("code")
        limits = {"answer_under_way": UNDER_WAY_S, "too_many_groups": PLACES_S}
        longest = limits.get(str(code), gateway.patience_s if response.status_code >= 500 else 0.0)
        if waited < longest:
            time.sleep(0.2 if code == "answer_under_way" else 1.0)
            continue
        # An outcome refused for its form stays so; what is wrong at the beginning may be the gateway's settings.
        final = code in FINAL or (what == "outcome" and response.status_code in (400, 422))
        return Refused(str(fault.get("message", response.status_code))[:300], final, str(code)), 0
