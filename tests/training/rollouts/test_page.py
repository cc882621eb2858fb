"""docs/algorithms.md: its example is run, and its defaults are those of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

import turnwise.training.algorithms
from tests.training.rollouts.test_whole_update import bench, play, states
from turnwise.config import StreamsConfig, load_config
from turnwise.errors import ConfigError
from turnwise.methods import METHODS, Method

PAGE = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text(encoding="utf-8")


def test_the_pages_example_is_a_method_once_its_file_and_its_line_are_there(
    tmp_path: Path, tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, line = (block.split("```", 1)[0] for block in PAGE.split("## Adding a method")[1].split("```python")[1:3])
    (tmp_path / "best_of.py").write_text(code, encoding="utf-8")
    folder = turnwise.training.algorithms
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    for name, method in eval(line, {"Method": Method}).items():
        monkeypatch.setitem(METHODS, name, method)

    said = {"streams.web.groups": 1, "streams.web.method": "best_of", "streams.web.epochs": 1, "train.tis_cap": 0.0}
    one = bench(tmp_path / "home", tiny_dir, **said)
    turns = play(one.journal, "x", [1.0, 0.0], 20)
    assert one.claim_and_work()
    assert states(one, turns) == ["trained"] * 4
    published = one.journal.versions.get(1)
    assert published is not None
    assert published.metrics["grad_norm"] > 0
    # The advantage of one rollout is 1 - 0.5 in each token of its two steps; only it takes part.
    assert published.metrics["web_pg"] == pytest.approx(-0.5 * 2, rel=1e-3)


@pytest.mark.parametrize("name", [name for name, _ in StreamsConfig().items()])
def test_the_pages_defaults_are_those_of_the_configuration(name: str) -> None:
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in PAGE.splitlines() if row.startswith("| ")]
    head = next(row for row in rows if f"`{name}`" in row)
    column = head.index(f"`{name}`")
    said = {row[0].strip("`"): row[column].strip("`") for row in rows if len(row) == len(head)}
    stream = StreamsConfig().named(name)
    assert stream is not None
    assert (said["method"], said["aggregation"]) == (stream.method, stream.aggregation)
    assert said["groups` × `group_size"] == f"{stream.groups} × {stream.group_size}"
    assert said["max_steps"] == ("–" if stream.max_steps is None else str(stream.max_steps))
    assert said["dynamic sampling"] == ("yes" if stream.dynamic_sampling else "no")
    numbers = {key: float(said[key]) for key in ("beta_kl", "temperature", "epochs", "max_tokens")}
    assert numbers == {key: getattr(stream, key) for key in numbers}
    if METHODS[stream.method].scores:
        assert int(said["votes"]) == stream.votes


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("streams.terminal.method", "binary", "streams.terminal.method: the method 'binary' learns from single turns"),
        ("streams.web.method", "combined", "streams.web.method: the method 'combined' learns from single turns"),
        ("streams.web.method", "dpo", "there is no method 'dpo', only grpo, step_groups"),
        ("train.method", "grpo", "train.method: the method 'grpo' compares rollouts of one task"),
        ("streams.terminal.dynamic_sampling", True, "the method 'step_groups' learns from votes on steps as well"),
        ("streams.chess.method", "grpo", "streams.chess: no such key"),
        ("streams.web.aggregation", "sum", "streams.web.aggregation"),
        ("train.aggregation", "trajectory-sum", "train.aggregation"),
    ],
)
def test_what_does_not_fit_a_stream_is_refused_by_name(tmp_path: Path, key: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(overrides={"home": tmp_path, key: value})
    assert said in str(refused.value)


def test_a_stream_that_is_changed_keeps_its_track_s_other_defaults(tmp_path: Path) -> None:
    changed = load_config(overrides={"home": tmp_path, "streams.web.epochs": 1}).streams.web
    assert (changed.epochs, changed.method, changed.groups) == (1, "grpo", 48)
