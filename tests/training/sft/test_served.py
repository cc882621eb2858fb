"""`turnwise sft` beside the server that runs: its version serves without a restart, and a rollback takes it away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.models import make_tiny_model
from tests.support.processes import Server, serving
from tests.support.servers import wait_until
from tests.training.sft.chat_model import write

ANSWER = "green elephants dance on Sundays"


def command(server: Server, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "turnwise", *words, "--home", str(server.config.home)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def asked(server: Server) -> tuple[str, str]:
    """The version that answers, and its answer."""
    given = server.client().chat.completions.with_raw_response.create(
        model="turnwise", messages=[{"role": "user", "content": "what do they do?"}], temperature=0, max_tokens=16
    )
    return given.headers["x-turnwise-version"], given.parse().choices[0].message.content or ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_was_learned_from_a_file_is_what_the_server_answers(tmp_path: Path, model_dir: Path) -> None:
    model = make_tiny_model(tmp_path / "model", model_dir)
    data = write(tmp_path / "data.jsonl", [{"prompt": "what do they do?", "completion": ANSWER}] * 8)
    quick = ["--set", f"model.path={model}", "--set", "gate.enabled=false", "--set", "train.dtype=float32"]
    with serving(tmp_path / "home", model, judge__enabled=False) as server:
        version, before = asked(server)
        assert version == "0"
        assert ANSWER not in before
        said = command(server, "sft", str(data), "--epochs", "60", "--lr", "2e-2", "--batch-tokens", "200", *quick)
        assert "version 1 serves from now on" in said
        wait_until(lambda: asked(server)[0] == "1", 30)
        # This model never ends by itself: the row of its end token is padding, which is all zeros.
        assert asked(server)[1].startswith(ANSWER)
        assert "fine-tuned on data.jsonl" in command(server, "versions", "list")
        assert '"sha256"' in command(server, "versions", "show", "1")
        command(server, "versions", "rollback", "0")
        wait_until(lambda: asked(server)[0] == "0", 30)
        assert asked(server)[1] == before
