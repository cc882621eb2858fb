"""The local engine as a child process on loopback, and small requests to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.servers import wait_until


@contextmanager
def start_engine(model: Path, log: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run the engine on a free port until the block ends; gives its URL and process.

    Adapters may come from all folders of this test run.
    """
    command = [sys.executable, "-m", "turnwise.local_engine", "--model", str(model), "--port", "0"]
    command += ["--adapters-dir", str(log.parent.parent)]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--threads", "1", *options], stdout=out, stderr=out, env=os.environ)
    try:
        wait_until(lambda: b"ready on" in log.read_bytes() or process.poll() is not None, limit_s=120)
        assert process.poll() is None, log.read_text()
        line = next(part for part in log.read_text().splitlines() if "ready on" in part)
        yield line.split()[-1], process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)


def complete(url: str, prompt: list[int], **fields: Any) -> dict[str, Any]:
    """One whole answer, greedy unless told otherwise."""
    response = post(url, "/v1/completions", prompt=prompt, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def post(url: str, path: str, **body: Any) -> httpx.Response:
    if path == "/v1/completions":
        body = {"model": "base", "temperature": 0, "max_tokens": 16, "logprobs": 0, "return_token_ids": True} | body
    return httpx.post(url + path, json=body, timeout=120)


def stream(url: str, prompt: list[int], **fields: Any) -> Iterator[dict[str, Any]]:
    """The chunks of one streamed answer; closing the iterator hangs up."""
    body = {"model": "base", "temperature": 0, "max_tokens": 16, "logprobs": 0, "return_token_ids": True}
    body |= {"prompt": prompt, "stream": True} | fields
    with httpx.stream("POST", url + "/v1/completions", json=body, timeout=120) as response:
        assert response.status_code == 200, response.read()
        done = False
        for line in response.iter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):  # anything else is a sign of life
                yield json.loads(line.removeprefix("data: "))
        assert done, "the stream ended without [DONE]"


def load_of(url: str) -> int:
    """Requests running or waiting."""
    return httpx.get(f"{url}/load", timeout=20).json()["server_load"]
