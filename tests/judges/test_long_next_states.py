"""The judge is done in seconds with whatever comes back: megabytes of tags, quotes and brackets that never end."""

from __future__ import annotations

import time

import pytest

from turnwise.judges.prompts import score_prompt
from turnwise.judges.signals.verdict import judge_by_words
from turnwise.judges.sources.person import MAX_READ, own_words
from turnwise.messages import from_chat, saying

PIECES = [
    *("<a>", "<b>", "</b>", "<a ", "</a>", "<t>x", "<|", "<|im_end|>", "<<SYS>>", "<</SYS>>", "<<a", "<!--", "<?"),
    *("[", "[a](", "![a\n", "[a]", "[/a]", "[INST]", "`", "```\n", "~~~", '"', "> x\n", "assistant: x\n", "a,b,c\n"),
    *("QUJD", "\n", " \n", "=== BEGIN A ===\n", "diff --git \n", "[{\n", "$ ls\n\n", "|a|b|\n", "no ", "\u200b"),
    *("“", "“a” ", "'a ", '"a ', "« ", "»a", "[1] x\n", "[1] x\n\n", "a ▶ ", "▶\n", "a:\n", "--b1\n", "═══\n"),
]
MEGABYTES = 8_000_000
MANY_S = 60.0
"""Far more than any takes; what hangs takes hours."""
ANSWER = from_chat(
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "bash", "arguments": '{"command": "pytest"}'}}],
    }
)


@pytest.mark.wide
@pytest.mark.parametrize("piece", PIECES)
def test_the_words_of_a_person_are_found_in_time_that_grows_with_the_text(piece: str) -> None:
    def taken(size: int) -> float:
        started = time.process_time()
        own_words(piece * (size // len(piece)))
        return time.process_time() - started

    def grows_like_its_text() -> bool:
        """Four times the text; a quadratic one takes sixteen times as long. A busy machine stretches now one, now the
        other."""
        small = max(min(taken(MAX_READ // 4) for _ in range(2)), 0.05)
        return taken(MAX_READ) < 4 * 2.5 * small

    assert any(grows_like_its_text() for _ in range(4))


@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize("pieces", [["<a>", "[a]"], ["\n"], ["<<SYS>>"]], ids=["tags", "lines", "marks"])
@pytest.mark.parametrize("messages", [pytest.param(1, marks=pytest.mark.wide), 1000])
def test_megabytes_that_came_back_are_judged_in_seconds(role: str, pieces: list[str], messages: int) -> None:
    text = "".join(pieces)
    content = text * (MEGABYTES // messages // len(text))
    came = [from_chat({"role": role, "content": content, "tool_call_id": "1"}) for _ in range(messages)]
    started = time.process_time()
    verdict = judge_by_words([saying("user", "Fix it")], ANSWER, came)
    score_prompt([saying("user", "Fix it")], ANSWER, came, room=4000)
    assert time.process_time() - started < MANY_S
    assert verdict.score is None


def test_a_message_too_long_to_be_read_is_not_the_persons_word() -> None:
    assert own_words("That is wrong") == "That is wrong"
    assert own_words("<b>" + "That is wrong. " * MAX_READ + "</b>") == ""
