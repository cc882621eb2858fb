"""The short prompt whose hidden states the free judge looks at: the task, the answer, and what the person said then.

A question in the served model's own chat form, in which no text can spell a special token. Nothing is generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from tokenizers import Tokenizer

from turnwise.judges.signals.reading import Reading

BEFORE_TASK = "<|im_start|>user\nThe task was: "
BEFORE_ACTION = "\nThe assistant answered: "
BEFORE_REPLY = "\nThe person then said: "
QUESTION = (
    "\nWas the person pleased with the answer, displeased, or neither?<|im_end|>\n<|im_start|>assistant\nThe person was"
)
"""In ChatML, as the models have it for which there are heads; for any other model these marks are plain text."""
TASK_TOKENS = (60, 30)
ACTION_TOKENS = (60, 60)
REPLY_TOKENS = (120, 120)
"""The most of each part, from its beginning and from its end."""


@dataclass(frozen=True, slots=True)
class Question:
    """``ids`` [P], and (begin, end) of the reply, then of those of its sentences that are in them whole or in part.

    ``sentences``: which ones these are.
    """

    ids: list[int]
    spans: list[tuple[int, int]]
    sentences: list[int]


class PromptMaker:
    """Prompts in the tokens of one model."""

    def __init__(self, path: str) -> None:
        marked, self._plain = Tokenizer.from_file(path), Tokenizer.from_file(path)
        self._plain.encode_special_tokens = True  # in what is read, special tokens are only text

        def ids(text: str) -> list[int]:
            return marked.encode(text, add_special_tokens=False).ids

        self._before_task, self._before_action = ids(BEFORE_TASK), ids(BEFORE_ACTION)
        self._before_reply, self._question = ids(BEFORE_REPLY), ids(QUESTION)

    def text(self, text: str) -> list[int]:
        return self._plain.encode(text, add_special_tokens=False).ids

    def make(self, reading: Reading) -> Question:
        """The prompt of a reading with at least one sentence."""
        prompt = self._before_task + _ends(self.text(reading.task), TASK_TOKENS)
        prompt += self._before_action + _ends(self.text(reading.action), ACTION_TOKENS) + self._before_reply
        begins = len(prompt)
        reply = self._plain.encode("\n".join(reading.sentences), add_special_tokens=False)
        kept = _ends(list(range(len(reply.ids))), REPLY_TOKENS)
        prompt += [reply.ids[i] for i in kept]
        spans, which = [(begins, max(len(prompt), begins + 1))], []
        # Each sentence ends where the next one's line begins.
        ends = list(accumulate(len(sentence) + 1 for sentence in reading.sentences))
        for n, end in enumerate(ends):
            begin = ends[n - 1] if n else 0
            mine = [at for at, i in enumerate(kept) if begin <= reply.offsets[i][0] < end]
            if mine:
                spans.append((begins + mine[0], begins + mine[-1] + 1))
                which.append(n)
        return Question(prompt + self._question, spans, which)


def _ends(items: list[int], most: tuple[int, int]) -> list[int]:
    head, tail = most
    return items if len(items) <= head + tail else items[:head] + items[-tail:]
