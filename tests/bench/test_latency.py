"""The latency bench measures what it says: its engine, clients, histories and sums. No test asserts a time."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from turnwise.bench.latency import grid as latency
from turnwise.bench.latency.arms import NONE, TURNWISE, answer, open_arms
from turnwise.bench.latency.conversations import TURNS, Histories
from turnwise.bench.latency.grid import Cell, Measured, _grid, _summary, _tokenising_note, percentile
from turnwise.bench.latency.litellm_peer import PEER
from turnwise.bench.latency.load import LoadResult, Target, drive
from turnwise.bench.latency.tokenising import measure_tokenising
from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.types import TurnState

SAID = "one two three"


def bodies(size: int, growing: bool, count: int) -> list[list[dict[str, str]]]:
    return [json.loads(body)["messages"] for body in itertools.islice(Histories(size, growing, SAID), count)]


@pytest.mark.parametrize("size", [100, 2_000, 20_000, 200_000])
def test_a_growing_history_repeats_itself_and_the_answer(size: int) -> None:
    turns = bodies(size, True, TURNS + 1)
    for before, after in itertools.pairwise(turns[:TURNS]):
        assert after[: len(before)] == before
        assert after[len(before)] == {"role": "assistant", "content": SAID}
        assert [m["role"] for m in after[len(before) :]] == ["assistant", "user"]
    assert turns[TURNS][0] != turns[0][0], "the next conversation is another one"
    assert 0.75 * size <= sum(len(m["content"]) for m in turns[0]) <= size + 100
    assert all(messages[-1]["role"] == "user" for messages in turns)


@pytest.mark.parametrize("growing", [True, False])
@pytest.mark.parametrize("size", [100, 2_000, 20_000])
def test_no_message_of_a_conversation_was_in_another_one(size: int, growing: bool) -> None:
    every = TURNS if growing else 1
    # two runs of one cell, as two arms see them, of two conversations each
    ends = [messages for _ in range(2) for messages in bodies(size, growing, 2 * every)[every - 1 :: every]]
    said = [m["content"] for messages in ends for m in messages if m["content"] != SAID]
    assert len(ends) == 4
    assert len(set(said)) == len(said)
    for one, other in itertools.combinations(ends, 2):
        same = [a for a, b in zip(one, other, strict=True) if a["content"][:16] == b["content"][:16]]
        assert {m["content"] for m in same} <= {SAID}, "they differ from their beginning on"


def test_the_arms_answer_alike_and_turnwise_records_what_was_measured(model_dir: Path, tmp_path: Path) -> None:
    said = answer(model_dir)
    with open_arms(model_dir, said, tmp_path, with_litellm=False) as arms:
        assert [arm.name for arm in arms] == [NONE, TURNWISE]
        texts = []
        for arm in arms:
            headers = dict(line.split(": ") for line in arm.target.headers)
            body = next(iter(Histories(100, True, said.text)))
            url = f"http://127.0.0.1:{arm.target.port}{arm.target.path}"
            reply = httpx.post(url, content=body, headers=headers | {"Content-Type": "application/json"}, timeout=30)
            events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
            texts.append("".join(c["delta"].get("content") or "" for e in events for c in e["choices"]))
            histories = Histories(100, True, said.text)
            load = drive(arm.target, histories, clients=3, tokens=said.tokens, seconds=0.3)
            assert load.failures == []
            assert len(load.first) == len(load.per_token) >= 3
            assert all(seconds > 0 for seconds in load.first)
            assert load.seconds > 0
    assert texts == [said.text, said.text]
    journal = Journal.open(load_config(overrides={"home": tmp_path / "home"}))
    status = journal.status.figures()
    answered = sum(status["turns"].values()) - status["turns"][TurnState.SERVED]
    assert answered == len(load.first) + 1, "every measured request is a recorded turn"
    session = max(journal.sessions.last_seen(), key=lambda s: s["turns"])
    turns = journal.sessions.show(session["id"])["turns"]
    assert all(journal.turns.get(turn["id"]).response_ids == [token for token, _ in said.pieces] for turn in turns)
    assert all(journal.turns.get(turn["id"]).bridged for turn in turns[1:]), "a growing history is bridged"
    journal.close()


def test_failures_are_counted_not_timed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "turnwise.bench.latency.instant_engine", json.dumps([[1, "one"], [2, ""]])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        port = int(engine.stdout.readline())
        load = drive(Target(port, "/nowhere"), Histories(100, False, SAID), clients=2, tokens=2, seconds=0.1)
        engine.terminate()
    assert load.first == []
    assert len(load.failures) == 2
    assert "404" in load.failures[0]


def measured(first: list[float], seconds: float, cpu: float) -> Measured:
    return Measured(LoadResult(seconds, 0.1, first, [0.001] * len(first), []), cpu)


def test_ratios_are_of_what_is_added() -> None:
    cell = Cell(8, 2_000, growing=True)
    arms = {
        "no proxy": measured([0.001] * 10, 1.0, 0.0),
        "turnwise": measured([0.003] * 10, 2.0, 0.001),
        "LiteLLM": measured([0.011] * 10, 20.0, 0.004),
    }
    other = Cell(8, 2_000, growing=False)
    figures = _summary({cell: arms, other: arms}, with_peer=True)
    assert [figure.ratio for figure in figures[:3]] == ["0.20", "10.00", "0.25"]
    spent = {(2_000, True): 0.0005}
    grid = _grid({cell: arms}, True, spent)
    assert grid.rows[0][:6] == ["2 kB", "8", "2.0 · 2.0 · 2.0", "10.0 · 10.0 · 10.0", "0.20", "0.50"]
    assert grid.header[5] == "tokenising alone (ms)"
    assert len(grid.header) == len(grid.rows[0])
    alone = {name: arm for name, arm in arms.items() if name != "LiteLLM"}
    assert _grid({cell: alone}, True, spent).rows[0][4] == "–"
    assert _summary({cell: alone}, with_peer=False) == []


def test_the_share_of_tokenising_is_said_of_large_prompts_and_one_client() -> None:
    arms = {"no proxy": measured([0.001], 1.0, 0.0), "LiteLLM": measured([0.011], 1.0, 0.004)}
    cells = [Cell(n, size, growing=False) for n in (1, 8) for size in (100, 20_000)]
    spent = {(100, False): 0.001, (20_000, False): 0.004}
    note = _tokenising_note(dict.fromkeys(cells, arms), spent)
    assert note.endswith("With one client: single, 20 kB: 4.0 ms, 40 % of the 10.0 ms that LiteLLM adds (p50).")
    del arms["LiteLLM"]
    note = _tokenising_note(dict.fromkeys(cells, arms), spent)
    assert note.endswith("With one client: single, 20 kB: 4.0 ms.")


def test_tokenising_is_measured_for_every_size_and_shape(model_dir: Path) -> None:
    spent = measure_tokenising(model_dir, answer(model_dir), [100, 2_000])
    assert set(spent) == {(100, True), (100, False), (2_000, True), (2_000, False)}
    assert all(seconds > 0 for seconds in spent.values())


def test_a_report_has_tokenising_in_both_tables(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))  # with no peer in it
    for name, value in (("QUICK_CLIENTS", (1,)), ("QUICK_SIZES", (100,)), ("LARGE", 100)):
        monkeypatch.setattr(latency, name, value)
    config = load_config(overrides={"model.path": str(model_dir)})
    report = latency.bench_latency(config, quick=True, install_litellm=False, seconds=0.1)
    assert [grid.title for grid in report.grids] == ["Growing histories", "Single questions"]
    for grid in report.grids:
        [row] = grid.rows
        assert float(row[grid.header.index("tokenising alone (ms)")]) > 0
    [note] = [note for note in report.notes if note.startswith("'Tokenising alone'")]
    assert "growing, 100 B: " in note
    assert "single, 100 B: " in note


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (50, 95, 99)] == [51.0, 96.0, 100.0]
    assert percentile([3.0], 99) == 3.0


def test_a_report_replaces_only_its_own_section(tmp_path: Path) -> None:
    file = tmp_path / "BENCHMARKS.md"
    other = BenchReport("turnwise bench other", [Figure("a", "1")], [])
    grid = Grid("Growing histories", ["prompt", "ratio"], [["2 kB", "0.2"]])
    for value in ("0.9173", "0.2"):
        grid = Grid("Growing histories", ["prompt", "ratio"], [["2 kB", value]])
        BenchReport("turnwise bench serve", [], ["a note"], [grid]).write(file)
        other.write(file)
    text = file.read_text(encoding="utf-8")
    assert text.count("## `turnwise bench serve`") == text.count("## `turnwise bench other`") == 1
    assert "| 2 kB | 0.2 |" in text
    assert "0.9173" not in text


def test_a_peer_that_is_not_installed_has_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path))
    assert PEER.version() is None
