"""records.jsonl: every interaction, vote, hint and decision as one JSON line, written off the hot path.

The journal's outbox is the truth; this file is its copy for people and their tools. Each line carries the number of its
event, so that after a crash the export goes on behind the last whole line: nothing twice, nothing lost.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

from filelock import FileLock
from sqlalchemy import Row, bindparam, delete, func, select

from turnwise.journal import schema
from turnwise.journal.journal import Journal
from turnwise.journal.schema import unpack_ids, unpack_json

E, T = schema.events.c, schema.turns.c
CHUNK = 200
# Statements of every event are made once: building one takes longer than SQLite takes to run it.
_EVENTS = select(schema.events).where(E.id > bindparam("last")).order_by(E.id).limit(CHUNK)
_TURN = select(
    *(T.session_id, T.idx, T.kind, T.version, T.bridged, T.temperature, T.finish_reason),
    *(T.prompt_tokens, T.messages, T.answer, T.response_ids),
).where(T.id == bindparam("which"))
BLOCK = 65536


class RecordsExporter:
    """Appends the journal's events to records.jsonl and then takes them out of the outbox."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.path: Path = journal.config.records_path
        self._last = 0  # the newest event in the file, as long as the file has this size
        self._size = -1

    def export_all(self) -> int:
        """Write everything there is. Returns the number of lines."""
        total = 0
        while self.journal.config.journal.records and (written := self.export_some()):
            total += written
        return total

    def export_some(self) -> int:
        """Write up to CHUNK events. Returns the number of lines."""
        with FileLock(f"{self.path}.lock", mode=0o600):  # a stopping gateway's last export may meet the one before it
            if self._size != self._file_size():  # another exporter wrote, or a write of ours stopped half way
                self._last = self._resume()
            with self.journal.reading() as c:
                rows = c.execute(_EVENTS, {"last": self._last}).all()
                lines = [json.dumps(self._record(c, row), ensure_ascii=False) for row in rows]
            if rows:
                self.path.touch(mode=0o600)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write("".join(line + "\n" for line in lines))
                    file.flush()
                    os.fsync(file.fileno())
                self._last = rows[-1].id
            self._size = self._file_size()
            with self.journal.transaction() as c:
                # The newest event stays: SQLite would give its number out again if the outbox were empty.
                newest = c.execute(select(func.max(E.id))).scalar() or 0
                c.execute(delete(schema.events).where(E.id <= self._last, E.id < newest))
        return len(rows)

    def _file_size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def _record(self, c: Any, row: Row[Any]) -> dict[str, Any]:
        record = {"event": row.id, "at": row.at, "kind": row.kind, "turn": row.turn_id} | unpack_json(row.data)
        if row.kind == "turn":
            turn = c.execute(_TURN, {"which": row.turn_id}).one_or_none()
            if turn is not None:
                record |= {
                    "session": turn.session_id,
                    "index": turn.idx,
                    "turn_kind": turn.kind,
                    "version": turn.version,
                    "bridged": turn.bridged,
                    "temperature": turn.temperature,
                    "finish_reason": turn.finish_reason,
                    "prompt_tokens": turn.prompt_tokens,
                    "messages": unpack_json(turn.messages),
                    "answer": unpack_json(turn.answer) if turn.answer else None,
                    "response_ids": unpack_ids(turn.response_ids) if turn.response_ids else [],
                }
        return record

    def _resume(self) -> int:
        """The number of the last whole line; half a line left by a crash or a full disk is cut off."""
        if not self.path.exists():
            return 0
        with self.path.open("r+b") as file:
            end = _line_end(file, file.seek(0, os.SEEK_END))
            last = 0
            while end and not last:
                start = _line_end(file, end - 1)
                file.seek(start)
                try:
                    last = int(json.loads(file.read(end - start))["event"])
                except (ValueError, KeyError, TypeError):
                    end = start
            file.truncate(end)
        return last


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
