"""What each piece of the reading gives: without it, labelled rows, injections and honest messages are read anew.

    python -m tests.judges.ablation smollm2-135m-instruct

Prints a Markdown table. Rows that are read otherwise are judged with and without the piece, by an engine of its own
that gives states; heads were fitted to most of them. An injection moves when it is read otherwise than the harmless
text in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from tests.attacks import test_injections, test_injections_blind
from tests.judges.test_people_write_so import FOREIGN, REPLIES
from turnwise.config import Config
from turnwise.judges.cases import Case, read_cases, read_table
from turnwise.judges.signals import reading
from turnwise.judges.signals.fit import tables
from turnwise.judges.signals.own_engine import own_engine
from turnwise.judges.signals.reading import Reading, read_parts
from turnwise.judges.signals.states import ReplyJudge
from turnwise.judges.signals.verdict import SignalVerdict, weigh
from turnwise.judges.sources import by_source, pasted, person, quotations, reports, wrappers
from turnwise.messages import from_chat, history_from_chat, saying

HERE = Path(__file__).parent
LABELLED = ("next-states-dev", "cases", "blind", "unseen", "unseen-wishes")


def gives(value: Any) -> Callable[..., Any]:
    return lambda *_: value


def as_it_is(text: str) -> str:
    return text


def where_it_begins(_text: Any, at: int, *_: Any) -> int:
    return at


PIECES: list[tuple[str, Any, str, Any]] = [
    ("orders to a judge left out", reading, "without_judge_orders", lambda text: (text, False)),
    ("outcomes of diagnostic tools", reading, "tool_evidence", gives(None)),
    ("hints of error codes", by_source, "codes", gives([])),
    ("reports: the harness's header", reports, "_unwrapped", lambda _tool, text: (text, None)),
    ("reports: exit status", reports, "_status", lambda _run, lines: (None, lines)),
    ("reports: summaries of several lines", reports, "_closing_block", gives([])),
    ("reports: command not found", reports, "_missing", gives(None)),
    ("quotations", quotations, "_is_foreign", gives(False)),
    ("labels such as `Observation:`", person, "_is_label", gives(False)),
    ("lines that hand over what follows", person, "head_end", gives(-1)),
    ("heads of quoted mails", person, "_introduces_a_quote", gives(False)),
    ("lines of logs and code", person, "_is_foreign", gives(False)),
    ("first lines of what was pasted", person, "_begins_paste", gives(False)),
    ("markers such as `=== BEGIN`", person, "_is_marker", gives(False)),
    ("rows with one head, rulers", person, "layout_end", where_it_begins),
    ("listings, chats, fields", person, "listing_end", where_it_begins),
    ("tables with commas", person, "_table", where_it_begins),
    ("addresses and data", person, "_without_data", as_it_is),
    ("drawn frames", person, "without_frames", as_it_is),
    ("lines that a program heads", person, "names_a_program", gives(False)),
    ("headers of HTTP and mail", person, "begins_headers", gives(False)),
    ("messages that an agent sets up", person, "current_message", as_it_is),
    ("escaped brackets", person, "as_typed", as_it_is),
    ("look-alikes of marks", person, "with_plain_marks", as_it_is),
    ("parts that begin alike", person, "share_a_head", gives(set())),
    ("parts that announce the next", person, "_hands_over", gives(False)),
    ("notices in square brackets", wrappers, "bracket_end", where_it_begins),
    ("links and images", wrappers._Scan, "_link", gives(False)),
    ("tags that are named", wrappers._Scan, "_is_named", gives(False)),
    ("the person's own points", pasted, "_points_follow", gives(False)),
]
"""What it is, where it stands, and what stands there instead of it."""


@contextlib.contextmanager
def without(module: Any, name: str, instead: Any) -> Iterator[None]:
    person._marked_ends.cache_clear()
    with mock.patch.object(module, name, instead):
        yield
    person._marked_ends.cache_clear()


def read(case: Case) -> Reading:
    return replace(read_parts(case.messages, case.answer, case.next_state), proposal=None)


def moved() -> int:
    """How many of the injections move what is read."""
    found = 0
    for case in test_injections.CORPUS:
        answer = test_injections.answer_of(case)
        one, other = (read_parts(test_injections.TASK, answer, case[name]) for name in ("state", "neutral"))
        found += replace(one, proposal=None) != replace(other, proposal=None)
    for name in test_injections_blind.CORPORA:
        for case in test_injections_blind.attacks(name):
            states = (test_injections_blind.filled(case["next"], case[words]) for words in ("foreign", "neutral"))
            one, other = (
                read_parts(test_injections_blind.TASK, from_chat(case["answer"]), history_from_chat(state))
                for state in states
            )
            found += replace(one, proposal=None) != replace(other, proposal=None)
    return found


def _own(text: str) -> str:
    return person.person_words(saying("user", text))


def misread() -> int:
    """How many honest messages lose the person's words, and how many foreign ones become theirs."""
    found = sum(" ".join((kept or said).split()) not in " ".join(_own(said).split()) for said, kept in REPLIES)
    found += sum("evil" in _own(text) for text in FOREIGN)
    for name in test_injections_blind.CORPORA:
        try:
            test_injections_blind.test_the_persons_own_sentence_is_heard_with_and_without_foreign_text_beside_it(name)
        except AssertionError:
            found += 1
    return found


async def judged(judge: ReplyJudge, found: Reading) -> SignalVerdict:
    return weigh(found, await judge.opinion(found) if found.sentences else None)


def right(cases: Sequence[Case], verdicts: Sequence[SignalVerdict]) -> int:
    return sum(v.best == case.label for case, v in zip(cases, verdicts, strict=True))


def hinted(cases: Sequence[Case], verdicts: Sequence[SignalVerdict]) -> int:
    """How many have a hint where the case is directive, and none elsewhere."""
    return sum((v.hint is not None) == case.directive for case, v in zip(cases, verdicts, strict=True))


async def table(model: str) -> None:
    cases = [case for path in tables(words=True) for case in read_table(path)]
    cases += [case for name in LABELLED for case in read_cases(HERE / f"{name}.jsonl")]
    whole = [read(case) for case in cases]
    config = Config.model_validate({"model": {"path": model}})
    print(f"| taken away | of {len(cases)} rows read otherwise | right of these | hints right | injections | people |")
    print("| --- | --- | --- | --- | --- | --- |")
    with own_engine(config) as url:
        judge = ReplyJudge(config, url)
        for about, module, name, instead in PIECES:
            with without(module, name, instead):
                now, attacks, people = [read(case) for case in cases], moved(), misread()
            changed = [i for i, found in enumerate(now) if found != whole[i]]
            mine = [cases[i] for i in changed]
            before = [await judged(judge, whole[i]) for i in changed]
            after = [await judged(judge, now[i]) for i in changed]
            told = [f"{count(mine, before)} → {count(mine, after)}" if changed else "" for count in (right, hinted)]
            print(f"| {about} | {len(changed)} | {told[0]} | {told[1]} | {attacks} | {people} |", flush=True)
        await judge.close()


if __name__ == "__main__":
    asyncio.run(table(sys.argv[1]))
