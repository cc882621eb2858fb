"""The command line that puts a command into bubblewrap's namespaces, and whether this machine can do that.

Inside there are the machine's programs (`/usr`), a `/tmp`, and one folder of ours, `/box`. There is no home, no process
of others, no variable of ours, no right to make further namespaces, and a network that leads nowhere but where
`reach.py` opens a way. It is the kernel that holds all this: nothing looks at the text of a command.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from turnwise.errors import SandboxError
from turnwise.sandbox.groups import make_group
from turnwise.sandbox.limits import INSIDE, PROXY_PORT, TRY_S, Allowed, BoxLimits

PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
PLACES = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders of the root that are links into `/usr` on most machines."""
CERTIFICATES = ("/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust")
_HIDDEN = ("kcore", "keys", "key-users", "kmsg", "kallsyms", "kpagecount", "kpageflags", "kpagecgroup", "config.gz")
"""What the kernel tells of the whole machine."""
_OWN = ("self", "thread-self", "net", "mounts")
"""What it tells of whoever asks."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where one sandbox lies: the folder that is `/box`, and ``place``, a folder of ours that holds its `/tmp` and what
    else it needs. ``root``: the folder that is its `/`, where it has one that can be written."""

    folder: Path
    place: Path
    root: Path | None = None

    @property
    def scratch(self) -> Path:
        return self.place / "tmp"

    def written(self) -> list[Path]:
        """Where else it can write."""
        return [] if self.root is None else [self.place / "layers"]

    def furnish(self, allowed: Allowed) -> None:
        """Write the few files of `/etc`."""
        self.scratch.mkdir(exist_ok=True)
        self.scratch.chmod(0o1777)
        who = "root:x:0:0::/root:/bin/bash" if self.root else "agent:x:1000:1000::/box:/bin/bash"
        files = {
            "hosts": f"127.0.0.1 {' '.join(['localhost', 'box', *allowed.reach])}\n",
            "passwd": f"{who}\nnobody:x:65534:65534::/:/bin/false\n",
            "group": "root:x:0:\n" if self.root else "agent:x:1000:\n",
        }
        (self.place / "etc").mkdir(exist_ok=True)
        for name, text in files.items():
            (self.place / "etc" / name).write_text(text, encoding="utf-8")


def options(room: Room, allowed: Allowed) -> list[str]:
    """What bubblewrap is asked for."""
    user = "0" if room.root else "1000"
    words = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
    words += ["--uid", user, "--gid", user, "--cap-drop", "ALL", "--clearenv", "--hostname", "box"]
    for name, value in _variables(allowed).items():
        words += ["--setenv", name, value]
    words += [*_root(room, allowed), "--proc", "/proc", "--dev", "/dev", *_kernel()]
    # What is no folder of ours would lie in the machine's memory, where nobody counts it: none of it can be written.
    words += ["--bind", str(room.scratch), "/tmp", "--bind", str(room.folder.absolute()), INSIDE]
    for inside, outside in allowed.sees.items():
        words += ["--ro-bind", str(outside.absolute()), inside]
    return [*words, "--chdir", INSIDE, "--remount-ro", "/dev", *([] if room.root else ["--remount-ro", "/"])]


def wrapped(asked: list[str], limits: BoxLimits, command: list[str], memory_is_held: bool, commands: int) -> list[str]:
    """The command line that runs a command inside. ``commands``: for how many of them a process may live."""
    first = [program("bwrap"), *asked, "--"]
    held = [program("prlimit"), f"--fsize={limits.file_mb << 20}", "--core=0", "--nofile=1024"]
    held += [f"--nproc={limits.processes}", f"--cpu={max(1, round(limits.seconds * commands))}"]
    held += [] if memory_is_held else [f"--as={limits.memory_mb << 20}"]
    return [*first, *held, "--", *command]


def shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _root(room: Room, allowed: Allowed) -> list[str]:
    if room.root is not None:
        return ["--bind", str(room.root), "/", "--ro-bind", str(room.place / "etc" / "hosts"), "/etc/hosts"]
    words = ["--ro-bind", "/usr", "/usr"]
    for name in PLACES:
        place = Path("/") / name
        if place.is_symlink():
            words += ["--symlink", f"usr/{name}", str(place)]
        elif place.is_dir():
            words += ["--ro-bind", str(place), str(place)]
    words += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    for name in ("hosts", "passwd", "group"):
        words += ["--ro-bind", str(room.place / "etc" / name), f"/etc/{name}"]
    for place in CERTIFICATES if allowed.hosts else ():
        words += ["--ro-bind-try", place, place]
    return words


def _variables(allowed: Allowed) -> dict[str, str]:
    found = {"PATH": ":".join(PROGRAMS), "HOME": INSIDE, "LANG": "C.UTF-8"}
    if allowed.hosts:
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        found |= {name: proxy for word in ("http_proxy", "https_proxy") for name in (word, word.upper())}
        around = ",".join(["localhost", "127.0.0.1", *allowed.reach])
        found |= {"no_proxy": around, "NO_PROXY": around}
    return found | dict(allowed.variables)


@cache
def _kernel() -> list[str]:
    """What makes the kernel's own files harmless. Where we are root, so is the user inside to those that belong to
    root, which ask for no right but that: all that are not about whoever asks are read-only, and some are empty."""
    words: list[str] = []
    for entry in sorted(Path("/proc").iterdir()):
        if entry.name in _HIDDEN:
            words += ["--ro-bind", "/dev/null", f"/proc/{entry.name}"]
        elif not entry.name.isdecimal() and entry.name not in _OWN and _can_be_written(entry):
            words += ["--ro-bind", str(entry), str(entry)]
    return words


def _can_be_written(entry: Path) -> bool:
    return not entry.is_symlink() and (entry.is_dir() or bool(entry.stat().st_mode & 0o222))


def program(name: str) -> str:
    """Where a program of the machine stands. Raises SandboxError with what to install."""
    found = shutil.which(name, path=":".join((*PROGRAMS, "/bin")))
    if found is None:
        package = {"bwrap": "bubblewrap", "prlimit": "util-linux"}[name]
        raise SandboxError(
            f"commands of an agent run in a sandbox, and {name} is not here; install it "
            f"(Debian, Ubuntu, Fedora, Arch: the package {package})"
        )
    return found


@cache
def check_machine() -> None:
    """Whether this machine can hold commands. Raises SandboxError that says what to install or to allow."""
    if sys.platform != "linux":
        raise SandboxError("commands of an agent run in a sandbox of Linux; use a Linux machine or a virtual one")
    limits, allowed = BoxLimits(), Allowed()
    with tempfile.TemporaryDirectory(prefix="turnwise-") as place:
        room = Room(Path(place), Path(place))
        room.furnish(allowed)
        words = wrapped(options(room, allowed), limits, ["/bin/true"], False, 1)
        group = make_group(limits)
        try:
            asked = group.joining() + words
            done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, env={}, timeout=TRY_S)
        except subprocess.TimeoutExpired:
            raise SandboxError(f"the sandbox (bwrap) did not start within {TRY_S:.0f} s; try again") from None
        finally:
            group.remove()
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise SandboxError(
            f"the sandbox (bwrap, at least 0.8) does not start here: {said}; allow user namespaces "
            "(sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, or an AppArmor profile for bwrap)"
        )
