"""A run of a program of many stages, as its own log tells it: which stages ended well, what was tried again, and why.

The format is one JSON object. Keys that are not known, counts below zero and texts of any length are refused with the
place where they stand.

    {"pipeline": "research", "stages": [
        {"stage": "experiment", "status": "done", "retries": 1, "refine_cycles": 2, "events": [
            {"kind": "error", "message": "KeyError: 'accuracy'", "fix": "write the key before the table is made"}]}]}
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from turnwise.errors import SkillError

MOST_BYTES = 4 << 20
"""Of a file."""
MOST_RUNS = 200
"""Files at once."""

Name = Annotated[str, Meta(min_length=1, max_length=80)]
Said = Annotated[str, Meta(max_length=4000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]


class PipelineEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that went wrong, in the program's words, and what helped, where that is known."""

    kind: Literal["error", "retry", "warning"]
    message: Said
    fix: Said = ""


class PipelineStage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of a run. ``retries``: how often it was begun again; ``refine_cycles``: how often its result was sent
    back."""

    stage: Name
    status: Literal["done", "failed", "skipped"]
    retries: Count = 0
    refine_cycles: Count = 0
    events: Annotated[list[PipelineEvent], Meta(max_length=500)] = []


class PipelineRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run with its stages in order."""

    pipeline: Name
    stages: Annotated[list[PipelineStage], Meta(min_length=1, max_length=1000)]


def read_runs(paths: Sequence[Path]) -> list[PipelineRun]:
    """The runs of files, and of all `.json` files of folders. Raises SkillError with the file and what is wrong."""
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise SkillError(f"there is no run in {', '.join(map(str, paths)) or 'nothing'}; a run is a .json file")
    if len(files) > MOST_RUNS:
        raise SkillError(f"these are {len(files)} runs; give at most {MOST_RUNS} at once")
    return [_read(file) for file in files]


def _read(file: Path) -> PipelineRun:
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as e:
        raise SkillError(f"{file} cannot be read: {e.strerror}") from e
    if len(content) > MOST_BYTES:
        raise SkillError(f"{file} is larger than {MOST_BYTES >> 20} MB; a run is a list of its stages, not its log")
    try:
        return msgspec.json.decode(content, type=PipelineRun)
    except msgspec.ValidationError as e:
        raise SkillError(f"{file} is no run of a pipeline: {e}; docs/skills.md has the format") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise SkillError(f"{file} is not JSON: {e}") from None
