# ruff: noqa: E501 (a line of the grammar is one sentence)
"""A teacher who has an agent write grading comments on pupils' homework.

They want comments that are friendly and specific: what went well, which calculation, said to the pupil in person.
"""

from __future__ import annotations

from turnwise.demo.personas.base import Aspect, Manner, Persona
from turnwise.demo.problems import Problem
from turnwise.patterns import pattern

CURT_WORDS = 14

_KIND_TEXT = (
    "great good nice well lovely wonderful excellent fantastic super proud bravo impressive careful clever brilliant "
    "amazing awesome perfect thanks thank keep happy glad beautifully nicely thoughtful"
)
_KIND = frozenset(_KIND_TEXT.split())
_UNKIND = frozenset("bad poor wrong terrible careless lazy stupid useless fail failed incorrect sloppy".split())  # noqa: SIM905
_TOKEN = pattern(r"[a-z']+|\d+")
_NUMBER = pattern(r"\d+")
_PRAISE = pattern(r"(?:well|good|great|nice|excellent|correct|right|clever)\w*")


def look(answer: str, problem: Problem) -> list[str]:
    """What bothers the teacher in ``answer``, a comment on the pupil's solution; worst first."""
    words = _TOKEN.findall(answer.lower())
    pupil = problem.pupil
    shown = set(_NUMBER.findall(f"{problem.question} {pupil.solution if pupil else ''}"))
    named = shown & set(words)
    spoken_to = bool({"you", "your", "you've", "you're"} & set(words)) or (
        pupil is not None and pupil.name.lower() in words
    )
    kind = bool(_KIND & set(words))
    if len(words) < CURT_WORDS:
        return ["curt"] + ([] if kind else ["cold"]) + ([] if named else ["vague"])
    found = {
        "vague": not named,
        "harsh": bool(_UNKIND & set(words)) and not kind,
        "cold": not kind,
        "lecture": not spoken_to,
        "no_praise": kind and not _PRAISE.search(answer.lower()),
    }
    return [name for name, there in found.items() if there]


TEACHER = Persona(
    name="teacher",
    about=(
        "You are a teacher who lets an assistant write comments on pupils' maths homework. You want comments that are "
        "friendly and specific: they speak to the pupil, say first what was done well, name the numbers or the "
        "calculation they talk about, and if something is off they say so kindly. You write politely but briefly."
    ),
    wish=(
        "Speak kindly to the pupil: begin with praise such as 'Well done' or 'Great work', and name the numbers "
        "that you calculated correctly. Two or three friendly sentences."
    ),
    held_out=24,
    interactions=24,
    openings=(
        "[Homework to grade.|Please grade this.|Next one.|One more to grade.]\nProblem: <question>\n<pupil>'s solution: <solution>\n"
        "[Write the comment for <pupil>.|What comment shall I write?|Your comment, please.]",
        "<pupil> handed this in. Problem: <question>\n<pupil> wrote: <solution>\n[Please write a comment.|Comment on it, please.]",
    ),
    aspects={
        "curt": Aspect(
            grumbles=(
                "That is [too|rather|much too] [curt|short|brief]",
                "[One line|That little] is not [a comment|much of a comment]",
                "[<pupil>|A child] [worked on this for an hour|deserves more than that]",
            ),
            wants=(
                "[Write|Please write] [two or three|a few|at least two] [warm|friendly|full] sentences [to|for] <pupil>",
                "Tell <pupil> [a bit more|more], [two or three sentences|a few sentences], and [be friendly|keep it warm]",
                "[Make it|It should be] a little longer and [friendlier|warmer], [with something that was done well|with some praise]",
            ),
        ),
        "vague": Aspect(
            grumbles=(
                "That [could be about|would fit] any [homework|solution|pupil]",
                "[It says|You say] nothing about what <pupil> [wrote|calculated]",
                "[Too general|Much too general|That's very vague]",
            ),
            wants=(
                "[Be specific|Please be specific|Be more specific]: [name|mention] the [numbers|calculation] [<pupil> got right|in the solution]",
                "[Mention|Name|Point to] [the numbers|the calculation|at least one calculation] from <pupil>'s solution",
                "[Say|Tell <pupil>] exactly which [calculation|number|part] [was right|went well]",
            ),
        ),
        "cold": Aspect(
            grumbles=(
                "That sounds [cold|unfriendly|rather cold|like a machine marking it]",
                "[No kind word|Not one kind word] in it",
                "[<pupil>|A child] would be [sad|discouraged] to read that",
            ),
            wants=(
                "[Be friendly|Please be friendly|Be warmer], [start with praise|begin with 'well done'|say something kind first]",
                "[Start with|Begin with|First give] [a kind word|some praise|what went well], [like 'great work'|like 'nice job'|for example 'well done']",
                "[Use|Write in] a [warm|friendly|kind] tone and [praise|encourage] <pupil>",
            ),
        ),
        "harsh": Aspect(
            grumbles=(
                "That's [too harsh|harsh|not a nice way to say it]",
                "[I don't talk to my pupils like that|You would not say that to a child]",
            ),
            wants=(
                "[Say it kindly|Put it kindly|Be gentle]: [first what was good|praise first], then the mistake",
                "[Don't|Please don't] [just call it wrong|be so harsh], [encourage|praise] <pupil> first",
            ),
        ),
        "lecture": Aspect(
            grumbles=(
                "I didn't ask [for the solution|you to solve it]",
                "[You're|It is] explaining the problem, [not commenting on the work|that is no comment]",
                "This isn't [written|addressed] to <pupil> at all",
            ),
            wants=(
                "[Talk|Speak|Write] [to <pupil>|directly to <pupil>][, with 'you',|] about [what was done well|the work]",
                "[Don't solve it again|Don't explain the problem], [tell|just tell] <pupil> what [you|they] did well",
                "Address <pupil> [directly|by name] and [praise|comment on] the [work|calculation]",
            ),
        ),
        "no_praise": Aspect(
            grumbles=(
                "[No word|Nothing] about what [went well|was done well|<pupil> did well]",
                "[Where is the praise?|What about the good part?]",
            ),
            wants=(
                "[Say|Tell <pupil>] [first |]what was done well[, with the numbers|]",
                "[Mention|Start with] [one thing|something] <pupil> [did well|got right]",
            ),
        ),
    },
    look=look,
    starts=("Hm", "Sorry", "Well", "Hmm", "Not quite", "I see, but", "Sorry, but", "Thank you, but"),
    reasons=(
        "[they are ten years old|they are only in year 5]",
        "[it should encourage them|I want them to enjoy maths]",
        "[the parents read it too|it goes home with the homework]",
    ),
    praise=(
        "[Lovely|Wonderful|Perfect|Great], [that's|this is] [just|exactly] [the tone I want|what I hoped for|how I would say it]",
        "[Yes|Very good], [<pupil> will like that|I'll use that|that's a nice comment]",
        "[Thank you|Thanks], [that's perfect|this is great|that is very kind and clear]",
    ),
    relief=(
        "[Much better|Better|That's better], [thank you|thanks]",
        "[Yes|Good], [like that|that's the tone|now it's right], [thank you|thanks]",
        "[Now|There,] that is [a nice comment|friendly|how I want it]. Thanks",
    ),
    resigned=(
        "[Still not|That's still not|No, still not] [what I asked for|right|it]",
        "[No better|That's no better|The same again]",
        "[Never mind|Leave it], I'll write it myself",
    ),
    manner=Manner(lower_case=0.2, no_full_stop=0.3, short_forms=0.05, typo=0.08),
)
