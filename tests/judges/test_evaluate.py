import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.judges.cases import Case, CaseError, read_cases
from turnwise.judges.evaluate import Judged, evaluate_file, render, report

ROW = {"task": "t", "action": "a", "next_state": [{"role": "user", "content": "perfect, thanks"}], "label": 1}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows), encoding="utf-8")
    return path


def without(key: str) -> dict[str, Any]:
    return {k: v for k, v in ROW.items() if k != key}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{nope", "line 2: not valid JSON"),
        ("[1]", "line 2: each line must be a JSON object"),
        (without("label"), "line 2: missing label"),
        (without("next_state"), "line 2: missing next_state"),
        ({**ROW, "label": 2}, "line 2: label must be -1, 0 or 1, not 2"),
        ({**ROW, "label": "1"}, "line 2: label must be"),
        ({**ROW, "label": True}, "line 2: label must be"),
        ({**ROW, "directive": "yes"}, "line 2: directive must be"),
        ({**ROW, "next_state": []}, "line 2: next_state must be"),
        ({**ROW, "next_state": [{"role": "user"}]}, "line 2: each message"),
        ({**ROW, "task": 3}, "line 2: task must be"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, row: Any, words: str) -> None:
    file = write(tmp_path / "f.jsonl", ROW, row)
    with pytest.raises(CaseError, match="line 2") as caught:
        read_cases(file)
    assert words in str(caught.value)


def test_an_empty_or_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="no cases"):
        read_cases(write(tmp_path / "e.jsonl", ""))
    with pytest.raises(CaseError, match="cannot read"):
        read_cases(tmp_path / "none.jsonl")


def case(label: int, directive: bool = False) -> Case:
    return Case(f"c{label}", "personal", [], {}, [], label, directive, "")


def test_the_figures_by_hand() -> None:
    judged = [
        Judged(case(1), 1, 1, 0.9, None),
        Judged(case(1), -1, -1, 0.8, "shorter"),
        Judged(case(-1, True), -1, -1, 0.7, "shorter"),
        Judged(case(0), None, 0, 0.4, None),
    ]
    result = report(judged)
    assert (result["accuracy_decided"], result["abstained"]) == (2 / 3, 0.25)
    assert result["labels"]["-1"] == {"precision": 0.5, "recall_decided": 1.0, "recall_all": 1.0, "cases": 1}
    assert result["labels"]["0"] == {"precision": None, "recall_decided": None, "recall_all": 0.0, "cases": 1}
    assert result["confusion"]["1"] == {"-1": 1, "0": 0, "1": 1, "abstained": 0}
    assert result["confusion"]["0"]["abstained"] == 1
    assert result["hints"] == {"precision": 0.5, "recall": 1.0, "found": 2, "directive": 1}
    assert [p["accuracy"] for p in result["curve"] if p["abstained"] in (0.5, 0.0)] == [0.5, 0.75]


def test_a_report_is_json_and_can_be_shown(tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", ROW, {**ROW, "label": -1})
    engine = {"kind": "vllm", "url": "http://127.0.0.1:9"}  # gives no hidden states, so none is started
    result = evaluate_file(file, "signals", Config.model_validate({"home": tmp_path, "engine": engine}))
    assert "words alone" in result["by"]
    assert sum(band["cases"] for band in result["calibration"]) == 2
    assert json.loads(json.dumps(result))["cases"] == 2
    out = io.StringIO()
    Console(file=out, width=100).print(render(result))
    assert "accuracy on decided cases" in out.getvalue()
    assert "50.0 %" in out.getvalue()


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TurnwiseError, match="choose signals, model or signals-then-model"):
        evaluate_file(write(tmp_path / "f.jsonl", ROW), "oracle", Config(home=tmp_path))
