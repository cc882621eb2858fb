"""An embedding endpoint in place of the word vectors: a real HTTP server here, whose vectors are made by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event

import numpy as np
import openai
import pytest

from tests.support.servers import wait_until
from turnwise.config.skills import SkillsConfig
from turnwise.errors import ConfigError, SkillError
from turnwise.skills.embedding import LEFT_ALONE_S, THREAD, EmbeddingEndpoint, embedder, within
from turnwise.skills.retrieval import SkillIndex, choose
from turnwise.skills.skill_file import write
from turnwise.skills.vectors import Vectors


class Endpoint(ThreadingHTTPServer):
    """Gives [cats, dates] of each text: how often it speaks of either. ``said``: what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.said: list[list[str]] = []
        self.answer: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.said.append(texts)
        rows = [[1.0 + 9 * ("cat" in text), 1.0 + 9 * ("calendar" in text or "date" in text)] for text in texts]
        data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
        body = self.server.answer
        if body is None:  # the last first: an order is not promised
            body = json.dumps({"object": "list", "data": data[::-1], "model": "m", "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def asked(endpoint: Endpoint, clock: list[float] | None = None) -> EmbeddingEndpoint:
    client = openai.OpenAI(base_url=endpoint.url, api_key="k", timeout=5, max_retries=0)
    return EmbeddingEndpoint(client, "m", 5.0, clock=lambda: (clock or [0.0])[-1])


SKILLS = [
    write("of-pets", "How to speak of a cat", "Purr.", None),
    write("of-days", "How to write a date", "Year.", None),
]


def test_skills_are_found_by_the_vectors_of_an_endpoint(endpoint: Endpoint) -> None:
    index = SkillIndex(SKILLS, asked(endpoint))
    found = [skill.name for skill in choose(index, "what is in my calendar", 0.7, 3, 600, "hybrid")]
    assert found == ["of-days"], "a word that no skill has, and a meaning that one has"


def test_vectors_are_of_length_one_and_asked_for_once(endpoint: Endpoint) -> None:
    vectors = asked(endpoint)
    rows = vectors.embed(["a cat", "a date", "a cat"])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1) and (rows[0] == rows[2]).all()
    assert rows[0][0] > rows[0][1] and rows[1][1] > rows[1][0]
    vectors.embed(["a date"])
    assert endpoint.said == [["a cat", "a date"]]


@pytest.mark.parametrize(
    "answer",
    [
        b"no JSON",
        b"{}",
        b'{"data": []}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}',
        b'{"data": [{"index": 0, "embedding": "AAAA"}]}',
        b'{"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1]}]}',
        b'{"data": [{"index": 0}]}',
        b"[" * 100_000,
    ],
)
def test_an_endpoint_that_fails_costs_one_call_and_leaves_the_words(endpoint: Endpoint, answer: bytes) -> None:
    clock = [0.0]
    index = SkillIndex(SKILLS, asked(endpoint, clock))
    endpoint.answer, before = answer, len(endpoint.said)
    for question in ("what is in my calendar", "and tomorrow?"):
        assert choose(index, question, 0.7, 3, 600, "hybrid") == [] and "endpoint" in index.fault
    assert [skill.name for skill in choose(index, "use of-days", 0.7, 3, 600, "hybrid")] == ["of-days"]
    assert len(endpoint.said) == before + 1, "it is left alone for a while"
    endpoint.answer = None
    clock.append(LEFT_ALONE_S + 1)
    assert choose(index, "what is in my calendar", 0.7, 3, 600, "hybrid") and not index.fault


def test_vectors_of_another_length_than_before_are_no_fault_of_a_turn(endpoint: Endpoint) -> None:
    index = SkillIndex(SKILLS, asked(endpoint))
    endpoint.answer = b'{"data": [{"index": 0, "embedding": [1, 2, 3]}]}'
    assert choose(index, "what is in my calendar", 0.7, 3, 600, "hybrid") == [] and index.fault


def test_an_endpoint_that_is_down_leaves_what_is_named_and_what_always_stands(endpoint: Endpoint) -> None:
    endpoint.answer = b"{}"
    clock = [0.0]
    always = write("of-tone", "Be kind", "Kind.", "always")
    index = SkillIndex([*SKILLS, always], asked(endpoint, clock))
    assert [skill.name for skill in choose(index, "use of-days", 0.7, 3, 600, "hybrid")] == ["of-days", "of-tone"]
    endpoint.answer = None
    clock.append(LEFT_ALONE_S + 1)
    assert "of-days" in [skill.name for skill in choose(index, "what is in my calendar", 0.7, 3, 600, "hybrid")]


def test_an_endpoint_that_sends_a_byte_now_and_then_is_not_waited_for() -> None:
    never = Event()

    def trickle() -> list[Vectors]:
        never.wait(30)
        return []

    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s"):
        within(trickle, 0.1)
    never.set()


def test_the_thread_of_an_endpoint_that_sends_a_byte_now_and_then_ends_too() -> None:
    over = Event()

    class Trickle(Handler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            with suppress(OSError):
                while not over.wait(0.05):
                    self.wfile.write(b" ")
                    self.wfile.flush()

    class Slow(Endpoint):
        def __init__(self) -> None:
            ThreadingHTTPServer.__init__(self, ("127.0.0.1", 0), Trickle)

    with Slow() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        client = openai.OpenAI(base_url=server.url, api_key="k", timeout=0.5, max_retries=0)
        with pytest.raises(SkillError, match=r"no answer within 0\.5 s"):
            EmbeddingEndpoint(client, "m", 0.5).embed(["a"])
        wait_until(lambda: all(thread.name != THREAD for thread in threading.enumerate()), limit_s=20)
        over.set()
        server.shutdown()


def test_nobody_listens() -> None:
    client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", timeout=2, max_retries=0)
    with pytest.raises(SkillError, match=r"127\.0\.0\.1:9.*gave no vectors"):
        EmbeddingEndpoint(client, "m", 5.0).embed(["a"])


def test_a_model_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"skills\.embedding_model"):
        embedder(SkillsConfig(embedding_url="http://127.0.0.1:9/v1"))
    named = embedder(SkillsConfig(embedding_url="http://127.0.0.1:9/v1", embedding_model="m"))
    assert isinstance(named, EmbeddingEndpoint)
