"""A task of the web as a person or a generator writes it: where it begins, what it may reach, what is right."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from turnwise.environments.base import Action, Call
from turnwise.environments.browser.beside.mirror import mirror_of
from turnwise.environments.browser.calls import BadCall, address
from turnwise.environments.browser.miniwob import HOST, MINIWOB_WINDOW, page_names
from turnwise.environments.sites.goal import GOAL, SiteGoal, plain, site_goal
from turnwise.errors import DataError
from turnwise.patterns import anchored

WINDOW = (1280, 720)
"""Width and height in pixels."""
MOST_HOSTS = 50
PORTS = {"http": 80, "https": 443}
_HOST = anchored(r"(?P<name>(\*\.)?[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
MOST_OF_A_REFERENCE = 2000
"""Characters."""
_KNOWN = {"url", "hosts", "window", "answer", "contains", "miniwob", "seed", "oracle", "observe", *GOAL}
_OF_JUDGED = {"judge", "reference"}
_OF_SITES = {"mirrors", "level"}
View = Literal["text", "screenshot", "marks", "both"]
"""How an agent is shown a page: its elements in words, a picture of the window, one with numbers on what can be used,
or words and picture."""
VIEWS: tuple[View, ...] = get_args(View)


@dataclass(frozen=True, slots=True)
class WebTask:
    """``url``: where it begins; None for a page of MiniWoB++ (``miniwob``, ``seed``), whose script says what is right.

    ``hosts`` is all that its pages may reach, each with a port. The answer of `done` is right where it is one of
    ``answers``, or has all of ``contains`` in it; case and space do not count; of a ``judged`` one a model says whether
    the task was done, with ``reference`` to go by. ``window``: width and height in pixels. ``mirrors``: hosts that are
    played from an address elsewhere. ``level``: how hard whoever wrote it says it is.
    ``observe``: how the agent is shown its pages.
    """

    url: str | None
    hosts: tuple[str, ...]
    window: tuple[int, int]
    answers: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    miniwob: str | None = None
    seed: int = 0
    oracle: tuple[Action, ...] = ()
    judged: bool = False
    reference: str | None = None
    mirrors: Mapping[str, str] = field(default_factory=dict)
    level: str | None = None
    observe: View = "text"
    goal: SiteGoal | None = None
    """On a site that is started here: what its database has to say once the task is done."""

    def is_right(self, answer: str) -> bool:
        """Whether an answer is what was asked for."""
        said = plain(answer)
        return said in map(plain, self.answers) or (
            bool(self.contains) and all(plain(part) in said for part in self.contains)
        )


def web_task(data: Mapping[str, object]) -> WebTask:
    """The task that ``data`` describes. Raises DataError with what is missing or wrong."""
    known = _KNOWN | _OF_JUDGED | _OF_SITES
    if odd := sorted(set(data) - known):
        raise DataError(f"a task of the web has {', '.join(sorted(known))}, and no {odd[0]!r}")
    oracle = _oracle(data.get("oracle", []))
    if "miniwob" in data:
        return _of_miniwob(data, oracle)
    if "site" in data:
        return _of_site(data, oracle)
    url = data.get("url")
    if not isinstance(url, str):
        raise DataError("'url' is the address of the page where the task begins")
    try:
        url = address(url)
    except BadCall:
        raise DataError(f"'url' is an address that begins with http:// or https://, not {url[:80]!r}") from None
    answers, contains = _texts(data, "answer"), _texts(data, "contains")
    judged = _flag(data, "judge")
    if not answers and not contains and not judged:
        raise DataError(
            "'answer' has the right answers, or 'contains' what a right one has in it; give one of them, or 'judge' "
            "as true to have a model say whether the task was done"
        )
    if judged and (answers or contains):
        raise DataError("a task with 'answer' or 'contains' has a verifier, so that no judge is asked; leave one out")
    mirrors = _mirrors(data)
    return WebTask(
        url,
        _hosts(data, url, mirrors),
        _window(data),
        answers,
        contains,
        oracle=oracle,
        observe=_view(data),
        judged=judged,
        reference=_short(data, "reference", MOST_OF_A_REFERENCE),
        mirrors=mirrors,
        level=_short(data, "level", 40),
    )


def _of_miniwob(data: Mapping[str, object], oracle: tuple[Action, ...]) -> WebTask:
    if odd := sorted({"judge", "mirrors"} & set(data)):
        raise DataError(f"a page of MiniWoB++ has a verifier and no site: leave out {odd[0]!r}")
    name, seed = data.get("miniwob"), data.get("seed", 0)
    if not isinstance(name, str) or name not in page_names():
        raise DataError(f"there is no task {str(name)[:60]!r} in MiniWoB++; `turnwise tasks web --list` shows them")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise DataError("'seed' is a whole number")
    more: dict[str, Any] = {"oracle": oracle, "observe": _view(data)}
    return WebTask(None, (HOST,), MINIWOB_WINDOW, miniwob=name, seed=seed, **more)


def _view(data: Mapping[str, object]) -> View:
    given = data.get("observe", "text")
    if given not in VIEWS:
        raise DataError(f"'observe' is one of {', '.join(VIEWS)}, not {str(given)[:40]!r}")
    return given


def _flag(data: Mapping[str, object], key: str) -> bool:
    given = data.get(key, False)
    if not isinstance(given, bool):
        raise DataError(f"{key!r} is true or false")
    return given


def _short(data: Mapping[str, object], key: str, most: int) -> str | None:
    given = data.get(key)
    if given is not None and (not isinstance(given, str) or not 1 <= len(given) <= most):
        raise DataError(f"{key!r} is a text of at most {most} characters")
    return given


def _mirrors(data: Mapping[str, object]) -> Mapping[str, str]:
    """Hosts, each with where its pages are to be had."""
    given = data.get("mirrors", {})
    if not isinstance(given, Mapping) or len(given) > MOST_HOSTS:
        raise DataError(f"'mirrors' is an object of at most {MOST_HOSTS} hosts, each with the address of its mirror")
    found: dict[str, str] = {}
    for host, where in given.items():
        match = _HOST.fullmatch(host) if isinstance(host, str) else None
        if match is None or match["port"] or not isinstance(where, str):
            raise DataError(f"'mirrors' has hosts as shop.example, each with an address, not {str(host)[:80]!r}")
        try:
            found[host.lower()] = address(where).rstrip("/")
        except BadCall:
            raise DataError(f"a mirror is an address as http://127.0.0.1:8000, not {where[:80]!r}") from None
    return found


def _of_site(data: Mapping[str, object], oracle: tuple[Action, ...]) -> WebTask:
    goal, start = site_goal(data), data.get("url")
    if odd := {"hosts", "answer", "contains", "judge", "reference", "mirrors"} & set(data):
        raise DataError(f"a task on a site that is started here has no {min(odd)!r}: see 'asked' and 'checks'")
    url = goal.site.address + (goal.site.start if start is None else str(start))
    if start is not None and not (isinstance(start, str) and start.startswith("/")):
        raise DataError("'url' of a task on a site that is started here is a path, as /basket/")
    more: dict[str, Any] = {"oracle": oracle, "observe": _view(data), "goal": goal}
    return WebTask(url, (f"{goal.site.host}:80",), _window(data), **more)


def _texts(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    given = data.get(key, ())
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise DataError(f"{key!r} is a text or a list of texts")
    return tuple(texts)


def _hosts(data: Mapping[str, object], url: str, mirrors: Mapping[str, str]) -> tuple[str, ...]:
    """Those that are named, each with a port: Chromium takes a name without one as every port of it."""
    named, parts = _texts(data, "hosts"), urlsplit(url)
    usual = PORTS[parts.scheme.lower()]
    if len(named) > MOST_HOSTS:
        raise DataError(f"'hosts' has at most {MOST_HOSTS} names")
    found: list[str] = []
    mirrored = mirror_of(url, mirrors) is not None  # what is played from elsewhere needs no way to its own place
    for host in named or (() if mirrored else (parts.netloc,)):
        match = _HOST.fullmatch(host)
        if match is None or int(match["port"] or 1) not in range(1, 65536):
            raise DataError(f"'hosts' has names as shop.example, *.example.org or 127.0.0.1:8000, not {host[:80]!r}")
        if match["port"] is None and named and _is_near(match["name"]):
            raise DataError(f"'hosts' names {host[:80]!r}, a host of this machine or network: give its port too")
        ports = PORTS.values() if host.startswith("*.") else (usual,)
        found += [host] if match["port"] else [f"{host}:{port}" for port in ports]
    return tuple(found)


def _is_near(name: str) -> bool:
    """Whether it is this machine, or an address that is not of the open net."""
    name = name.strip("[]").rstrip(".").lower()
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:
        return name.split(".")[-1] == "localhost"


def _window(data: Mapping[str, object]) -> tuple[int, int]:
    given = data.get("window", WINDOW)
    if not isinstance(given, Sequence) or len(given) != 2 or not all(isinstance(n, int) for n in given):
        raise DataError("'window' is [width, height] in pixels")
    width, height = given
    if not (200 <= width <= 4000 and 200 <= height <= 4000):
        raise DataError("a window is 200 to 4000 pixels wide and high")
    return width, height


def _oracle(given: Any) -> tuple[Action, ...]:
    """Actions, each a list of calls, each an object with `name` and `arguments`."""
    fault = DataError("'oracle' is a list of answers, each a list of calls, each an object with name and arguments")
    if not isinstance(given, list) or not all(isinstance(calls, list) for calls in given):
        raise fault
    found = []
    for calls in given:
        for call in calls:
            if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
                raise fault
            if not isinstance(call.get("arguments", {}), Mapping):
                raise fault
        found.append(Action(tuple(Call(call["name"], call.get("arguments", {})) for call in calls)))
    return tuple(found)
