"""What a verifier of a terminal task may look at: checks as data, a table of their kinds.

A check looks at the agent's folder from outside. It follows no link, reads no more than it may, and runs nothing that
the agent left; git alone is asked, in a sandbox of its own, about a copy of a repository's objects (`repository.py`).
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import json
import lzma
import sqlite3
import stat
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.environments.terminal.repository import git_says
from turnwise.errors import DataError, FolderFault
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.folder import GuestFolder

MOST_UNPACKED = 4 << 20
"""Bytes of an archive's files together."""
MOST_MEMBERS = 1000
ASK_S = 2.0
"""Longest question to a database."""
MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Checked:
    """What a verifier says: whether the task is solved, or the part of it that is, and else what is not."""

    passed: float
    reason: str


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """``wanted`` is what must be found at ``way``; ``asks`` is the question to a database or a repository."""

    kind: str
    way: str
    wanted: Any = None
    asks: str = ""


def read_checks(given: object) -> tuple[TaskCheck, ...]:
    """The checks of a task. Raises DataError."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise DataError("'checks' is a list of objects with kind, way and is")
    return tuple(_read(each) for each in given)


def _read(given: object) -> TaskCheck:
    if not isinstance(given, Mapping) or given.get("kind") not in KINDS or not isinstance(given.get("way"), str):
        raise DataError(f"a check has a kind ({', '.join(KINDS)}) and a way")
    kind, asks = str(given["kind"]), given.get("asks", "")
    wanted, (_, fits) = given.get("is"), KINDS[kind]
    if not fits(wanted) or not isinstance(asks, str) or (kind in ASKED) != bool(asks):
        raise DataError(f"the check {kind!r} of {given['way']} is not as docs/environments.md says")
    return TaskCheck(kind, str(given["way"]), wanted, asks)


def failed(folder: GuestFolder, check: TaskCheck, sandboxes: Sandboxes) -> str | None:
    """Why a check fails; None where it does not. Raises SandboxError where the machine cannot look."""
    look, _ = KINDS[check.kind]
    try:
        return None if look(folder, check, sandboxes) else f"{check.way} is not as expected"
    except FileNotFoundError:
        return f"there is no {check.way}"
    except (FolderFault, Unreadable) as e:
        return str(e)


class Unreadable(Exception):
    """What stands there cannot be read as what it must be; its words say why."""


def _file(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    wanted = check.wanted.rstrip().encode()
    return folder.read(check.way, len(wanted) + 4096).rstrip() == wanted


def _gone(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    with contextlib.suppress(FileNotFoundError):
        folder.status(check.way)
        return False
    return True


def _mode(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    return stat.S_IMODE(folder.status(check.way).st_mode) == int(check.wanted, 8)


def _link(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    return folder.target(check.way) == check.wanted


def _json(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    try:
        return _same(json.loads(folder.read(check.way)), check.wanted)
    except (ValueError, RecursionError):
        raise Unreadable(f"{check.way} is no JSON") from None


def _same(found: object, wanted: object) -> bool:
    """Equality in which true is no 1."""
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def _csv(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    try:
        rows = list(csv.reader(io.StringIO(folder.read(check.way).decode(), newline="")))
    except (ValueError, csv.Error):
        raise Unreadable(f"{check.way} is no CSV") from None
    return rows == check.wanted


def _tar(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    return _packed(check, _in_tar(folder.read(check.way)))


def _in_tar(content: bytes) -> Iterator[tuple[str, bytes]]:
    left = MOST_UNPACKED
    with tarfile.open(fileobj=io.BytesIO(_whole(content)), mode="r:") as archive:
        for number, member in enumerate(archive):
            left -= member.size
            if left < 0 or number >= MOST_MEMBERS:
                raise Unreadable("the archive is too large")
            if member.isfile():
                file = archive.extractfile(member)
                yield member.name, file.read() if file is not None else b""


def _whole(content: bytes) -> bytes:
    """An archive without its compression, which is undone no further than it may be long: what stands between the
    members of one, too, could be made to fill the memory."""
    for opened in (gzip.open, bz2.open, lzma.open):
        with contextlib.suppress(OSError, lzma.LZMAError), opened(io.BytesIO(content)) as packed:
            found = packed.read(MOST_UNPACKED + 1)
            if len(found) > MOST_UNPACKED:
                raise Unreadable("the archive is too large")
            return found
    return content


def _zip(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    return _packed(check, _in_zip(folder.read(check.way)))


def _in_zip(content: bytes) -> Iterator[tuple[str, bytes]]:
    left = MOST_UNPACKED
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for number, member in enumerate(archive.infolist()):
            if number >= MOST_MEMBERS:
                raise Unreadable("the archive is too large")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Unreadable("the archive is compressed in another way than zip does by itself")
            if not member.is_dir():
                with archive.open(member) as file:
                    inside = file.read(left + 1)
                left -= len(inside)
                if left < 0:
                    raise Unreadable("the archive is too large")
                yield member.filename, inside


def _packed(check: TaskCheck, members: Iterator[tuple[str, bytes]]) -> bool:
    """Whether the archive has these files and no others."""
    wanted = {way: text.encode() for way, text in check.wanted.items()}
    try:
        return {name.removeprefix("./"): inside for name, inside in members} == wanted
    except Unreadable as e:
        raise Unreadable(f"{check.way}: {e}") from None
    except Exception as e:  # these modules raise whatever their decoders do on bytes that somebody made up
        raise Unreadable(f"{check.way} is no such archive ({type(e).__name__})") from None


def _gzip(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    wanted = check.wanted.encode()
    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(folder.read(check.way), len(wanted) + 1)
    except zlib.error:
        raise Unreadable(f"{check.way} is not compressed with gzip") from None
    return found == wanted and unpacker.eof


def _sqlite(folder: GuestFolder, check: TaskCheck, _: Sandboxes) -> bool:
    content = folder.read(check.way)
    with tempfile.TemporaryDirectory(prefix="turnwise-") as place:
        copy = Path(place) / "copy.db"
        copy.write_bytes(content)
        try:
            with contextlib.closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro&immutable=1", uri=True)) as database:
                rows = _asked(database, check.asks)
        except sqlite3.Error as e:
            raise Unreadable(f"{check.way}: {str(e)[:200]}") from None
    return [list(row) for row in rows] == check.wanted


def _asked(database: sqlite3.Connection, question: str) -> list[tuple[Any, ...]]:
    """Rows; tables and views in it may be made to take for ever, and must not."""
    until = time.monotonic() + ASK_S
    database.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)
    database.execute("PRAGMA trusted_schema = OFF")
    rows, weight = [], 0
    for row in database.execute(question):
        weight += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
        if len(rows) >= MOST_ROWS or weight > MOST_UNPACKED:
            raise Unreadable("the answer is too large")
        rows.append(row)
    return rows


def _git(folder: GuestFolder, check: TaskCheck, sandboxes: Sandboxes) -> bool:
    said = git_says(folder, check.way, check.asks, sandboxes)
    if said is None:
        raise Unreadable(f"git finds no answer to `git {check.asks}` there")
    return said.rstrip() == check.wanted.rstrip()


def _is_text(wanted: object) -> bool:
    return isinstance(wanted, str)


def _is_mode(wanted: object) -> bool:
    return isinstance(wanted, str) and len(wanted) == 3 and all(sign in "01234567" for sign in wanted)


def _are_texts(wanted: object) -> bool:
    return isinstance(wanted, Mapping) and all(isinstance(part, str) for pair in wanted.items() for part in pair)


def _are_rows(wanted: object) -> bool:
    return isinstance(wanted, list) and all(isinstance(row, list) for row in wanted)


KINDS: dict[str, tuple[Callable[[GuestFolder, TaskCheck, Sandboxes], bool], Callable[[object], bool]]] = {
    "file": (_file, _is_text),
    "gone": (_gone, lambda wanted: wanted is None),
    "mode": (_mode, _is_mode),
    "link": (_link, _is_text),
    "json": (_json, lambda wanted: True),
    "csv": (_csv, _are_rows),
    "tar": (_tar, _are_texts),
    "zip": (_zip, _are_texts),
    "gzip": (_gzip, _is_text),
    "sqlite": (_sqlite, _are_rows),
    "git": (_git, _is_text),
}
"""How each looks (git alone in a sandbox), and what may be wanted of it."""
ASKED = ("sqlite", "git")
"""Those with a question."""
