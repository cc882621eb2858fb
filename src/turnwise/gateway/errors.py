"""Errors of the HTTP API in OpenAI's shape: a status, a sentence that helps, and the parameter at fault."""

from __future__ import annotations

import math
from typing import Any

from fastapi.responses import JSONResponse

from turnwise.errors import EngineError, JournalError, RolloutRefused

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    421: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
    507: "insufficient_storage_error",
    529: "service_unavailable_error",
}
TOO_LONG = "context_length_exceeded"
"""The code of a prompt that does not fit into the context, whoever said so."""
CODES = {429: "engine_overloaded", 503: "engine_unavailable", 529: "engine_overloaded"}
"""What an engine's error is called that names no code of its own; a client may try these again after a pause."""


class ApiError(Exception):
    """A refusal. `param` names the field at fault, `code` is for programs, the message is for people.

    `details` are Anthropic's, for its clients alone: some go on in another way where they find a reason there.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers
        self.details = details

    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), self.status, headers=self.headers)


def as_api_error(error: Exception) -> ApiError:
    """Any failure as the API error that fits it. An unforeseen one is a 500 that keeps its details to the log."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineError):
        pause = 1 if error.retry_after is None and error.status in CODES else error.retry_after
        headers = None if pause is None else {"Retry-After": str(math.ceil(pause))}
        code = error.code or CODES.get(error.status, "engine_error")
        param = "messages" if code == TOO_LONG else None
        return ApiError(error.status, str(error), param=param, code=code, headers=headers)
    if isinstance(error, RolloutRefused):
        headers = {"Retry-After": "5"} if error.status == 429 else None
        return ApiError(error.status, str(error), code=error.code, headers=headers)
    if isinstance(error, JournalError):
        return ApiError(507, f"the turn could not be recorded, so it was not answered: {error}", code="journal_error")
    return ApiError(500, "something failed inside turnwise; its log has the details", code="internal_error")
