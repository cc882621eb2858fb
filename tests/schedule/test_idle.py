"""Keyboard and mouse: a real X server for X11; for the other desktops, what their commands print, as recorded text.

Those texts are stand-ins: they were not made on such a machine by this test. What a missing or broken command does is
tried with real processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.servers import wait_until
from turnwise.errors import SensorFault
from turnwise.schedule.input import logind, macos, mutter, windows, x11
from turnwise.schedule.input.asking import ask
from turnwise.schedule.input.idle import InputIdle, probes
from turnwise.schedule.window import SensorOpinion

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("idle_s", "opinion"),
    [
        (0, SensorOpinion.CLOSES),
        (59.9, SensorOpinion.CLOSES),
        (60, SensorOpinion.NONE),
        (30 * 60 - 1, SensorOpinion.NONE),
        (30 * 60, SensorOpinion.OPENS),
    ],
)
def test_the_last_minute_closes_and_half_an_hour_opens(idle_s: float, opinion: SensorOpinion) -> None:
    assert InputIdle(30, lambda: idle_s).read(NOW).opinion is opinion


def test_without_a_desktop_it_has_no_opinion_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_SESSION_TYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PATH", "/nowhere")
    reading = InputIdle(30).read(NOW)
    assert reading.opinion is SensorOpinion.NONE
    assert "$DISPLAY is not set" in reading.why and "loginctl is not installed" in reading.why


@pytest.mark.parametrize(
    ("platform", "variables", "asked"),
    [
        ("darwin", {}, [macos.idle_seconds]),
        ("win32", {}, [windows.idle_seconds]),
        ("linux", {"DISPLAY": ":0"}, [x11.idle_seconds, logind.idle_seconds]),
        ("linux", {"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, [mutter.idle_seconds, logind.idle_seconds]),
        ("linux", {"XDG_SESSION_TYPE": "wayland"}, [mutter.idle_seconds, logind.idle_seconds]),
    ],
)
def test_each_desktop_is_asked_in_its_way(monkeypatch, platform, variables, asked) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_SESSION_TYPE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert probes() == asked


# A real X server


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An X server of this test's own, without a screen (Xvfb)."""
    for program in ("Xvfb", "xdotool"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: xvfb, xdotool; `make display`)")
    reads, writes = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writes), "-noreset", "-nolisten", "tcp", "-screen", "0", "320x240x8"],
        pass_fds=[writes],
        stderr=(tmp_path / "xvfb.log").open("wb"),
    )
    os.close(writes)
    try:
        with os.fdopen(reads) as told:
            number = told.readline().strip()  # it says so when it is ready, and ends the line when it dies
        assert number, (tmp_path / "xvfb.log").read_text()
        monkeypatch.setenv("DISPLAY", f":{number}")
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        monkeypatch.setenv("XDG_SESSION_TYPE", "x11")
        yield server
    finally:
        server.kill()
        server.wait(10)


def test_a_real_x_server_counts_and_a_moved_mouse_begins_anew(display: subprocess.Popen[bytes]) -> None:
    still = wait_until(lambda: (idle := x11.idle_seconds()) > 0.5 and idle)
    subprocess.run(["xdotool", "mousemove", "100", "100"], check=True, timeout=10)
    assert x11.idle_seconds() < still
    subprocess.run(["xdotool", "key", "a"], check=True, timeout=10)
    assert InputIdle(30).read(NOW).opinion is SensorOpinion.CLOSES


def test_a_real_x_server_that_dies_or_hangs_takes_nobody_with_it(
    display: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert x11.idle_seconds() >= 0
    monkeypatch.setattr("turnwise.schedule.input.asking.ask.__kwdefaults__", {"limit_s": 0.5})
    display.send_signal(signal.SIGSTOP)
    with pytest.raises(SensorFault, match=r"did not answer within 0\.5 seconds"):
        x11.idle_seconds()
    display.send_signal(signal.SIGCONT)
    display.kill()
    display.wait(10)
    with pytest.raises(SensorFault, match="display cannot be opened"):
        x11.idle_seconds()


# logind: `loginctl show-session 2 5 -p Type,IdleHint,IdleSinceHint,State`, as systemd 252 prints it


def session(kind: str, hint: str, since: int, state: str = "active") -> str:
    return f"Type={kind}\nState={state}\nIdleHint={hint}\nIdleSinceHint={since}\n"


@pytest.mark.parametrize(
    ("said", "idle_s"),
    [
        (session("wayland", "yes", 900_000_000), 100.0),
        (session("wayland", "no", 900_000_000), 0.0),  # it does tell, and somebody is there
        (session("wayland", "yes", 900_000_000) + "\n" + session("tty", "no", 990_000_000), 10.0),
        (session("wayland", "no", 0) + "\n" + session("tty", "yes", 100_000_000), 900.0),
        (session("wayland", "yes", 500_000_000) + "\n" + session("x11", "no", 999_000_000, "closing"), 500.0),
        (session("wayland", "yes", 2_000_000_000), 0.0),  # a clock that was set back
    ],
)
def test_what_logind_says(said: str, idle_s: float) -> None:
    assert logind.least_idle(logind.sessions_in(said), 1000.0) == pytest.approx(idle_s)


@pytest.mark.parametrize("said", ["", "garbage\n\n===", session("wayland", "no", 0), session("x11", "maybe", 0)])
def test_a_desktop_that_never_told_logind_says_nothing(said: str) -> None:
    with pytest.raises(SensorFault, match="does not tell logind"):
        logind.least_idle(logind.sessions_in(said), 1000.0)


def test_numbers_beyond_measure_are_no_time() -> None:
    with pytest.raises(SensorFault):
        logind.least_idle(logind.sessions_in("Type=tty\nState=active\nIdleSinceHint=" + "9" * 5000), 1000.0)


# GNOME, macOS, Windows: what `gdbus`, `ioreg` and the system say


def test_what_gnome_says() -> None:
    assert mutter.seconds_in("(uint64 5120,)\n") == 5.12
    with pytest.raises(SensorFault):
        mutter.seconds_in("()")


IOREG = """+-o Root  <class IORegistryEntry, id 0x100000100, retain 12>
    +-o IOHIDSystem  <class IOHIDSystem, id 0x100000301, registered, matched, active, busy 0 (0 ms), retain 22>
        {
          "HIDIdleTime" = 2518292083
          "IOClass" = "IOHIDSystem"
        }
"""


def test_what_macos_says() -> None:
    assert macos.seconds_in(IOREG) == pytest.approx(2.518, abs=0.001)
    with pytest.raises(SensorFault, match="HIDIdleTime"):
        macos.seconds_in("+-o Root")


def test_what_windows_says_also_when_its_ticks_begin_anew() -> None:
    assert windows.seconds_between(1_000, 61_000) == 60.0
    assert windows.seconds_between((1 << 32) - 1_000, 4_000) == 5.0


# The commands themselves, as real processes


def test_a_command_that_hangs_is_ended() -> None:
    with pytest.raises(SensorFault, match=r"sleep did not answer within 0\.2 seconds"):
        ask("sleep", "60", limit_s=0.2)


def test_what_a_command_complains_of_is_said() -> None:
    with pytest.raises(SensorFault, match="sh failed: no such thing"):
        ask("sh", "-c", "echo no such thing >&2; exit 3")
    with pytest.raises(SensorFault, match="sh failed: exit code 3"):
        ask("sh", "-c", "exit 3")
