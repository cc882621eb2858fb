"""`turnwise doctor`: looks at everything that must be right, and says what to do about each fault. Changes nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import psutil

from turnwise.access_tokens import Scope, token_path
from turnwise.config import Config, load_config
from turnwise.doctor.journal import examine_journal
from turnwise.doctor.schedule import examine_schedule
from turnwise.doctor.skills import examine_skills
from turnwise.engines.examine import context_of, examine_engine
from turnwise.environments.desktop.programs import check_programs
from turnwise.environments.sites.install import interpreter
from turnwise.environments.sites.keepers import sites_folder, status_of
from turnwise.environments.sites.table import SITES
from turnwise.errors import DataError, SandboxError, TurnwiseError
from turnwise.home import running_url
from turnwise.journal.read_only import exists
from turnwise.judges.signals.states import head_name
from turnwise.loops.process import parse_overrides
from turnwise.loops.states import read_states
from turnwise.models import model_named, resolve_model
from turnwise.models.architectures import supported_model
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.groups import held_kinds

Level = Literal["ok", "note", "fault"]
NEEDED_DISK_GB = 2.0
NEEDED_MEMORY_GB = 4.0
READY_S = 10.0
"""A server that is asked whether it is ready asks its engine first."""


@dataclass(frozen=True)
class Finding:
    """One check: its name, how it went, and a sentence that says what to do."""

    check: str
    level: Level
    text: str


def examine(config_file: Path | None, home: Path | None, sets: list[str] | None = None) -> list[Finding]:
    """All findings, in the order a person would mend them. `sets` are settings given as KEY=VALUE."""
    findings = [_python(), _torch()]
    try:
        config = load_config(config_file, {"home": home} | parse_overrides(sets or []))
    except TurnwiseError as e:
        return [*findings, Finding("configuration", "fault", str(e))]
    findings.append(Finding("configuration", "ok", "valid"))
    checks: list[Callable[[Config], Iterator[Finding]]] = [
        _model,
        _engine,
        _judge,
        _home,
        _journal,
        _skills,
        _schedule,
        _loops,
        _server,
        _running,
        _clients,
        _sandbox,
        _desktop,
        _sites,
        _machine,
    ]
    for check in checks:
        try:
            findings += check(config)
        except Exception as e:  # a check that fails is a finding like any other; those after it are still made
            name = check.__name__.strip("_")
            findings.append(Finding(name, "fault", f"could not be checked: {type(e).__name__}: {e}"))
    return findings


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] <= (3, 12):
        return Finding("python", "ok", version)
    return Finding("python", "fault", f"{version}; install Python 3.11 or 3.12 and run `make install` again")


def _torch() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("torch", "fault", "not installed; run `make install`")
    try:
        import torch
    except (ImportError, OSError) as e:
        return Finding("torch", "fault", f"cannot be imported: {e}; reinstall it with `make install`")
    device = f"CUDA ({torch.cuda.get_device_name(0)})" if torch.cuda.is_available() else "CPU"
    return Finding("torch", "ok", f"{torch.__version__} on {device}")


def _model(config: Config) -> Iterator[Finding]:
    try:
        ours = config.engine.kind == "local" or config.train.enabled
        yield Finding("model", "ok", str((supported_model if ours else resolve_model)(config.model.path)))
    except TurnwiseError as e:
        yield Finding("model", "fault", str(e))


def _engine(config: Config) -> Iterator[Finding]:
    for level, text in asyncio.run(examine_engine(config)):
        yield Finding("engine", "fault" if level == "silent" else level, text)


def _judge(config: Config) -> Iterator[Finding]:
    """Which judge would decide; what decides in a running server stands in `turnwise status`."""
    if not config.judge.enabled:
        return
    if config.judge.kind == "model":
        yield Finding("judge", "ok", f"model {config.judge.model}")
        return
    head = head_name(config)
    kind = "signals" if config.judge.kind == "signals" else f"signals, then model {config.judge.model}"
    if head is not None:
        yield Finding("judge", "ok", f"{kind}; what a person says is read by hidden states of {head}")
    else:
        text = "what a person says is judged by the words alone: docs/judge.md says for which models there is more"
        yield Finding("judge", "note", f"{kind}; {text}")


def _home(config: Config) -> Iterator[Finding]:
    home = config.home
    if not home.exists():
        parent = next(p for p in home.parents if p.exists())
        if os.access(parent, os.W_OK):
            yield Finding("home", "ok", f"{home} will be made at the first start")
        else:
            yield Finding("home", "fault", f"{home} cannot be made; choose another with --home or TURNWISE_HOME")
        return
    if not os.access(home, os.W_OK | os.X_OK):
        yield Finding("home", "fault", f"{home} is not writable for you; change its owner or choose another --home")
        return
    yield Finding("home", "ok", str(home))
    tokens = [path for path in (token_path(config, scope) for scope in Scope) if path.exists()]
    open_ones = [path for path in tokens if stat.S_IMODE(path.stat().st_mode) & 0o077]
    for token in open_ones:
        yield Finding("token", "fault", f"others can read {token}; run: chmod 600 {token}")
    if tokens and not open_ones:
        yield Finding("token", "ok", "readable by its owner alone")


def _journal(config: Config) -> Iterator[Finding]:
    for check, level, text in examine_journal(config):
        yield Finding(check, level, text)


def _skills(config: Config) -> Iterator[Finding]:
    for check, level, text in examine_skills(config):
        yield Finding(check, level, text)


def _schedule(config: Config) -> Iterator[Finding]:
    for check, level, text in examine_schedule(config):
        yield Finding(check, level, text)


def _loops(config: Config) -> Iterator[Finding]:
    """What the supervisor that runs now says of the loops; nothing while none runs."""
    for name, state in read_states(config.home).items():
        if state.troubled:
            words = "; its last words: " + " / ".join(state.last_words) if state.last_words else ""
            yield Finding(name, "fault", f"{state.said()}{words}")


def _server(config: Config) -> Iterator[Finding]:
    host, port = config.server.host, config.server.port
    if port == 0:
        return
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
        yield Finding("port", "ok", f"{host}:{port} is free")
        return
    except OSError as e:
        fault = e.strerror
    try:
        answer = httpx.get(f"http://{host}:{port}/healthz", timeout=2.0, trust_env=False)
        if answer.json() == {"status": "ok"}:
            yield Finding("port", "ok", f"turnwise serves on {host}:{port}")
            return
    except (httpx.HTTPError, ValueError):
        pass  # something else holds the port; said below
    yield Finding("port", "fault", f"{host}:{port}: {fault}; stop what uses it or set server.port")


def _running(config: Config) -> Iterator[Finding]:
    """What the server of this home says of itself; nothing while none runs."""
    url = running_url(config) if exists(config) else None
    if url is None:
        return
    try:
        answer = httpx.get(f"{url}/readyz", timeout=READY_S, trust_env=False)
        told = answer.json()
        degraded, ready = told.get("degraded", {}), answer.status_code == 200
        said = f"version {told['version']} serves" if ready else told["error"]["message"]
    except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as e:
        yield Finding("server", "fault", f"{url}/readyz gives no answer ({type(e).__name__}); see the log of `serve`")
        return
    if not ready:
        yield Finding("server", "fault", f"{url} is not ready: {said}")
    elif degraded:
        yield Finding("server", "note", f"{url} is ready, {said}, but these are in trouble: {', '.join(degraded)}")
    else:
        yield Finding("server", "ok", f"{url} is ready, {said}")


def _clients(config: Config) -> Iterator[Finding]:
    """Whether what `turnwise connect` connected has prompts that fit into the engine's context."""
    from turnwise.agents.fits import advice
    from turnwise.connect.command import changes

    try:
        connected = changes(config).clients()
    except TurnwiseError as e:
        yield Finding("clients", "fault", str(e))
        return
    context = asyncio.run(context_of(config)) if connected else None
    for client in connected:
        fits, said = advice(client, context, config)
        yield Finding("clients", "ok" if fits else "note", said)


def _sandbox(config: Config) -> Iterator[Finding]:
    """Only hosted environments need it: without one the rest works."""
    try:
        name = Sandboxes(config.environments).check()
    except SandboxError as e:
        yield Finding("sandbox", "note", f"no environments can be hosted (turnwise rollout): {e}")
        return
    kinds = held_kinds() if name == "bubblewrap" else ("memory", "pids", "cpu")
    held = (
        f"control groups hold {', '.join(kinds)}"
        if kinds
        else "no control group can be made: prlimit holds each process"
    )
    yield Finding("sandbox", "ok", f"holds agents' commands ({name}; {held})")


def _desktop(config: Config) -> Iterator[Finding]:
    """As the sandbox, which it needs as well."""
    try:
        check_programs()
    except SandboxError as e:
        yield Finding("desktop", "note", f"no desktops can be hosted (turnwise rollout): {e}")
    else:
        yield Finding("desktop", "ok", "its programs are here")


def _sites(config: Config) -> Iterator[Finding]:
    """Only tasks on real sites need them."""
    try:
        interpreter()
    except DataError as e:
        yield Finding("sites", "note", f"no real sites can be started (turnwise sites start): {e}")
        return
    run = [name for name in SITES if status_of(sites_folder(config), name) is not None]
    yield Finding("sites", "ok", f"installed; running: {', '.join(run) or 'none'}")


def _machine(config: Config) -> Iterator[Finding]:
    place = next(p for p in (config.home, *config.home.parents) if p.exists())
    free = shutil.disk_usage(place).free / 1e9
    enough = free > NEEDED_DISK_GB
    yield Finding("disk", "ok" if enough else "fault", f"{free:.1f} GB free" + ("" if enough else "; free some space"))
    memory = psutil.virtual_memory().available / 1e9
    model = model_named(config.model.path)
    need = model.needs_gb if model else NEEDED_MEMORY_GB
    roomy = memory > need
    advice = "" if roomy else f"; serving and training {config.model.path} may take {need:.0f} GB"
    yield Finding("memory", "ok" if roomy else "note", f"{memory:.1f} GB available{advice}")
