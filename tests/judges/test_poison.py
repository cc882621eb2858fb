"""Text that cannot be stored, marks of a chat template, and faults nobody foresaw: one turn never stops the judge."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from tests.judges.test_worker import Scripted, add_turn, good, settings, state, until, work_until
from turnwise.errors import JournalError
from turnwise.journal import Journal, schema
from turnwise.judges.choice import SignalJudge
from turnwise.judges.parsing import parse_hint
from turnwise.judges.signals.verdict import judge_by_words
from turnwise.judges.worker import Worker
from turnwise.messages import clean, from_chat, saying
from turnwise.types import Exclusion, JudgeTask, TurnState, Verdict

LONE = "\ud83d"  # one half of an emoji, as a client sends it that cuts text in the middle


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(settings(tmp_path))
    yield opened
    opened.close()


def hint_of(reply: str) -> str | None:
    asked = [saying("user", "How many apples?")]
    answer = saying("assistant", "**Seven** apples")
    return judge_by_words(asked, answer, [from_chat({"role": "user", "content": reply})]).hint


async def test_an_unforeseen_fault_of_one_turn_is_counted_and_the_others_go_on(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poison, fine = add_turn(journal, "aaa", "hm"), add_turn(journal, "bbb", "thanks")

    async def judge(task: JudgeTask) -> Verdict:
        if task.turn_id == poison:
            raise ZeroDivisionError("a fault of ours")
        return await good(task)

    scripted = Scripted(judge)
    with caplog.at_level(logging.WARNING):
        await work_until(
            Worker(settings(tmp_path, max_attempts=2), journal, scripted),
            lambda: state(journal, poison) is TurnState.EXCLUDED and state(journal, fine) is TurnState.READY,
        )
    found = journal.turns.get(poison)
    assert found is not None
    assert found.exclusion is Exclusion.NO_VALID_VOTE
    assert scripted.calls.count(poison) == 2
    assert "Traceback" in caplog.text
    with journal.store.reading() as c:
        error = c.execute(select(schema.turns.c.last_error).where(schema.turns.c.id == poison)).scalar_one()
    assert "ZeroDivisionError" in error
    assert "a fault of ours" in error


async def test_a_fault_whose_words_are_no_unicode_is_recorded(
    journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poison = add_turn(journal, "aaa", "hm")

    async def judge(_: JudgeTask) -> Verdict:
        raise ZeroDivisionError(f"a fault of ours {LONE}")

    with caplog.at_level(logging.CRITICAL + 1):  # pytest's own report of the log could not be sent between processes
        await work_until(
            Worker(settings(tmp_path, max_attempts=1), journal, Scripted(judge)),
            lambda: state(journal, poison) is TurnState.EXCLUDED,
        )
    with journal.store.reading() as c:
        error = c.execute(select(schema.turns.c.last_error).where(schema.turns.c.id == poison)).scalar_one()
    assert "a fault of ours" in error


async def test_a_verdict_that_cannot_be_stored_is_counted(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", "hm")

    async def unstorable(_: JudgeTask) -> Verdict:
        return Verdict(-1, f"Say it in one {LONE} sentence.", "model")

    await work_until(
        Worker(settings(tmp_path), journal, Scripted(unstorable)), lambda: state(journal, turn) is TurnState.EXCLUDED
    )
    assert journal.turns.get(turn).exclusion is Exclusion.NO_VALID_VOTE  # type: ignore[union-attr]


async def test_a_journal_that_fails_for_a_while_does_not_end_the_judge(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = add_turn(journal, "aaa", "thanks, perfect")
    record, failing = journal.judging.record, [True, True]

    def full_disk(task: JudgeTask, verdict: Verdict) -> None:
        if failing:
            failing.pop()
            raise JournalError("the disk is full")
        record(task, verdict)

    monkeypatch.setattr(journal.judging, "record", full_disk)
    await work_until(
        Worker(settings(tmp_path), journal, SignalJudge()), lambda: state(journal, turn) is TurnState.READY
    )
    assert not failing, "it had failed twice before"


async def test_a_journal_that_takes_no_failure_either_does_not_end_the_judge(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = add_turn(journal, "aaa", "thanks, perfect")
    tried: list[str] = []

    def full_disk(task: JudgeTask, *_: object) -> None:
        tried.append(task.turn_id)
        raise JournalError("the disk is full")

    monkeypatch.setattr(journal.judging, "record", full_disk)
    monkeypatch.setattr(journal.judging, "failed", full_disk)
    stop = asyncio.Event()
    running = asyncio.create_task(Worker(settings(tmp_path), journal, SignalJudge()).run(stop))
    await until(lambda: len(tried) >= 2)
    await asyncio.sleep(0.2)
    assert not running.done()
    monkeypatch.undo()
    stop.set()
    await asyncio.wait_for(running, 10)
    assert state(journal, turn) is TurnState.JUDGING  # its lease runs out


async def test_half_an_emoji_in_a_reply_becomes_a_sample(journal: Journal, tmp_path: Path) -> None:
    turn = add_turn(journal, "aaa", f"too stiff. can you say it in one plain sentence {LONE}, without the bold?")
    await work_until(
        Worker(settings(tmp_path), journal, SignalJudge()), lambda: state(journal, turn) is TurnState.READY
    )
    with journal.store.reading() as c:
        hint = c.execute(select(schema.samples.c.hint)).scalar_one()
    assert "can you say it in one plain sentence" in hint


@pytest.mark.parametrize(
    "mark",
    [
        "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<|eot_id|>", "<|im_<|im_end|>end|>", "</s>", "<s>",
        "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<｜end▁of▁sentence｜>", "<think>", "</think>",
        "</tool_call>", "<<SYS>>", "<bos>", "<eos>",
    ],
)  # fmt: skip
def test_marks_of_a_chat_template_are_no_part_of_a_hint(mark: str) -> None:
    wish = f"Please say it in one plain sentence{mark} without the bold."
    assert (hint_of(f"No, that is too stiff. {wish}") or "").endswith(
        "Please say it in one plain sentence without the bold."
    )
    assert parse_hint(f"[HINT_START]{wish}[HINT_END]") == "Please say it in one plain sentence without the bold."


def test_markup_that_a_hint_is_about_stays() -> None:
    for wish in (
        "Use <b> and not <strong> here.",
        "Return x if a < b | c > d.",
        "Write List<String> instead.",
        "Pipe it with |> or <|.",
    ):
        assert clean(wish) == wish


@given(st.text(max_size=200) | st.text(alphabet="<|>im_end \ud800\udfff", max_size=60))
def test_cleaned_text_can_be_stored_and_stays_clean(text: str) -> None:
    once = clean(text)
    once.encode("utf-8")
    assert clean(once) == once
    assert "<|im_end|>" not in once
