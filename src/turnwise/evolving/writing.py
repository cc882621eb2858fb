"""Skills without a model: the person's own words, or a sentence of ours about a tool, in a fixed form.

They are marked `made_by: extractive`. Nothing that a tool, a page or a file said is in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from turnwise.errors import SkillError
from turnwise.patterns import IGNORECASE, pattern
from turnwise.skills.placing import EXTRACTIVE, SAID
from turnwise.skills.retrieval import ALWAYS, stems
from turnwise.skills.skill_file import check_name, write
from turnwise.skills.wishes import PersonsWish
from turnwise.types import Skill

MADE_BY = EXTRACTIVE
WISH, TOOL = "wish", "tool"
"""What the names of such skills begin with."""
MOST_OF_TOPIC = 160
_SECRET = pattern(
    r"\b(?:pass(?:word|phrase|code)s?|api[ _-]?keys?|secret|private key|access token|credentials?|pin (?:is|code))\b",
    IGNORECASE,
)
_WORDS = pattern(r"[a-z0-9]+")
WORDS_OF_NAME, CHARS_OF_NAME = 5, 40


def skill_of_wish(wish: PersonsWish, question: str, taken: Collection[str]) -> Skill:
    """A wish as a skill. `question`: what was asked when it was said; `taken`: names of other skills. Raises SkillError
    for words that no skill may have."""
    if _SECRET.search(wish.words):
        raise SkillError("it speaks of a password or a key, which belongs into no prompt")
    topic = " ".join(question.split())[:MOST_OF_TOPIC].strip()
    if wish.general or not topic:
        about, where = wish.words, "In every answer, without being asked again."
        category = ALWAYS
    else:
        about = f"{wish.words} Said when asked: {topic}"
        where, category = f"Where what is asked is like this: {topic}", None
    body = f"""# As the person asked

1. {wish.words}
2. {where}
3. Answer what is asked as well.

Example: whatever the answer says, it keeps to this.
Not: leaving it out, or speaking of this instruction.
{SAID}"{wish.words}\""""
    return write(_free(_name(WISH, wish.words), taken), about, body, category)


_OF_TOOLS = {
    "tool.bad_call": (
        "Arguments of {tool}",
        "Read the definition of {tool} before calling it.",
        "Give every argument that it requires, by its exact name, and none that it does not have.",
        "Write the arguments as one complete JSON object.",
        "a call with all required arguments, once.",
        "leaving out a required argument, inventing one, or repeating a refused call unchanged.",
    ),
    "tool.command_not_found": (
        "Programs that are there ({tool})",
        "Before a program is used for the first time, look whether it is installed (`command -v`).",
        "Where it is missing, take one that is there, or say so.",
        "Never repeat a command that was not found.",
        "`command -v rg`, and `grep -r` where there is none.",
        "running a program on the guess that it is there.",
    ),
    "tool.check_failed": (
        "Code that the checker accepts ({tool})",
        "Before code is handed over, run the compiler or checker on it.",
        "Mend the first error first, and run it again.",
        "Go on only when it finds nothing.",
        "write, check, mend, check again, then answer.",
        "handing over code that was not checked, or ignoring what the checker said.",
    ),
    "tool.tests_failed": (
        "Tests that pass ({tool})",
        "After a change run the tests that concern it.",
        "Read the first failure, and mend its cause.",
        "Say that it works only after the tests passed.",
        "change, test, mend, test again, then answer.",
        "saying that it is done while a test fails, or changing a test so that it passes.",
    ),
}
"""By the kind of evidence: heading, three steps, example, what not to do."""


def skill_of_tool(evidence: str, tool: str, taken: Collection[str]) -> Skill | None:
    """What to do about one kind of failure of a tool; None where nothing is known to help."""
    known = _OF_TOOLS.get(evidence)
    if known is None:
        return None
    shown = "_".join(_WORDS.findall(tool.lower()))[:CHARS_OF_NAME] or "tools"
    heading, *steps, example, wrong = (line.format(tool=shown) for line in known)
    numbered = "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))
    body = f"# {heading}\n\n{numbered}\n\nExample: {example}\nNot: {wrong}"
    return write(
        _free(_name(TOOL, f"{evidence.partition('.')[2]} {shown}"), taken), f"{heading}: {steps[0]} {steps[1]}", body
    )


def _name(kind: str, words: str) -> str:
    telling = [word for word in _WORDS.findall(words.lower()) if stems(word)][:WORDS_OF_NAME]
    name = "-".join([kind, *telling])[:CHARS_OF_NAME].rstrip("-")
    return name if telling else f"{kind}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"


def _free(name: str, taken: Collection[str]) -> str:
    """The name, or the first of its numbers that no skill has."""
    number = 1
    while (tried := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return check_name(tried)
