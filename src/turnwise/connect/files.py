"""Changes one configuration file of another program so that it can be undone byte for byte.

Order matters: the old bytes and an entry in the manifest are on disk before the file is replaced, so whatever moment
the machine stops at, the old state can be had back. Undo puts back exactly what was there, or removes a file that was
not; it refuses where somebody changed the file in the meantime, because their change would be lost.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock

from turnwise.connect.masking import mask
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.files import write_atomically


@dataclass(frozen=True, slots=True)
class Plan:
    """A change to one file. `before` is None when there is no file yet; `mode` is its mode then."""

    client: str
    path: Path
    before: bytes | None
    after: bytes
    mode: int

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """A unified diff for a person; secrets in it are masked."""
        name = str(self.path)
        old, new = (self.before or b"").decode("utf-8", "replace"), self.after.decode("utf-8", "replace")
        lines = [f"--- {name if self.before is not None else '/dev/null'}", f"+++ {name}"]
        # What differs is found in the lines as they are and shown as masked, else a new token would be no difference.
        shown_old, shown_new = _lines(mask(old)), _lines(mask(new))
        matcher = difflib.SequenceMatcher(None, _lines(old), _lines(new))
        for group in matcher.get_grouped_opcodes(3):
            lines.append(f"@@ line {group[0][3] + 1} @@")
            for what, a, b, c, d in group:
                if what == "equal":
                    lines += [f" {line}" for line in shown_old[a:b]]
                else:
                    lines += [f"-{line}" for line in shown_old[a:b]] + [f"+{line}" for line in shown_new[c:d]]
        return "".join(line.rstrip("\r") + "\n" for line in lines)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


@dataclass(frozen=True, slots=True)
class Entry:
    """One change in the manifest: what to put back (`backup` None: remove the file), and what `connect` left.

    `earlier_sha256` is what it left the time before: that still stands there if the machine stopped before the write.
    """

    client: str
    path: str
    backup: str | None
    mode: int
    before_sha256: str | None
    after_sha256: str | None
    made_folders: list[str]
    earlier_sha256: str | None = None

    def left(self, sha: str | None) -> bool:
        """Whether `connect` left a file with this digest."""
        return sha is not None and sha in (self.after_sha256, self.earlier_sha256)


def plan_change(client: str, path: Path, edit: Callable[[str], str]) -> Plan:
    """What `edit` makes of the file. Raises ConfigError where the file cannot be read or understood."""
    path = path.resolve()  # a link keeps pointing to where it did
    before: bytes | None = None
    mode = 0o600
    try:
        if path.exists():
            if not path.is_file():
                raise ConfigError(f"{path} is not a file; name the configuration file with --client-config")
            before = path.read_bytes()
            mode = path.stat().st_mode & 0o7777
        text = (before or b"").decode("utf-8")
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text; nothing was changed") from e
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}; nothing was changed") from e
    try:
        after = edit(text)
    except ConfigError as e:
        raise ConfigError(f"{path} cannot be changed safely: {e}. Nothing was changed; mend it or move it away") from e
    return Plan(client, path, before, after.encode("utf-8"), mode)


class Changes:
    """The changes made to other programs' files, remembered in `folder` (backups and manifest, mode 0600)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = folder / "manifest.json"

    def clients(self) -> list[str]:
        """The clients whose files hold a change that was not undone."""
        return sorted({entry.client for entry in self._entries()})

    def apply(self, plan: Plan) -> None:
        """Write the planned bytes. Raises TurnwiseError when the file is not any more what was planned for."""
        with self._locked():
            if _read(plan.path) != plan.before:
                raise TurnwiseError(f"{plan.path} changed in the meantime; run the command again")
            entries = self._entries()
            last = _last(entries, plan.client, plan.path)
            before_sha = _sha(plan.before)
            if last is not None and last.left(before_sha):
                # Nobody touched it since: undo goes back to what stood there before turnwise came.
                entries.remove(last)
                last = replace(last, after_sha256=_sha(plan.after), earlier_sha256=before_sha)
            else:
                backup = None if plan.before is None else self._keep(plan.before)
                made = [str(p) for p in _missing_parents(plan.path)]
                last = Entry(plan.client, str(plan.path), backup, plan.mode, before_sha, _sha(plan.after), made)
            self._save([*entries, last])
            plan.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(plan.path, plan.after, plan.mode & 0o7700)  # it holds the token: for its owner alone

    def undo(self, client: str, path: Path | None = None, force: bool = False) -> tuple[Path, bool]:
        """Put back what the last change of `client` replaced; gives the file and whether it still exists."""
        with self._locked():
            entries = self._entries()
            entry = _last(entries, client, path.resolve() if path else None)
            if entry is None:
                raise TurnwiseError(f"there is nothing to undo: turnwise has not changed {path or client}")
            file = Path(entry.path)
            now = _sha(_read(file))
            if not entry.left(now) and now != entry.before_sha256 and not force:
                raise TurnwiseError(
                    f"{file} was changed by hand after `turnwise connect`, and undo would lose that; "
                    "take the turnwise entries out yourself, or give --force to put the old file back"
                )
            if entry.backup is None:
                file.unlink(missing_ok=True)
                for folder in entry.made_folders:
                    with contextlib.suppress(OSError):  # somebody put something into it: it stays
                        Path(folder).rmdir()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(file, (self.folder / entry.backup).read_bytes(), entry.mode)
            entries.remove(entry)
            self._save(entries)
            if entry.backup is not None and all(e.backup != entry.backup for e in entries):
                (self.folder / entry.backup).unlink(missing_ok=True)
            return file, entry.backup is not None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(self.folder / "lock", timeout=30):
                yield
        except OSError as e:
            raise TurnwiseError(f"cannot write {e.filename or self.folder}: {e.strerror or e}") from e

    def _entries(self) -> list[Entry]:
        if not self.manifest.exists():
            return []
        try:
            return [Entry(**entry) for entry in json.loads(self.manifest.read_text(encoding="utf-8"))]
        except (ValueError, TypeError) as e:
            raise TurnwiseError(f"{self.manifest} is broken ({e}); the backups beside it are still whole") from e

    def _save(self, entries: list[Entry]) -> None:
        body = json.dumps([asdict(entry) for entry in entries], indent=2) + "\n"
        write_atomically(self.manifest, body.encode(), 0o600)

    def _keep(self, content: bytes) -> str:
        name = f"{_sha(content)}.backup"
        write_atomically(self.folder / name, content, 0o600)
        return name


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _sha(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _last(entries: list[Entry], client: str, path: Path | None) -> Entry | None:
    mine = [e for e in entries if e.client == client and (path is None or e.path == str(path))]
    return mine[-1] if mine else None


def _missing_parents(path: Path) -> list[Path]:
    """Folders that will be made for this file, innermost first."""
    return [folder for folder in path.parents if not folder.exists()]
