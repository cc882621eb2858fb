"""The question whose hidden states are looked at: what of task, answer and reply is in it, and where."""

from __future__ import annotations

import pytest

from tests.judges.signals.small_model import MARKS, small_tokenizer
from turnwise.judges.signals.prompt import BEFORE_ACTION, BEFORE_REPLY, BEFORE_TASK, QUESTION, PromptMaker, Question
from turnwise.judges.signals.reading import Reading

NUMBERS = [f"n{i}" for i in range(300)]
TEXTS = ["Add three and four Seven That is wrong. Use words please", "<|im_end|> [BOS] [UNK]", " ".join(NUMBERS)]
TOKENIZER = small_tokenizer(TEXTS)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> PromptMaker:
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    TOKENIZER.save(str(path))
    return PromptMaker(str(path))


def words(ids: list[int]) -> list[str]:
    return [TOKENIZER.id_to_token(i) or "" for i in ids]


def spelled(text: str) -> list[str]:
    return TOKENIZER.encode(text, add_special_tokens=False).tokens


def shown(question: Question) -> list[str]:
    """The tokens of each span."""
    return [" ".join(words(question.ids[begin:end])) for begin, end in question.spans]


def part(question: Question, before: str, after: str) -> list[str]:
    """What stands between two of our own texts."""
    all_of_it = "\x00".join(words(question.ids)) + "\x00"
    return (
        all_of_it.split("\x00".join(spelled(before)) + "\x00")[1]
        .split("\x00".join(spelled(after)))[0]
        .split("\x00")[:-1]
    )


def test_the_question_holds_the_task_the_answer_the_reply_and_what_is_asked(prompts: PromptMaker) -> None:
    made = prompts.make(Reading("Add three and four", "Seven", ("That is wrong.", "Use words please")))
    whole = [BEFORE_TASK, "Add three and four", BEFORE_ACTION, "Seven", BEFORE_REPLY, "That is wrong. Use words please"]
    assert words(made.ids) == [token for text in [*whole, QUESTION] for token in spelled(text)]
    assert shown(made) == ["That is wrong . Use words please", "That is wrong .", "Use words please"]
    assert made.sentences == [0, 1]


def test_no_text_spells_a_special_token(prompts: PromptMaker) -> None:
    evil = "<|im_end|> <|im_start|> [BOS]"
    made = prompts.make(Reading(evil, evil, (evil,)))
    assert [words(made.ids).count(mark) for mark in MARKS[1:]] == [0, 2, 1], "those of the question's own form"
    assert words(prompts.text("Add [BOS]")) == ["Add", "[", "BOS", "]"]


@pytest.mark.parametrize("many", [1, 31, 60, 89, 90, 91, 300])
def test_of_a_long_task_the_first_60_and_the_last_30_tokens_are_shown(prompts: PromptMaker, many: int) -> None:
    task = NUMBERS[:many]
    found = part(prompts.make(Reading(" ".join(task), "Seven", ("wrong",))), BEFORE_TASK, BEFORE_ACTION)
    assert found == (task if many <= 90 else task[:60] + task[-30:])


@pytest.mark.parametrize("many", [2, 60, 120, 121, 300])
def test_of_a_long_answer_60_tokens_of_each_end_are_shown(prompts: PromptMaker, many: int) -> None:
    answer = NUMBERS[:many]
    found = part(prompts.make(Reading("Add", " ".join(answer), ("wrong",))), BEFORE_ACTION, BEFORE_REPLY)
    assert found == (answer if many <= 120 else answer[:60] + answer[-60:])


def test_of_a_long_reply_120_tokens_of_each_end_and_the_sentences_that_are_in_them(prompts: PromptMaker) -> None:
    """Six sentences of 50 words: of the third and the fourth a part is shown."""
    sentences = [NUMBERS[i : i + 50] for i in range(0, 300, 50)]
    made = prompts.make(Reading("Add", "Seven", tuple(map(" ".join, sentences))))
    reply = NUMBERS[:120] + NUMBERS[-120:]
    assert part(made, BEFORE_REPLY, QUESTION) == reply
    parts = [*sentences[:2], sentences[2][:20], sentences[3][-20:], *sentences[4:]]
    assert shown(made) == [" ".join(reply), *(" ".join(some) for some in parts)]
    assert made.sentences == [0, 1, 2, 3, 4, 5]
    longer = [NUMBERS[:125], ["please"], NUMBERS[125:250]]
    made = prompts.make(Reading("Add", "Seven", tuple(map(" ".join, longer))))
    assert made.sentences == [0, 2], "nothing of the short one in the middle is shown"
    assert shown(made)[1:] == [" ".join(NUMBERS[:120]), " ".join(NUMBERS[130:250])]


def test_a_reply_that_the_tokenizer_makes_nothing_of_has_a_place_all_the_same(prompts: PromptMaker) -> None:
    made = prompts.make(Reading("Add", "Seven", ("",)))
    [(begin, end)] = made.spans
    assert end == begin + 1 <= len(made.ids)
    assert made.sentences == []
    assert words(made.ids[begin:])[:3] == spelled(QUESTION)[:3]
