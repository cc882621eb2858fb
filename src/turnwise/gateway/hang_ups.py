"""What is sent to a client that is gone goes nowhere, as ASGI has it: it is no failure of ours.

uvloop closes a connection before its server is told, and raises RuntimeError for what is written in between; without
this, a client that hung up while answers were on their way was logged and counted as a failed request. The answer is
ended by what tells of the hang-up: the disconnect that follows.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSED = "the handler is closed"


class HangUps:
    """An application whose `send` may be called although nobody is there any more."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_if_there(message: Message) -> None:
            try:
                await send(message)
            except RuntimeError as e:
                if _CLOSED not in str(e):
                    raise

        await self.app(scope, receive, send_if_there)
