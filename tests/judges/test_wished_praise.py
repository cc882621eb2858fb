"""A praise word proves nothing by itself: it may be ordered, wished for, or taken back in the same breath.

Measured as a whole with the head that ships for the embedded model: a learned head is not right on each sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judges.test_met_wishes import asked, judged

pytestmark = pytest.mark.slow

TASK = "Three and four, less two?"
ANSWER = "**Step 1:** add 3 and 4.\n**Step 2:** take 2 away.\n\n**Answer:** 5"

CORRECTIONS = [
    "too long, keep it shorter please",
    "keep it to two sentences please",
    "please keep it short, no lists",
    "Keep it short next time.",
    "ugh keep it brief",
    "make it nice and short",
    "make it nice and short please",
    "love to see it shorter",
    "would love to see it shorter",
    "I'd love it if you skipped the lists",
    "it would be great if you left out the headings",
    "would be great if it was one paragraph",
    "would be nice to have it in plain words",
    "It'd be perfect without the bullet points",
    "better if you drop the bold",
    "it would be better if it was shorter",
    "better if it were shorter",
    "good but too long",
    "good, but way too formal",
    "nice but I asked for one sentence",
    "great, but you forgot the units",
    "keep this to one paragraph",
    "keep them short",
    "keep it simple, please",
    "please keep it plain and simple",
    "write something nice and simple instead",
    "say it in a nice, short sentence",
    "give me a nice short answer instead",
    "a nice short sentence would be perfect",
    "shorter would be better",
    "shorter would be perfect",
    "less formal would be great",
    "I want a nice plain sentence",
    "I need a good short summary, not this",
    "please use clear and beautiful language, not jargon",
    "try to sound cool, not like a lawyer",
    "be nice, say it kindly",
    "wish it was as good as a human answer, too robotic",
    "I would like it shorter",
    "I'd like the answer in plain words",
    "I'd love a shorter version",
    "next time keep it to the point",
    "can you keep it nice and brief",
    "perfect would be two sentences",
    "it'd be great to have only the result",
    "bitte kürzer, das wäre super",
    "plus court, ce serait parfait",
    "más corto sería perfecto",
    "keep the answer to a single line please",
    "could you keep this brief, thanks",
    "keep everything in one paragraph",
    "keep to plain text",
    "kindly keep it under 30 words",
    "I said keep it short!",
    "try and make it sound nice and friendly",
    "give it a lovely warm tone please",
    "use nice short sentences",
    "write a better one",
    "it could be nicer",
    "could have been better, name the exact step",
    "this should be perfect prose, not bullets",
    "would've been nicer without the headers",
    "much better if you'd skip the intro",
    "looks great but the units are wrong",
    "cool, but no lists please",
    "nice try but that's wrong",
    "very helpful, but you ignored my budget",
    "schön, aber zu lang",
    "bien mais trop long",
    "bueno, pero demasiado largo",
    "I want it to be good prose, not a list",
    "please answer in a great, human way",
    "not good enough, keep it concise",
]
CORRECTIONS_LEFT_OPEN = [  # nothing but the words would tell: an abstention is right, praise is not
    "could you write it in a cool, casual tone?",
    'more like this: "You get five."',
    "do it again but make it good this time",
    "be a good teacher and say what she did well",
    "I'd be happy with one good sentence",
    "love the tone but it's way too long",
    "It's good but I hate the bullet points",
    "mach es bitte schön kurz",
    "I'd prefer a good clear sentence",
    "how about a nice short sentence instead",
    "could be great if it was shorter",
]
PRAISE = [
    "keep it up",
    "keep it up!",
    "great, keep it coming",
    "keep it going",
    "keep it like this",
    "keep it like that please",
    "keep doing this",
    "keep doing what you're doing",
    "keep them coming!",
    "perfect, keep it exactly like this",
    "keep it this way",
    "love it, short and sweet",
    "nice and short, thanks",
    "nice, short and clear",
    "lovely, just how I like it",
    "that's better",
    "much better, thanks",
    "good, thanks",
    "great answer!",
    "good but could be a bit shorter next time",
    "lovely! but shorter next time please",
    "more of this please",
    "I like how short it is",
    "this is great, exactly the way I'd write it",
    "wow I love it",
    "couldn't be better",
    "keep up the great work",
    "keep them like this, perfect",
    "keep it just like that",
    "great, please keep doing that",
    "this is so much better now",
    "great, but you knew that already",
    "good but also funny!",
    "exactly what I needed, thanks",
    "that's just what I wanted, brilliant",
    "we'd love to have you as our teacher, brilliant explanation",
    "short and sweet, just how I like it",
    "awesome, maybe slightly shorter next time",
    "very good. one small thing: fewer headings next time",
    "perfect! I'd use this every day",
    "great stuff, I'd buy that",
    "it reads nicely, well done",
    "I would say that's perfect",
    "I'd say great job",
    "you make great points",
    "you really make it sound easy, well done",
    "says it all, wonderful",
    "they say it's great, and it is",
    "works like a charm, makes it so easy",
    "this made it clear, great",
]
PRAISE_LEFT_OPEN = [
    "I'd love to use this",
    "would be great on a card, thank you!",
    "I love how you kept it short",
    "you kept it short, love it",
    "nice one, make it a habit!",
    "it could not be better",
    "I need to say this is brilliant",
    "could you be any more helpful? love it",
]


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
