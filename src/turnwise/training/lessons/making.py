"""Making lessons: answers as the person wished for, to questions that are asked without the wish.

The policy's own answers reach only what it sometimes says already. A phrase or a form that it never uses has to be
shown (hindsight; docs/lessons.md). The base model answers a question and is told the standing wishes. Then it puts its
answer into that form, and it goes on with its answer as it stands, from the word that the wish makes likeliest. Of what
follows the wish, the likelier one becomes the target of the bare question, or one that has the model's own answer whole
where words are all that is wished for. That answer stands in its context both times, so that the content stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.asking import GivenAnswer
from turnwise.training.lessons import candidates as ways
from turnwise.training.lessons.candidates import Answered
from turnwise.training.lessons.comparing import follows, gains, loops, lost, token_likelihoods
from turnwise.training.lessons.echoes import echoing, says_something
from turnwise.training.lessons.labels import (
    announced_labels,
    beside,
    first_labels,
    in_place,
    labelled_answers,
    says_more,
)
from turnwise.training.lessons.opening import opening_words, with_opening
from turnwise.training.lessons.questions import OpenQuestion, told
from turnwise.training.lessons.quoted import quoted_words, rank, said_by_wish, same_words
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

ON_TOPIC = 8.0
"""Nats by which an answer has to be likelier under its own question than under another one: else it has lost it."""
WISHED = 1.0
"""Nats that a token has to gain by the wish to be one that the person wished for; the others are content."""
FEWEST = 4
"""Fewer lessons than this say too little: the wish is one that the model does not follow, or no wish about answers."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """``answer`` is what the student shall say in ``asked``, both token ids.

    ``wished`` has for each token of the answer whether it is there because of the wish, or ends the answer. Where the
    answer is the base model's own one behind words of the wish, ``plain`` is that one alone, and ``kept`` how many of
    its last tokens are those of the answer: its first word may be other tokens behind other words. ``back``: it is an
    answer of the base model that a wish had displaced which was taken back.
    """

    asked: list[int]
    answer: list[int]
    wished: list[bool]
    plain: list[int] = field(default_factory=list)
    kept: int = 0
    back: bool = False


def make_lessons(
    policy: Policy,
    renderer: PromptRenderer,
    questions: Sequence[OpenQuestion],
    wanted: int,
    standing: Standing,
    longest: int,
    tick: Tick,
    known: dict[int, GivenAnswer] | None = None,
) -> list[Lesson]:
    """At most one lesson a question in the standing wishes, of the first ``wanted`` questions.

    Answers that were cut at ``longest`` tokens teach no end. Where so few are left that there are lessons of less than
    half of them, lessons of the other questions are made, and then cut answers are taken, too. Where a wish was taken
    back, the base model's own answers that the policy would not give any more are lessons as well. ``known``: what it
    answers to these questions, by their places, where they were asked before; what is new is added. The base model
    plays all parts; weights and random state stay as they are.
    """
    known = {} if known is None else known
    asked: list[Answered] = []
    lessons: list[Lesson] = []
    if standing.wishes:  # where few are asked, a token of all takes little longer than one of some
        _ask(policy, questions, range(len(questions)), longest, tick, known)
    for some in (range(len(questions))[:wanted], range(len(questions))[wanted:]):
        new = _answered(policy, questions, some, " ".join(standing.wishes), longest, tick, known)
        asked += new
        if standing.wishes:
            lessons += _in_the_wishes(policy, renderer, [a for a in new if a.ended], standing, longest, tick)
        hopeless = not lessons and sum(a.ended for a in asked) >= FEWEST
        if hopeless or not standing.wishes or len(lessons) >= wanted // 2:
            break
    else:
        lessons += _in_the_wishes(policy, renderer, [a for a in asked if not a.ended], standing, longest, tick)
    return lessons + (_plain(policy, asked, lessons, tick) if standing.taken_back else [])


def in_line_with(
    policy: Policy,
    questions: Sequence[OpenQuestion],
    lessons: Sequence[Lesson],
    wishes: Sequence[str],
    others: Sequence[str],
    tick: Tick,
) -> list[Lesson]:
    """The lessons that these wishes make no less likely to the base model than the ``others`` among them alone.

    Where the person says "longer, please" in the end, an answer that is brief is not in line with it.
    """
    of = {tuple(question.ids): question for question in questions}
    bare = [of[tuple(lesson.asked)] for lesson in lessons]
    knowing = [told(question, " ".join(wishes), policy.tokenizer) for question in bare]
    without = [told(question, " ".join(others), policy.tokenizer) if others else question for question in bare]
    with policy.reference():
        gained = gains(policy, without, knowing, [lesson.answer for lesson in lessons], tick)
    return [lesson for lesson, gain in zip(lessons, gained, strict=True) if float(gain.sum()) >= 0]


def _answered(
    policy: Policy,
    questions: Sequence[OpenQuestion],
    some: Sequence[int],
    wish: str,
    longest: int,
    tick: Tick,
    known: dict[int, GivenAnswer],
) -> list[Answered]:
    """What the base model answers to some of the bare questions, by their places."""
    _ask(policy, questions, some, longest, tick, known)
    knowing = [told(question, wish, policy.tokenizer) for question in questions]
    return [
        Answered(questions[i], knowing[i], knowing[(i + 1) % len(knowing)], known[i].ids, known[i].ended) for i in some
    ]


def _ask(
    policy: Policy,
    questions: Sequence[OpenQuestion],
    some: Sequence[int],
    longest: int,
    tick: Tick,
    known: dict[int, GivenAnswer],
) -> None:
    """Add to what is ``known`` what the base model answers to some of the questions, by their places."""
    new = [i for i in some if i not in known]
    if not new:
        return
    with policy.reference():
        given = ways.sample(policy, [questions[i].ids for i in new], longest, "answering", tick)
    known |= dict(zip(new, given, strict=True))


def _in_the_wishes(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    standing: Standing,
    longest: int,
    tick: Tick,
) -> list[Lesson]:
    """Of each question's candidates that are fit for a lesson, the likeliest whole one to who knows the wishes.

    Where the wishes are for words alone, it is one that keeps the plain answer, if there is such a one.
    """
    if not asked:
        return []
    with policy.reference():
        candidates, as_told = ways.tried(policy, renderer, asked, " ".join(standing.wishes), longest, tick)
        quoted = quoted_words(standing.wishes)
        told_so: list[int] = []
        if len(_wanted_words(renderer, asked, candidates, standing)) < len(quoted):  # told answers may say the others
            told_so = ways.without(quoted, renderer, len(asked), candidates)
            candidates += [(i, answer) for i, answer in as_told if i in told_so]
        labels = announced_labels(_wanted_words(renderer, asked, candidates, standing), standing)
        candidates += labelled_answers(policy, renderer, asked, labels, first_labels(labels, standing), tick)
        best, whole = _best(policy, renderer, asked, standing, candidates, tick)
        others = [i for i in range(len(asked)) if i not in {*whole, *told_so}]
        if others and 2 * len(whole) < len(asked):
            candidates += [(i, answer) for i, answer in as_told if i in others]
            best, _ = _best(policy, renderer, asked, standing, candidates, tick)
    return [best[i] for i in sorted(best)]


def _best(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    standing: Standing,
    candidates: Sequence[tuple[int, list[int]]],
    tick: Tick,
) -> tuple[dict[int, Lesson], list[int]]:
    """The lesson of each question that comes to one, and the questions whose lesson has all words that candidates say.

    The others are none if four have them, or half where there are several such words; without words that the person was
    seen to want said, and labels that announce something, where the person wants these first, there is no lesson.
    """
    words = _wanted_words(renderer, asked, candidates, standing)
    labels = announced_labels(words, standing)
    opening = opening_words(policy, renderer, asked, candidates, words, labels, standing, tick)
    opened = with_opening(policy, renderer, asked, candidates, words, opening) if opening else []
    # What quotes no words, or quotes some that are not to be said, asks for more than words beside a plain answer.
    every = [quoted_words([one]) for one in standing.wishes]
    by_words = bool(words) and all(every) and len(words) == len(quoted_words(standing.wishes))
    some = [(i, answer) for i, answer in [*candidates, *opened] if answer and not loops(answer)]
    some = _with_content(renderer, asked, some, " ".join(standing.wishes), labels)
    some = [(i, a) for i, a in some if rank(standing.wanted, renderer.decode(a)) == len(standing.wanted)]
    first = first_labels(labels, standing)
    some = [(i, a) for i, a in some if in_place(first, renderer.decode(a))]
    best: dict[int, tuple[tuple[int, bool, bool, float], Lesson]] = {}
    for i, answer, likelihood, wished in _fit(policy, asked, some, tick):
        lesson = _lesson(policy, renderer, asked[i], answer, wished, opening)
        said = rank(words, renderer.decode(answer))
        keeps = (
            by_words and said == len(words) and _keeps(policy, renderer, asked[i], lesson, bool(opening), bool(labels))
        )
        # One that was cut pays for no end, and teaches none.
        place = said, answer[-1] in policy.ends, keeps, likelihood
        if said >= 0 and (i not in best or place > best[i][0]):
            best[i] = (place, lesson)
    whole = [i for i, (place, _) in best.items() if place[0] == len(words)]
    enough = len(whole) >= FEWEST or (len(words) > 1 and 2 * len(whole) >= max(2, len(best)))
    return {i: best[i][1] for i in (whole if enough else best)}, whole


def _lesson(
    policy: Policy,
    renderer: PromptRenderer,
    asked: Answered,
    answer: list[int],
    wished: list[bool],
    opening: Sequence[str],
) -> Lesson:
    """The lesson of a candidate. One that is the plain answer behind the words of the wish keeps it."""
    text, plain = (renderer.decode(policy.without_end(ids)).split() for ids in (answer, asked.plain))
    pairs = zip(reversed(answer), reversed(asked.plain), strict=False)
    kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if not opening or text != [*" ".join(opening).split(), *plain] or 2 * kept < len(asked.plain):
        return Lesson(asked.question.ids, answer, wished)
    first = len(answer) - kept
    wished = [True] * first + [y in policy.ends for y in answer[first:]]
    return Lesson(asked.question.ids, answer, wished, asked.plain, kept)


def _wanted_words(
    renderer: PromptRenderer, asked: Sequence[Answered], candidates: Sequence[tuple[int, list[int]]], standing: Standing
) -> list[str]:
    """What the wishes quote, where what was made by them says it, or the person wants it said, as is known of them."""
    words = quoted_words(standing.wishes)
    answers: dict[int, list[str]] = {}
    for i, answer in candidates if words else []:
        answers.setdefault(i, []).append(renderer.decode(answer))
    wanted = said_by_wish(words, answers, {i: renderer.decode(asked[i].plain) for i in answers})
    known = {*standing.wanted, *standing.announced}
    return [one for one in words if one in wanted or same_words(one) in known]


def _keeps(
    policy: Policy, renderer: PromptRenderer, asked: Answered, lesson: Lesson, opens: bool, labelled: bool
) -> bool:
    """Whether a lesson has the whole plain answer, where the words of the wishes have the place that is theirs."""
    if opens:
        return bool(lesson.plain)
    text, plain = (renderer.decode(policy.without_end(ids)).strip() for ids in (lesson.answer, asked.plain))
    whole = not (plain[-1:].isalnum() and text[len(plain) :][:1].isalnum())
    return (whole and text.startswith(plain)) or (labelled and text.endswith(f"\n{plain}"))


def _with_content(
    renderer: PromptRenderer,
    asked: Sequence[Answered],
    candidates: Sequence[tuple[int, list[int]]],
    wish: str,
    labels: Sequence[str],
) -> list[tuple[int, list[int]]]:
    """The candidates that do not repeat the wish, nor the question alone, and say more behind labels."""
    texts = [renderer.decode(answer) for _, answer in candidates]
    plain = {i: renderer.decode(asked[i].plain) for i, _ in candidates}
    told_back = echoing(texts, wish)
    return [
        (i, answer)
        for (i, answer), text, echo in zip(candidates, texts, told_back, strict=True)
        if not echo
        and says_something(beside(labels, text), question := asked[i].question.text, wish, plain[i])
        and all(says_more(label, text, plain[i], question) for label in labels)
    ]


def _fit(
    policy: Policy, asked: Sequence[Answered], candidates: Sequence[tuple[int, list[int]]], tick: Tick
) -> Iterator[tuple[int, list[int], float, list[bool]]]:
    """The candidates that follow the wish and still answer their questions: question, answer, log p, tokens wished for.

    ``log p`` is that of the whole answer to who knows the wishes. Where a wish says how an answer begins or closes, it
    tells the one place from the other; what the tokens gain by the wish does not, for the words gain most where they
    are expected least.
    """
    places, answers = [i for i, _ in candidates], [answer for _, answer in candidates]
    bare, own = [asked[i].question for i in places], [asked[i].told for i in places]
    both = token_likelihoods(policy, [*own, *bare], [*answers, *answers], tick)
    knowing, unaware = both[: len(answers)], both[len(answers) :]
    gained = [one - other for one, other in zip(knowing, unaware, strict=True)]
    able = [c for c, gain in enumerate(gained) if follows(gain)]
    elsewhere = token_likelihoods(policy, [asked[places[c]].other for c in able], [answers[c] for c in able], tick)
    for c, abroad in zip(able, elsewhere, strict=True):
        likelihood = float(knowing[c].sum())
        if likelihood - float(abroad.sum()) >= ON_TOPIC:
            wished = [g > WISHED or y in policy.ends for g, y in zip(gained[c].tolist(), answers[c], strict=True)]
            yield places[c], answers[c], likelihood, wished


def _plain(policy: Policy, asked: Sequence[Answered], lessons: Sequence[Lesson], tick: Tick) -> list[Lesson]:
    """The base model's own answers that the policy has lost, to questions that have no lesson yet."""
    taught = {tuple(lesson.asked) for lesson in lessons}
    gone = lost(policy, [a.question for a in asked], [a.plain for a in asked], tick)
    return [
        Lesson(one.question.ids, one.plain, [y in policy.ends for y in one.plain], back=True)
        for one, is_gone in zip(asked, gone, strict=True)
        if is_gone and tuple(one.question.ids) not in taught
    ]
