"""`turnwise schedule`, as a person types it, with and without a trainer that runs."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.schedule.calendars import calendar, event
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.doctor.schedule import examine_schedule
from turnwise.errors import ConfigError
from turnwise.journal import Journal
from turnwise.schedule.asked import answer, ask_to_train, take_up, train_request
from turnwise.schedule.state import schedule_state


@pytest.fixture(autouse=True)
def no_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_SESSION_TYPE"):
        monkeypatch.delenv(name, raising=False)


def typed(home: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["schedule", *words, "--home", str(home)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def written(home: Path, *lines: str) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text("\n".join(["[schedule]", *lines]))
    return home


def soon(hours: float, minutes: int = 30) -> str:
    """A meeting that begins in some hours."""
    start = datetime.now(UTC) + timedelta(hours=hours)
    return event(f"DTSTART:{start:%Y%m%dT%H%M%SZ}", f"DURATION:PT{minutes}M", "SUMMARY:Secret plan", uid=str(hours))


def test_without_a_trainer_the_sensors_are_read_here(home: Path) -> None:
    written(home, 'sleep = ["00:00-24:00"]')
    said = typed(home, "status")
    assert "No trainer runs. The window would open after 60 seconds: sleep hours says so." in said
    assert "keyboard and mouse" in said
    readings = {r["sensor"]: r["why"] for r in json.loads(typed(home, "status", "--json"))["readings"]}
    assert "$DISPLAY is not set" in readings["keyboard and mouse"]
    assert not (home / "journal.db").exists()


@pytest.mark.parametrize(
    ("settings", "words", "opens"),
    [
        ('when = "always"', "whenever there is enough", True),
        ('when = "manual"', "only `turnwise train now` trains", False),
        ('when = "off"', 'Nothing is trained: train.when is "off"', False),
        ("enabled = false", "Nothing is trained: train.enabled is false", False),
    ],
)
def test_where_no_window_is_waited_for_that_is_said(home: Path, settings: str, words: str, opens: bool) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(f"[train]\n{settings}")
    told = json.loads(typed(home, "status", "--json"))
    assert words in told["said"] and told["open"] is opens and told["readings"] == []


def test_nobody_is_known_to_be_away(home: Path) -> None:
    told = json.loads(typed(home, "status", "--json"))
    assert told["open"] is False and told["seen_by"] == "this command" and "no sensor says" in told["said"]


def test_the_gateways_traffic_counts_without_a_trainer_too(home: Path) -> None:
    with closing(Journal.open(load_config(overrides={"home": home}))) as journal:
        journal.status.say("traffic", {"under_way": 1})
    told = json.loads(typed(home, "status", "--json"))
    assert "gateway says that somebody is here" in told["said"]
    assert {r["sensor"]: r["opinion"] for r in told["readings"]}["gateway"] == "closes"


def test_a_meeting_that_runs_and_the_next_one(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.ics"
    file.write_bytes(calendar(soon(-0.25), soon(30), soon(300)))
    written(home, f'calendar = "{file}"', "idle_min = 0")
    [reading] = json.loads(typed(home, "status", "--json"))["readings"]
    assert reading["opinion"] == "opens" and reading["why"].startswith("In a meeting until ")
    told = json.loads(typed(home, "next", "--json"))
    assert [each["sensor"] for each in told["away"]] == ["calendar", "calendar"]
    assert "now" in typed(home, "next")
    kept = home / "calendar.json"
    assert kept.stat().st_mode & 0o077 == 0 and b"Secret" not in kept.read_bytes()


def test_a_calendar_that_is_gone_is_said(home: Path, tmp_path: Path) -> None:
    written(home, f'calendar = "{tmp_path}/none.ics"', 'sleep = ["00:00-24:00"]')
    told = json.loads(typed(home, "next", "--json"))
    assert "cannot be read: No such file" in told["calendar_fault"] and len(told["away"]) == 1
    faults = [text for _, level, text in examine_schedule(load_config(overrides={"home": home})) if level == "fault"]
    assert len(faults) == 1 and "calendar" in faults[0]


def test_nothing_to_foretell(home: Path) -> None:
    assert "nothing can be foretold" in typed(home, "next")
    written(home, f'calendar = "{home}/c.ics"')
    (home / "c.ics").write_bytes(calendar())
    assert "nothing within 7 days" in typed(home, "next")


def test_what_a_running_trainer_sees_is_shown(home: Path) -> None:
    config = load_config(overrides={"home": home})
    reading = {"sensor": "gateway", "opinion": "closes", "why": "A request came 3 seconds ago."}
    seen = {"window": "pausing", "since": 0.0, "why": reading["why"], "readings": [reading]}
    journal = Journal.open(config)
    journal.status.say("schedule", seen)
    journal.close()
    said = typed(home, "status")
    assert "The window is shutting" in said and "A request came 3 seconds ago." in said
    assert schedule_state(config)["seen_by"] == "trainer"
    with closing(Journal.open(config)) as journal:
        asked = ask_to_train(journal)
        assert "The window is shutting" in typed(home, "status"), "no trainer has taken it up yet"
        request = train_request(journal)
        assert request is not None and request.id == asked
        take_up(journal, request)
        assert "The trainer works whatever the window says" in typed(home, "status")
        answer(journal, request, "done")
        assert "The window is shutting" in typed(home, "status")
        journal.status.say("trainer", {"state": "stopped"})
        assert "No trainer runs." in typed(home, "status")


@pytest.mark.parametrize("told", [{}, {"window": "ajar"}, {"window": "training", "readings": [{}]}, {"readings": 3}])
def test_what_another_version_wrote_is_not_taken(home: Path, told: dict[str, object]) -> None:
    config = load_config(overrides={"home": home})
    journal = Journal.open(config)
    journal.status.say("schedule", told)
    journal.close()
    assert schedule_state(config)["seen_by"] == "this command"


def test_doctor_names_each_sensor_and_writes_nothing(home: Path) -> None:
    written(home, 'sleep = ["23:00-07:00"]', f'calendar = "{home}/c.ics"')
    (home / "c.ics").write_bytes(calendar())
    found = [(level, text.split(":")[0]) for _, level, text in examine_schedule(load_config(overrides={"home": home}))]
    assert found == [("ok", "sleep hours"), ("note", "keyboard and mouse"), ("ok", "calendar")]
    assert not (home / "calendar.json").exists()


def test_google_needs_a_client_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNWISE_GOOGLE_CLIENT_SECRET", raising=False)
    with pytest.raises(ConfigError, match=r"set schedule\.google_client_id"):
        typed(home, "connect", "google")
    with pytest.raises(ConfigError, match="'icloud' needs no connecting"):
        typed(home, "connect", "icloud")
