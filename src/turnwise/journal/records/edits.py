"""Taking lines out of the files of our records, for good. Lines and files that are not ours are left as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from turnwise.journal.records.files import BEGINS, HEAD, open_ours, our_files


def read_records(wanted: Path) -> Iterator[dict[str, Any]]:
    """The records of `wanted` and of the files that stood in for it, without lines that are none of ours."""
    for path in our_files(wanted):
        with open_ours(path, os.O_RDONLY) as file:
            yield from (record for line in file if (record := _parsed(line)) is not None)


def rewrite_records(wanted: Path, stays: Callable[[dict[str, Any]], bool], dry_run: bool = False) -> int:
    """Leave out the lines of which `stays` is false; gives their number. A file is replaced only where there are any.

    Where a file's last line goes, one without content stands in for it: how far the file is stays to be seen in it.
    """
    with FileLock(f"{wanted}.lock", mode=0o600):  # the exporter's
        return sum((_count if dry_run else _rewrite)(path, stays) for path in our_files(wanted))


def _count(path: Path, stays: Callable[[dict[str, Any]], bool]) -> int:
    with open_ours(path, os.O_RDONLY) as file:
        return sum((record := _parsed(line)) is not None and not stays(record) for line in file)


def _rewrite(path: Path, stays: Callable[[dict[str, Any]], bool]) -> int:
    part = path.with_name(f".{path.name}.part")
    dropped = 0
    last: dict[str, Any] | None = None
    part.unlink(missing_ok=True)
    try:
        with open_ours(path, os.O_RDONLY) as old, open_ours(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as new:
            for line in old:
                record = _parsed(line)
                if record is None or stays(record):
                    new.write(line)
                    last = None
                else:
                    dropped, last = dropped + 1, record
            if last is not None:
                row = {"event": last["event"], "at": last["at"], "kind": "forgotten", "turn": None}
                new.write(json.dumps(row | {"journal": last.get("journal")}).encode() + b"\n")
            new.flush()
            os.fsync(new.fileno())
        if dropped:
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return dropped


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not BEGINS.match(line[:HEAD]):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
