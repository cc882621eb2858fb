"""`turnwise schedule`: why weights are trained now or not, when the person will be away, and leave from Google."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from turnwise.cli.hints import safe
from turnwise.cli.options import ConfigFile, Home, Json, Set, err, out, print_json, read_config
from turnwise.config import Config
from turnwise.errors import ConfigError, SensorFault

schedule_app = typer.Typer(help="When the person is away, so that weights may be trained.", no_args_is_help=True)


@schedule_app.command("status", epilog="Example: turnwise schedule status")
def schedule_status(config: ConfigFile = None, home: Home = None, sets: Set = None, as_json: Json = False) -> None:
    """Whether the window is open or shut, and what each sensor says; of the running trainer, or else looked at now."""
    from turnwise.loops.states import read_states
    from turnwise.schedule.state import schedule_state

    settings = read_config(config, home, sets)
    state = schedule_state(settings, read_states(settings.home))
    if as_json:
        print_json(state)
        return
    _say(state["said"])
    table = Table("sensor", "", Column("what it says", overflow="fold"))
    for reading in state["readings"]:
        table.add_row(safe(reading["sensor"]), safe(reading["opinion"]), safe(reading["why"]))
    out.print(table)


@schedule_app.command("next", epilog="Example: turnwise schedule next --days 2")
def schedule_next(
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
    days: Annotated[int, typer.Option(min=1, max=8, help="How far to look.")] = 7,
    as_json: Json = False,
) -> None:
    """When hours of sleep and meetings open the window within the next days. A person who is there shuts it."""
    from turnwise.schedule.calendar.reader import calendar_reader
    from turnwise.schedule.coming import coming
    from turnwise.schedule.sleep import sleep_table, wall_time

    settings = read_config(config, home, sets)
    now, fault, busy = datetime.now(UTC), "", ()
    if settings.schedule.calendar:
        reader = calendar_reader(settings)
        try:
            busy = reader.busy(now).busy
        except SensorFault as e:
            fault = str(e)
        fault = fault or reader.fault
    times = coming(sleep_table(settings.schedule).hours, busy, now, days)
    if as_json:
        told = [asdict(each) | {"start": each.start.isoformat(), "end": each.end.isoformat()} for each in times]
        print_json({"days": days, "away": told, "calendar_fault": fault or None})
        return
    if fault:
        err.print(f"[yellow]calendar:[/] {safe(fault)}", highlight=False, soft_wrap=True)
    if not times:
        _say(_nothing(settings, days))
        return
    zone = settings.schedule.zone_info
    table = Table("opens", "shuts", "by")
    for each in times:
        opens = "now" if each.start <= now else f"{wall_time(each.start, zone):%a %d %b %H:%M}"
        table.add_row(opens, f"{wall_time(each.end, zone):%a %d %b %H:%M}", each.sensor)
    out.print(table)


@schedule_app.command("connect", epilog="Example: turnwise schedule connect google")
def schedule_connect(
    service: Annotated[str, typer.Argument(help="google, the only one that needs it.")],
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Ask Google, in a browser on this machine, for leave to see when you are busy; titles are not asked for."""
    from turnwise.schedule.calendar.google import GoogleClient, connect
    from turnwise.schedule.calendar.reader import google_token_path

    if service != "google":
        raise ConfigError(f"{service!r} needs no connecting; give its address as schedule.calendar")
    settings = read_config(config, home, sets)
    client = GoogleClient(settings.schedule.google_client_id, _secret(settings))
    connect(
        client, google_token_path(settings), lambda url: _say(f"Open this in a browser on this machine:\n\n{url}\n")
    )
    _say(f'Google is connected. Set schedule.calendar = "google" in {settings.home / "config.toml"}.')


def _secret(settings: Config) -> str:
    secret = os.environ.get(settings.schedule.google_client_secret_env, "")
    if not settings.schedule.google_client_id or not secret:
        raise ConfigError(
            "a client of your own at Google is needed, of the kind 'desktop app': set schedule.google_client_id, and "
            f"{settings.schedule.google_client_secret_env} in the environment (docs/schedule.md)"
        )
    return secret


def _nothing(settings: Config, days: int) -> str:
    schedule = settings.schedule
    if not schedule.sleep and not schedule.calendar:
        return "neither schedule.sleep nor schedule.calendar is set, so nothing can be foretold"
    return f"nothing within {days} days"


def _say(text: Any) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)
