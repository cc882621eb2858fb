# ruff: noqa: E501 (a line of the grammar is one sentence)
"""A student who has an agent help with homework and hands the answers in as their own.

They want them plain and short, as a classmate would write: no lists, no bold, no headings, no steps, no formulas.
"""

from __future__ import annotations

from turnwise.demo.personas.base import Aspect, Manner, Persona
from turnwise.demo.problems import Problem
from turnwise.patterns import IGNORECASE, MULTILINE, pattern

LONG_WORDS = 50
CURT_WORDS = 6
ECHO_WORDS = 6

_BULLET = pattern(r"^\s*(?:[-*•]|\d+[.)])\s+\S", MULTILINE)
_HEADING = pattern(r"^\s*#{1,6}\s|^[A-Z][\w ]{2,30}:\s*$", MULTILINE)
_STEPS = pattern(r"\bsteps?\b|^\s*(?:first|second|third|next|finally)\b,?", IGNORECASE | MULTILINE)
_FORMULA = pattern(r"\\\w+|\$\$|\\[\[(]|^[^a-zA-Z\n]*=[^a-zA-Z\n]*$", MULTILINE)
_TELLING = pattern(r"\d+|[a-z]{5,}")
_ROBOT = pattern(
    r"^(?:sure|certainly|of course|to (?:solve|find|calculate|determine|figure)|let'?s |here'?s|here is|the problem)"
    r"|\bwe (?:need|can|have|know|must|should|first)\b|\b(?:in conclusion|thus|hence|therefore)\b"
    r"|\b(?:i'm sorry|as an ai|language model|assist you)\b",
    IGNORECASE,
)


def look(answer: str, problem: Problem) -> list[str]:
    """What bothers the student in ``answer``, worst first."""
    words = answer.split()
    if _misses(answer, problem):
        return ["off_topic"]
    if len(words) < CURT_WORDS:
        return ["curt"]
    found = {
        "repeats": _says_twice(words),
        "list": len(_BULLET.findall(answer)) >= 2,
        "bold": "**" in answer or "__" in answer,
        "heading": bool(_HEADING.search(answer)),
        "long": len(words) > LONG_WORDS,
        "steps": bool(_STEPS.search(answer)),
        "formula": bool(_FORMULA.search(answer)),
        "blocks": answer.strip().count("\n\n") >= 2,
        "robotic": bool(_ROBOT.search(answer.strip())),
    }
    return [name for name, there in found.items() if there]


def _says_twice(words: list[str]) -> bool:
    """Some `ECHO_WORDS` words in a row come a second time."""
    runs = [" ".join(words[at : at + ECHO_WORDS]).lower() for at in range(len(words) - ECHO_WORDS + 1)]
    return len(set(runs)) < len(runs)


def _misses(answer: str, problem: Problem) -> bool:
    """Nothing of the question comes back in the answer: no number of it, and not two of its longer words."""
    said = set(_TELLING.findall(answer.lower()))
    asked = set(_TELLING.findall(problem.question.lower())) | {problem.answer}
    common = said & asked
    return not any(token.isdigit() for token in common) and len(common) < 2


STUDENT = Persona(
    name="student",
    about=(
        "You are a student who lets an assistant do maths homework and hands the answers in as your own. You want "
        "short, plain answers that sound like a classmate wrote them: one small paragraph, no lists, no bold, no "
        "headings, no numbered steps, no formulas, but still the reason for the result. You type casually."
    ),
    wish="Answer briefly in plain words, in one or two short sentences like a classmate would. No lists, no steps.",
    held_out=36,
    interactions=36,
    openings=(
        "<question>",
        "<question> How do you get [the answer|that]?",
        "[Homework|Homework question|Next one|Next problem|Math homework]: <question>",
        "<question> [What's the answer and why?|What do I write down?|What's the solution?]",
        "[Can you solve this for me?|Help me with this one.|This is due tomorrow.|I'm stuck on this one.] <question>",
    ),
    aspects={
        "off_topic": Aspect(
            grumbles=(
                "[what|huh|wait what], that's [not even|not] about my [question|homework|problem]",
                "that [makes no sense|has nothing to do with my question]",
                "[did you even read it|you didn't read the question]",
                "no idea what you're on about",
            ),
            wants=(
                "[just answer|please answer|answer] the [question|problem] I [asked|gave you], in [plain words|a sentence or two]",
                "[stick to|stay with|use] the numbers in [my question|the problem] and [keep it short|be brief]",
                "solve [my|the] problem with its own numbers, in a short plain answer",
            ),
        ),
        "curt": Aspect(
            grumbles=(
                "that's [a bit|way|kinda] too short",
                "[just a number doesn't help|I can't hand in just that]",
                "[and where does that come from|but why]",
            ),
            wants=(
                "[say|write] [one sentence on|in a sentence] how you got [it|there]",
                "[add|give me] [a short reason|one plain sentence with the reason] too",
                "I need [a sentence or two|one or two sentences] that say where the [number|result] comes from",
            ),
        ),
        "repeats": Aspect(
            grumbles=(
                "[you keep saying|you're saying] the same [thing|stuff] [twice|over and over|again and again]",
                "[half of it|most of that] is [in there twice|the same line again]",
                "it [goes round in circles|says everything twice]",
            ),
            wants=(
                "[say|write] [everything|each thing|it] [once|only once], [in a sentence or two|short and plain]",
                "[don't|please don't] [say the same thing twice|repeat yourself], [a sentence or two is enough|just the result and a short reason]",
                "[leave out|drop] what you [said already|already said] and [keep it short|be brief]",
            ),
        ),
        "long": Aspect(
            grumbles=(
                "[way|much|far] too long",
                "that's [so much|too much|a whole wall of] text",
                "[I'm not copying all that|who is going to read all that|nobody writes that much]",
                "[lost me halfway|stopped reading halfway]",
                "this is [an essay|a novel], not [an answer|homework]",
            ),
            wants=(
                "[keep it|make it] [short|shorter|brief], [two sentences|one or two sentences|a couple of sentences] [max|at most|is enough]",
                "[just|only] give me [one or two|two or three|a couple of] [short|plain] sentences",
                "[say it|answer|write it] in [two|one or two|a couple of] [short |plain |]sentences",
                "[cut it down to|shorten it to] [two sentences|a sentence or two|a couple of lines]",
                "be [brief|much shorter], I only need the [result|answer] and a short reason",
            ),
        ),
        "list": Aspect(
            grumbles=(
                "[why is this a list|a list again|not a list again]",
                "[nobody|no one] [in my class |]writes homework as a [list|numbered list]",
                "all those [numbered points|bullet points|bullets] [look weird|give it away|scream chatbot]",
            ),
            wants=(
                "[no|don't use|please don't use] [lists|bullet points|numbered points|bullets]",
                "write it as [normal|plain|ordinary] sentences[, not a list| instead of a list|]",
                "put it in one [small|short|plain] paragraph [without|with no] [bullets|a list|numbers in front]",
                "[leave out|skip|drop] the [bullet points|numbering|list], just [write|say] it [normally|in a sentence]",
            ),
        ),
        "steps": Aspect(
            grumbles=(
                "[I don't need|nobody asked for] [every step|all the steps|a tutorial]",
                "all this step [stuff|by step stuff] [is so obvious|isn't how I write|looks copied]",
                "[my teacher|Mr Novak|everyone] will [see|notice] that with all those steps",
            ),
            wants=(
                "[no|don't do the|leave out the] step by step[ thing| stuff|]",
                "don't [break it down|go through it] step by step, just [say|tell me] how it comes out",
                "just [say|write] it in [a sentence|plain words|one go] [without|instead of] the steps",
            ),
        ),
        "bold": Aspect(
            grumbles=(
                "why is [half of it|stuff|everything] bold",
                "[bold text in homework|the bold words], really?",
                "those ** [things|stars] [are weird|look fake|give it away]",
            ),
            wants=(
                "[no|don't use|without any] bold[, please| text|]",
                "[please write|just write|write] [normal|plain] text, nothing in bold",
                "[leave out|drop|take out] the bold [words|stuff|formatting]",
            ),
        ),
        "heading": Aspect(
            grumbles=(
                "[headings|titles] in [a homework answer|a two-line answer], seriously?",
                "it looks like [a report|a textbook|a web page] with those headings",
            ),
            wants=(
                "[no|don't use|without] [headings|titles]",
                "[skip|drop|leave out] the headings[ and just answer|, just plain text|]",
            ),
        ),
        "formula": Aspect(
            grumbles=(
                "[I can't read|what is] [that|this] formula [stuff|code]",
                "[looks like code|this reads like a calculator]",
                "so many equations on their own lines",
            ),
            wants=(
                "[no|don't use|don't write] [formulas|equations], [use|just] [plain|normal] words",
                "say it in words [instead of|not with] [equations|formulas]",
                "[leave out|skip] the [equations|formula stuff] and [say|tell me] it in a sentence",
            ),
        ),
        "blocks": Aspect(
            grumbles=(
                "why so many paragraphs",
                "it's all [chopped up|in pieces|spread out]",
            ),
            wants=(
                "[one|just one|put it in one] [short|small] paragraph[ please|, that's all|]",
                "[write|put] it all in one [go|paragraph], [short|brief]",
            ),
        ),
        "robotic": Aspect(
            grumbles=(
                "[sounds|that sounds|you sound] like [a robot|a chatbot|a machine|a textbook|an AI]",
                "[my teacher|anyone] will [know|see] I [didn't write that|used an AI]",
                "[nobody|no one] [my age|in 7th grade|at school] talks like that",
                "so [stiff|formal|robotic]",
            ),
            wants=(
                "[write|say] it like [a kid|a classmate|a normal person|I] would, [short and casual|in plain words|nice and short]",
                "[use|in] [plain|simple|normal] words [please|like I'd say it|and keep it short]",
                "[make it|it should] sound [human|natural|casual][, just a sentence or two| and short|]",
                '[skip|drop] the ["let\'s" and "we need to"|introduction|intro] and just [say|give me] the answer in [plain words|a sentence]',
            ),
        ),
    },
    look=look,
    starts=("hmm", "ugh", "no", "nah", "sorry but", "come on", "eh", "well", "ok but", "no offence but", "meh", "look"),
    reasons=(
        "[my teacher|Mr Novak|Ms Ortiz] [will notice|checks for that|would know]",
        "I have to [hand it in|copy it by hand]",
        "[otherwise everyone knows it's not me|it has to look like mine]",
        "I've [got 5 more to do|no time]",
    ),
    praise=(
        "[perfect|nice|great|awesome|cool], [that's|this is] [exactly|just] [what I needed|how I'd write it|what I wanted|right]",
        "[yes|yep|yeah], [that's it|exactly like that|that's the way|love it][, thanks| thank you|]",
        "[thanks|thank you|thx], [that's perfect|that's great|works for me|that helps a lot|sounds like me]",
        "[great|good|nice] answer, [short and clear|I can use that|I'll hand that in|just how I like it]",
        "[oh nice|sweet|brilliant], [got it now|that makes sense|copying that down]",
    ),
    relief=(
        "[better|much better|way better|that's better], [thanks|thank you|thx]",
        "[yes|yep|yeah] [that works|now that's good|like that], [thanks|great|perfect]",
        "[there we go|finally|now we're talking], [that's good|thanks|exactly what I wanted]",
        "[thanks|thank you], [this one is great|that's how I want it|I can hand that in]",
    ),
    resigned=(
        "[still not it|still not what I wanted|nope, still no good]",
        "[that's not better|no better|same thing again]",
        "[forget it|never mind], [still|it's still] [wrong|not what I asked for|no use]",
        "[you did it again|again?|not again]",
    ),
    manner=Manner(lower_case=0.7, no_full_stop=0.6, short_forms=0.3, typo=0.15),
)
