"""What the latency bench compares: no proxy, turnwise's real gateway, and the LiteLLM proxy, before the same engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from turnwise.bench.latency import litellm_peer
from turnwise.bench.latency.load import Target
from turnwise.bench.processes import child
from turnwise.config import load_config
from turnwise.errors import TurnwiseError
from turnwise.net import bind

NONE, TURNWISE, LITELLM = "no proxy", "turnwise", "LiteLLM"
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to the engine. `pid` is the proxy's process; None where there is no proxy."""

    name: str
    target: Target
    pid: int | None


@dataclass(frozen=True, slots=True)
class Said:
    """What the engine answers to everything, as tokens and as text."""

    pieces: list[tuple[int, str]]

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    @property
    def tokens(self) -> int:
        """Those with text: what a client sees arrive."""
        return sum(1 for _, text in self.pieces if text)


def answer(model: Path) -> Said:
    """The answer in the model's own tokens, with its end token."""
    tokenizer: Tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = tokenizer.encode(WORDS, add_special_tokens=False).ids
    end = tokenizer.token_to_id("<|im_end|>")
    if end is None:
        raise TurnwiseError("the latency bench needs a ChatML model, such as the embedded one")
    return Said([*((token, tokenizer.decode([token])) for token in ids), (end, "")])


@contextmanager
def open_arms(model: Path, said: Said, scratch: Path, with_litellm: bool) -> Iterator[list[Arm]]:
    """All arms, started; every proxy in a process of its own."""
    with ExitStack() as stack:
        engine = stack.enter_context(instant_engine(said))
        arms = [Arm(NONE, Target(engine), None), stack.enter_context(gateway(model, engine, scratch / "home"))]
        if with_litellm:
            target, pid = stack.enter_context(litellm_peer.proxy(engine, scratch))
            arms.append(Arm(LITELLM, target, pid))
        yield arms


@contextmanager
def instant_engine(said: Said) -> Iterator[int]:
    command = [sys.executable, "-P", "-m", "turnwise.bench.latency.instant_engine", json.dumps(said.pieces)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.strip().isdigit():
                raise TurnwiseError(f"the instant engine did not start: {line!r}")
            yield int(line)
        finally:
            process.terminate()


@contextmanager
def gateway(model: Path, engine_port: int, home: Path, journal: str | None = None) -> Iterator[Arm]:
    """The gateway as `turnwise serve` starts it, with its journal on disk (or where `journal` says) and token-exact
    capture."""
    with bind("127.0.0.1", 0) as sock:
        port, fd = sock.getsockname()[1], sock.fileno()
        command = [sys.executable, "-P", "-m", "turnwise.gateway", "--engine-url", f"http://127.0.0.1:{engine_port}"]
        command += ["--fd", str(fd), "--home", str(home), "--set", f"server.port={port}"]
        command += ["--set", f"model.path={model}", *(["--set", f"journal.url={journal}"] if journal else [])]
        with child(command, f"http://127.0.0.1:{port}/readyz", pass_fds=(fd,)) as process:
            token = load_config(overrides={"home": home}).token_path.read_text(encoding="ascii").strip()
            yield Arm(TURNWISE, Target(port, headers=(f"Authorization: Bearer {token}",)), process.pid)
