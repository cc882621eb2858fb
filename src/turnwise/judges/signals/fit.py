"""Makes the heads of the free judge from labelled next states. Never run by a loop; needs scikit-learn (the fit extra).

    make heads
    python -m turnwise.judges.signals.fit --model FOLDER tests/judges/next-states-dev.jsonl tests/judges/cases.jsonl …
    python -m turnwise.judges.signals.fit --words tests/judges/next-states-dev.jsonl …

It starts a local engine with the model, asks it for the states of each row, prints figures that are cross-validated
over groups of rows (one task, or nearly the same words, is never on two sides), fits to all rows, calibrates with what
was cross-validated, and writes ``heads/NAME.npz`` with what it was made of. ``--aside`` writes nothing: it leaves the
rows in ``data/set-aside.txt`` out and scores them.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.judges.cases import Case, read_cases, read_table
from turnwise.judges.signals.fitting import (
    Fitted,
    Rows,
    calibrated,
    cross_validated,
    figures,
    fit,
    fit_own,
    grouped,
    slope,
    temperature,
)
from turnwise.judges.signals.head import FOLDER, WORDS, Head, Vector, tokenizer_digest, word_features
from turnwise.judges.signals.hidden import shortened
from turnwise.judges.signals.own_engine import own_engine
from turnwise.judges.signals.prompt import PromptMaker, Question
from turnwise.judges.signals.reading import Reading, read_parts
from turnwise.judges.signals.states import ReplyJudge, StatesUnavailable, model_folder

DATA = Path(__file__).with_name("data")
SET_ASIDE = DATA / "set-aside.txt"
ONLY_WORDS = "denied.tsv"
NO_WORDS = {"pairs.tsv", "corrections.tsv", "orders.tsv", "plain.tsv", "languages.tsv"}
"""In these nearly the same words are praise of one answer and a wish about another: the answer says which. With plain
answers, of which the words say nothing, it lets an order out that a person quotes; other languages were not tried."""
HALF = {"people.tsv", "chats.tsv"}
"""These count half for the score by words: whole, they leave "No! You sent it to everyone, that's wrong." undecided."""
PERSONS, OF_EACH = "people.tsv", 12
"""Rows of this table that stand together are of one person, and have that person's wish and turns of phrase."""
PHRASES = "phrases.tsv"
"""Replies that quote a phrase, which nothing but the head that tells whose it is learns from."""
TRIES = 10
PROBE = "The task was: add 3 and 4. The assistant answered: 7. The person then said: thanks, but shorter next time."


def tables(words: bool) -> list[Path]:
    """Our own labelled rows: those of what is denied are for the head over words, which knows no grammar, alone."""
    left_out = {PHRASES, *NO_WORDS} if words else {PHRASES, ONLY_WORDS}
    return [path for path in sorted(DATA.glob("*.tsv")) if path.name not in left_out]


class Labelled(NamedTuple):
    """Replies of persons. ``persons``: whose each is, "" where nobody knows; ``counts``: how much each counts."""

    cases: list[Case]
    readings: list[Reading]
    persons: list[str]
    counts: list[float]


def labelled(files: Sequence[Path], words: bool) -> Labelled:
    """The cases in which a person says something: our own rows, and those of ``files``."""
    rows: list[tuple[Case, str, float]] = []
    for table in tables(words):
        count = 0.5 if words and table.name in HALF else 1.0
        for i, case in enumerate(read_table(table)):
            rows.append((case, f"{i // OF_EACH}" if table.name == PERSONS else "", count))
    rows += [(case, "", 1.0) for file in files for case in read_cases(file)]
    read = [
        (case, read_parts(case.messages, case.answer, case.next_state), person, count) for case, person, count in rows
    ]
    kept = [row for row in read if row[1].sentences]
    return Labelled(
        [row[0] for row in kept], [row[1] for row in kept], [row[2] for row in kept], [row[3] for row in kept]
    )


def quoting(rows: Rows, alone: int) -> Rows:
    """Of the replies that quote a phrase the sentences that do so.

    Of the first ``alone`` rows nobody wrote down which sentence is directive: those of one sentence are taken.
    """
    found = [_quoting(reading) for reading in rows.readings]
    some = rows.only([i for i, x in enumerate(found) if x and (i >= alone or len(rows.readings[i].sentences) == 1)])
    return replace(some, each=[of_row[_quoting(r)] for of_row, r in zip(some.each, some.readings, strict=True)])


def _quoting(reading: Reading) -> list[int]:
    """Which of the sentences quote such a phrase."""
    return [i for i, pair in enumerate(zip(reading.sentences, reading.quoting, strict=True)) if pair[0] != pair[1]]


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
            found.append(await _asked(judge, prompts.make(reading), layers))
            if i % 100 == 0:
                print(f"{i} of {len(readings)} rows", flush=True)
        return found, probe, probed[:, :2].reshape(-1)
    finally:
        await judge.close()


async def _asked(judge: ReplyJudge, prompt: Question, layers: list[int]) -> Vector:
    for again in range(TRIES):
        try:
            return await judge.ask(prompt, layers)
        except StatesUnavailable:  # a busy machine
            if again == TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")


def features(vectors: Vector) -> tuple[Vector, Vector]:
    """The reply's [D] and its sentences' [N, D], as `Head` makes them."""
    last = vectors[:, :1]
    pairs = [np.concatenate([last, vectors[:, i : i + 1]], 1).reshape(-1) for i in range(2, vectors.shape[1])]
    return vectors[:, :2].reshape(-1), np.stack(pairs)


def write(path: Path, fitted: Fitted, own: tuple[Vector, float], source: Source, about: dict[str, Any]) -> None:
    """Weights of words are kept short: there are 16,384 for each of five lines. Those of units are whole numbers."""
    kept = np.float32 if source.layers else shortened
    units = fitted.hidden
    layer = {} if units is None else {
        "hidden": units.weights, "hidden_step": units.step, "hidden_bias": units.bias,
        "hidden_scale": units.scale.astype(np.float16),
    }  # fmt: skip
    np.savez_compressed(
        path, layers=np.array(source.layers, np.int32), tokenizer=np.array(source.tokenizer),
        probe=np.array(source.probe, np.int32), probed=source.probed.astype(np.float16),
        score=kept(fitted.score), score_bias=fitted.score_bias, directive=kept(fitted.directive),
        directive_bias=np.array(fitted.directive_bias, np.float32), about=np.array(json.dumps(about)),
        own=kept(own[0]), own_bias=np.array(own[1], np.float32),
        known=fitted.known if fitted.known is not None else np.zeros(0, np.uint32), **layer,
    )  # fmt: skip


@dataclass
class Source:
    """Where the features come from: a model's states, or the words where ``layers`` is empty."""

    name: str
    layers: list[int]
    tokenizer: str
    weights: str
    probe: list[int]
    probed: Vector
    vectors: list[Vector]


def states_source(arguments: argparse.Namespace, readings: Sequence[Reading]) -> Source:
    """The states of every row. Raises TurnwiseError where the model is no folder, or its engine does not start."""
    config = Config.model_validate({"model": {"path": arguments.model}})
    folder = model_folder(config)
    if folder is None:
        raise TurnwiseError("--model must be a folder, or the name of a model that is here")
    layers = [int(n) for n in arguments.layers.split(",") if n] or _default_layers(folder)
    weights = weights_digest(folder)
    vectors, probe, probed = _cached(arguments.cache, config, readings, layers, weights)
    name = arguments.name or folder.name
    return Source(name, layers, tokenizer_digest(folder / "tokenizer.json"), weights, probe, probed, vectors)


def weights_digest(folder: Path) -> str:
    """SHA-256 of the model's weight files, one after the other."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as f:
            found.update(hashlib.file_digest(f, "sha256").digest())
    return found.hexdigest()


def main() -> None:
    """Command line: get the features, cross-validate, fit, and write a head."""
    parser = argparse.ArgumentParser(prog="python -m turnwise.judges.signals.fit", description=main.__doc__)
    parser.add_argument(
        "files", type=Path, nargs=argparse.ZERO_OR_MORE, help="more labelled next states, one JSON object a line"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", help="name or folder of the model whose states are asked for")
    what.add_argument("--words", action="store_true", help="the head that needs no model")
    parser.add_argument("--layers", default="", help="behind which blocks, such as 16,20; default: about 0.6 of them")
    parser.add_argument("--name", help="name of the file; default: the model folder's")
    parser.add_argument("--cache", type=Path, help="a file that keeps the states for the next run")
    parser.add_argument("--aside", action="store_true", help="leave the rows set aside out, and score them")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the head")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except TurnwiseError as e:
        parser.error(str(e))


def run(arguments: argparse.Namespace) -> None:
    cases, readings, persons, counts = labelled(arguments.files, arguments.words)
    n = len(cases)
    print(f"{n} replies")
    kind = "words" if arguments.words else "states"
    cases += read_table(DATA / PHRASES)
    readings += [read_parts(case.messages, case.answer, case.next_state) for case in cases[n:]]
    source, pairs = _features(arguments, readings)
    quoted = [1.0] * (len(cases) - n)
    groups = grouped(readings, persons)
    whole, each = np.stack([w for w, _ in pairs]), [e for _, e in pairs]
    every = Rows(cases, readings, groups, whole, each, np.array(counts + quoted, np.float32))
    rows = every.only(range(n))
    aside = set(SET_ASIDE.read_text(encoding="utf-8").split())
    seen = rows.only([i for i in range(n) if not arguments.aside or cases[i].id not in aside])
    scores, odds = cross_validated(seen, kind)
    t, (a, b) = temperature(scores, seen.labels), slope(odds, seen.directive)
    found = figures(scores / t, [x * a + b for x in odds], seen)
    print("cross-validated:", found)
    fitted = calibrated(fit(seen, kind), t, a, b)
    if arguments.aside:
        unseen = rows.only([i for i, case in enumerate(rows.cases) if case.id in aside])
        print(f"{len(unseen.cases)} rows set aside:", figures(fitted.scores(unseen), fitted.directives(unseen), unseen))
        return
    own, own_bias, found["phrases"] = fit_own(quoting(every, n), kind)
    print("phrases, cross-validated:", found["phrases"])
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{source.name}.npz"
    files = [*tables(arguments.words), DATA / PHRASES, *arguments.files]
    write(path, fitted, (own, own_bias), source, about_of(source, files, n, found))
    Head.read(path)
    print(f"written: {path}")


def _features(arguments: argparse.Namespace, readings: Sequence[Reading]) -> tuple[Source, list[tuple[Vector, Vector]]]:
    """Where the features come from, and each reading's [D] and its sentences' [N, E]."""
    if not arguments.words:
        source = states_source(arguments, readings)
        return source, [features(v) for v in source.vectors]
    of_words = [
        (word_features(" ".join(r.sentences)), np.stack([word_features(s) for s in r.sentences])) for r in readings
    ]
    return Source(WORDS, [], "", "", [], np.zeros(0, np.float32), []), of_words


def about_of(source: Source, files: Sequence[Path], rows: int, found: dict[str, Any]) -> dict[str, Any]:
    """What a head file says of itself."""
    return {
        "model": source.name,
        "weights_sha256": source.weights,
        "rows": rows,
        "rows_sha256": rows_digest(files),
        "command": f"python -m turnwise.judges.signals.fit {shlex.join(_without_places(sys.argv[1:]))}",
        "python": platform.python_version(),
        "cross_validated": found,
    }


def rows_digest(files: Sequence[Path]) -> str:
    """SHA-256 of labelled files in the order of their names."""
    every = sorted(files, key=lambda path: path.name)
    return hashlib.sha256(b"\n".join(path.read_bytes() for path in every)).hexdigest()


def _without_places(words: list[str]) -> list[str]:
    """The command line without where things lay on the machine it ran on."""
    kept, skip = [], False
    for word in words:
        if not skip and word not in ("--cache", "--out"):
            kept.append(Path(word).name if word.startswith("/") else word)
        skip = word in ("--cache", "--out")
    return kept


def _default_layers(folder: Path) -> list[int]:
    n = json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    return [round(n * 0.53), round(n * 0.67)]


def _cached(
    cache: Path | None, config: Config, readings: Sequence[Reading], layers: list[int], weights: str
) -> tuple[list[Vector], list[int], Vector]:
    """As `states_of`. ``cache``: a file of what was asked of these weights before, row by row."""
    keys = [_digest(weights, layers, r.task, r.action, r.sentences) for r in readings]
    known: dict[str, NDArray[Any]] = {}
    if cache is not None and cache.exists():
        with np.load(cache, allow_pickle=False) as f:
            parts = np.split(f["flat"], np.cumsum(f["sizes"])[:-1], axis=1)
            known = dict(zip((str(k) for k in f["keys"]), parts, strict=True))
    missing = [i for i, key in enumerate(keys) if key not in known]
    with own_engine(config) as url:
        found, probe, probed = asyncio.run(states_of(config, url, [readings[i] for i in missing], layers))
    # In half the bits always, so that a run with a cache gives what one without it gives.
    known |= {keys[i]: vectors.astype(np.float16) for i, vectors in zip(missing, found, strict=True)}
    if cache is not None:
        flat, sizes = np.concatenate(list(known.values()), 1), [v.shape[1] for v in known.values()]
        np.savez(cache, keys=np.array(list(known)), flat=flat, sizes=np.array(sizes))
    return [known[key].astype(np.float32) for key in keys], probe, probed


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


if __name__ == "__main__":
    main()
