"""The tracker: Roundup's classic template on SQLite, with issues of a team, one of whom is signed in."""

# pyright: reportMissingImports=false
# What it imports is in the sites' own environment.
from __future__ import annotations

import logging
import random
import shutil
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from wsgi import Application, signed_in, warm

USER = "maria"
PEOPLE = (
    ("maria", "Maria Lopez"),
    ("ada", "Ada Brook"),
    ("tom", "Tom Fischer"),
    ("ines", "Ines Vidal"),
    ("joel", "Joel Marsh"),
)
KEYWORDS = ("printing", "login", "export", "search", "mobile", "billing")
PRIORITIES = ("critical", "urgent", "bug", "feature", "wish")
STATES = ("unread", "deferred", "chatting", "need-eg", "in-progress", "testing", "done-cbb", "resolved")
PARTS = (
    "invoice page",
    "start page",
    "report export",
    "address form",
    "search box",
    "calendar",
    "mobile menu",
    "user list",
)
FAULTS = ("is blank after a reload", "loses its last row", "is slow with many entries", "shows the wrong date")
FAULTS += ("cannot be printed", "ignores the language")
SETTINGS = {"TRACKER_NAME": "Larch Tracker", "TRACKER_WEB": "http://tracker.invalid/", "MAIL_DOMAIN": "tracker.invalid"}
SETTINGS |= {"MAIL_HOST": "localhost", "MAIL_DEBUG": "mail.log", "ADMIN_EMAIL": "admin@tracker.invalid"}
SETTINGS |= {"RDBMS_BACKEND": "sqlite", "TRACKER_LANGUAGE": "en", "TIMEZONE": "UTC", "WEB_DYNAMIC_COMPRESSION": "no"}


def make(folder: Path) -> None:
    """Fill a new folder with a tracker and its issues, the same each time."""
    from roundup import init, instance, password
    from roundup.configuration import CoreConfig

    template = Path(sys.prefix) / "share" / "roundup" / "templates" / "classic"
    folder.mkdir(parents=True)
    init.install(str(folder), str(template))
    (folder / "detectors" / "nosyreaction.py").unlink()  # there is nobody to send mail to
    config = CoreConfig(str(folder))
    for name, value in SETTINGS.items():
        config[name] = value
    config.save()
    tracker = instance.open(str(folder))
    tracker.init(password.Password("no-one-signs-in", scheme="plaintext"))
    database = tracker.open("admin")
    _fill(database, random.Random(31))
    database.commit()
    database.close()
    shutil.rmtree(folder / "db" / "backups", ignore_errors=True)


def _fill(database: Any, chance: random.Random) -> None:
    from roundup.date import Date
    from roundup.password import Password

    people = [
        database.user.create(
            username=name,
            realname=real,
            address=f"{name}@tracker.invalid",
            phone=f"0113 496 0{chance.randrange(100, 999)}",
            organisation="Larch",
            roles="User",
            password=Password("no-one-signs-in", scheme="plaintext"),
        )
        for name, real in PEOPLE
    ]
    keywords = [database.keyword.create(name=name) for name in KEYWORDS]
    begin = datetime(2026, 2, 2, 9)
    titles = [f"The {part} {fault}" for part in PARTS for fault in FAULTS]
    for number, title in enumerate(chance.sample(titles, 30)):
        when = Date((begin + timedelta(hours=17 * number)).strftime("%Y-%m-%d.%H:%M:%S"))
        author = chance.choice(people)
        text = f"Seen on {chance.choice(('Monday', 'Tuesday', 'Friday'))}, version 4.{chance.randrange(2, 19)}."
        message = database.msg.create(author=author, date=when, content=text, summary=text)
        issue = database.issue.create(
            title=title,
            priority=database.priority.lookup(chance.choice(PRIORITIES)),
            status=database.status.lookup(chance.choice(STATES)),
            assignedto=chance.choice([*people, None]),
            keyword=sorted(chance.sample(keywords, chance.randrange(0, 3))),
            messages=[message],
        )
        stamp = when.serialise()
        for of, at in (("issue", issue), ("msg", message)):
            known = (stamp, stamp, author, at)
            database.sql(f"update _{of} set _creation = ?, _activity = ?, _creator = ? where id = ?", known)
            database.sql(f"update {of}__journal set date = ?, tag = ? where nodeid = ?", (stamp, author, at))
    stamp = Date("2026-02-01.09:00:00").serialise()
    for of in ("user", "keyword", "priority", "status"):
        database.sql(f"update _{of} set _creation = ?, _activity = ?", (stamp, stamp))
        database.sql(f"update {of}__journal set date = ?", (stamp,))


def load(folder: Path) -> None:
    logging.disable(logging.CRITICAL)
    pages = ("/", "/issue1", "/issue?@template=item", f"/user{len(PEOPLE)}", "/issue?@search_text=page")
    warm(application(folder, "http://127.0.0.1"), pages)


def application(folder: Path, address: str) -> Application:
    from roundup.cgi.wsgi_handler import RequestDispatcher

    found = RequestDispatcher(str(folder))
    found.tracker.config["TRACKER_WEB"] = f"{address}/"
    return signed_in(found, USER)
