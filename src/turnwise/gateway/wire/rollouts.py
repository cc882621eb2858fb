"""What a client says of a rollout: in headers, of which stream, task and group it is; in a body, how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.config import StreamsConfig
from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.request import SESSION_ID, read_object
from turnwise.journal.rollouts.trajectories import LARGEST_OUTCOME
from turnwise.types import PERSONAL, Rollout

MOST_ROLLOUTS = 1024
LONGEST_NUMBER = 9
"""Digits of a number in a header."""
MOST_MASKED = 10_000
LONGEST_FAILURE = 1000
"""Characters of a word on why a rollout has no outcome."""
_NAMES = {"x-task-id": "X-Task-Id", "x-group-id": "X-Group-Id"}


def read_rollout(headers: Mapping[str, str], session: str | None, streams: StreamsConfig) -> Rollout | None:
    """What the headers say of the session as a rollout; None where it is a person's. Raises ApiError (400)."""
    name = headers.get("x-stream", PERSONAL).strip()
    beside = [header for header in (*_NAMES, "x-group-size") if header in headers]
    if name == PERSONAL:
        if beside:
            raise ApiError(
                400,
                f"{beside[0]} is of a rollout; name its stream in X-Stream, too",
                param="X-Stream",
                code="no_stream",
            )
        return None
    stream = streams.named(name)
    if stream is None:
        known = ", ".join([PERSONAL, *(each for each, _ in streams.items())])
        raise ApiError(400, f"there is no stream {name!r}, only {known}", param="X-Stream", code="unknown_stream")
    if session is None:
        raise ApiError(
            400, "a rollout needs a name of its own; send X-Session-Id", param="X-Session-Id", code="no_session"
        )
    for header, shown in _NAMES.items():
        if header in headers and not SESSION_ID.match(headers[header]):
            raise ApiError(400, f"{shown} is 1 to 200 letters, digits or any of . _ : @ = + -", param=shown)
    group = headers.get("x-group-id")
    size = _size(headers.get("x-group-size"), group, stream.group_size)
    return Rollout(name, headers.get("x-task-id", group or session), group or session, size)


def _size(given: str | None, group: str | None, default: int) -> int:
    """How many rollouts a group is to have; one without a group is alone."""
    if given is None:
        return default if group is not None else 1
    if not given.isdecimal() or len(given) > LONGEST_NUMBER or not 1 <= int(given) <= MOST_ROLLOUTS:
        raise ApiError(400, f"X-Group-Size is a number of rollouts from 1 to {MOST_ROLLOUTS}", param="X-Group-Size")
    if group is None and int(given) != 1:
        raise ApiError(400, "X-Group-Size is of a group; send its X-Group-Id, too", param="X-Group-Id")
    return int(given)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a rollout ended: with an ``outcome``, or with a ``failure`` that is not the policy's doing. ``cut_off``: the
    limit that ended it, where one did."""

    outcome: float | None
    failure: str | None
    masked: frozenset[int]
    cut_off: str | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """What is said of a session before its first request. ``instead_of``: a rollout that was lost in the middle."""

    rollout: Rollout
    instead_of: str | None


def parse_announced(body: bytes, session: str, streams: StreamsConfig) -> Announced:
    """The body of an announcement: the headers of a rollout as fields. Raises ApiError (400)."""
    raw = read_object(body)
    headers = {"stream": "x-stream", "task": "x-task-id", "group": "x-group-id", "group_size": "x-group-size"}
    known = {*headers, "instead_of"}
    if set(raw) - known or "stream" not in raw or not all(isinstance(each, (str, int)) for each in raw.values()):
        message = f"send an object of texts and numbers with 'stream', and of {', '.join(sorted(known))} what is known"
        raise ApiError(400, message, code="invalid_value")
    if not SESSION_ID.match(session):
        raise ApiError(400, "a session id is 1 to 200 letters, digits or any of . _ : @ = + -", param="session")
    instead_of = raw.get("instead_of")
    if instead_of is not None and not SESSION_ID.match(str(instead_of)):
        raise ApiError(400, "instead_of is the id of a session", param="instead_of", code="invalid_value")
    said = read_rollout({headers[key]: str(raw[key]) for key in headers if key in raw}, session, streams)
    if said is None:
        raise ApiError(400, "a person's session is not announced", param="stream", code="no_stream")
    return Announced(said, None if instead_of is None else str(instead_of))


def parse_outcome(body: bytes) -> Ending:
    """The body of an outcome. Raises ApiError (400)."""
    raw = read_object(body)
    known = {"outcome", "failure", "masked_steps", "cut_off"}
    if set(raw) - known or ("outcome" in raw) == ("failure" in raw) or ("cut_off" in raw and "failure" in raw):
        raise ApiError(
            400,
            "send an object with 'outcome' (a number), or with 'failure' (why there is none), 'masked_steps' if some "
            "steps are not to be trained on, and beside an outcome 'cut_off' (which limit) if one ended the rollout",
            code="invalid_value",
        )
    masked = raw.get("masked_steps", [])
    if not isinstance(masked, list) or len(masked) > MOST_MASKED or not all(map(_is_step, masked)):
        raise ApiError(
            400, "masked_steps is a list of step indices, from 0 on", param="masked_steps", code="invalid_value"
        )
    if "failure" in raw:
        return Ending(None, _said_why(raw["failure"], "failure"), frozenset(masked))
    cut_off = _said_why(raw["cut_off"], "cut_off") if "cut_off" in raw else None
    return Ending(_number(raw["outcome"]), None, frozenset(masked), cut_off)


def _is_step(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**31


def _said_why(given: Any, field: str) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > LONGEST_FAILURE:
        message = f"{field} is a non-empty string of at most {LONGEST_FAILURE} characters"
        raise ApiError(400, message, param=field, code="invalid_value")
    return given


def _number(given: Any) -> float:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or not abs(given) <= LARGEST_OUTCOME:  # what is no number compares with none
        message = f"outcome is a number from -{LARGEST_OUTCOME:.0f} to {LARGEST_OUTCOME:.0f}"
        raise ApiError(400, message, param="outcome", code="invalid_value")
    return float(given)
