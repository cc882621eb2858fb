"""A real OpenEnv server with two environments of ours: a number to guess, and tools that count. Run by the Python of
an environment of its own (`make openenv`): `python openenv_server.py guess|tools PORT PLACES`."""

import sys
from typing import Any

import uvicorn
from openenv.core.env_server import (  # pyright: ignore[reportMissingImports]
    Action,
    Environment,
    MCPEnvironment,
    Observation,
    State,
    create_fastapi_app,
)


class Guess(Action):
    number: int


class Seen(Observation):
    said: str = ""


class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._number, self._state = 0, State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        self._number, self._state = (seed or 0) % 10, State(episode_id=episode_id)
        return Seen(said="Guess a number from 0 to 9.")

    def step(self, action: Guess, timeout_s: float | None = None, **more: Any) -> Seen:
        self._state.step_count += 1
        if action.number == 99:
            raise ValueError("there is no such number here")
        if action.number == self._number:
            return Seen(said="That is it.", reward=1.0, done=True)
        return Seen(said="Higher." if action.number < self._number else "Lower.", reward=-0.1)

    @property
    def state(self) -> State:
        return self._state


class Counting(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]

        server, self.count, self._state = FastMCP("counting"), 0, State()

        @server.tool
        def add(amount: int) -> str:
            """Add to the count."""
            self.count += amount
            return f"the count is {self.count}"

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Seen:
        self.count, self._state = 0, State(episode_id=episode_id)
        return Seen(said="Count to five.")

    def _step_impl(self, action: Action, timeout_s: float | None = None, **more: Any) -> Observation:
        raise ValueError("call a tool")

    async def step_async(self, action: Action, timeout_s: float | None = None, **more: Any) -> Observation:
        seen = await super().step_async(action, timeout_s, **more)
        seen.reward, seen.done = float(self.count == 5), self.count >= 5
        return seen

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    kind, port, places = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    made, action = (Guessing, Guess) if kind == "guess" else (Counting, Action)
    app = create_fastapi_app(made, action, Seen, max_concurrent_envs=places)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
