"""`turnwise bench train` as a person types it, on a model where a step takes milliseconds."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from turnwise.cli.main import app


def test_bench_train_prints_its_figures(tiny_dir: Path, tmp_path: Path) -> None:
    settings = {"model.path": tiny_dir, "train.device": "cpu", "train.dtype": "float32", "train.lora_rank": 2}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = CliRunner().invoke(
        app, ["bench", "train", "--samples", "2", "--repeats", "1", "--home", str(tmp_path), *sets]
    )
    assert done.exit_code == 0, done.output
    for words in ("forward and backward alone", "a whole update", "tokens/s", "2 samples of 120 prompt"):
        assert words in done.output
