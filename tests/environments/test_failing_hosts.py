"""Which hosts are left out, by value; and that a browser begins no rollout at one."""

from __future__ import annotations

import socket
import time

import pytest

from tests.environments.browser.conftest import needs_browser
from turnwise.config import load_config
from turnwise.environments.base import InfrastructureFailure, Task
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.failing_hosts import MOST_KNOWN, FailingHosts
from turnwise.errors import ConfigError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_host_that_fails_again_and_again_is_left_out_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    known = FailingHosts(3, 60.0, clock)
    for _ in range(2):
        known.failed("shop.example", "it does not open")
    assert known.why_left_out("shop.example") is None
    known.failed("shop.example", "it does not open")
    assert "3 rollouts in a row" in (known.why_left_out("shop.example") or "") and "does not open" in caplog.text
    assert known.why_left_out("another.example") is None
    clock.now = 60.0
    assert known.why_left_out("shop.example") is None
    known.failed("shop.example", "again")
    assert known.why_left_out("shop.example") is not None


def test_one_rollout_without_a_failure_clears_a_host() -> None:
    known = FailingHosts(2, 60.0, Clock())
    known.failed("shop.example", "x")
    known.worked("shop.example")
    known.failed("shop.example", "x")
    assert known.why_left_out("shop.example") is None


def test_none_is_left_out_where_that_is_switched_off() -> None:
    known = FailingHosts(0, 60.0, Clock())
    for _ in range(9):
        known.failed("shop.example", "x")
    assert known.why_left_out("shop.example") is None


def test_no_more_hosts_are_remembered_than_there_is_room_for() -> None:
    known = FailingHosts(1, 60.0, Clock())
    for number in range(MOST_KNOWN + 1):
        known.failed(f"h{number}", "x")
    assert known.why_left_out("h0") is None and known.why_left_out(f"h{MOST_KNOWN}") is not None


@pytest.mark.parametrize(
    ("host", "out"),
    [
        ("https://shop.example/", True),
        ("http://SHOP.example.:8443/a?b", True),
        ("http://maria@shop.example/", True),
        ("http://a.b.bank.example/", True),
        ("http://bank.example/", False),
        ("http://mybank.example/", False),
        ("http://shop.example.org/", False),
        ("https://odd.example/", True),
        ("http://odd.example/", False),
        ("http://odd.example:443/", True),
        ("http://[::1]:8000/", True),
        ("http://[::2]:8000/", False),
    ],
)
def test_hosts_that_a_person_names_are_always_left_out(host: str, out: bool) -> None:
    known = FailingHosts(0, 60.0, Clock(), never=["shop.example", "*.bank.example", "odd.example:443", "[::1]"])
    assert (known.why_never(host) is not None) == out


@pytest.mark.parametrize("entry", ["", "http://example.org/", "example.org/a", "a b", "example.org:0", "*", "::1"])
def test_what_names_no_host_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError, match="left_out_hosts"):
        load_config(None, {"environments.left_out_hosts": [entry]})


@pytest.mark.slow
@needs_browser
def test_no_rollout_begins_at_a_host_that_is_left_out() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{nobody.getsockname()[1]}"
        task = Task("t", "web", "Do it.", {"url": f"http://{host}/", "answer": "42"})
        browser = BrowserEnvironment(3, failing=FailingHosts(2, 60.0, time.monotonic))
        try:
            for said in ("does not open", "does not open", "is left out"):
                with pytest.raises(InfrastructureFailure, match=said):
                    browser.reset(task)
        finally:
            browser.close()
