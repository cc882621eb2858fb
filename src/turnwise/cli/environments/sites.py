"""`turnwise sites`: real web applications, started on loopback for tasks of the web and for people to look at."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from turnwise.cli.options import ConfigFile, Home, Json, Set, out, print_json, read_config
from turnwise.errors import ConfigError

sites_app = typer.Typer(help="Real web applications that start here (docs/sites.md).", no_args_is_help=True)
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="shop, tracker, wiki; none named: all.")]


@sites_app.command("start", epilog="Example: turnwise sites start shop tracker")
def start(
    names: Names = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for people to look at a site; 0 takes one.")] = 0,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Start sites, which go on until they are stopped. One that runs already stays as it is."""
    from turnwise.environments.sites import keepers

    if port and len(_named(names)) > 1:
        raise ConfigError("--port is for one site; name it")
    sites = keepers.sites_folder(read_config(config, home, sets))
    for name in _named(names):
        found = keepers.start(sites, name, port)
        out.print(f"{name}: {found.url}{_start_of(name)}", highlight=False, markup=False, soft_wrap=True)


@sites_app.command("stop", epilog="Example: turnwise sites stop")
def stop(names: Names = None, config: ConfigFile = None, home: Home = None, sets: Set = None) -> None:
    """Stop sites, with every instance that a rollout has of them."""
    from turnwise.environments.sites import keepers

    folder = keepers.sites_folder(read_config(config, home, sets))
    for name in _named(names):
        said = "stopped" if keepers.stop(folder, name) else "was not running"
        out.print(f"{name}: {said}", highlight=False, markup=False)


@sites_app.command("list", epilog="Example: turnwise sites list --json")
def list_sites(config: ConfigFile = None, home: Home = None, sets: Set = None, as_json: Json = False) -> None:
    """Show which sites there are, and which of them run."""
    from turnwise.environments.sites import keepers
    from turnwise.environments.sites.table import SITES

    folder = keepers.sites_folder(read_config(config, home, sets))
    found = {name: keepers.status_of(folder, name) for name in SITES}
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "software": SITES[name].software,
                    "url": each and each.url,
                    "instances": each and each.instances,
                }
                for name, each in found.items()
            ]
        )
        return
    table = Table("site", "software", "address", "instances of rollouts")
    for name, each in found.items():
        shown = ("not running", "") if each is None else (f"{each.url}{_start_of(name)}", str(each.instances))
        table.add_row(name, SITES[name].software, *shown)
    out.print(table)


@sites_app.command("reset", epilog="Example: turnwise sites reset shop")
def reset(names: Names = None, config: ConfigFile = None, home: Home = None, sets: Set = None) -> None:
    """Give what people look at its first data again; a rollout has its own, which begins so each time."""
    from turnwise.environments.sites import keepers

    folder = keepers.sites_folder(read_config(config, home, sets))
    for name in _named(names):
        if names is None and keepers.status_of(folder, name) is None:
            continue
        out.print(f"{name}: {keepers.reset(folder, name)} is as it began", highlight=False, markup=False)


def _named(names: list[str] | None) -> list[str]:
    from turnwise.environments.sites.table import SITES, site_named

    return [site_named(name).name for name in names or SITES]


def _start_of(name: str) -> str:
    from turnwise.environments.sites.table import SITES

    return SITES[name].start
