"""What git says of a repository that an agent left, without trusting it: objects and names of branches are copied.

Neither its configuration nor its hooks are, which name programs. Git reads the copy in a sandbox of its own.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from turnwise.errors import FolderFault
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.limits import BoxLimits

COPIED = ("HEAD", "index", "packed-refs")
MOST_FILES = 2000
MOST_BYTES = 16 << 20
CONFIGURATION = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
LIMITS = BoxLimits(seconds=10)


def git_says(folder: GuestFolder, way: str, asks: str, sandboxes: Sandboxes) -> str | None:
    """What ``git ASKS`` prints on the repository whose `.git` is at ``way``; None where it fails.

    Raises FolderFault where it cannot be copied, FileNotFoundError where there is none.
    """
    with tempfile.TemporaryDirectory(prefix="turnwise-") as place:
        copy = GuestFolder(Path(place))
        _copied(folder, way, copy)
        asked = " ".join(shlex.quote(word) for word in shlex.split(asks))
        ran = sandboxes.run(copy, f"git --git-dir=/box {asked} 2>/dev/null", LIMITS)
    return ran.output.decode("utf-8", "replace") if ran.status == 0 and ran.stopped_by is None else None


def _copied(folder: GuestFolder, way: str, copy: GuestFolder) -> None:
    folder.status(f"{way}/HEAD")
    left = MOST_BYTES
    ways = [name for name in COPIED if folder.has(f"{way}/{name}")]
    ways += [*_below(folder, way, "refs"), *_below(folder, way, "objects")]
    if len(ways) > MOST_FILES:
        raise FolderFault(f"{way} has more than {MOST_FILES} files")
    for each in ways:
        content = folder.read(f"{way}/{each}", left)
        left -= len(content)
        copy.write(each, content)
    for each in ("refs/heads", "objects/pack"):  # without them it is no repository
        try:
            (copy.path / each).mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise FolderFault(f"{way}/{each} is no folder") from None
    copy.write("config", CONFIGURATION)


def _below(folder: GuestFolder, way: str, top: str, depth: int = 0) -> list[str]:
    """The plain files below a folder, whose ways begin with it. `objects/info` names other folders: it stays."""
    found = [f"{top}/{name}" for name in folder.names(f"{way}/{top}")]
    if depth < 8:
        for name in folder.folders(f"{way}/{top}"):
            if f"{top}/{name}" != "objects/info" and len(found) <= MOST_FILES:
                found += _below(folder, way, f"{top}/{name}", depth + 1)
    return found
