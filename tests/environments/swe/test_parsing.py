"""Several threads parse at once: on Python 3.11 `ast.parse` then ends one of them with a SystemError."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from turnwise.environments.swe.parsing import parsed

SOURCE = ("def f(a):\n    return " + "(" * 30 + "a" + " + [a])" * 30 + "\n") * 8


@pytest.fixture
def threads_change_often() -> Iterator[None]:
    """Another thread gets its turn whenever objects are collected, also in the middle of a tree."""

    def pause(phase: str, info: dict[str, int]) -> None:
        time.sleep(0.0001)

    before = gc.get_threshold()
    gc.callbacks.append(pause)
    gc.set_threshold(200)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(pause)


@pytest.mark.usefixtures("threads_change_often")
def test_sources_are_parsed_in_several_threads() -> None:
    with ThreadPoolExecutor(4) as threads:
        trees = list(threads.map(parsed, [SOURCE] * 40))
    assert {len(tree.body) for tree in trees} == {8}
