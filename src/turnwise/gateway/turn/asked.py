"""What a request asks, whole: with all that it only names from the record, and what it is known again by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from turnwise.gateway.errors import ApiError
from turnwise.gateway.lineage.history import History, hash_history, turn_kind
from turnwise.gateway.lineage.placement import Claim
from turnwise.gateway.wire.http_request import Caller
from turnwise.gateway.wire.request import ModelRequest, check_conversation, without_prefill
from turnwise.gateway.wire.responses.named_items import can_be_named, with_named_items
from turnwise.gateway.wire.thinking import keeps_thinking
from turnwise.journal import Journal
from turnwise.types import TurnKind


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """A request whose messages are all there, who sent it in which format, and the hashes it is known again by."""

    request: ModelRequest
    caller: Caller
    format: str
    kind: TurnKind
    history: History
    claim: Claim
    request_hash: str

    @property
    def wants_choices(self) -> bool:
        """Whether an upstream is asked for what the record does not keep: further choices, log-probs."""
        given = self.request.options.get("as_given", {})
        return bool(given.get("logprobs")) or given.get("n", 1) != 1


def read_asked(request: ModelRequest, caller: Caller, format_name: str, journal: Journal) -> WholeRequest:
    """The request whole. Raises ApiError (400) for something it names that is not there."""
    request, caller = _with_previous(_with_items(request, caller, journal), caller, journal)
    request = without_prefill(request)
    kind = turn_kind(caller.turn_type, request.messages, request.max_tokens)
    history = hash_history(request.messages)
    parts = _apart_from_history(request, kind)
    claim = Claim(
        caller.key,
        caller.session_id or request.session,
        weak=caller.session_id is None,
        main=caller.turn_type == TurnKind.MAIN,
        asked=lambda earlier: _digest(earlier, *parts),
    )
    request_hash = _digest(history.chain[-1], *parts, *([f"begun {request.prefill}"] if request.prefill else []))
    return WholeRequest(request, caller, format_name, kind, history, claim, request_hash)


def _with_items(request: ModelRequest, caller: Caller, journal: Journal) -> ModelRequest:
    """The request with what its named items stand for."""
    if not request.named_items:
        return request
    messages = with_named_items(request.messages, request.named_items, journal, caller.key)
    if request.previous is None:
        check_conversation(messages, "input")
    return replace(request, messages=messages, named_items={})


def _with_previous(request: ModelRequest, caller: Caller, journal: Journal) -> tuple[ModelRequest, Caller]:
    """The request with the history of the response it goes on from before it, in that response's session."""
    if request.previous is None:
        return request, caller
    row = journal.lookups.turn(request.previous)
    if row is None or not can_be_named(row, caller.key):
        raise ApiError(
            400,
            "there is no such previous response; send the history in 'input' instead",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    history = [*journal.lookups.messages(row.id), row.answer]
    if row.params.get("instructions") and history[0].role == "system":
        history = history[1:]  # instructions hold for one response
    instructed = 1 if request.record.get("instructions") else 0  # what is in the input stays behind the history
    messages = [*request.messages[:instructed], *history, *request.messages[instructed:]]
    check_conversation(messages, "input")
    session = caller.session_id or row.session_id
    return replace(request, messages=messages), replace(caller, session_id=session, source="previous_response")


def _apart_from_history(request: ModelRequest, kind: TurnKind) -> list[Any]:
    """What two requests share that are the same one, beside their history.

    The name in the body is part of it, for their session may be another. So are wishes that change the prompt or bind
    the answer; where there are none the digest is as it always was.
    """
    wishes = (request.tool_choice, request.structured, request.thinking)
    parts: list[Any] = [json.dumps(request.tools), request.model, kind, request.session]
    parts += [json.dumps(wishes)] if wishes != (None, None, None) else []
    parts += ["keeps thinking"] if keeps_thinking(request) else []
    return parts + ([json.dumps(request.grammar)] if request.grammar is not None else [])


def _digest(*parts: Any) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
