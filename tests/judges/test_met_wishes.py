"""Whether a wish was met: praise and reproach with the same words in them, some of which quote what was wished for.

Measured as a whole, with the heads that ship: a learned head is not right on each sentence. No row that a head is
fitted to has one of these replies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from tests.judges.praise import CORRECTIONS, CORRECTIONS_LEFT_OPEN, PRAISE, PRAISE_LEFT_OPEN
from turnwise.config import Config
from turnwise.judges.cases import read_cases, read_table
from turnwise.judges.choice import SignalJudge
from turnwise.judges.signals.fit import DATA
from turnwise.judges.signals.head import words_of
from turnwise.judges.signals.own_engine import own_engine
from turnwise.judges.signals.states import ReplyJudge
from turnwise.judges.signals.verdict import SignalVerdict
from turnwise.messages import saying, text_of
from turnwise.types import JudgeTask

HERE = Path(__file__).parent
STEPS = "**Step 1:** add 3 and 4.\n**Step 2:** take 2 away.\n\n**Answer:** 5"
WISHES = [  # a task, an answer that meets the wish, and one that does not
    ("Three and four, less two?", "You get five.", STEPS),
    ("no capital letters please", "the rhine is 1,233 km long.", "The Rhine is 1,233 km long."),
    ('please end with "Toodle-pip"', "The shop closes at six. Toodle-pip", "The shop closes at six."),
]
MET = [
    "yes, exactly like that",
    "yes, like that",
    "yes! like that",
    "exactly like this, thanks",
    "there, that's it",
    "right, just like I said",
    "that's the way",
    "like that, thank you",
    "keep it like that, that's how I want it",
    "don't change a thing",
    "stay like this",
    "ja, genau so",
    "sí, exactamente así",
]
MISSED = [
    "no, not like that",
    "not like that",
    "still not like I said",
    "do it like that next time",
    "keep it short, please",
    "no! like I said, please",
    "that's not the way",
    "change it to how I want it",
    "stay with what I told you",
    "nein, nicht so",
    "no, así no",
]
PHRASES = ["Toodle-pip", "Ta-ra for now", "Stay curious!", "Yours in haste", "Fair winds!", "Peace out"]
QUOTED_MET = [
    'yes! "{}" at the end, just as I asked',
    'lovely, "{}" and all',
    'aw, thank you for the "{}"',
    'I see that you ended with "{}", good',
    'oh nice, "{}" again!',
    'this time with "{}", that\'s it',
    'keep ending with "{}", I love it',
]
QUOTED_MISSED = [
    'you forgot to end with "{}"',
    'where is "{}"? I asked for it',
    'I wanted "{}" at the end, as I told you',
    'it should say "{}" at the end',
    'please finish with "{}" each time',
    'hm, still no "{}"',
    'the "{}" is missing',
    'it\'s not right without "{}"',
    'and "{}" at the end?',
]


@dataclass
class Limits:
    """The most of each kind that may be taken for its opposite, and the least that must be decided rightly."""

    met: int
    missed: int
    quoted_met: int
    quoted_missed: int
    right: float


def asked(task: str, answer: str, reply: str) -> JudgeTask:
    return JudgeTask("t", "", 1, [saying("user", task)], saying("assistant", answer), [saying("user", reply)])


def met() -> list[JudgeTask]:
    return [asked(task, good, reply) for (task, good, _), reply in product(WISHES, MET)]


def missed() -> list[JudgeTask]:
    return [asked(task, bad, reply) for (task, _, bad), reply in product(WISHES, MISSED)]


def quoted(templates: Sequence[str], with_it: bool) -> list[JudgeTask]:
    """Replies that quote a phrase, to an answer with or without it."""
    answer = "The shop closes at six."
    return [
        asked("When does the shop close?", f"{answer} {phrase}" if with_it else answer, template.format(phrase))
        for template, phrase in product(templates, PHRASES)
    ]


async def judged(model: Path, tasks: Sequence[JudgeTask]) -> list[SignalVerdict]:
    config = Config.model_validate({"model": {"path": str(model)}})
    with own_engine(config) as url:
        judge = SignalJudge(replies=ReplyJudge(config, url))
        try:
            found = [await judge.signals(task) for task in tasks]
            assert judge.who == f"signals, hidden states of {model.name}"
            return found
        finally:
            await judge.close()


async def measure(model: Path, limits: Limits) -> None:
    kinds = [
        ("met", met(), 1, limits.met),
        ("missed", missed(), -1, limits.missed),
        ("quoted, met", quoted(QUOTED_MET, True), 1, limits.quoted_met),
        ("quoted, missed", quoted(QUOTED_MISSED, False), -1, limits.quoted_missed),
    ]
    found = await judged(model, [task for _, tasks, _, _ in kinds for task in tasks])
    right, begins, failed = 0, 0, []
    for name, tasks, label, most in kinds:
        verdicts = found[begins : begins + len(tasks)]
        begins += len(tasks)
        wrong = [text_of(t.next_state[0]) for t, v in zip(tasks, verdicts, strict=True) if v.score == -label]
        good = sum(v.score == label for v in verdicts)
        print(f"{name}: of {len(tasks)} {good} right, {len(wrong)} taken for the opposite: {wrong}")
        right += good
        if len(wrong) > most:
            failed.append(f"{name}: {len(wrong)}, at most {most}")
    print(f"{right} of {len(found)} right")
    assert not failed
    assert right >= limits.right * len(found)


# Seen: met 2, missed 0, quoted 3 and 0 taken for the opposite, 154 of 168 right. Before there were rows of it:
# 9, 2, 10, 0 and 130.
@pytest.mark.long
@pytest.mark.slow
async def test_a_met_wish_is_told_from_a_missed_one(model_dir: Path) -> None:
    await measure(model_dir, Limits(met=4, missed=3, quoted_met=6, quoted_missed=2, right=0.85))


# Seen: 0, 1, 2 and 0, 160 right. Before there were rows of it: 13, 0, 19, 0 and 102.
@pytest.mark.slow
async def test_the_larger_model_tells_a_met_wish_from_a_missed_one(tools_model_dir: Path) -> None:
    await measure(tools_model_dir, Limits(met=4, missed=4, quoted_met=5, quoted_missed=2, right=0.82))


FITTED_TO = ("next-states-dev.jsonl", "cases.jsonl", "blind.jsonl")
KEPT_ASIDE = (
    "unseen.jsonl",
    "unseen-wishes.jsonl",
    "unseen-after-corrections.jsonl",
    "unseen-last.jsonl",
    "unseen-people.jsonl",
    "unseen-chats.jsonl",
    "unseen-strangers.jsonl",
    "unseen-strangers-2.jsonl",
    "unseen-plain.jsonl",
    "unseen-languages.jsonl",
    "unseen-strangers-3.jsonl",
    "unseen-wishes-languages.jsonl",
    "unseen-strangers-4.jsonl",
)


def test_no_row_has_a_reply_that_is_measured_here_or_kept_aside() -> None:
    measured = {text_of(task.next_state[0]) for task in (*met(), *missed())}
    measured |= {text_of(task.next_state[0]) for t in (QUOTED_MET, QUOTED_MISSED) for task in quoted(t, True)}
    measured |= {*CORRECTIONS, *CORRECTIONS_LEFT_OPEN, *PRAISE, *PRAISE_LEFT_OPEN}
    aside = [case for name in KEPT_ASIDE for case in read_cases(HERE / name)]
    measured |= {text_of(case.next_state[-1]) for case in aside}
    phrases = (HERE / "unseen-phrases.jsonl").read_text(encoding="utf-8").splitlines()
    measured |= {json.loads(line)["reply"] for line in phrases}
    rows = [case for table in DATA.glob("*.tsv") for case in read_table(table)]
    rows += [case for name in FITTED_TO for case in read_cases(HERE / name)]
    assert len(rows) > 5000
    assert not {plainly(text_of(row.next_state[-1])) for row in rows} & {plainly(reply) for reply in measured}


def plainly(reply: str) -> str:
    return " ".join(words_of(reply))
