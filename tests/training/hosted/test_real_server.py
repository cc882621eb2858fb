"""The real client with a real server: what dies, what serves here, and who may read the key."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.local_engine.engine_process import complete, post, start_engine
from tests.support.skyrl_server import SkyrlServer, skyrl_server
from tests.training.homes import Bench, feed, same, settings
from tests.training.hosted.conftest import KEY, REAL, SETTINGS
from tests.training.tiny import by_the_model, ids, plain_model
from turnwise.errors import ServerLost, ServerRefused
from turnwise.training import worker
from turnwise.training.hosted.folding import Targets
from turnwise.training.hosted.server import HostedAdapter, TinkerServer
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import load_version_dir

pytestmark = [*REAL, pytest.mark.usefixtures("key", "sessions_end")]


@pytest.fixture
def own(tmp_path: Path, tiny_dir: Path) -> Any:
    """A server of this test, which it may kill."""
    with skyrl_server(tiny_dir, tmp_path / "own") as server:
        yield server


def home(tmp_path: Path, model: Path, server: SkyrlServer, name: str = "home", **changes: object) -> Bench:
    at = {"train.tinker_url": server.url, "train.tinker_reduction": "mean"}
    return Bench(settings(tmp_path / name, model, **(SETTINGS | at | changes)))


def test_a_server_that_dies_in_the_middle_of_a_step_loses_nothing_and_repeats_nothing(
    tmp_path: Path, tiny_dir: Path, skyrl: SkyrlServer, own: SkyrlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, killed = home(tmp_path, tiny_dir, skyrl, "undisturbed"), home(tmp_path, tiny_dir, own, "killed")
    for bench in (undisturbed, killed):
        feed(bench.journal, range(1, 5))
    assert undisturbed.claim_and_work()
    step, steps = HostedAdapter.step, []

    def once(self: HostedAdapter, **adam: float) -> dict[str, float]:
        steps.append(None)
        if len(steps) == 2:  # the gradient of the second step is there, and so are the weights of the first
            own.kill()
        return step(self, **adam)

    monkeypatch.setattr(worker, "ROOM_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(HostedAdapter, "step", once)
        assert killed.claim_and_work()
    assert killed.journal.versions.latest() == 0
    assert killed.turns() == {"leased": 4}, "the batch is kept for the next try"
    said = killed.journal.status.last("trainer")
    assert "went away while it was to take a step" in str(said)
    own.start()
    assert killed.claim_and_work()
    assert same(undisturbed.weights(1), killed.weights(1))
    versions = [bench.journal.versions.all()[0] for bench in (undisturbed, killed)]
    assert versions[0].turn_ids == versions[1].turn_ids
    assert killed.turns() == {"trained": 4}


def test_a_server_that_was_restarted_goes_on_from_the_version_that_it_kept(
    tmp_path: Path, tiny_dir: Path, own: SkyrlServer
) -> None:
    bench = home(tmp_path, tiny_dir, own)
    feed(bench.journal, range(1, 5))
    assert bench.claim_and_work()
    own.kill()
    own.start()
    feed(bench.journal, range(5, 9))
    assert bench.claim_and_work()
    assert [v.parent for v in bench.journal.versions.all()] == [0, 1]


def test_nobody_at_the_address_is_said_and_costs_no_attempt(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "ROOM_S", 0.0)
    bench = Bench(settings(tmp_path / "home", tiny_dir, **(SETTINGS | {"train.tinker_url": "http://127.0.0.1:9"})))
    feed(bench.journal, range(1, 5))
    for _ in range(5):
        assert bench.claim_and_work()
    assert bench.turns() == {"leased": 4}
    assert "nothing answers at http://127.0.0.1:9" in str(bench.journal.status.last("trainer"))


def test_what_the_server_cannot_do_is_said_with_its_words(tiny_dir: Path, skyrl: SkyrlServer) -> None:
    server = TinkerServer(settings(tiny_dir, tiny_dir, **SETTINGS).train, "another-model")
    server._config = server._config.model_copy(update={"tinker_url": skyrl.url})
    server.connect()
    with pytest.raises(ServerRefused, match="could not score texts"):
        server.base_logprobs([Targets.of([1, 2], [3])])
    server.close()


def test_a_wait_has_a_limit(tiny_dir: Path, skyrl: SkyrlServer) -> None:
    changes = {"train.tinker_url": skyrl.url, "train.tinker_timeout_s": 0.5}
    server = TinkerServer(settings(tiny_dir, tiny_dir, **(SETTINGS | changes)).train, tiny_dir)
    with pytest.raises(ServerLost, match="did not do nothing within"):
        server.call("do nothing", threading.Event().wait)


def test_a_version_serves_in_the_local_engine_and_says_what_the_server_said(
    tmp_path: Path, tiny_dir: Path, skyrl: SkyrlServer
) -> None:
    bench = home(tmp_path, tiny_dir, skyrl)
    feed(bench.journal, range(1, 5))
    assert bench.claim_and_work()
    folder = version_dir(bench.config.versions_dir, 1)
    model = plain_model(tiny_dir, load_version_dir(folder).weights, bench.config.train)
    prompt = ids(77, 12)
    (tmp_path / "engine").mkdir()
    with start_engine(tiny_dir, tmp_path / "engine" / "log", "--dtype", "float32") as (url, _):
        assert post(url, "/v1/load_lora_adapter", lora_name="v1", lora_path=str(folder)).status_code == 200
        said = complete(url, prompt, model="v1", max_tokens=8)["choices"][0]
        base = complete(url, prompt, max_tokens=8)["choices"][0]
    answer, logprobs = said["token_ids"], said["logprobs"]["token_logprobs"]
    expected = by_the_model(model, prompt, answer, 1.0).tolist()
    assert max(abs(a - b) for a, b in zip(logprobs, expected, strict=True)) < 1e-3
    assert base["logprobs"]["token_logprobs"] != logprobs
    server = TinkerServer(bench.config.train, tiny_dir)
    there = server.saved(load_version_dir(folder).meta["tinker"], with_optimizer=False)
    (theirs,) = there.logprobs([Targets.of(prompt, answer)])
    assert max(abs(a - b) for a, b in zip(logprobs, theirs.tolist(), strict=True)) < 1e-3
    server.close()


def test_the_key_is_in_no_file_and_no_line_of_the_log(
    at_real: Callable[..., Bench], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    bench = at_real()
    feed(bench.journal, range(1, 5))
    assert bench.claim_and_work()
    bench.journal.close()
    for folder, _, names in os.walk(bench.config.home):
        for name in names:
            with suppress(OSError):
                assert KEY.encode() not in (Path(folder) / name).read_bytes(), name
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("turnwise")]
    assert ours and not any(KEY in line for line in ours)
    assert not any(KEY in record.getMessage() for record in caplog.records if record.levelno >= logging.INFO)


@pytest.fixture
def at_real(tmp_path: Path, tiny_dir: Path, skyrl: SkyrlServer) -> Callable[..., Bench]:
    return lambda **changes: home(tmp_path, tiny_dir, skyrl, **changes)
