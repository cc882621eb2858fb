# ruff: noqa: E501 (a line of the grammar is one sentence)
"""Somebody who reads answers on the way, and wants to see at once where the upshot is: behind "In short:"."""

from __future__ import annotations

from turnwise.demo.personas.base import Aspect, Manner, Persona
from turnwise.demo.problems import Problem

LONG_WORDS = 40
_MARKS = " *_#>\"'`"


def look(answer: str, problem: Problem) -> list[str]:
    """What bothers the reader in ``answer``, worst first."""
    found = {
        "start": not answer.lower().lstrip(_MARKS).startswith(("in short:", "in short,")),
        "long": len(answer.split()) > LONG_WORDS,
    }
    return [name for name, there in found.items() if there]


READER = Persona(
    name="reader",
    about=(
        "You ask an assistant everyday questions while you are on the way somewhere, and read the answers on your phone. "
        'You want every answer to begin with the words "In short:", so that you see the upshot at once. You are friendly.'
    ),
    wish='Begin every answer with "In short:".',
    held_out=24,
    interactions=16,
    openings=("<question>",),
    look=look,
    aspects={
        "start": Aspect(
            grumbles=(
                "[hm|well], that's not how I [like|want] my answers",
                "I [have to search for|can't find] the [upshot|point] [on my phone|while walking|]",
                "no, not like that",
            ),
            wants=(
                '[please|pls] [begin|start] [your answers|every answer|each answer] with "In short:"',
                '[begin|start] with "In short:"[ please|, please|], [always|every time|each time]',
                'I [want|\'d like] [every|each] answer to [begin|start] with "In short:"',
                '[always|please always] [put|write] "In short:" [first|at the beginning|at the start]',
                'say "In short:" first[, then the answer| and then answer|]',
            ),
        ),
        "long": Aspect(
            grumbles=("[that's|it's] [a lot of|quite some] text for a phone", "[too|a bit too] long for me"),
            wants=(
                '"In short:" and then [a sentence or two|two sentences at most]',
                '[after|behind] the "In short:" [one or two sentences are|a sentence or two is] enough',
            ),
        ),
    },
    starts=("hm", "ok, but", "thanks, but"),
    reasons=("I read this on the [bus|train|way]", "[then|that way] I see it at once"),
    praise=(
        "[great|perfect|lovely|super], [thank you|thanks]",
        "[that's|this is] [exactly|just] how I [like|want] it",
        "[yes, |]just right, [thanks|thank you]",
    ),
    relief=("[yes|great|perfect], [like that|that's it|exactly like that]", "[now|there] it's right, thank you"),
    resigned=("[still|again] not [how I want it|it]", "[no|well], that's not it yet"),
    manner=Manner(lower_case=0.4, no_full_stop=0.5, short_forms=0.1, typo=0.1),
    everyday=True,
    wave=8,
    max_tokens=64,
)
