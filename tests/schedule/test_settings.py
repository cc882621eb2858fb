"""The section `[schedule]`: what may be written, one clear sentence for what may not, and no secret ever shown."""

from __future__ import annotations

from datetime import time
from pathlib import Path

import pytest

from turnwise.config import Config, load_config
from turnwise.config.reference import as_toml
from turnwise.config.schedule import SleepSpan, sleep_span
from turnwise.errors import ConfigError

SECRET = "https://calendar.example.com/private-0123456789abcdef/basic.ics?key=fedcba"


def written(tmp_path: Path, *lines: str) -> Config:
    file = tmp_path / "c.toml"
    file.write_text("\n".join(["[schedule]", *lines]))
    return load_config(file)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("23:00-07:00", SleepSpan(time(23), time(7))),
        (" 1:30 - 9:00 ", SleepSpan(time(1, 30), time(9))),
        ("mon-fri 23:00-07:00", SleepSpan(time(23), time(7), frozenset(range(5)))),
        ("SUN 00:00-24:00", SleepSpan(time(0), time(0), frozenset({6}))),
        ("fri-mon 22:00-24:00", SleepSpan(time(22), time(0), frozenset({4, 5, 6, 0}))),
    ],
)
def test_spans_are_read(text, span):
    assert sleep_span(text) == span


def test_several_spans_and_a_zone(tmp_path: Path) -> None:
    config = written(tmp_path, 'sleep = ["sun-thu 23:00-07:00", "fri-sat 01:00-09:00"]', 'zone = "Asia/Kathmandu"')
    assert len(config.schedule.sleep_spans) == 2 and str(config.schedule.zone_info) == "Asia/Kathmandu"
    from_the_line = load_config(overrides={"schedule.sleep": "sun-thu 23:00-07:00,fri-sat 01:00-09:00"})
    assert from_the_line.schedule.sleep_spans == config.schedule.sleep_spans


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('sleep = ["late"]', "schedule.sleep: 'late' is no span of hours; write it as '23:00-07:00'"),
        ('sleep = ["23:00-07:00 tomorrow"]', "is no span of hours"),
        ('sleep = ["25:00-07:00"]', "25:00 in '25:00-07:00' is no time of day"),
        ('sleep = ["23:60-07:00"]', "23:60 .* is no time of day"),
        ('sleep = ["07:00-07:00"]', "has no length; .* a whole day as '00:00-24:00'"),
        ('sleep = ["24:00-07:00"]', "has no length"),
        ('sleep = ["xyz 23:00-07:00"]', "'xyz' in .* is no weekday; the days are mon, tue"),
        ('zone = "Mars/Olympus"', "schedule.zone: 'Mars/Olympus' is no time zone"),
        ('zone = "../../etc/passwd"', "is no time zone"),
        ('zone = "/etc/localtime"', "is no time zone"),
        ('zone = "Europe"', "is no time zone"),
        ("idle_min = -1", "schedule.idle_min"),
        ('calendar = "ftp://host/c.ics"', "schedule.calendar: is neither a file's path, nor begins with https://"),
        ('calendar = "http://example.com/c.ics"', "would be read without encryption"),
        ('calendar = "https:///c.ics"', "it has no host"),
        ('calendar = "https://host:x/c.ics"', "its host or port cannot be read"),
        ('calendar = "https://[bad/c.ics"', "its host or port cannot be read"),
        ('calendar = "https://me:pw@host/c.ics"', "has a name or password in it; see schedule.calendar_user"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        written(tmp_path, line)


@pytest.mark.parametrize("scheme", ["https", "webcal", "caldavs", "HTTPS"])
def test_a_private_address_is_shown_nowhere(tmp_path: Path, scheme: str) -> None:
    config = written(tmp_path, f'calendar = "{SECRET.replace("https", scheme, 1)}"')
    shown = as_toml(config) + repr(config) + str(config.model_dump()) + config.model_dump_json()
    assert "calendar.example.com/hidden" in shown
    assert "0123456789" not in shown and "fedcba" not in shown


def test_a_faulty_private_address_is_not_shown_either(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        written(tmp_path, f'calendar = "{SECRET.replace("https", "http")}"')
    assert "0123456789" not in str(raised.value) and "calendar.example.com" not in str(raised.value)


@pytest.mark.parametrize("calendar", ["", "google", "~/calendar.ics", "/home/me/c.ics", "http://127.0.0.1:5232/me/c/"])
def test_what_is_no_secret_stays(tmp_path: Path, calendar: str) -> None:
    shown = as_toml(written(tmp_path, f'calendar = "{calendar}"'))
    assert f'calendar = "{calendar.replace("/me/c/", "/hidden")}"' in shown
