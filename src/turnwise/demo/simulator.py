"""Plays the person: poses problems and replies to answers in the person's own, varied words.

Replies come from the persona's grammar and a seeded generator, or from any OpenAI-compatible model on request. The
simulator looks at answers with the persona's own eyes; it shares neither code nor phrases with scorer and judge.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from openai import AsyncOpenAI

from turnwise.demo.personas import Persona
from turnwise.demo.problems import Problem
from turnwise.patterns import IGNORECASE, pattern

DIRECTIVE_SHARE = 0.85
"""Share of the replies to an unsatisfying answer that say what is wanted; the others only grumble."""

_ALTERNATIVES = pattern(r"\[([^\[\]]*)\]")
_WORD = pattern(r"[A-Za-z]{5,}")
_SHORT_FORMS = {"please": "pls", "because": "cuz", "you": "u", "don't": "dont", "that's": "thats", "thanks": "thx"}
_SHORTENED = pattern(r"\b(" + "|".join(_SHORT_FORMS) + r")\b", IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the person says to an answer. ``satisfied``: it needs no second try. ``directive``: says what is wanted."""

    text: str
    satisfied: bool
    directive: bool
    aspects: tuple[str, ...]


def expand(grammar: str, rng: random.Random) -> str:
    """Choose one alternative of every ``[a|b]``, innermost first."""
    while True:
        text = _ALTERNATIVES.sub(lambda match: rng.choice(match.group(1).split("|")), grammar)
        if text == grammar:
            return text
        grammar = text


def opening(persona: Persona, problem: Problem, rng: random.Random) -> str:
    """The first message of a conversation: the person poses ``problem``."""
    return _fill(expand(rng.choice(persona.openings), rng), problem)


def reply(persona: Persona, problem: Problem, answer: str, rng: random.Random, *, last: bool = False) -> Reply:
    """The person's reaction to ``answer``; ``last``: to a second try, after which they leave it at that."""
    bothers = persona.look(answer, problem)
    if not bothers:
        text = expand(rng.choice(persona.relief if last else persona.praise), rng)
        return Reply(_typed(_fill(text, problem), persona, rng), True, False, ())
    chosen = tuple(bothers[: rng.choice((1, 2, 2))])
    grumbles = [expand(rng.choice(persona.aspects[name].grumbles), rng) for name in chosen]
    directive = rng.random() < DIRECTIVE_SHARE
    sentences: list[str] = []
    if last:
        sentences.append(expand(rng.choice(persona.resigned), rng))
    elif rng.random() < 0.4:
        start = rng.choice(persona.starts)
        grumbles[0] = f"{start}{' ' if start.endswith('but') else ', '}{_lower_first(grumbles[0])}"
    if not directive:
        sentences.extend(grumbles)
    else:
        wants = [expand(rng.choice(persona.aspects[name].wants), rng) for name in chosen]
        if not last and rng.random() < 0.7:
            sentences.append(grumbles[0])
        if len(wants) == 2 and rng.random() < 0.5:
            sentences.append(f"{wants[0]}{rng.choice((' and ', ', and '))}{_lower_first(wants[1])}")
        else:
            sentences.extend(wants)
    if not last and rng.random() < 0.25:
        sentences.append(expand(rng.choice(persona.reasons), rng))
    text = " ".join(_sentence(s) for s in sentences)
    return Reply(_typed(_fill(text, problem), persona, rng), False, directive, chosen)


async def written_reply(
    client: AsyncOpenAI, model: str, persona: Persona, problem: Problem, answer: str, plan: Reply
) -> Reply:
    """Have ``model`` put ``plan`` into its own words; what the person thinks of the answer stays the plan's.

    Errors of the client are the caller's to handle.
    """
    mood = "You are happy with it." if plan.satisfied else f"You think of it: {plan.text}"
    response = await client.chat.completions.create(
        model=model,
        messages=[
            {"role": "system", "content": persona.about},
            {
                "role": "user",
                "content": f"You asked:\n{problem.question}\n\nThe assistant answered:\n{answer}\n\n{mood}\n"
                "Write your one short reply to the assistant in your own words, and nothing else.",
            },
        ],
        temperature=0.9,
        max_tokens=80,
    )
    text = (response.choices[0].message.content or "").strip()
    return Reply(text or plan.text, plan.satisfied, plan.directive, plan.aspects)


def _fill(text: str, problem: Problem) -> str:
    text = text.replace("<question>", problem.question)
    if problem.pupil:
        text = text.replace("<pupil>", problem.pupil.name).replace("<solution>", problem.pupil.solution)
    return text


def _sentence(text: str) -> str:
    text = text.strip()
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def _lower_first(text: str) -> str:
    return text if text.startswith(("I ", "I'", "Mr ", "Ms ", "<")) else text[0].lower() + text[1:]


def _typed(text: str, persona: Persona, rng: random.Random) -> str:
    """The text as this person would type it: lower case, short forms and a typo now and then."""
    manner = persona.manner
    if rng.random() < manner.short_forms:
        text = _SHORTENED.sub(lambda match: _SHORT_FORMS[match.group(1).lower()], text)
    if rng.random() < manner.typo:
        text = _with_typo(text, rng)
    if rng.random() < manner.no_full_stop:
        text = text.removesuffix(".")
    return text.lower() if rng.random() < manner.lower_case else text


def _with_typo(text: str, rng: random.Random) -> str:
    words = list(_WORD.finditer(text))
    if not words:
        return text
    at = (word := rng.choice(words)).start() + rng.randrange(1, len(word.group()) - 2)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
