"""Makes the heads of the free judge from labelled next states. Never run by a loop; needs scikit-learn (the fit extra).

    python -m turnwise.judges.signals.fit --model smollm2-135m-instruct --layers 16,20 tests/judges/*.jsonl
    python -m turnwise.judges.signals.fit --words tests/judges/next-states-dev.jsonl

It starts a local engine with the model, asks it for the states of each row, prints figures that are cross-validated
over groups of rows (one task, or nearly the same words, is never on two sides), and writes ``heads/NAME.npz``. Rows in
``data/set-aside.txt`` are left out and scored once at the end with ``--aside``; without it they are fitted as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.config import Config
from turnwise.judges.cases import Case, read_cases, read_table
from turnwise.judges.signals.head import FOLDER, WORDS, Head, Vector, tokenizer_digest, word_features
from turnwise.judges.signals.own_engine import own_engine
from turnwise.judges.signals.prompt import PromptMaker, Question
from turnwise.judges.signals.reading import Reading, read_parts
from turnwise.judges.signals.states import ReplyJudge, StatesUnavailable, model_folder

DATA = Path(__file__).with_name("data")
SET_ASIDE = DATA / "set-aside.txt"
FOLDS = 5
TRIES = 10
ALIKE = 0.6
"""Share of common words from which two replies are of one group."""
STRENGTH = {"states": (0.002, 0.002), "words": (8.0, 8.0)}
"""Inverse strengths of the ridge of the score and of the directive head; chosen by cross-validation."""
TURNS = 2
"""Times that the directive sentence of each reply is chosen anew."""
PROBE = "The task was: add 3 and 4. The assistant answered: 7. The person then said: thanks, but shorter next time."


@dataclass
class Rows:
    """Labelled replies and their features: ``whole`` [N, D], and ``each`` [N] of [sentences, D]."""

    cases: list[Case]
    readings: list[Reading]
    groups: NDArray[np.int64]
    whole: Vector
    each: list[Vector]

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.array([case.label for case in self.cases])

    @property
    def directive(self) -> NDArray[np.int64]:
        return np.array([int(case.directive) for case in self.cases])

    def only(self, kept: Sequence[int] | NDArray[np.int64]) -> Rows:
        pick = [int(i) for i in kept]
        return Rows(
            [self.cases[i] for i in pick], [self.readings[i] for i in pick], self.groups[pick], self.whole[pick],
            [self.each[i] for i in pick],
        )  # fmt: skip


def labelled(files: Sequence[Path]) -> tuple[list[Case], list[Reading]]:
    """The cases in which a person says something, and their readings: our own rows, and those of ``files``."""
    cases = [*read_table(DATA / "replies.tsv"), *read_table(DATA / "rows.tsv")]
    for file in files:
        cases += read_cases(file)
    readings = [read_parts(case.messages, case.answer, case.next_state) for case in cases]
    kept = [i for i, reading in enumerate(readings) if reading.sentences]
    return [cases[i] for i in kept], [readings[i] for i in kept]


def grouped(readings: Sequence[Reading]) -> NDArray[np.int64]:
    """A number for each row: rows with one task, or whose replies share most of their words, have the same."""
    group = list(range(len(readings)))

    def root(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    tasks: dict[str, int] = {}
    words = [frozenset(" ".join(r.sentences).lower().split()) for r in readings]
    for i, reading in enumerate(readings):
        task = " ".join(reading.task.lower().split())
        group[root(i)] = root(tasks.setdefault(task, i))
        for j in range(i):
            if min(len(words[i]), len(words[j])) >= 3 and len(words[i] & words[j]) >= ALIKE * len(words[i] | words[j]):
                group[root(i)] = root(j)
    return np.array([root(i) for i in range(len(readings))])


async def states_of(
    config: Config, url: str, readings: Sequence[Reading], layers: list[int]
) -> tuple[list[Vector], list[int], Vector]:
    """[L, 2 + N, H] for each reading, and the fixed text's ids with its states."""
    judge, folder = ReplyJudge(config, url), model_folder(config)
    assert folder is not None
    prompts = PromptMaker(str(folder / "tokenizer.json"))
    probe = prompts.text(PROBE)
    try:
        probed = await judge.ask(Question(probe, [(0, len(probe))], []), layers)
        found = []
        for i, reading in enumerate(readings):
            prompt = prompts.make(reading)
            for again in range(TRIES):
                try:
                    found.append(await judge.ask(prompt, layers))
                    break
                except StatesUnavailable:  # a busy machine
                    if again == TRIES - 1:
                        raise
            if i % 100 == 0:
                print(f"{i} of {len(readings)} rows", flush=True)
        return found, probe, probed[:, :2].reshape(-1)
    finally:
        await judge.close()


def features(vectors: Vector) -> tuple[Vector, Vector]:
    """The reply's [D] and its sentences' [N, D], as `Head` makes them."""
    last = vectors[:, :1]
    pairs = [np.concatenate([last, vectors[:, i : i + 1]], 1).reshape(-1) for i in range(2, vectors.shape[1])]
    return vectors[:, :2].reshape(-1), np.stack(pairs)


@dataclass
class Fitted:
    score: Vector
    score_bias: Vector
    directive: Vector
    directive_bias: float

    def scores(self, rows: Rows) -> Vector:
        return rows.whole @ self.score.T + self.score_bias

    def directives(self, rows: Rows) -> list[Vector]:
        return [x @ self.directive + self.directive_bias for x in rows.each]


def fit(rows: Rows, kind: str) -> Fitted:
    """The two heads, not yet calibrated."""
    strength = STRENGTH[kind]
    score, score_bias = _regress(rows.whole, rows.labels, None, strength[0], kind)
    sentences = np.concatenate(rows.each)
    row_of = np.repeat(np.arange(len(rows.each)), [len(x) for x in rows.each])
    wanted = rows.directive[row_of]
    # At least one sentence of a directive reply is directive, and which one nobody wrote down: the likeliest so far.
    weights = 1.0 / np.bincount(row_of)[row_of] ** wanted
    w, b = _regress(sentences, wanted, weights, strength[1], kind)
    for _ in range(TURNS):
        odds = sentences @ w[0] + b[0]
        for row in np.flatnonzero(rows.directive):
            mine = np.flatnonzero(row_of == row)
            weights[mine] = np.where(odds[mine] >= min(odds[mine].max(), 0.0), 1.0, 0.0)
        w, b = _regress(sentences, wanted, weights, strength[1], kind)
    return Fitted(score, score_bias, w[0], float(b[0]))


def _regress(x: Vector, y: NDArray[np.int64], weights: Any, strength: float, kind: str) -> tuple[Vector, Vector]:
    """Logistic regression on standardised features; the weights are for the features as they are."""
    from scipy.sparse import csr_matrix  # pyright: ignore[reportMissingImports]
    from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingImports]

    if kind == "words":
        model = LogisticRegression(C=strength, max_iter=500).fit(csr_matrix(x), y, sample_weight=weights)
        return model.coef_.astype(np.float32), model.intercept_.astype(np.float32)
    mean, scale = x.mean(0), x.std(0) + 1e-6
    model = LogisticRegression(C=strength, max_iter=500).fit((x - mean) / scale, y, sample_weight=weights)
    w = model.coef_ / scale
    return w.astype(np.float32), (model.intercept_ - w @ mean).astype(np.float32)


def cross_validated(rows: Rows, kind: str) -> tuple[Vector, list[Vector]]:
    """Log-odds of each row's scores [N, 3] and of its sentences, by heads that saw nothing of its group."""
    from sklearn.model_selection import GroupKFold  # pyright: ignore[reportMissingImports]

    scores = np.zeros((len(rows.cases), 3), np.float32)
    directives: list[Vector] = [np.zeros(0, np.float32)] * len(rows.cases)
    for seen, unseen in GroupKFold(FOLDS, shuffle=True, random_state=0).split(rows.whole, groups=rows.groups):
        fitted, held = fit(rows.only(seen), kind), rows.only(unseen)
        scores[unseen] = fitted.scores(held)
        for i, odds in zip(unseen, fitted.directives(held), strict=True):
            directives[i] = odds
    return scores, directives


def temperature(logits: Vector, labels: NDArray[np.int64]) -> float:
    """What the log-odds are divided by so that the chances are right."""
    grid = np.geomspace(0.3, 4.0, 80)
    return float(min(grid, key=lambda t: -_log_p(logits / t)[np.arange(len(labels)), labels + 1].mean()))


def slope(odds: Sequence[Vector], directive: NDArray[np.int64]) -> tuple[float, float]:
    """Factor and offset that make the likeliest sentence's log-odds the chance that a reply is directive."""
    from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingImports]

    best = np.array([x.max() for x in odds])[:, None]
    model = LogisticRegression(C=100.0).fit(best, directive)
    return float(model.coef_[0, 0]), float(model.intercept_[0])


def _log_p(logits: Vector) -> Vector:
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def figures(logits: Vector, odds: Sequence[Vector], rows: Rows) -> dict[str, Any]:
    """Accuracy at 100, 75 and 60 % decided, what is right above 0.9, and hints at several least chances."""
    p = np.exp(_log_p(logits))
    confidence, right = p.max(1), p.argmax(1) - 1 == rows.labels
    order = np.argsort(-confidence)
    sure = confidence >= 0.9
    out: dict[str, Any] = {f"{share:.0%}": round(float(right[order[: round(share * len(order))]].mean()), 3)
                           for share in (1.0, 0.75, 0.6)}  # fmt: skip
    out["sure"] = (int(sure.sum()), round(float(right[sure].mean()), 3) if sure.any() else None)
    for least in (0.4, 0.5, 0.6, 0.7):
        found = np.array([x.max() for x in odds]) >= np.log(least / (1 - least))
        real = rows.directive == 1
        both = int((found & real).sum())
        out[f"hints {least}"] = (round(both / max(int(found.sum()), 1), 3), round(both / max(int(real.sum()), 1), 3))
    out["bands"] = [
        (f"{a:.1f}", int(m.sum()), round(float(right[m].mean()), 2))
        for a in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
        if (m := (confidence >= a) & (confidence < a + 0.1)).any()
    ]
    return out


def calibrated(fitted: Fitted, t: float, a: float, b: float) -> Fitted:
    return Fitted(fitted.score / t, fitted.score_bias / t, fitted.directive * a, fitted.directive_bias * a + b)


def write(path: Path, fitted: Fitted, layers: list[int], tokenizer: str, probe: list[int], probed: Vector) -> None:
    kind = np.float16 if not layers else np.float32
    np.savez_compressed(
        path, layers=np.array(layers, np.int32), tokenizer=np.array(tokenizer), probe=np.array(probe, np.int32),
        probed=probed.astype(np.float16), score=fitted.score.astype(kind), score_bias=fitted.score_bias,
        directive=fitted.directive.astype(kind), directive_bias=np.array(fitted.directive_bias, np.float32),
    )  # fmt: skip


def main() -> None:
    """Command line: get the features, cross-validate, fit, and write a head."""
    parser = argparse.ArgumentParser(prog="python -m turnwise.judges.signals.fit", description=main.__doc__)
    parser.add_argument(
        "files", type=Path, nargs=argparse.ZERO_OR_MORE, help="more labelled next states, one JSON object a line"
    )
    parser.add_argument("--model", help="name or folder of the model whose states are asked for")
    parser.add_argument("--layers", default="", help="behind which blocks, such as 16,20; default: about 0.6 of them")
    parser.add_argument("--words", action="store_true", help="the head that needs no model")
    parser.add_argument("--name", help="name of the file; default: the model folder's")
    parser.add_argument("--cache", type=Path, help="a file that keeps the states for the next run")
    parser.add_argument("--aside", action="store_true", help="leave the rows set aside out, and score them")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the head")
    arguments = parser.parse_args()
    cases, readings = labelled(arguments.files)
    print(f"{len(cases)} replies, {len({c.id for c in cases})} ids")
    layers, probe, probed, tokenizer = [], [], np.zeros(0, np.float32), ""
    if arguments.words:
        kind, name = "words", WORDS
        whole = np.stack([word_features(" ".join(r.sentences)) for r in readings])
        each = [np.stack([word_features(s) for s in r.sentences]) for r in readings]
    else:
        config = Config.model_validate({"model": {"path": arguments.model}})
        folder = model_folder(config)
        if folder is None:
            parser.error("--model must be a folder, or the name of a model that is here")
        kind, name = "states", arguments.name or folder.name
        layers = [int(n) for n in arguments.layers.split(",") if n] or _default_layers(folder)
        vectors, probe, probed = _cached(arguments.cache, config, readings, layers)
        tokenizer = tokenizer_digest(folder / "tokenizer.json")
        pairs = [features(v) for v in vectors]
        whole, each = np.stack([w for w, _ in pairs]), [e for _, e in pairs]
    rows = Rows(cases, readings, grouped(readings), whole, each)
    aside = set(SET_ASIDE.read_text(encoding="utf-8").split())
    held = [i for i, case in enumerate(cases) if case.id in aside]
    seen = rows.only([i for i in range(len(cases)) if not arguments.aside or cases[i].id not in aside])
    scores, odds = cross_validated(seen, kind)
    t, (a, b) = temperature(scores, seen.labels), slope(odds, seen.directive)
    print("cross-validated:", figures(scores / t, [x * a + b for x in odds], seen))
    fitted = calibrated(fit(seen, kind), t, a, b)
    if arguments.aside:
        unseen = rows.only(held)
        print(f"{len(held)} rows set aside:", figures(fitted.scores(unseen), fitted.directives(unseen), unseen))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    write(arguments.out / f"{name}.npz", fitted, layers, tokenizer, probe, probed)
    Head.read(arguments.out / f"{name}.npz")
    print(f"written: {arguments.out / name}.npz")


def _default_layers(folder: Path) -> list[int]:
    n = json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    return [round(n * 0.53), round(n * 0.67)]


def _cached(
    cache: Path | None, config: Config, readings: Sequence[Reading], layers: list[int]
) -> tuple[list[Vector], list[int], Vector]:
    key = repr([(r.task, r.action, r.sentences) for r in readings]) + repr(layers)
    if cache is not None and cache.exists():
        with np.load(cache, allow_pickle=False) as f:
            if str(f["key"]) == key:
                flat, sizes = f["flat"].astype(np.float32), f["sizes"]
                parts = np.split(flat, np.cumsum(sizes)[:-1], axis=1)
                return parts, [int(n) for n in f["probe"]], f["probed"]
    with own_engine(config) as url:
        found, probe, probed = asyncio.run(states_of(config, url, readings, layers))
    if cache is not None:
        flat, sizes = np.concatenate(found, 1).astype(np.float16), [v.shape[1] for v in found]
        np.savez(cache, key=np.array(key), flat=flat, sizes=np.array(sizes), probe=np.array(probe), probed=probed)
    return found, probe, probed


if __name__ == "__main__":
    main()
