"""What the gate looks at, as data: the figures, their limits, and what a refusal says and advises.

`decide` is a pure function of figures and limits. Larger is worse in all of them. One that could not be measured is
None; `gate.unmeasured` says what that means.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from turnwise.config import GateConfig


@dataclass(frozen=True, slots=True)
class Measurements:
    """The figures of one candidate, all at temperature 1. Distances and likelihoods are in nats per token.

    "Base" stands for the base model and the base model that was told the hints, whichever is nearer, or allows more.

    ``step_kl``: KL of the candidate from its parent or the told base model, whichever is nearer, at the answers of
    all probes. ``drift_kl``: KL(candidate ‖ base) there. ``nll_rise``, ``general_rise``: by how much well-judged
    recorded answers (of fewer than three, together with the probe's), and those of the general probe, became less
    likely than under parent and base. ``answer_drift``: how much less likely the candidate's own answers are under the
    base than under itself; in this one and the two distances, tokens that lessons show as wished for do not count.
    ``praise_lost``: the nats that the worst token lost, beside the parent, of an answer that was praised for following
    the wishes; the median of these.
    ``off_topic``: the share lost of what ties answers to their questions.
    ``lost_right``: the share of the known questions that the base answers right, and it does not any more, less what
    telling the base the hints costs, at least half of it. ``echo``: by
    which share more of its answers say a wish back.
    ``repetition``: by which share more of the 4-grams of its answers, but for the one that repeats itself most, were
    there before than of the base's. ``lost_words``: by which share fewer of its answers to the known questions have
    words that the person wants said than of the parent's, or a bound of it where that is within the limit already.
    ``length_ratio``: how many times its answers are longer or shorter than any of recorded, parent's and base's are.
    ``unended``: by which share more of them go on without an end. For ``echo`` and these three, others are asked only
    until the figure is within its limit. ``parents_drift_kl``, ``parents_answer_drift``, ``parents_lost_right``,
    ``parents_repetition``: those of the parent, where it has one; what it had already is not held against the step.
    """

    step_kl: float | None = None
    drift_kl: float | None = None
    nll_rise: float | None = None
    general_rise: float | None = None
    praise_lost: float | None = None
    answer_drift: float | None = None
    off_topic: float | None = None
    lost_right: float | None = None
    lost_words: float | None = None
    echo: float | None = None
    repetition: float | None = None
    length_ratio: float | None = None
    unended: float | None = None
    parents_drift_kl: float = 0.0
    parents_answer_drift: float = 0.0
    parents_lost_right: float = 0.0
    parents_repetition: float = 0.0


@dataclass(frozen=True, slots=True)
class LimitedFigure:
    """A field of `Measurements`: the setting with its limit, a sentence for one beyond it, and what to do then.

    A step that is ``hopeless`` times beyond a limit is refused whole: what a part of it would do less of is still the
    wrong thing. None: any excess is only one of size. ``rare``: most updates have nothing that it could be taken of, so
    that it is not missed where it could not be.
    """

    name: str
    limit: str
    said: str
    advice: str
    hopeless: float | None = 2.0
    rare: bool = False


SMALLER = "lower train.lr"
LOOK = "look at what the batch was judged by (`turnwise sessions list`)"
FIGURES = (
    LimitedFigure("step_kl", "max_step_kl", "the step is {:.2f} nats per token from its parent", SMALLER, None),
    LimitedFigure(
        "drift_kl",
        "max_drift_kl",
        "the policy is {:.2f} nats per token from the base model, told the hints or not",
        "raise train.beta_kl, or go back with `turnwise versions rollback`",
        None,
    ),
    LimitedFigure("nll_rise", "max_nll_rise", "well-judged answers lost {:.2f} nats per token", SMALLER),
    LimitedFigure("general_rise", "max_general_rise", "the general probe lost {:.2f} nats per token", SMALLER),
    LimitedFigure(
        "praise_lost",
        "max_praise_lost",
        "of answers that were praised for following the wishes a token lost {:.1f} nats",
        LOOK,
        None,
        rare=True,
    ),
    LimitedFigure(
        "answer_drift", "max_answer_drift", "its answers are {:.2f} nats per token less likely to the base", LOOK
    ),
    LimitedFigure(
        "off_topic", "max_off_topic", "its answers lost {:.0%} of what ties them to the question", LOOK, None
    ),
    LimitedFigure(
        "lost_right",
        "max_lost_right",
        "{:.0%} of what the base answers right is lost, less what the hints excuse",
        LOOK,
        3.0,
    ),
    LimitedFigure(
        "lost_words",
        "max_lost_words",
        "{:.0%} fewer of its answers have words that the person wants said",
        LOOK,
        None,
        rare=True,
    ),
    LimitedFigure("echo", "max_echo", "{:.0%} more of its answers say a wish of the person back", LOOK),
    LimitedFigure("repetition", "max_repetition", "{:.0%} more of its 4-grams are repetitions", LOOK, 1.0),
    LimitedFigure(
        "length_ratio", "max_length_ratio", "its answers are {:.2f} times longer or shorter than all others", LOOK
    ),
    LimitedFigure("unended", "max_unended", "{:.0%} more of its answers go on without an end", LOOK, None),
)


def limit_of(figure: LimitedFigure, m: Measurements, config: GateConfig) -> float:
    """The limit of a figure: that of the configuration, or what the parent had already where that is more.

    A policy that is beyond it, since a wish that it learned was taken back or is no longer told, has to find its way
    back by steps, and none of them would ever pass.
    """
    return max(getattr(config, figure.limit), getattr(m, f"parents_{figure.name}", 0.0))


def decide(m: Measurements, config: GateConfig) -> dict[str, Any]:
    """The gate's result on one candidate, as it is recorded.

    ``accepted``; the ``reasons`` of a refusal and its ``advice``; ``hopeless`` where no part of the step will do;
    ``unmeasured`` names the figures that could not be taken; ``held``: nothing else is against it; the rest are the
    figures.
    """
    reasons, advice, unmeasured, hopeless = [], [], [], False
    for figure in FIGURES:
        value, limit = getattr(m, figure.name), limit_of(figure, m, config)
        if value is None:
            unmeasured += [figure.name] * (not figure.rare)
        elif not value <= limit:  # so that what is no number is beyond every limit
            set_to = getattr(config, figure.limit)
            reasons.append(f"{figure.said.format(value)} (gate.{figure.limit} = {set_to:g})")
            advice += [f"{figure.advice}, or raise gate.{figure.limit}"]
            hopeless |= figure.hopeless is not None and not value <= figure.hopeless * limit
    held = bool(unmeasured) and config.unmeasured == "hold"
    only_held = held and not reasons
    if held:
        reasons.append(f"not measured: {', '.join(unmeasured)} (gate.unmeasured = hold)")
        advice.append('set gate.unmeasured = "pass"')
    return {
        "accepted": not reasons,
        "reasons": reasons,
        "advice": advice,
        "hopeless": hopeless,
        "unmeasured": unmeasured,
        "held": only_held,
        **asdict(m),
    }
