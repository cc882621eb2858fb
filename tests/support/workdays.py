"""Made-up days in the form of MetaClaw-Bench, so that its machinery is tested where its data are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def file_check(name: str, command: str, question: str = "Please make the file.") -> dict[str, Any]:
    feedback = {"correct": "Well done.", "incorrect": "Times are written as 2026-03-16T09:30:00+08:00."}
    return {
        "id": name,
        "type": "file_check",
        "question": question,
        "feedback": feedback,
        "eval": {"command": command, "expect_exit": 0},
        "update": [],
    }


def choice(name: str, answer: str, options: str = "ABCD") -> dict[str, Any]:
    told = {option: f"{option} is {'right' if option in answer else 'wrong'}." for option in options}
    return {
        "id": name,
        "type": "multi_choice",
        "question": "Which are right? Answer using \\bbox{X,Y}.",
        "feedback": {"correct": "Right.", "options": told},
        "eval": {"options": dict.fromkeys(options, "an option"), "answer": list(answer)},
    }


def latest(pattern: str) -> str:
    return f"$(python -c \"import glob; print(sorted(glob.glob('{pattern}'))[0])\")"


def any_file(pattern: str, least: int = 1) -> str:
    enough = "files" if least == 1 else f"len(files)>={least}"
    return f"python -c \"import glob,sys; files=sorted(glob.glob('{pattern}')); sys.exit(0 if {enough} else 1)\""


FIRST = [
    file_check("r1", "python scripts/check_iso8601.py day01/standup.json at items[].due"),
    choice("r2", "AC"),
    file_check("r3", "python scripts/check_backup.py day01/notes.md", "Please add a line to day01/notes.md."),
    file_check("r4", "python scripts/check_backup.py day01/tool.py", "Please change day01/tool.py."),
    choice("r5", "ABCD"),
]
SECOND = [
    file_check("r1", "python scripts/check_filename.py --dir day02/ --ext md"
                     " && python scripts/check_done_log.py done.log --min-entries 1"),
    file_check("r2", f"{any_file('day02/20260420_*.json')} && python scripts/check_iso8601.py"
                     f" {latest('day02/20260420_*.json')} meta.created_at made_at && python scripts/check_metadata.py"
                     f" {latest('day02/20260420_*.json')} && python scripts/check_done_log.py done.log"
                     " --min-entries 3 --task-prefix report"),
    choice("r3", "B"),
    file_check("r4", f"{any_file('day02/20260420_*.py', 2)} && python scripts/check_metadata.py $(python -c \"import"
                     " glob; fs=sorted(glob.glob('day02/20260420_*.py')); print([f for f in fs if 'client' in f or"
                     " 'api' in f][0])\")"),
]  # fmt: skip


def write_days(folder: Path, *days: list[dict[str, Any]]) -> Path:
    """Two made-up days, or those that are given. Their program `tool.py` is left out, as the bench's are."""
    shared = folder / "workspaces" / "shared"
    for number, rounds in enumerate(days or (FIRST, SECOND), start=1):
        name = f"day{number:02}"
        (folder / "eval" / name).mkdir(parents=True)
        content = {"id": name, "desc": "made up", "rounds": rounds}
        (folder / "eval" / name / "questions.json").write_text(json.dumps(content), encoding="utf-8")
        (shared / name).mkdir(parents=True)
        (shared / name / "notes.md").write_text("# Notes\n", encoding="utf-8")
    (shared / "AGENTS.md").write_text("You are an agent.\n", encoding="utf-8")
    return folder
