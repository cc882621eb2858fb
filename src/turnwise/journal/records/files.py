"""Telling the file of our records from anybody else's, and reading its end. What is not ours is never written to.

Ours is a plain file, not a link, that begins with a line of ours, or with nothing. Nothing is cut off it but half a
line at the very end that begins as only our lines do: what a crash or a full disk left of a write.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from turnwise.errors import JournalError
from turnwise.patterns import anchored

log = logging.getLogger(__name__)

BLOCK = 65536
MOST_FILES = 99
BEGINS = anchored(rb'\{"event": (\d+), "at": (-?[0-9.e+]+), "kind": "(\w+)", "turn": (?:null|"([^"]*)")')
"""How each of our lines begins."""
HEAD = 512
"""Bytes that hold the beginning of a line."""
SHORTEST = b'{"event": '
"""The least that is left of half a line of ours to be told by; less of it than this counts where it is the same."""


@dataclass(frozen=True, slots=True)
class Last:
    """The newest line of ours in a file. `journal` is None in one of an earlier turnwise."""

    event: int
    at: float
    kind: str
    turn: str | None
    journal: str | None


def our_file(wanted: Path) -> Path:
    """`wanted` if it is ours or not there, else the first of `records-2.jsonl`, `-3` and so on. Raises JournalError."""
    for number in range(1, MOST_FILES + 1):
        path = wanted if number == 1 else wanted.with_stem(f"{wanted.stem}-{number}")
        why = _not_ours(path)
        if why is None:
            return path
        log.warning("%s %s: it is left as it is, and records are written to another file beside it", path, why)
    raise JournalError(f"{wanted} and {MOST_FILES - 1} files beside it are not ours; move them away")


def our_files(wanted: Path) -> list[Path]:
    """All files of these names that are there and are ours: each held records at some time."""
    named = [wanted, *(wanted.with_stem(f"{wanted.stem}-{number}") for number in range(2, MOST_FILES + 1))]
    return [path for path in named if os.path.lexists(path) and _not_ours(path) is None]


def _not_ours(path: Path) -> str | None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        return "is a link or no plain file"
    with open_ours(path, os.O_RDONLY) as file:
        head = file.read(HEAD)
    if not head or BEGINS.match(head) or (b"\n" not in head and _is_half(head)):
        return None
    return "does not begin with a line of turnwise's records"


def last_line(path: Path) -> Last | None:
    """The newest whole line of ours, or None where there is none."""
    if not path.exists():
        return None
    with open_ours(path, os.O_RDONLY) as file:
        end = _line_end(file, file.seek(0, os.SEEK_END))
        while end:
            start = _line_end(file, end - 1)
            file.seek(start)
            if BEGINS.match(file.read(HEAD)):
                file.seek(start)
                try:
                    line = json.loads(file.read(end - start))
                    return Last(line["event"], line["at"], line["kind"], line["turn"], line.get("journal"))
                except (ValueError, KeyError):
                    pass
            end = start
    return None


def events_behind(path: Path, event: int) -> set[tuple[int, float, str, str | None]]:
    """The number, time, kind and turn of every line of ours with a higher number, whichever journal's."""
    found = set()
    with open_ours(path, os.O_RDONLY) as file:
        for line in file:
            match = BEGINS.match(line[:HEAD])
            if match and int(match[1]) > event:
                turn = match[4]
                found.add((int(match[1]), float(match[2]), match[3].decode(), None if turn is None else turn.decode()))
    return found


def cut_half_a_line(path: Path) -> None:
    """Cut what a write of ours left that stopped half way. A half that may be another's is made a line instead."""
    if not path.exists():
        return
    with open_ours(path, os.O_RDWR) as file:
        size = file.seek(0, os.SEEK_END)
        end = _line_end(file, size)
        if end == size:
            return
        file.seek(end)
        if _is_half(file.read(HEAD)):
            file.truncate(end)
        else:
            log.warning("%s ends with words that are not ours; they stay, and records go on below them", path)
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())


def append_to(path: Path, lines: bytes) -> None:
    """Add whole lines; durable when it returns. Raises OSError, with part of them written where the disk is full."""
    with open_ours(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def _is_half(head: bytes) -> bool:
    return head.startswith(SHORTEST) or SHORTEST.startswith(head)


def open_ours(path: Path, flags: int) -> IO[bytes]:
    mode = {os.O_RDONLY: "rb", os.O_RDWR: "r+b"}.get(flags, "ab")
    return os.fdopen(os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), mode)


def _line_end(file: IO[bytes], before: int) -> int:
    """The offset behind the last line break that stands before offset ``before``; 0 when there is none."""
    while before:
        at = max(0, before - BLOCK)
        file.seek(at)
        found = file.read(before - at).rfind(b"\n")
        if found >= 0:
            return at + found + 1
        before = at
    return 0
