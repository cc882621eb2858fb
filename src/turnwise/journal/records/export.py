"""records.jsonl: every interaction, vote, hint and decision as one JSON line, written off the hot path.

The journal's outbox is the truth; this file is its copy for people and their tools. How far it is stands in the
journal, written in the transaction that takes the events out of the outbox. Each line carries the number of its event
and the id of its journal, so that what a crash left between the two is recognised: nothing twice, nothing lost.

A file that is not ours is never touched (record_files.py). A journal that was put back from a copy, or took the place
of another one, goes on behind a line that says so, under a new id: no event is taken for one that is already there.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from pathlib import Path
from typing import Any

from filelock import FileLock
from sqlalchemy import Connection, Row, bindparam, delete, func, select

from turnwise.journal import schema
from turnwise.journal.clocks import meta, set_meta
from turnwise.journal.journal import Journal
from turnwise.journal.packing import unpack_ids, unpack_json
from turnwise.journal.records.files import Last, append_to, cut_half_a_line, events_behind, last_line, our_file

log = logging.getLogger(__name__)

E, T = schema.events.c, schema.turns.c
CHUNK = 200
# Statements of every event are made once: building one takes longer than SQLite takes to run it.
_EVENTS = select(schema.events).where(E.id > bindparam("last")).order_by(E.id).limit(CHUNK)
_TURN = select(
    *(T.session_id, T.idx, T.kind, T.version, T.bridged, T.temperature, T.finish_reason),
    *(T.prompt_tokens, T.used_prompt, T.messages, T.answer, T.response_ids, T.generation),
).where(T.id == bindparam("which"))
_SKILLS = select(schema.skill_uses.c.version).where(
    schema.skill_uses.c.turn_id == bindparam("which"), ~schema.skill_uses.c.withheld
)
POSITION = "exported"
"""The name, in the journal's table of facts, of the newest event that stands in the file."""


class RecordsExporter:
    """Appends the journal's events to records.jsonl and then takes them out of the outbox."""

    def __init__(self, journal: Journal) -> None:
        self.store = journal.store
        self.path: Path = journal.store.config.records_path
        self._last = 0  # the newest event in the file, as long as the file has this size
        self._size = -1
        self._id = journal.store.id

    def export_all(self) -> int:
        """Write everything there is. Returns the number of lines."""
        total = 0
        while self.store.config.journal.records and (written := self.export_some()):
            total += written
        return total

    def export_some(self) -> int:
        """Write up to CHUNK events. Returns the number of lines."""
        with FileLock(f"{self.store.config.records_path}.lock", mode=0o600):
            # A stopping gateway's last export may meet the one before it.
            if self._size != self._file_size():  # another exporter wrote, or a write of ours stopped half way
                self._last = self._resume()
            with self.store.reading() as c:
                rows = c.execute(_EVENTS, {"last": self._last}).all()
                lines = [json.dumps(self._record(c, row), ensure_ascii=False) for row in rows]
            if rows:
                append_to(self.path, "".join(line + "\n" for line in lines).encode())
                self._last = rows[-1].id
            self._size = self._file_size()
            with self.store.transaction() as c:
                # The newest event stays: SQLite would give its number out again if the outbox were empty.
                newest = c.execute(select(func.max(E.id))).scalar() or 0
                c.execute(delete(schema.events).where(E.id <= self._last, E.id < newest))
                if meta(c, POSITION) != str(self._last):
                    set_meta(c, POSITION, self._last)
        return len(rows)

    def _file_size(self) -> int:
        return self.path.lstat().st_size if os.path.lexists(self.path) else 0

    def _record(self, c: Connection, row: Row[Any]) -> dict[str, Any]:
        record = {"event": row.id, "at": row.at, "kind": row.kind, "turn": row.turn_id, "journal": self._id}
        record |= unpack_json(row.data)
        if row.kind == "turn":
            turn = c.execute(_TURN, {"which": row.turn_id}).one_or_none()
            if turn is not None:
                record |= {
                    "session": turn.session_id,
                    "index": turn.idx,
                    "turn_kind": turn.kind,
                    "version": turn.version,
                    "skills": self._skills(c, row.turn_id, turn.generation),
                    "bridged": turn.bridged,
                    "temperature": turn.temperature,
                    "finish_reason": turn.finish_reason,
                    "prompt_tokens": turn.prompt_tokens if turn.used_prompt is None else turn.used_prompt,
                    "messages": unpack_json(turn.messages),
                    "answer": unpack_json(turn.answer) if turn.answer else None,
                    "response_ids": unpack_ids(turn.response_ids) if turn.response_ids else [],
                }
        return record

    def _skills(self, c: Connection, turn_id: str, generation: int | None) -> dict[str, Any] | None:
        """The generation of the library, and which versions of skills were in the prompt; None where there never was a
        skill. No names: they are made of what people say, and forgetting takes lines out, not words."""
        if generation is None:
            return None
        return {"generation": generation, "in_prompt": sorted(c.execute(_SKILLS, {"which": turn_id}).scalars())}

    def _resume(self) -> int:
        """The number of the newest event in the file, which ends with a whole line from here on."""
        self.path = our_file(self.store.config.records_path)
        cut_half_a_line(self.path)
        there = last_line(self.path)
        with self.store.transaction() as c:
            self._id = meta(c, "id") or ""
            told = int(meta(c, POSITION) or 0)
            newest = c.execute(select(func.max(E.id))).scalar() or 0
            if newest < told:  # numbers were given out again: what the outbox holds was never written
                told = 0
            if there is None:
                return told
            if there.journal in (self._id, None) and there.event == told:
                return told
            if self._is_in_outbox(c, there):  # written, and then killed before the journal knew
                return there.event
            if there.journal == self._id and there.event < told:
                return told  # lines were taken out of the file; they stay out
            told = self._past_what_is_there(c, told)
            set_meta(c, POSITION, told)
            self._begin_anew(c, told, there)
            return told

    def _is_in_outbox(self, c: Connection, line: Last) -> bool:
        """Whether a line is a copy of an event of this very journal, and not of one with the same number."""
        if line.journal not in (self._id, None):
            return False
        row = c.execute(select(schema.events).where(E.id == line.event)).one_or_none()
        return row is not None and (row.at, row.kind, row.turn_id) == (line.at, line.kind, line.turn)

    def _past_what_is_there(self, c: Connection, told: int) -> int:
        """How far the file has the outbox already: a copy may hold what was written only after it was made."""
        there = events_behind(self.path, told)
        for row in c.execute(select(E.id, E.at, E.kind, E.turn_id).where(E.id > told).order_by(E.id)):
            if tuple(row) not in there:
                break
            told = row.id
        return told

    def _begin_anew(self, c: Connection, told: int, there: Last) -> None:
        """Say in the file that what follows is of another journal than what is there, or of an older copy of it."""
        self._id = uuid.uuid4().hex[:12]
        set_meta(c, "id", self._id)
        row = {"event": told, "at": self.store.clock(), "kind": "journal", "turn": None, "journal": self._id}
        row |= {"before": {"journal": there.journal, "event": there.event}}
        log.warning(
            "%s ends with event %d of the journal %s, which this journal does not have: it was put back from a copy or "
            "is a new one; its records go on there as those of the journal %s",
            *(self.path, there.event, there.journal or "of an earlier turnwise", self._id),
        )
        append_to(self.path, json.dumps(row).encode() + b"\n")
