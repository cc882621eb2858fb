"""What both trainers learn from: sessions of turns and conversations, made of random ids by a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.bench.training import ANSWER_TOKENS, QUESTION_TOKENS, SYSTEM_TOKENS, THINKING_TOKENS
from turnwise.types import Batch, Sample


@dataclass(frozen=True, slots=True)
class MaskedConversation:
    """A conversation as it stands: ``ids``, and of each whether the assistant wrote it."""

    ids: list[int]
    learned: list[bool]


def make_sessions(count: int, turns: int, vocabulary: int, seed: int = 0) -> Batch:
    """Sessions of an agent that thinks: what it thought is left out of the prompts that follow, as templates do."""
    rng = random.Random(seed)

    def ids(mean: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(rng.randint(mean // 2, mean * 3 // 2))]

    samples: list[Sample] = []
    for session in range(count):
        context = ids(SYSTEM_TOKENS)
        for turn in range(turns):
            prompt, thinking, answer = [*context, *ids(QUESTION_TOKENS)], ids(THINKING_TOKENS), ids(ANSWER_TOKENS)
            samples.append(
                Sample(
                    turn_id=f"turn-{session}-{turn}",
                    session_id=f"session-{session}",
                    prompt_ids=prompt,
                    response_ids=[*thinking, *answer],
                    logprobs=None,
                    temperature=1.0,
                    version=0,
                    reward=rng.choice([-1.0, 1.0]),
                    hint=None,
                    hint_at=None,
                )
            )
            context = [*prompt, *answer]
    return Batch(1, "bench", 0, samples)


def make_conversations(count: int, turns: int, vocabulary: int, seed: int = 0) -> list[MaskedConversation]:
    """Conversations of half to one and a half as many turns, so that their lengths differ as those of people do."""
    rng = random.Random(f"conversations/{seed}")
    found: list[MaskedConversation] = []
    for _ in range(count):
        parts = [(rng.randint(SYSTEM_TOKENS // 2, SYSTEM_TOKENS * 3 // 2), False)]
        for _ in range(rng.randint(max(1, turns // 2), turns * 3 // 2)):
            parts.append((rng.randint(QUESTION_TOKENS // 2, QUESTION_TOKENS * 3 // 2), False))
            parts.append((rng.randint(ANSWER_TOKENS // 2, ANSWER_TOKENS * 3 // 2), True))
        learned = [who for length, who in parts for _ in range(length)]
        found.append(MaskedConversation([rng.randrange(vocabulary) for _ in learned], learned))
    return found


def response_tokens(samples: Sequence[Sample]) -> int:
    return sum(len(s.response_ids) for s in samples)
