"""What may import what: torch stays in training/ and engines/local/, and no file grows beyond a sitting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "turnwise"
MAY_IMPORT_TORCH = {"training", "engines/local", "bench/peer.py", "bench/training.py"}


def modules() -> list[str]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if any(name.startswith(part) for part in MAY_IMPORT_TORCH) or path.name == "__main__.py":
            continue
        if "migrations" in name:
            continue
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def test_everything_else_imports_without_torch() -> None:
    code = "import sys\n" + "\n".join(f"import {name}" for name in modules())
    code += "\nassert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_nothing_ends_processes_by_name_or_binds_everywhere() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "pkill" not in text, path
        assert "killall" not in text, path


def test_a_file_stays_readable_at_a_sitting() -> None:
    long = {str(p.relative_to(SOURCE)): len(p.read_text().splitlines()) for p in SOURCE.rglob("*.py")}
    assert {name: lines for name, lines in long.items() if lines > 460} == {}
