"""`turnwise train now` and what `turnwise status` says of training, without a server: each refusal says what to do."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.journal.test_rollouts import Play
from tests.support.servers import wait_until
from tests.training.homes import Clock, feed
from turnwise.cli.main import app
from turnwise.cli.training import now as command
from turnwise.config import Config, load_config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.schedule.asked import answer, ask_to_train, take_up, train_request
from turnwise.schedule.state import schedule_state
from turnwise.schedule.telling import when_trained


def now(home: Path, *args: str) -> str:
    """Runs the command; gives what it prints. Raises TurnwiseError."""
    done = CliRunner().invoke(app, ["train", "now", "--home", str(home), *args])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


@pytest.fixture
def trainer(journal: Journal) -> Journal:
    """A journal with the word of a trainer that runs alone."""
    journal.status.say("trainer", {"state": "waiting", "for": None})
    return journal


def test_without_a_trainer_it_says_so(journal: Journal, config: Config) -> None:
    with pytest.raises(TurnwiseError, match=r"no trainer runs for the home .*start `turnwise serve`"):
        now(config.home)
    journal.status.say("trainer", {"state": "stopped"})
    with pytest.raises(TurnwiseError, match="no trainer runs"):
        now(config.home)


def test_where_nothing_is_ready_it_says_what_is_missing(trainer: Journal, config: Config) -> None:
    with pytest.raises(TurnwiseError, match=r"no sample is ready \(a step begins by itself at 8\); 0 turns wait"):
        now(config.home)
    assert train_request(trainer) is None


@pytest.mark.parametrize(
    ("setting", "words"),
    [("train.when=off", 'train.when is "off"'), ("train.enabled=false", "train.enabled is false"),
     ("mode=skills-only", 'mode is "skills-only"')],
)  # fmt: skip
def test_where_nothing_is_ever_trained_it_says_why(trainer: Journal, config: Config, setting: str, words: str) -> None:
    feed(trainer, range(3))
    with pytest.raises(TurnwiseError, match=words):
        now(config.home, "--set", setting)


def test_it_asks_and_says_what_will_be_trained(trainer: Journal, config: Config) -> None:
    feed(trainer, range(3))
    assert "3 of 8 samples are ready; training begins now" in now(config.home)
    request = train_request(trainer)
    assert request is not None and request.step == "asked"


def test_whole_groups_of_rollouts_are_something_to_train_on(trainer: Journal, config: Config) -> None:
    play = Play(trainer, Clock())
    play.played("a", 1.0)
    play.played("b", 0.0)
    assert "1 groups of rollouts are whole; training begins now" in now(config.home)
    assert train_request(trainer) is not None


def test_it_waits_and_says_what_came_of_it(trainer: Journal, config: Config) -> None:
    feed(trainer, range(3))

    def trains() -> None:
        wait_until(lambda: train_request(trainer) is not None)
        request = train_request(trainer)
        assert request is not None
        take_up(trainer, request)
        trainer.status.say("trainer", {"state": "scoring", "samples": 3})
        threading.Event().wait(1.5)
        answer(trainer, request, "version 1 serves, and no sample waits")

    thread = threading.Thread(target=trains)
    thread.start()
    said = now(config.home, "--wait")
    thread.join()
    assert "scoring 3 samples" in said and "done: version 1 serves, and no sample waits." in said


def test_all_who_ask_at_once_get_one_run(trainer: Journal) -> None:
    with ThreadPoolExecutor(8) as threads:
        asked = set(threads.map(lambda _: ask_to_train(trainer), range(24)))
    assert len(asked) == 1


def test_whoever_waits_gets_what_comes_of_the_run_that_took_the_place_of_theirs(
    trainer: Journal, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a trainer that was silent for ten minutes: another asks meanwhile."""
    feed(trainer, range(3))
    monkeypatch.setattr(command, "POLL_S", 0.01)

    def another() -> None:
        wait_until(lambda: train_request(trainer) is not None)
        trainer.status.say("train now", {"id": "another", "step": "asked"})
        request = train_request(trainer)
        assert request is not None
        answer(trainer, request, "version 1 serves")

    thread = threading.Thread(target=another)
    thread.start()
    said = now(config.home, "--wait")
    thread.join()
    assert "done: version 1 serves." in said


def test_its_wait_has_a_limit(trainer: Journal, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(trainer, range(3))
    monkeypatch.setattr(command, "POLL_S", 0.01)
    with pytest.raises(TurnwiseError, match=r"not done after 0.1 minutes, and goes on; see `turnwise status`"):
        now(config.home, "--wait", "--limit-min", "0.1")


@pytest.mark.parametrize(
    ("settings", "ready", "loops", "words"),
    [
        ({}, 8, {}, "8 samples are ready; trains while you are away (`turnwise schedule status`), or `turnwise train"),
        ({}, 3, {}, "3 of 8 samples are ready; trains while"),
        ({}, 0, {}, "no sample is ready (a step begins by itself at 8); trains while"),
        ({}, 8, {"trainer": {"state": "paused", "for": "A request."}}, "a step, and stands: A request."),
        ({"train.when": "always"}, 8, {}, "trains as soon as there are 8"),
        ({}, 8, {"trainer": {"state": "waiting", "when": "always"}}, "trains as soon as there are 8"),
        ({"train.when": "manual"}, 8, {}, "`turnwise train now` trains"),
        ({"train.when": "off"}, 8, {}, 'nothing is trained: train.when is "off"'),
        ({"train.enabled": False}, 8, {}, "never: train.enabled is false"),
        ({"mode": "skills-only"}, 8, {}, 'never: mode is "skills-only"'),
        ({"engine.kind": "upstream", "engine.url": "http://127.0.0.1:9", "train.enabled": False}, 8, {},
         "kind upstream, which takes messages"),
    ],
)  # fmt: skip
def test_when_weights_are_trained(
    tmp_path: Path, settings: dict[str, object], ready: int, loops: dict[str, dict[str, str]], words: str
) -> None:
    config = load_config(overrides={"home": tmp_path, **settings})
    assert words in when_trained(config, ready, {"trainer": {"state": "waiting"}} | loops)


@pytest.mark.parametrize("loops", [{}, {"trainer": {"state": "stopped"}}, {"trainer": {"seconds_ago": 100.0}}])
def test_where_no_trainer_runs_each_command_says_it(config: Config, loops: dict[str, dict[str, Any]]) -> None:
    assert when_trained(config, 8, loops) == "8 samples are ready; no trainer runs: start `turnwise serve`"


def test_where_the_server_that_runs_has_no_trainer_each_command_says_it(config: Config) -> None:
    """It was started with other settings than the file has by now."""
    why = "the server that runs has no trainer"
    assert why in when_trained(config, 8, {}, {"gateway", "judge"})
    assert why in schedule_state(config, {"gateway", "judge"})["said"]


def test_status_says_it_too(trainer: Journal, config: Config) -> None:
    feed(trainer, range(8))
    trainer.status.say("traffic", {"under_way": 0})
    done = CliRunner().invoke(app, ["status", "--home", str(config.home)], env={"COLUMNS": "200"})
    assert "8 samples are ready; trains while you are away" in done.output
    assert "under_way" not in done.output
