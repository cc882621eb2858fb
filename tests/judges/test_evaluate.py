import io
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from rich.console import Console

from tests.judges.signals.small_model import Pooling, small_model
from tests.judges.test_model import Behaviour, Endpoint, good, is_hint
from tests.support.servers import running
from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.judges.cases import Case, CaseError, read_cases
from turnwise.judges.evaluate import Judged, evaluate_file, render, report
from turnwise.messages import saying

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
    return Case(f"c{label}", "personal", [], saying("assistant", ""), [], label, directive, "")


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


# -- a report, all of it by hand --------------------------------------------------------------------------------------


def one(name: str, label: int, setting: str = "personal", directive: bool = False) -> Case:
    return Case(name, setting, [], saying("assistant", ""), [], label, directive, "")


TEN = [
    # case, score, best, confidence, hint, tokens
    Judged(one("a", 1), 1, 1, 0.95, None, 10),
    Judged(one("b", 1), 1, 1, 0.93, None, 20),
    Judged(one("c", -1, directive=True), -1, -1, 0.85, "shorter, please", 30),
    Judged(one("d", -1, directive=True), 1, 1, 0.82, None),
    Judged(one("e", 0), 0, 0, 0.75, "use it, please"),
    Judged(one("f", -1, "swe"), -1, -1, 0.62, None),
    Judged(one("g", 1, "swe"), 0, 0, 0.55, None),
    Judged(one("h", 0, "swe"), None, 0, 0.41, None),
    Judged(one("i", -1, "swe"), None, 1, 0.40, None),
    Judged(one("j", 1, "web"), None, None, 0.0, None, 40),
]


def test_a_whole_report_by_hand() -> None:
    result = report(TEN[5:] + TEN[:5])  # the order of the cases says nothing
    assert (result["cases"], result["decided"], result["abstained"]) == (10, 7, pytest.approx(0.3))
    assert result["accuracy_decided"] == pytest.approx(5 / 7)
    assert result["labels"] == {
        "-1": {"precision": 1.0, "recall_decided": pytest.approx(2 / 3), "recall_all": 0.5, "cases": 4},
        "0": {"precision": 0.5, "recall_decided": 1.0, "recall_all": 0.5, "cases": 2},
        "1": {"precision": pytest.approx(2 / 3), "recall_decided": pytest.approx(2 / 3), "recall_all": 0.5, "cases": 4},
    }
    assert result["hints"] == {"precision": 0.5, "recall": 0.5, "found": 2, "directive": 2}
    assert result["confusion"] == {
        "-1": {"-1": 2, "0": 0, "1": 1, "abstained": 1},
        "0": {"-1": 0, "0": 1, "1": 0, "abstained": 1},
        "1": {"-1": 0, "0": 1, "1": 2, "abstained": 1},
    }
    # Of ten cases one is without a guess: at 100 % nothing can be said; of the surest 8 two are wrong, of 6 one.
    assert result["accuracy_at"] == {"100%": None, "75%": pytest.approx(6 / 8), "60%": pytest.approx(5 / 6)}
    assert result["settings"] == {"personal": 0.8, "swe": 0.5, "web": None}
    assert result["tokens"] == 100


def test_the_curve_decides_the_surest_first() -> None:
    curve = report(TEN)["curve"]
    assert [(p["abstained"], p["min_confidence"]) for p in curve] == [
        (0.9, 0.95), (0.8, 0.93), (0.7, 0.85), (0.6, 0.82), (0.5, 0.75), (0.4, 0.62), (0.3, 0.55), (0.25, 0.41),
        (0.2, 0.41), (0.1, 0.40),
    ]  # fmt: skip
    right = [1, 2, 3, 3, 4, 5, 5, 6, 6, 6]
    of = [1, 2, 3, 4, 5, 6, 7, 8, 8, 9]
    assert [p["accuracy"] for p in curve] == [pytest.approx(r / n) for r, n in zip(right, of, strict=True)]


def test_of_cases_as_sure_the_first_by_name_counts_and_shares_of_none_are_left_out() -> None:
    same = [Judged(one("b", 1), 1, 1, 0.7, None), Judged(one("a", 1), -1, -1, 0.7, None)]
    curve = report(same)["curve"]
    assert [(p["abstained"], p["accuracy"]) for p in curve if p["abstained"] in (0.4, 0.0)] == [(0.4, 0.0), (0.0, 0.5)]
    assert all(p["abstained"] < 0.75 for p in curve), "a tenth of two cases is none"


def test_calibration_holds_what_was_said_against_what_was_right() -> None:
    bands = report([*TEN, Judged(one("k", 1), 1, 1, 1.0, None), Judged(one("l", 1), None, 0, 0.39, None)])[
        "calibration"
    ]
    assert [(b["from"], b["cases"]) for b in bands] == [
        (0.0, 1), (0.4, 2), (0.5, 1), (0.6, 1), (0.7, 1), (0.8, 2), (0.9, 3),
    ]  # fmt: skip
    assert [b["right"] for b in bands] == [0, 0.5, 0, 1, 1, 0.5, 1]
    assert bands[1]["confidence"] == pytest.approx(0.405)
    assert bands[6]["confidence"] == pytest.approx((0.95 + 0.93 + 1) / 3)


def test_a_report_of_no_cases_has_no_figures() -> None:
    result = report([])
    assert (result["cases"], result["abstained"], result["accuracy_decided"]) == (0, 0.0, None)
    assert (result["curve"], result["calibration"], result["settings"]) == ([], [], {})


def test_a_report_is_shown_with_each_figure_behind_its_name() -> None:
    result = {"judge": "model", "by": "model judge-1", **report(TEN)}
    out = io.StringIO()
    Console(file=out, width=100).print(render(result))
    lines = [" ".join(line.replace("│", " ").replace("┃", " ").split()) for line in out.getvalue().splitlines()]
    text = "\n".join(line for line in lines if any(c.isalnum() for c in line))
    assert (
        text
        == """\
Judge 'model' on 10 cases
by model judge-1
accuracy on decided cases 71.4 %
right of the surest 100% –
right of the surest 75% 75.0 %
right of the surest 60% 83.3 %
abstained 30.0 %
hint precision 50.0 %
hint recall 50.0 %
tokens used 100
Per label
label precision recall (decided) recall (all) cases
-1 100.0 % 66.7 % 50.0 % 4
0 50.0 % 100.0 % 50.0 % 2
+1 66.7 % 66.7 % 50.0 % 4
Confusion
label \\ verdict -1 0 +1 abstained
-1 2 0 1 1
0 0 1 0 1
+1 0 1 2 1
Accuracy against abstention
abstained accuracy confidence at least
90.0 % 100.0 % 0.95
80.0 % 100.0 % 0.93
70.0 % 100.0 % 0.85
60.0 % 75.0 % 0.82
50.0 % 80.0 % 0.75
40.0 % 83.3 % 0.62
30.0 % 71.4 % 0.55
25.0 % 75.0 % 0.41
20.0 % 75.0 % 0.41
10.0 % 66.7 % 0.40
Calibration
confidence from cases mean confidence right
0.4 2 40.5 % 50.0 %
0.5 1 55.0 % 0.0 %
0.6 1 62.0 % 100.0 %
0.7 1 75.0 % 100.0 %
0.8 2 83.5 % 50.0 %
0.9 2 94.0 % 100.0 %"""
    )
    Console(file=(free := io.StringIO()), width=100).print(render(result | {"tokens": 0}))
    assert "tokens used" not in free.getvalue(), "the free signals use none"
    Console(file=(many := io.StringIO()), width=100).print(render(result | {"tokens": 1234567}))
    assert "1,234,567" in many.getvalue()


# -- judges on a file -------------------------------------------------------------------------------------------------


@contextmanager
def endpoint(behave: Behaviour) -> Iterator[Endpoint]:
    """A judge model's server in a thread of its own."""
    served, app = Endpoint(behave), FastAPI()
    app.add_api_route("/v1/chat/completions", served.reply, methods=["POST"])
    with running(app) as url:
        served.url = f"{url}/v1"
        yield served


CLEAR = {**ROW, "id": "clear", "next_state": [{"role": "user", "content": "No, that's wrong, you forgot the units!"}]}
TOOL = {**ROW, "id": "tool", "next_state": [{"role": "tool", "content": "blorp"}], "label": 0}
OTHER = {**ROW, "id": "other", "next_state": [{"role": "tool", "content": "fnord"}], "label": 0}


def votes(body: dict[str, Any], _: int) -> Any:
    """Two votes of three say 1, the third cannot be read; of one case nothing can be had."""
    if "fnord" in str(body["messages"]):
        return JSONResponse({"error": {"message": "no"}}, 400)
    return good(body, 0) if is_hint(body) else f"\\boxed{{{next(turns)}}}"


turns = itertools.cycle([1, 1, "nothing"])


def settings(home: Path, url: str, **judge: Any) -> Config:
    engine = {"kind": "vllm", "url": "http://127.0.0.1:9"}  # gives no hidden states, so none is started
    return Config.model_validate({"home": home, "judge": {"url": url, **judge}, "engine": engine})


def test_the_model_judges_every_case_and_what_it_cannot_judge_is_abstained_from(tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", CLEAR, TOOL, OTHER)
    with endpoint(votes) as served:
        result = evaluate_file(file, "model", settings(tmp_path, served.url, votes=3, concurrency=1))
    assert (result["file"], result["judge"], result["by"]) == (str(file), "model", "model")
    assert (result["cases"], result["decided"]) == (3, 2)
    assert result["confusion"]["1"]["1"] == result["confusion"]["0"]["1"] == result["confusion"]["0"]["abstained"] == 1
    assert result["accuracy_at"]["100%"] is None, "of what it did not judge it has no guess"
    [band] = result["calibration"]
    assert (band["from"], band["cases"], band["confidence"]) == (0.6, 2, pytest.approx(2 / 3))
    assert result["tokens"] == 2 * 6 * 14
    assert result["hints"]["found"] == 1, "nobody said anything where a tool alone did"


def test_signals_then_model_asks_the_model_where_the_signals_abstain(tmp_path: Path) -> None:
    file = write(tmp_path / "f.jsonl", CLEAR, TOOL)
    with endpoint(votes) as served:
        config = settings(tmp_path, served.url, votes=1)
        result = evaluate_file(file, "signals-then-model", config)
    assert len(served.bodies) == 2 and "blorp" in str(served.bodies[0]["messages"])
    assert result["by"].startswith("signals, the words alone")
    assert (result["decided"], result["tokens"]) == (2, 28)
    assert result["confusion"]["1"]["-1"] == 1, "what the signals decided stands"


def test_the_free_signals_read_by_an_engine_of_their_own_where_its_kind_gives_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pooling = small_model(tmp_path / "tiny", ["perfect thanks"]), Pooling()
    config = Config.model_validate({"home": tmp_path, "model": {"path": str(model)}})
    asked: list[Config] = []

    @contextmanager
    def started(of: Config) -> Iterator[str]:
        asked.append(of)
        with running(pooling.app) as url:
            yield url

    monkeypatch.setattr("turnwise.judges.evaluate.own_engine", started)
    file = write(tmp_path / "f.jsonl", ROW, {**ROW, "id": "again"})
    result = evaluate_file(file, "signals", config)
    assert result["by"] == "signals, the words alone (no head was fitted for tiny; see docs/judge.md)"
    assert (asked, result["cases"], result["tokens"]) == ([config], 2, 0)
    assert evaluate_file(file, "signals", settings(tmp_path, "http://127.0.0.1:9"))["cases"] == 2
    assert len(asked) == 1, "another kind of engine gives no states"


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TurnwiseError, match="choose signals, model or signals-then-model"):
        evaluate_file(write(tmp_path / "f.jsonl", ROW), "oracle", Config(home=tmp_path))
