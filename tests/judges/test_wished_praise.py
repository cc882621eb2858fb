"""A praise word proves nothing by itself: it may be ordered, wished for, or taken back in the same breath.

Measured as a whole with the head that ships for the embedded model: a learned head is not right on each sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judges.praise import CORRECTIONS, CORRECTIONS_LEFT_OPEN, PRAISE, PRAISE_LEFT_OPEN
from tests.judges.test_met_wishes import asked, judged

pytestmark = pytest.mark.slow

TASK = "Three and four, less two?"
ANSWER = "**Step 1:** add 3 and 4.\n**Step 2:** take 2 away.\n\n**Answer:** 5"


@pytest.mark.long
async def test_wished_praise_is_told_from_given_praise(model_dir: Path) -> None:
    wished, given = [*CORRECTIONS, *CORRECTIONS_LEFT_OPEN], [*PRAISE, *PRAISE_LEFT_OPEN]
    found = await judged(model_dir, [asked(TASK, ANSWER, reply) for reply in (*wished, *given)])
    taken_for_praise = [r for r, v in zip(wished, found, strict=False) if v.score == 1]
    taken_for_reproach = [r for r, v in zip(given, found[len(wished) :], strict=True) if v.score == -1]
    right = sum(v.best == -1 for v in found[: len(wished)]) + sum(v.best == 1 for v in found[len(wished) :])
    hinted = sum(v.hint is not None for v in found[: len(CORRECTIONS)])
    print(f"{right} of {len(found)} right; {hinted} of {len(CORRECTIONS)} corrections gave a hint;")
    print("praise seen in", taken_for_praise, "; reproach seen in", taken_for_reproach)
    assert right >= RIGHT * len(found)
    assert len(taken_for_praise) <= PRAISED * len(wished)
    assert len(taken_for_reproach) <= REPROACHED * len(given)


# Seen: 133 right, 2 corrections taken for praise, 5 praises taken for reproach. Before there were rows of praise in the
# form of an order: 113, 1 and 22.
RIGHT, PRAISED, REPROACHED = 0.85, 0.08, 0.2
"""The least share right, and the most of each that is taken for the other; with a margin."""
