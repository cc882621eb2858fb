"""What schemathesis makes from our OpenAPI document, for every route, right and wrong, on the real gateway."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.core import NOT_SET
from schemathesis.generation import GenerationMode

from tests.attacks.shooting import DEADLINE_S, DELIBERATE
from tests.attacks.target import Target, target

SHORT, FULL = 6, 150
"""Requests of each route and mode."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, qwen3_dir: Path) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("attacked") / "home", qwen3_dir) as running:
        yield running


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", GenerationMode)
def test_every_route_of_the_document(attacked: Target, full: bool, mode: GenerationMode) -> None:
    statuses: Counter[int] = Counter()
    headers = {"Authorization": f"Bearer {attacked.token}", "Content-Type": "application/json"}
    url = f"http://127.0.0.1:{attacked.port}"
    with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S, trust_env=False) as client:
        document = client.get("/openapi.json").json()
        for path, operations in document["paths"].items():
            for method in operations:
                operation = schemathesis.openapi.from_dict(document)[path][method.upper()]
                strategy = operation.as_strategy(generation_mode=mode)
                with contextlib.suppress(Unsatisfiable):  # a route without parameters cannot be asked wrongly
                    ask(client, method, strategy, FULL if full else SHORT, statuses)
    print(f"\n{mode}: {sum(statuses.values())} requests, {dict(statuses)}")
    assert statuses[200] > 0
    assert attacked.logged("Traceback") == []


def ask(client: httpx.Client, method: str, strategy: Any, count: int, statuses: Counter[int]) -> None:
    """Requests of one route, each answered and none by a failure."""

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(case=strategy)
    def one(case: Any) -> None:
        for body in bodies(case):
            answer = client.request(method, case.formatted_path, content=body)
            statuses[answer.status_code] += 1
            assert answer.status_code < 500 or answer.status_code in DELIBERATE, answer.text
            assert "internal_error" not in answer.text

    one()


def bodies(case: Any) -> Iterator[bytes]:
    """The body as it was made, and with our model's name in it, so that more than the name is looked at."""
    if case.body is NOT_SET or case.body is None:
        yield b""
        return
    yield case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode("utf-8", "surrogatepass")
    if isinstance(case.body, dict) and "model" in case.body:
        yield json.dumps(case.body | {"model": "turnwise"}).encode("utf-8", "surrogatepass")
