"""The streams that there is a demo of, as data."""

from __future__ import annotations

from importlib import import_module

from turnwise.demo.streams.recipe import StreamRecipe

STREAMS = ("terminal", "tools", "web", "sites")
"""Each has a module of its name here, with its recipe."""


def stream_recipe(name: str) -> StreamRecipe:
    """The recipe of a stream. What plays its tasks is imported for that stream alone."""
    return import_module(f"turnwise.demo.streams.{name}").RECIPE
