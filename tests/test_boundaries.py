"""What may import what: torch stays in training/ and local_engine/; what the program never does to a machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "turnwise"
MAY_IMPORT_TORCH = {
    "training",
    "local_engine",
    "versions",
    "pictures/sight.py",
    "models/number_format.py",
    "bench/peer.py",
    "bench/training.py",
    "bench/beside_trl",
}
"""`versions` compares, makes and promotes weights: the command line imports it only where it is asked for that. A tower
looks at pictures for both of the first two."""
OF_ANOTHER_PYTHON = ("environments/desktop/inside", "environments/verified/inside", "environments/sites/inside")
"""Programs that run by another Python than ours, with its modules."""


def modules() -> list[str]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if any(name.startswith(part) for part in MAY_IMPORT_TORCH) or path.name == "__main__.py":
            continue
        if "migrations" in name or name.startswith(OF_ANOTHER_PYTHON):
            continue
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def test_everything_else_imports_without_torch() -> None:
    code = "import sys\n" + "\n".join(f"import {name}" for name in modules())
    code += "\nassert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


FORBIDDEN = {
    "pkill": "ends processes by name",
    "killall": "ends processes by name",
    "process_iter": "looks through everybody's processes",
    "net_connections": "looks through everybody's connections",
}
NO_ADDRESS = (
    "environments/swe/mutations.py",
    "environments/swe/hidden.py",
    "environments/browser/page_scripts.py",
    "config/hosts.py",
)
"""Files in which `*` is a product, every element or the hosts below one, and `::` stands in a test's name: they open
no socket."""
EVERYWHERE = re.compile(r"""["'](0\.0\.0\.0|::|\*)["']""")
TURNS_WILDCARD_INTO_LOOPBACK = re.compile(r"""\{"0\.0\.0\.0": "127\.0\.0\.1", "::": "::1"\}""")
"""Where these addresses may stand: a person may bind to all with a token, and is then shown one to connect to."""
ANY_HEADER = 'allow_headers=["*"]'
"""No address: which headers a page of an origin that was allowed may send."""


def test_nothing_ends_or_searches_processes_by_name() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert [why for word, why in FORBIDDEN.items() if word in text] == [], path


def test_nothing_binds_to_every_address_by_itself() -> None:
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8").replace(ANY_HEADER, "")
        text = TURNS_WILDCARD_INTO_LOOPBACK.sub("", text)
        if path.relative_to(SOURCE).as_posix() in NO_ADDRESS:
            assert "socket" not in text, path
        else:
            assert EVERYWHERE.findall(text) == [], path
        assert "0.0.0.0" not in text, path
        assert not re.search(r"""bind\(\s*\(\s*["']["']""", text), f"{path} binds to the empty, that is every, address"


def test_no_program_of_ours_imports_from_the_folder_it_was_started_in() -> None:
    """`python -m` would look there first, and an agent may write there; `-P` leaves it out."""
    for path in SOURCE.rglob("*.py"):
        assert not re.search(r"""sys\.executable,\s*["']-m["']""", path.read_text(encoding="utf-8")), path
