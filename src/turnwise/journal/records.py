"""records.jsonl: every interaction, vote, hint and decision as one JSON line, written off the hot path.

The journal's outbox is the truth; this file is its copy for people and their tools. Each line carries the number of its
event, so that after a crash the export goes on behind the last whole line: nothing twice, nothing lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Row, delete, func, select

from turnwise.journal import schema
from turnwise.journal.journal import Journal
from turnwise.journal.schema import unpack_ids, unpack_json

E, T = schema.events.c, schema.turns.c
CHUNK = 200


class RecordsExporter:
    """Appends the journal's events to records.jsonl and then takes them out of the outbox."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.path: Path = journal.config.records_path
        self._last: int | None = None

    def export_all(self) -> int:
        """Write everything there is. Returns the number of lines."""
        total = 0
        while self.journal.config.journal.records and (written := self.export_some()):
            total += written
        return total

    def export_some(self) -> int:
        """Write up to CHUNK events. Returns the number of lines."""
        if self._last is None:
            self._last = self._resume()
        with self.journal.reading() as c:
            rows = c.execute(select(schema.events).where(E.id > self._last).order_by(E.id).limit(CHUNK)).all()
            lines = [json.dumps(self._record(c, row), ensure_ascii=False) for row in rows]
        if rows:
            self.path.touch(mode=0o600)
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
            self._last = rows[-1].id
        with self.journal.transaction() as c:
            # The newest event stays: SQLite would give its number out again if the outbox were empty.
            newest = c.execute(select(func.max(E.id))).scalar() or 0
            c.execute(delete(schema.events).where(E.id <= self._last, E.id < newest))
        return len(rows)

    def _record(self, c: Any, row: Row[Any]) -> dict[str, Any]:
        record = {"event": row.id, "at": row.at, "kind": row.kind, "turn": row.turn_id} | unpack_json(row.data)
        if row.kind == "turn":
            turn = c.execute(select(schema.turns).where(T.id == row.turn_id)).one_or_none()
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
        """The number of the last whole line; half a line left by a crash is cut off."""
        if not self.path.exists():
            return 0
        end = 0
        last = 0
        for start, line in _lines(self.path):
            try:
                last = int(json.loads(line)["event"])
            except (ValueError, KeyError, TypeError):
                break
            end = start + len(line)
        if end < self.path.stat().st_size:
            with self.path.open("r+b") as file:
                file.truncate(end)
        return last


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The last lines of a file with their offsets: enough to find where it ends well."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - 4_000_000)
        file.seek(start)
        if start:
            start += len(file.readline())
        for line in file:
            yield start, line
            start += len(line)
