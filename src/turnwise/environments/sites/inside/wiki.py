"""The wiki: Trac on SQLite, with pages and tickets of a museum, and a member of its staff signed in."""

# pyright: reportMissingImports=false
# What it imports is in the sites' own environment.
from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from wsgi import Application, signed_in, warm

USER = "maria"
WRITERS = ("ada", "tom", "ines", "joel")
RIGHTS = (
    "WIKI_CREATE",
    "WIKI_MODIFY",
    "WIKI_DELETE",
    "WIKI_RENAME",
    "TICKET_CREATE",
    "TICKET_MODIFY",
    "MILESTONE_VIEW",
)
ROOMS = ("Amber", "Bronze", "Clock", "Dyeing", "Engraving", "Felt", "Glass", "Harp", "Ivory", "Jade")
TOWNS = ("Lisbon", "Turku", "Ghent", "Nara", "Bergen", "Siena")
COMPONENTS = ("lighting", "heating", "labels", "doors")
MILESTONES = (("spring opening", 2026, 3, 21), ("summer school", 2026, 7, 6), ("autumn loan", 2026, 10, 2))
TROUBLES = ("The lamp above the {} case flickers", "The label of the {} case has a spelling mistake")
TROUBLES += ("The door to the {} room sticks", "It is too warm in the {} room")


def make(folder: Path) -> None:
    """Fill a new folder with the wiki's pages and tickets, the same each time."""
    from trac.env import Environment

    options = [("project", "name", "Museum Notebook"), ("trac", "database", "sqlite:db/trac.db")]
    options += [("trac", "base_url", ""), ("logging", "log_type", "none"), ("trac", "check_auth_ip", "disabled")]
    options += [("components", "trac.versioncontrol.*", "disabled"), ("trac", "default_timezone", "UTC")]
    options += [("header_logo", "src", ""), ("project", "footer", ""), ("trac", "default_dateinfo_format", "absolute")]
    environment = Environment(str(folder), create=True, options=options)
    _fill(environment, random.Random(47))
    environment.shutdown()


def _fill(environment: Any, chance: random.Random) -> None:
    from trac.perm import PermissionSystem
    from trac.ticket.model import Component, Milestone, Ticket
    from trac.wiki.model import WikiPage

    rights = PermissionSystem(environment)
    for right in RIGHTS:
        rights.grant_permission(USER, right)
    with environment.db_transaction as change:
        for table in ("wiki", "component", "milestone", "version"):
            change(f"DELETE FROM {table}")
    for name in COMPONENTS:
        component = Component(environment)
        component.name, component.owner = name, chance.choice(WRITERS)
        component.insert()
    for name, year, month, day in MILESTONES:
        milestone = Milestone(environment)
        milestone.name, milestone.due = name, datetime(year, month, day, 17, tzinfo=UTC)
        milestone.insert()
    at = datetime(2026, 1, 5, 10, tzinfo=UTC)
    lines = ["= Museum Notebook =", "What the staff writes down about the rooms.", ""]
    for room in ROOMS:
        page = WikiPage(environment, f"{room}Room")
        for version in range(chance.randrange(1, 4)):
            at += timedelta(hours=19)
            page.text = _page(room, chance, version)
            page.save(chance.choice(WRITERS), "", at)
        lines.append(f" * [wiki:{room}Room {room} Room]")
    start = WikiPage(environment, "WikiStart")
    start.text = "\n".join(lines)
    start.save(chance.choice(WRITERS), "", at)
    for number, room in enumerate([*ROOMS, *ROOMS[:6]]):
        at += timedelta(hours=7)
        ticket = Ticket(environment)
        ticket["reporter"], ticket["owner"] = chance.choice(WRITERS), chance.choice(WRITERS)
        ticket["summary"] = TROUBLES[(number + number // len(ROOMS)) % len(TROUBLES)].format(room.lower())
        ticket["description"], ticket["status"], ticket["type"] = "Please have a look.", "new", "defect"
        ticket["component"], ticket["milestone"] = chance.choice(COMPONENTS), chance.choice(MILESTONES)[0]
        ticket["priority"] = chance.choice(("minor", "major", "critical"))
        ticket.insert(at)


def _page(room: str, chance: random.Random, version: int) -> str:
    return "\n".join(
        (
            f"= {room} Room =",
            f"The oldest piece is from {chance.randrange(1400, 1900)}. It came from {chance.choice(TOWNS)}.",
            "",
            f"There are {chance.randrange(20, 90)} pieces on show. The key hangs on hook {chance.randrange(1, 60)}.",
        )
    )


def load(folder: Path) -> None:
    pages = (
        "/wiki",
        "/wiki/AmberRoom",
        "/wiki/AmberRoom?action=edit",
        "/newticket",
        "/ticket/1",
        "/search?q=key",
        "/roadmap",
    )
    warm(application(folder, "http://127.0.0.1"), pages)


def application(folder: Path, address: str) -> Application:
    from trac.web.main import dispatch_request

    def asked(environ: dict[str, Any], start_response: Any) -> Any:
        environ["trac.env_path"], environ["trac.base_url"] = str(folder), address
        return dispatch_request(environ, start_response)

    return signed_in(asked, USER)
