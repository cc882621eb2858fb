"""`turnwise sft` as a real process: killed with SIGKILL at random moments, stopped by Ctrl-C, and its words."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.training.homes import same
from tests.training.sft.chat_model import conversation, sft_home, write
from turnwise.journal import Journal
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import load_version_dir

pytestmark = pytest.mark.slow

PROGRAM = (
    "import sys; from turnwise.training.sft import course; course.CHECKPOINT_S, course.SAVING = 0.05, 0; "
    "from turnwise.cli.main import main; sys.exit(main())"
)
"""The command, with checkpoints at every few steps: a step of the tiny model takes milliseconds."""
KILLS = 5


def write_config(home: Path, model: Path) -> Path:
    file = home.parent / f"{home.name}.toml"
    file.write_text(
        f'home = "{home}"\n[model]\npath = "{model}"\n[engine]\nmax_model_len = 512\n[gate]\nenabled = false\n'
        "[train]\nlora_rank = 4\nmicrobatch_tokens = 64\nthreads = 1\nlease_s = 5.0\n"
        'device = "cpu"\ndtype = "float32"\n'
    )
    return file


def start(config: Path, data: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "sft", str(data), "--config", str(config), "--epochs", "40"]
    command += ["--lr", "5e-3", "--batch-tokens", "200", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if word in line:
            return lines
    raise AssertionError(f"{word!r} was never said:\n{''.join(lines)}")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data.jsonl", [conversation(n) for n in range(20)])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_sigkill_at_random_moments_changes_nothing(tmp_path: Path, chat_dir: Path, data: Path) -> None:
    found, resumed = [], 0
    for name, kills in (("steady", 0), ("killed", KILLS)):
        config, rng = write_config(tmp_path / name, chat_dir), random.Random(4)
        for _ in range(kills):
            process = start(config, data)
            resumed += "goes on behind" in "".join(read_until(process, "step "))
            time.sleep(rng.uniform(0, 1.0))
            os.kill(process.pid, signal.SIGKILL)
            process.communicate(timeout=30)
        process = start(config, data)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert "version 1 serves from now on; `turnwise versions rollback 0` goes back to the base model" in said
        found.append(load_version_dir(version_dir(tmp_path / name / "versions", 1)).weights)
    assert resumed >= KILLS - 1, "the kills came before anything was done"
    assert same(*found)


@pytest.mark.long
def test_ctrl_c_stops_it_with_a_sentence_and_the_same_command_goes_on(
    tmp_path: Path, chat_dir: Path, data: Path
) -> None:
    config = write_config(tmp_path / "home", chat_dir)
    process = start(config, data)
    read_until(process, "step 3/")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; the same command goes on from here" in said
    assert "Traceback" not in said
    with closing(Journal.open(sft_home(tmp_path / "home", chat_dir))) as journal:
        assert not journal.batches.any_open()
    again = start(config, data, "--lr", "1e-3")
    said, _ = again.communicate(timeout=60)
    assert again.returncode == 1
    assert "--lr was 0.005, and is 0.001" in said
    assert "Traceback" not in said
    process = start(config, data)
    assert "goes on behind step" in "".join(read_until(process, "goes on"))
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    listed = subprocess.run(
        [sys.executable, "-P", "-m", "turnwise", "versions", "list", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert "fine-tuned on data.jsonl (sha256 " in listed.stdout
