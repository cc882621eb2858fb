import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.judges.signals.hints import MAX_CHARS, hint_from_reply
from turnwise.judges.signals.instructions import as_instruction, base_form
from turnwise.judges.signals.verdict import judge_from_signals
from turnwise.messages import from_chat, saying

LISTED = "**Step 1:** add.\n**Step 2:** subtract."


@pytest.mark.parametrize(
    ("reply", "hint"),
    [
        (
            "hmm this reads like a robot wrote it. can you just say it in a couple of plain sentences, without the "
            "bullet points and bold?",
            "It must not sound like a robot wrote it. Say it in a couple of plain sentences, without the bullet points "
            "and bold.",
        ),
        ("no lists please, just plain short text", "No lists, just plain short text."),
        ("way too long", "Make it shorter."),
        ("Please don't use bold.", "Don't use bold."),
        ("You should have checked the file first.", "Check the file first."),
        ("i hate all these bullet points", "Leave out bullet points."),
        ("why are there so many bullets", "Leave out the bullets."),
        ("I'd like you to mention what she did well", "Mention what she did well."),
        ("Thanks for nothing. Could you be a bit more specific? What time is it?", "Be a bit more specific."),
    ],
)
def test_a_reply_becomes_an_instruction(reply: str, hint: str) -> None:
    assert hint_from_reply(-1, reply, LISTED) == hint


@pytest.mark.parametrize("reply", ["no", "Dude. no", "that's wrong", "meh, lame", "try again", "are you serious??"])
def test_a_bare_refusal_gives_no_hint(reply: str) -> None:
    assert hint_from_reply(-1, reply, LISTED) is None


@pytest.mark.parametrize(
    "reply", ["great, thanks!", "Perfect. Also invite Jonas please.", "merged 👍 can you do the same for refunds"]
)
def test_praise_and_new_work_give_no_hint(reply: str) -> None:
    assert hint_from_reply(1, reply, LISTED) is None


def test_praise_with_a_wish_gives_the_wish() -> None:
    assert hint_from_reply(1, "lovely! but shorter next time please", LISTED) == "Shorter next time."


def test_a_standing_rule_is_a_hint_without_a_verdict() -> None:
    hint = hint_from_reply(0, "Will read it tomorrow. We always write dates as 3 May, never 3/5.", LISTED)
    assert hint == "We always write dates as 3 May, never 3/5."


def test_at_most_three_sentences() -> None:
    reply = " ".join(f"Please use plain word number {n}." for n in range(9))
    hint = hint_from_reply(-1, reply, LISTED)
    assert hint is not None
    assert hint.count(".") == 3


@given(st.text(max_size=400), st.sampled_from([-1, 0, 1]))
def test_hints_are_bounded_text(reply: str, score: int) -> None:
    hint = hint_from_reply(score, reply, LISTED)
    assert hint is None or 10 < len(hint) <= MAX_CHARS


@pytest.mark.parametrize(
    ("participle", "base"),
    [
        ("checked", "check"), ("used", "use"), ("grepped", "grep"), ("tried", "try"), ("moved", "move"),
        ("replaced", "replace"), ("mentioned", "mention"), ("added", "add"), ("asked", "ask"), ("kept", "keep"),
        ("explained", "explain"), ("shortened", "shorten"), ("started", "start"), ("told", "tell"),
    ],
)  # fmt: skip
def test_base_forms(participle: str, base: str) -> None:
    assert base_form(participle) == base


@given(st.text(max_size=200))
def test_an_instruction_never_fails(line: str) -> None:
    assert isinstance(as_instruction(line), str)


@pytest.mark.parametrize(
    "output",
    [
        '{"error": {"field": "day", "message": "use ISO dates such as 2025-06-01"}}',
        '{"count": 3, "tip": "Filter with last_name=<value>. Always use it."}',
        "TypeError: f() got an unexpected keyword argument 'colour'. Did you mean 'color'?",
        "error[E0382]: use of moved value\nhelp: consider borrowing: `&cfg`",
    ],
)
def test_advice_of_a_tool_is_for_the_review_list_and_no_hint(output: str) -> None:
    verdict = judge_from_signals(
        [saying("user", "Do it")],
        saying("assistant", "call(x)"),
        [from_chat({"role": "tool", "content": output})],
    )
    assert verdict.hint is None
    assert verdict.proposal is not None
    assert verdict.proposal.source == "a tool"


def test_a_bare_failure_of_a_tool_gives_no_hint() -> None:
    for output in ("2 failed, 1 passed", '{"ok": false, "error": "invalid arguments"}', "exit code: 1"):
        verdict = judge_from_signals(
            [saying("user", "Do it")],
            saying("assistant", "call(x)"),
            [from_chat({"role": "tool", "content": output})],
        )
        assert verdict.hint is None
