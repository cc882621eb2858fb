"""Browsers side by side for a long time among pages that hang, crash, redirect without end or are far too large.

Each rollout meets one fault and then does its task. What must come of it is known beforehand: whose fault was counted,
and that no rollout is lost but those whose browser was killed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.bench.web.pages import misbehaving_site
from turnwise.bench.web.processes import browser_memory, browser_processes
from turnwise.config import load_config
from turnwise.environments.base import Action, Call, Observation, Task, TaskOutcome
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.host import Host
from turnwise.environments.rollout import Ended, Play, Rollouts
from turnwise.journal import Journal

AT_ONCE = 8
MOST_STEPS = 12
ROUND = 3
"""Rollouts of each trouble in a round; the clock is looked at between two rounds."""
GONE_S = 20.0
"""Longest wait for the last browsers to be gone at the end."""
CLICK = Call("click", {"x": 60, "y": 30})
DONE = Action((Call("done", {"answer": "42"}),))


@dataclass(frozen=True, slots=True)
class Trouble:
    """A way to misbehave: the calls that meet it, and whose fault must be counted (None: nobody's), in how many
    seconds. ``said``: what the agent must have been told. ``may``: a fault that may be counted as well, where it
    depends on how fast the machine is. ``kills``: what is killed from outside, so that the rollout is masked."""

    calls: tuple[Call, ...] = ()
    fault: str | None = None
    said: str = ""
    may: str | None = None
    kills: str | None = None


def _goto(path: str) -> Call:
    return Call("goto_url", {"url": f"http://SITE{path}"})


TROUBLES = {
    "none": Trouble(),
    "crash of a browser": Trouble(kills="browser"),
    "crash of a page": Trouble(kills="renderer"),
    "hung page": Trouble((_goto("/hangs"), CLICK, _goto("/start")), "site", "Failed: `click`"),
    "dialogs": Trouble((_goto("/dialogs"), CLICK), None, "which was closed"),
    "download": Trouble((_goto("/downloads"), CLICK, Call("wait", {"seconds": 1.0})), None, "which is not kept"),
    "pop-ups": Trouble((_goto("/popups"), CLICK), None, "A new tab opened", may="site"),
    "endless redirects": Trouble((_goto("/redirects"), _goto("/start")), "site", "ERR_TOO_MANY_REDIRECTS"),
    "page of 50 MB": Trouble((_goto("/large"), _goto("/start")), None, "", may="site"),
    "connection that is cut off": Trouble((_goto("/reset"), _goto("/start")), "network", "ERR_CONNECTION"),
    "another host": Trouble((Call("goto_url", {"url": "http://example.org/"}),), "agent", "none that the task allows"),
}


@dataclass(slots=True)
class Endured:
    """What came of it. ``wrong``: what was not as it must be; ``memory``: MB of all browsers, sampled."""

    seconds: float = 0.0
    rollouts: Counter[str] = field(default_factory=Counter)
    masked: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    left: int = 0


class _TroubledActor:
    """Meets one trouble, a call an answer, and then does its task."""

    def __init__(self, trouble: Trouble, mark: str, site: str) -> None:
        self._trouble, self._mark = trouble, mark
        calls = (replace(call, arguments=_at(call, site)) for call in trouble.calls)
        self._answers = iter([*(Action((call,)) for call in calls), DONE])
        self._killed = trouble.kills is None
        self.heard: list[str] = []

    def act(self, observation: Observation) -> Action | None:
        self.heard += observation.results
        if not self._killed:
            self._killed = _killed(self._trouble.kills or "", self._mark)
        return next(self._answers, None)


class _WatchedBrowser(BrowserEnvironment):
    """Keeps what came of each task for the one who looks whether that is as it must be."""

    def __init__(self, outcomes: dict[str, TaskOutcome]) -> None:
        super().__init__(MOST_STEPS)
        self._outcomes, self._id = outcomes, ""

    def reset(self, task: Task) -> Observation:
        self._id = task.id
        return super().reset(task)

    def score(self) -> TaskOutcome:
        self._outcomes[self._id] = found = super().score()
        return found


def _at(call: Call, site: str) -> dict[str, object]:
    given = call.arguments.items()
    return {key: value.replace("SITE", site) if isinstance(value, str) else value for key, value in given}


def _killed(kind: str, mark: str) -> bool:
    """Kill the browser whose command line has this mark (Debian's is a script that starts another), or its pages."""
    found = False
    for process in browser_processes():
        try:
            line = process.cmdline()
            if not any(mark in word for word in line) or any(word.startswith("--type=") for word in line):
                continue
            ours = [process]
            if kind == "renderer":
                ours = [each for each in process.children(recursive=True) if "--type=renderer" in each.cmdline()]
            for each in ours:
                each.kill()
            found |= bool(ours)
        except psutil.Error:  # it has just ended
            continue
    return found


def endure(at_once: int, seconds: float, seed: int, say: Callable[[str], None]) -> Endured:
    """Play rounds of all troubles until the time is over. Raises TurnwiseError where there is no browser."""
    found, begun = Endured(), time.monotonic()
    before = set(browser_processes())  # of whoever asked for the bench, where that one plays as well
    with TemporaryDirectory(prefix="turnwise-web-") as place, misbehaving_site() as site:
        config = load_config(None, {"home": Path(place)})
        with closing(Journal.open(config)) as journal:
            outcomes: dict[str, TaskOutcome] = {}
            host = Host(journal.environments, lambda _kind, _at: _WatchedBrowser(outcomes), Path(place) / "at", at_once)
            with closing(host):
                number = 0
                while number == 0 or found.seconds < seconds:
                    rollouts = _TroubledRound(number, site, random.Random(seed * 10_000 + number), outcomes, found)
                    rollouts.play(host, journal, at_once)
                    found.seconds, number = time.monotonic() - begun, number + 1
                    say(f"{found.seconds:.0f} s: {found.rollouts.total()} rollouts, {len(found.wrong)} faults found")
    until = time.monotonic() + GONE_S
    while (left := set(browser_processes()) - before) and time.monotonic() < until:
        time.sleep(0.2)
    found.left = len(left)
    if found.left:
        found.wrong.append(f"{found.left} processes of browsers were left at the end")
    return found


def bench_endurance(minutes: float, seed: int, say: Callable[[str], None]) -> tuple[BenchReport, list[str]]:
    """The figures, and what was not as it must be."""
    found = endure(AT_ONCE, minutes * 60, seed, say)
    rows = [
        [name, str(found.rollouts[name]), str(found.masked[name]), f"{found.slowest.get(name, 0.0):.1f} s"]
        for name in TROUBLES
    ]
    figures = [
        Figure("rollouts", f"{found.rollouts.total()} in {found.seconds / 60:.1f} minutes"),
        Figure("not as they must be", str(len(found.wrong))),
        Figure("memory of all browsers, most", f"{max(found.memory, default=0.0):.0f} MB"),
        Figure("processes left at the end", str(found.left)),
    ]
    note = f"{AT_ONCE} browsers at once; each rollout meets one trouble, and then does its task. Masked: no reward."
    grid = Grid("What they met", ["trouble", "rollouts", "masked", "slowest"], rows)
    return BenchReport("turnwise bench web --endure", figures, [note], [grid]), found.wrong


class _TroubledRound:
    """Some rollouts of each trouble, in an order of their own. ``dice`` shuffles them."""

    def __init__(
        self, number: int, site: str, dice: random.Random, outcomes: dict[str, TaskOutcome], found: Endured
    ) -> None:
        self._site, self._outcomes, self._found = site, outcomes, found
        self._of: dict[str, str] = {}
        self._actors: dict[str, _TroubledActor] = {}
        self._begun: dict[str, float] = {}
        self._plays: list[Play] = []
        for at, name in enumerate(TROUBLES):
            for nth in range(ROUND):
                # Its own host that is not there is how the browser of a rollout is found among the others.
                mark = f"m{number}-{at}-{nth}.invalid"
                data = {"url": f"http://{site}/start", "hosts": [site, f"{mark}:80"], "answer": "42"}
                task = Task(mark, "web", "What is the code?", {**data, "window": [800, 600]})
                self._plays.append(Play(f"round-{number}", task, 0, 1))
                self._of[mark] = name
        dice.shuffle(self._plays)

    def play(self, host: Host, journal: Journal, at_once: int) -> None:
        """Play them, and note what is not as it must be."""
        for ended in Rollouts(host, journal.environments, None, self._player).run(self._plays, at_once):
            mark, found = ended.play.task.id, self._found
            name = self._of[mark]
            found.rollouts[name] += 1
            found.masked[name] += ended.failure is not None
            if mark in self._begun:
                found.slowest[name] = max(found.slowest.get(name, 0.0), time.monotonic() - self._begun[mark])
            heard = self._actors[mark].heard if mark in self._actors else []
            wrong = _wrong(TROUBLES[name], ended, heard, self._outcomes.pop(mark, None))
            found.wrong += [f"{name} ({mark}): {what}" for what in wrong]
            found.memory.append(browser_memory() / 1e6)

    def _player(self, play: Play) -> _TroubledActor:
        mark = play.task.id
        self._begun[mark] = time.monotonic()
        self._actors[mark] = _TroubledActor(TROUBLES[self._of[mark]], mark, self._site)
        return self._actors[mark]


def _wrong(trouble: Trouble, ended: Ended, heard: list[str], outcome: TaskOutcome | None) -> Iterator[str]:
    """What of a rollout is not as it must be."""
    if trouble.kills is not None:
        if ended.failure is None or "browser" not in ended.failure:
            yield f"its browser was killed, and it ended with reward {ended.reward}, failure {ended.failure!r}"
        return
    if ended.failure is not None or ended.reward != 1.0 or outcome is None:
        yield f"it ended with reward {ended.reward}, failure {ended.failure!r}"
        return
    counted = outcome.details["faults"]
    faults = {str(fault) for fault in counted} if isinstance(counted, dict) else set[str]()
    if faults - {trouble.may} != ({trouble.fault} if trouble.fault is not None else set()):
        yield f"faults were counted as {counted}"
    met = trouble.may is None or trouble.may not in faults
    if met and trouble.said and not any(trouble.said in each for each in heard):
        yield f"nothing of {trouble.said!r} was told: {[each[:120] for each in heard]}"
