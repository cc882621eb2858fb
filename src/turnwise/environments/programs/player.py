"""Lets a program play an episode: in the sandbox, over the task's folder, with the gateway as its only way out.

The program is told the session in its base URL, and has that rollout's own token and nothing else of ours. Its own
home is apart from the task's folder. What it costs and how often it asks are the gateway's to limit, its time is ours.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from turnwise.agents.endpoint import Endpoint
from turnwise.environments.base import Worked
from turnwise.environments.host import Held
from turnwise.environments.programs.table import HOME, AgentProgram
from turnwise.sandbox.bubblewrap import PROGRAMS as SYSTEM
from turnwise.sandbox.folder import delete_folder
from turnwise.sandbox.leftovers import is_left, named
from turnwise.sandbox.limits import Allowed, BoxLimits, Ran

GIVEN = "/given"
"""Where its files stand inside until they are copied into its home, which it may write."""
LIMIT_S = 900.0
"""Longest time of one episode."""
MOST_SHOWN = 500
"""Characters of a program's last words."""


@dataclass(frozen=True, slots=True)
class ProgramPlayer:
    """``url`` is the session's base URL without `/v1`, ``context`` the model's. ``folder``: where its files are written
    for as long as it runs."""

    program: AgentProgram
    task: str
    url: str
    token: str
    model: str
    context: int | None
    folder: Path
    limit_s: float = LIMIT_S

    def work(self, held: Held) -> Worked:
        """Run the program to its end. One that fails by itself, and is not cut off, has a fault: the model may have
        ended it, or a refused request did."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for entry in self.folder.iterdir():
            if is_left(entry.name):  # of a player that was killed; its token is in it
                delete_folder(entry)
        place = self.folder / named()
        place.mkdir(mode=0o700)
        try:
            endpoint = Endpoint(self.inside(), self.token, self.model, self.context)
            for way, text in self.program.files(endpoint).items():
                file = place / way
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            ran = held.work(self._line(), self._limits(), self._allowed(place))
        finally:
            delete_folder(place)
        words = ran.output[-8 * MOST_SHOWN :].decode(errors="replace").strip()[-MOST_SHOWN:]
        if ran.stopped_by == "time":
            return Worked(0, "the limit of time", {"program": words})
        if ran.status and not ran.stopped_by:
            fault = f"{self.program.name} ended with status {ran.status}: {words}"
            return Worked(0, None, {"program": words, "status": ran.status}, fault)
        return Worked(0, None, {"program": words, **_stopped(ran)})

    def inside(self) -> str:
        """The session's base URL for who is inside, where the gateway is reached by loopback alone."""
        at = urlsplit(self.url)
        return at._replace(netloc=f"127.0.0.1:{_port(at)}").geturl()

    def behind(self) -> str:
        """The gateway's own address, as the sandbox is told of it."""
        at = urlsplit(self.url)
        host = f"[{at.hostname}]" if ":" in (at.hostname or "") else at.hostname
        return f"{host}:{_port(at)}"

    def _line(self) -> str:
        start = shlex.join(self.program.command(self.task))
        return f"mkdir -p {HOME} && cp -r {GIVEN}/. {HOME}/ && exec {start}"

    def _limits(self) -> BoxLimits:
        memory = self.program.memory_mb
        return BoxLimits(
            seconds=self.limit_s, memory_mb=memory, processes=256, output_kb=4096, file_mb=256, disk_mb=512, cores=2.0
        )

    def _allowed(self, place: Path) -> Allowed:
        places = self.program.places()
        sees = {str(folder): folder for folder in places} | {GIVEN: place}
        for folder in places:  # a Python environment is nothing without the Python that it was made with
            python = (folder / "bin/python").resolve().parents[1]
            if python.is_dir() and not python.is_relative_to("/usr") and python != folder:
                sees[str(python)] = python
        variables = {
            "HOME": HOME,
            "PATH": ":".join([*(f"{folder}/bin" for folder in reversed(places)), *SYSTEM]),
            "CI": "1",
            "NO_PROXY": "127.0.0.1",
        }
        return Allowed(reach={"gateway": self.behind()}, sees=sees, variables=variables | dict(self.program.variables))


def _port(at: SplitResult) -> int:
    return at.port or (443 if at.scheme == "https" else 80)


def _stopped(ran: Ran) -> dict[str, str]:
    """A limit of the sandbox that the program met is the policy's doing, and told beside the outcome."""
    return {} if ran.stopped_by is None else {"stopped_by": ran.stopped_by}
