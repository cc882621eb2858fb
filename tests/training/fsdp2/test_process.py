"""The trainer in two real processes: its versions, another number of them, a rank that dies or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from tests.local_engine.engine_process import complete, post, start_engine
from tests.support.servers import wait_until
from tests.training.homes import NO_LIMITS, feed, feed_probes, settings
from tests.training.tiny import by_the_model, ids, plain_model, train_config
from turnwise.journal import Journal
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import load_version_dir
from turnwise.types import TurnState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LIMIT_S = 120


def write_config(home: Path, model: Path, kind: str, **train: object) -> Path:
    given: dict[str, object] = {
        "when": "always",
        "weights": kind,
        "lr": 3e-3,
        "lora_rank": 4,
        "min_batch": 4,
        "max_batch": 4,
        "minibatch": 2,
        "epochs": 2,
        "microbatch_tokens": 64,
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "lease_s": 2.0,
        "teacher": "policy",
        "lessons": 0,
        "rank_timeout_s": 20.0,
    } | train
    lines = [f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in given.items()]
    gate = "".join(f"{name[5:]} = {value}\n" for name, value in NO_LIMITS.items())
    file = home.parent / f"{home.name}.toml"
    head = f'home = "{home}"\n[model]\npath = "{model}"\n[train]\n'
    file.write_text(head + "\n".join(lines) + f"\n[gate]\nanswers = 0\nprobe_share = 0.0\n{gate}", encoding="utf-8")
    return file


@contextmanager
def trainer(config: Path, log: Path, *launcher: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        command = [sys.executable, *launcher, "-m", "turnwise.training", "--config", str(config)]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def state_of(journal: Journal) -> str:
    return str(journal.status.figures()["loops"].get("trainer", {}).get("state"))


def train_until(journal: Journal, config: Path, log: Path, version: int, *launcher: str) -> None:
    with trainer(config, log, *launcher) as process:
        wait_until(lambda: journal.versions.latest() == version or process.poll() is not None, LIMIT_S)
        assert journal.versions.latest() == version, log.read_text()[-3000:]


def weights(home: Path, number: int) -> dict[str, torch.Tensor]:
    return load_version_dir(version_dir(home / "versions", number)).weights


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.allclose(one[name], other[name], atol=1e-5), name


@pytest.mark.long
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_it_trains_publishes_serves_and_goes_on_in_another_number_of_processes(
    tmp_path: Path, tiny_dir: Path, kind: str
) -> None:
    homes = {name: tmp_path / name for name in ("alone", "together")}
    journals = {name: Journal.open(settings(home, tiny_dir)) for name, home in homes.items()}
    for journal in journals.values():
        feed_probes(journal)
        feed(journal, range(12))
    alone = write_config(homes["alone"], tiny_dir, kind)
    train_until(journals["alone"], alone, tmp_path / "alone.log", 3)
    journal, log = journals["together"], tmp_path / "together.log"
    home = homes["together"]
    train_until(journal, write_config(home, tiny_dir, kind, backend="fsdp2", processes=2, max_staleness=99), log, 3)
    for number in (1, 2, 3):
        assert_close(weights(homes["alone"], number), weights(home, number))
        files = [{f.name for f in version_dir(h / "versions", number).iterdir()} for h in homes.values()]
        assert files[0] == files[1]
    for each in journals.values():
        feed(each, range(12, 20))
    train_until(journals["alone"], alone, tmp_path / "alone.log", 5)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3")
    train_until(journal, write_config(home, tiny_dir, kind, backend="fsdp2", max_staleness=99), log, 5, *torchrun)
    assert_close(weights(homes["alone"], 5), weights(home, 5))
    assert "is gone" not in log.read_text(), "the optimiser goes on, too"
    assert journal.status.figures()["turns"][TurnState.TRAINED] == 20

    (tmp_path / "engine").mkdir()
    options = ("--dtype", "float32", "--kv-cache-mb", "16", "--max-model-len", "256")
    with start_engine(tiny_dir, tmp_path / "engine" / "log", *options) as (url, _):
        path = str(version_dir(home / "versions", 5))
        assert post(url, "/v1/load_lora_adapter", lora_name="v5", lora_path=path).status_code == 200
        choice = complete(url, ids(5, 20), model="v5", max_tokens=6, ignore_eos=True)["choices"][0]
    model = plain_model(tiny_dir, weights(home, 5), train_config(weights=kind, lora_alpha=32))
    expected = by_the_model(model, ids(5, 20), choice["token_ids"], 1.0)
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected.tolist(), abs=1e-3)
    for each in journals.values():
        each.close()


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_a_rank_that_is_lost_ends_the_run_with_a_sentence_and_nothing_is_lost_or_repeated(
    tmp_path: Path, tiny_dir: Path, how: str
) -> None:
    homes = {name: tmp_path / name for name in ("steady", "lost")}
    journals = {name: Journal.open(settings(home, tiny_dir)) for name, home in homes.items()}
    for journal in journals.values():
        feed(journal, range(4))
    train_until(journals["steady"], write_config(homes["steady"], tiny_dir, "lora"), tmp_path / "steady.log", 1)
    journal, log = journals["lost"], tmp_path / "lost.log"
    long = write_config(homes["lost"], tiny_dir, "lora", backend="fsdp2", epochs=2000, rank_timeout_s=5.0)
    with trainer(long, log) as process:
        wait_until(lambda: state_of(journal) == "training" or process.poll() is not None, LIMIT_S)
        [rank] = children(process.pid)
        os.kill(rank, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        try:
            wait_until(lambda: process.poll() is not None, 60)
        finally:
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
    assert process.returncode == 1
    said = log.read_text()
    assert "a process of the trainer was lost" in said and "Nothing of the batch is lost or done twice" in said
    assert journal.versions.latest() == 0
    assert journal.status.figures()["turns"] == {TurnState.LEASED: 4} | {
        state: 0 for state in journal.status.figures()["turns"] if state != TurnState.LEASED
    }
    train_until(journal, write_config(homes["lost"], tiny_dir, "lora", backend="fsdp2"), log, 1)
    assert_close(weights(homes["steady"], 1), weights(homes["lost"], 1))
    assert journal.status.figures()["turns"][TurnState.TRAINED] == 4
    for each in journals.values():
        each.close()


def test_a_backend_of_one_process_refuses_to_be_one_of_two(tmp_path: Path, tiny_dir: Path) -> None:
    config, log = write_config(tmp_path / "home", tiny_dir, "lora"), tmp_path / "log"
    with trainer(config, log, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2") as process:
        wait_until(lambda: process.poll() is not None, 60)
    assert 'set train.backend = "fsdp2", or start it without torchrun' in log.read_text()
