"""Restating: a wish as one plain instruction, for a base model that does not follow it as the person said it.

"I'm 52 and back at college, could you put "no silly questions here" somewhere" is followed in no answer of the 0.5B
model; told 'In every answer, include the sentence "No silly questions here."' nearly all have it. The base model itself
is shown some requests with such instructions, and writes the one of a wish. It is believed where it is about this
request: what the model writes whatever it reads is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from turnwise.errors import EngineError, ModelError
from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.lessons.candidates import sample
from turnwise.training.lessons.comparing import token_likelihoods
from turnwise.training.lessons.echoes import QUOTED
from turnwise.training.lessons.labels import Announces, still_announced
from turnwise.training.lessons.questions import OpenQuestion
from turnwise.training.lessons.quoted import quoted_words, same_words, times
from turnwise.training.lessons.wishes import Standing, Wording
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

ASKED = (
    "Rewrite what a user said about an answer as one short instruction that holds for every answer. "
    "Keep quoted words as they are."
)
SHOWN = (
    ("nah way too much text, nobody reads that", "Keep every answer short."),
    (
        "my boss reads these, so would you mind writing 'Best wishes, Tom' at the bottom each time?",
        'End every answer with "Best wishes, Tom".',
    ),
    ("I told you twice now, i need it in french!!", "Write every answer in French."),
    (
        "my therapist says it calms me down, so to speak. please have the words so to speak in there somewhere",
        'Include the words "so to speak" in every answer.',
    ),
    (
        "thanks, the dog is fed. and please, each step on a line of its own, with a number",
        "Write every answer as a numbered list.",
    ),
    ("first thing I want to see is OK boss. forgot again!", 'Begin every answer with "OK boss".'),
    ("and stop telling me you're an AI", "Never say that you are an AI."),
    ("I'm a nurse, I need the dose in milligrams, always", "Give every dose in milligrams."),
    ("you left it out again!! its 'God willing', every time please", 'Include "God willing" in every answer.'),
)
LONGEST = 40
"""Tokens of an instruction."""
ABOUT_IT = 8.0
"""Nats by which an instruction has to be likelier behind its own request than behind the requests shown, as a rule."""


@dataclass(frozen=True, slots=True)
class HintedAnswers:
    """The answers that hints were said of. ``texts``: by the place of the hint; ``follow`` says of pairs (place, wish)
    whether the answer follows the wish (None: that is not clear)."""

    texts: Mapping[int, str]
    follow: Callable[[Sequence[tuple[int, str]]], Sequence[bool | None]]


def plainly(
    policy: Policy,
    renderer: PromptRenderer,
    said: Standing,
    known: dict[str, str | None],
    hinted: HintedAnswers,
    announces: Announces,
    tick: Tick,
) -> Standing | None:
    """The wishes, each as an instruction where the model wrote one that is believed; None where there is no such wish.

    Of several wordings of a wish the instruction counts that most of them come to. One that quotes what the person did
    not counts only if they said these words in two sentences: "what could possibly go wrong" is not asked for, nor, in
    however many conversations, "All aboard has to come first". And it counts only if the wish was said of answers that
    do not follow it, nor have its words: 'drop the "Sure!"' is written as 'Start every answer with "Sure!".', and "no
    bullet points please" as "Write every answer as a bullet point.".
    One that leaves out what a label announces is not believed either, nor one without any words
    that a wording quotes, and that the answers have not which it was said of.
    ``known``: the instructions of wishes that were restated before, to which are added the new ones. ``hinted``: the
    answers that the wishes were said of.
    """
    wordings = [
        [Wording(wish, places), *before]
        for wish, places, before in zip(said.wishes, said.said, said.before, strict=True)
    ]
    every = [one for some in wordings for one in some]
    texts = [_plain(one.text) for one in every]
    new = [text for text in dict.fromkeys(one.text for one in every) if text not in known]
    try:
        known |= dict(zip(new, restated(policy, renderer, new, tick), strict=True))
    except (ModelError, EngineError):  # it is no chat model, or one without a system's message
        return None

    def asked_for(wish: str, instruction: str) -> bool:
        return all(words in _quoted(wish) or _sentences_with(words, texts) > 1 for words in _quoted(instruction))

    def were_missing(words: Iterable[str], wish: Wording) -> bool:
        answers = [_plain(hinted.texts[place]) for place in wish.places if place in hinted.texts]
        return bool(answers) and not any(times(one, answer) for one in words for answer in answers)

    def was_missing(wish: Wording, instruction: str) -> bool:
        if words := _quoted(instruction):
            return were_missing(words, wish)
        return not any(hinted.follow([(place, instruction) for place in wish.places]))

    believed = {
        one.text: x for one in every if (x := known[one.text]) and asked_for(one.text, x) and was_missing(one, x)
    }
    believed = {text: x for text, x in believed.items() if still_announced(x, said.announced, announces)}

    def of(some: Sequence[Wording]) -> str | None:
        quoted = [words for one in some for words in quoted_words([one.text]) if were_missing([words], one)]
        found = [believed[one.text] for one in some if one.text in believed]
        return _most_said([x for x in found if not quoted or any(times(words, _plain(x)) for words in quoted)])

    found = [of(some) for some in wordings]
    return said.in_words(found) if any(found) else None


def _quoted(text: str) -> frozenset[str]:
    """What a text quotes, of whatever length."""
    found = (" ".join(one[1:-1].split()) for one in QUOTED.findall(_plain(text)))
    return frozenset(same_words(words) for words in found if words)


def _plain(text: str) -> str:
    """With one kind of apostrophe."""
    return text.replace("’", "'")


def _sentences_with(words: str, texts: Sequence[str]) -> int:
    """In how many texts words stand; one that is part of another, as a hint may be cut, is the same."""
    found = {same_words(text) for text in texts if times(words, text)}
    return sum(not any(one != other and one in other for other in found) for one in found)


def _most_said(instructions: Sequence[str]) -> str | None:
    """Of instructions, the last said one first, one that says what most of them say."""
    what = [_quoted(text) or text for text in instructions]
    often = Counter(what)
    return max(zip(instructions, what, strict=True), key=lambda one: often[one[1]])[0] if what else None


def restated(policy: Policy, renderer: PromptRenderer, wishes: Sequence[str], tick: Tick) -> list[str | None]:
    """Each wish as an instruction of the base model's; None where what it writes is about something else, or cut.

    Raises ModelError and EngineError where it is no chat model.
    """
    if not wishes:
        return []
    with policy.reference():
        written = sample(policy, [_prompt(renderer, wish) for wish in wishes], LONGEST, "restating", tick)
        able = [i for i, answer in enumerate(written) if answer.ended and len(answer.ids) > 1]
        texts = {i: " ".join(renderer.decode(policy.without_end(written[i].ids)).split()) for i in able}
        able = [i for i in able if texts[i] not in ("", wishes[i]) and keeps_quotations(texts[i], wishes[i])]
        own = about(policy, renderer, [wishes[i] for i in able], [written[i].ids for i in able], tick)
    believed = {i for i, nats in zip(able, own, strict=True) if nats >= ABOUT_IT}
    return [texts[i] if i in believed else None for i in range(len(wishes))]


def keeps_quotations(instruction: str, wish: str) -> bool:
    """Whether an instruction quotes what the wish quotes, and nothing that the wish does not say."""
    ours, theirs = _plain(instruction), _plain(wish)
    kept = all(times(words, theirs) for words in _quoted(instruction))
    return kept and all(times(words, ours) for words in _quoted(wish))


def about(
    policy: Policy, renderer: PromptRenderer, wishes: Sequence[str], answers: Sequence[list[int]], tick: Tick
) -> list[float]:
    """By how many nats each answer is likelier behind its own wish than behind the requests shown, by their median."""
    if not wishes:
        return []
    contexts = [OpenQuestion(_prompt(renderer, text), "", 0) for text in (*wishes, *(said for said, _ in SHOWN))]
    own, others = contexts[: len(wishes)], contexts[len(wishes) :]
    asked = [(context, answer) for mine, answer in zip(own, answers, strict=True) for context in (mine, *others)]
    found = token_likelihoods(policy, [context for context, _ in asked], [answer for _, answer in asked], tick)
    sums = torch.stack([one.sum() for one in found]).view(len(wishes), 1 + len(others))
    return (sums[:, 0] - sums[:, 1:].median(-1).values).tolist()


def _prompt(renderer: PromptRenderer, wish: str) -> list[int]:
    shown = [saying(role, text) for pair in SHOWN for role, text in zip(("user", "assistant"), pair, strict=True)]
    return renderer.render([saying("system", ASKED), *shown, saying("user", wish)], None, thinking=False).ids
