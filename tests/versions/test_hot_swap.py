"""New versions while the server is under load: no failed request, and how long a stream ever pauses."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from tests.support.models import make_tiny_model, write_random_adapter
from tests.support.processes import serving
from tests.support.servers import wait_until
from tests.support.versions import publish

CLIENTS = 8
VERSIONS = 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_20_versions_under_the_load_of_8_clients(
    tmp_path: Path, model_dir: Path, record_property: pytest.RecordProperty
) -> None:
    model = make_tiny_model(tmp_path / "model", model_dir)
    with serving(tmp_path / "home", model, train__enabled=False, judge__enabled=False) as server:
        for number in range(1, VERSIONS + 1):
            write_random_adapter(server.config.home / "versions" / f"v{number}", model, scale=0.05, seed=number)
        stop = threading.Event()
        failures: list[str] = []
        gaps: list[float] = []
        served: set[str] = set()

        def client(number: int) -> None:
            api = server.client()
            while not stop.is_set():
                try:
                    with api.chat.completions.with_streaming_response.create(
                        model="turnwise",
                        messages=[{"role": "user", "content": f"go on, {number}"}],
                        stream=True,
                        max_tokens=48,
                    ) as response:
                        served.add(response.headers["x-turnwise-version"])
                        last = time.monotonic()
                        complete = False
                        for line in response.iter_lines():
                            now = time.monotonic()
                            gaps.append(now - last)
                            last = now
                            complete = complete or line == "data: [DONE]"
                            event = line.removeprefix("data: ")
                            if event.startswith("{") and "error" in json.loads(event):  # a token may be called so, too
                                failures.append(line)
                        if not complete:
                            failures.append("a stream without an end")
                except Exception as e:  # whatever a client can meet counts as a failure
                    failures.append(repr(e))

        threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        journal = server.journal()
        wait_until(lambda: "0" in served, 60)
        for number in range(1, VERSIONS + 1):
            assert publish(journal) == number
            wait_until(lambda number=number: server.status()["version"]["number"] == number, 60)
            if number % 2 == 0:  # every other one is replaced at once, whether it was used or not
                wait_until(lambda number=number: str(number) in served, 60)
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
        assert failures == []
        assert server.status()["failed_requests"] == 0
        assert served <= {str(number) for number in range(VERSIONS + 1)}
        journal.close()
    record_property("longest_gap_s", max(gaps))
    print(f"\n{len(gaps)} gaps between streamed events over {VERSIONS} versions: longest {max(gaps) * 1000:.0f} ms")
