"""What a run of trajectories came to: success with and without aborted ones, lengths, signs of reasoning, faults, cost.

Pure functions of saved trajectories. An aborted one ended by a failure that is not the agent's; the official figure
counts it as failed, the other leaves it out (OpenWebRL, section 5).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from turnwise.messages import from_chat, text_of, thinking_in
from turnwise.trajectories.intervals import mean, quantile, wilson
from turnwise.trajectories.reasoning import SIGNS, before_the_call, signs_in
from turnwise.trajectories.record import SavedTrajectory

BLAMES = ("agent", "site", "network")
"""Whose a failure of a call is. A browser's ends the trajectory, and stands in how it ended."""
_OF_FAILURES = (
    ("the judge", "judge"),
    ("the site", "site"),
    ("the host", "site"),
    ("the browser", "browser"),
    ("the gateway", "policy server"),
    ("the task has no verifier", "judge"),
)
"""How the word of a failure begins, and whose it is."""
_OF_NETWORK = ("ERR_CONNECTION", "ERR_NAME", "ERR_INTERNET", "ERR_NETWORK", "ERR_TIMED_OUT", "ERR_ADDRESS")


def class_of_failure(said: str) -> str:
    """Whose doing it is that a trajectory has no reward."""
    if said.startswith("the site") and any(sign in said for sign in _OF_NETWORK):
        return "network"
    return next((whose for begins, whose in _OF_FAILURES if said.startswith(begins)), "machine")


def how_it_ended(saved: SavedTrajectory) -> str:
    """In a word: success, wrong, no answer, format, limit, or whose failure aborted it."""
    if saved.failure is not None:
        return f"aborted: {class_of_failure(saved.failure)}"
    if saved.succeeded:
        return "success"
    if saved.cut_off is not None:
        return f"limit: {saved.cut_off}"
    if saved.details.get("ended") == "format":
        return "format"
    answered = saved.details.get("answer") or saved.details.get("ended") == "page"
    return "wrong" if answered else "no answer"


def run_figures(run: Sequence[SavedTrajectory]) -> dict[str, Any]:
    """All figures of a run. Rates have Wilson's 95 % interval; what was not measured is null."""
    whole = [saved for saved in run if saved.failure is None]
    levels: dict[str, list[SavedTrajectory]] = defaultdict(list)
    for saved in run:
        if saved.level:
            levels[saved.level].append(saved)
    return {
        "trajectories": len(run),
        "aborted": len(run) - len(whole),
        "success": _rate(run),
        "success_without_aborted": _rate(whole),
        "success_by_level": {level: _rate(some) for level, some in sorted(levels.items())},
        "judged": sum(not saved.verified for saved in run),
        "ended": dict(Counter(map(how_it_ended, run)).most_common()),
        "faults_of_calls": _faults(run),
        "steps": _spread([saved.steps for saved in whole]),
        "response_tokens": _spread([spent.completion_tokens for saved in whole for spent in saved.spent]),
        "trajectory_tokens": _spread([sum(s.completion_tokens for s in saved.spent) for saved in whole if saved.spent]),
        "reasoning": reasoning_figures(whole),
        "cost": _cost(run),
        "seconds": _spread([saved.seconds for saved in whole if saved.seconds]),
    }


def reasoning_figures(run: Sequence[SavedTrajectory]) -> dict[str, Any]:
    """Of each sign of reasoning: in what share of the answers it stands, and how long those are in tokens."""
    lengths: dict[str, list[int]] = defaultdict(list)
    answers = 0
    for saved in run:
        for content, thought, tokens in _answers(saved):
            answers += 1
            found = signs_in(before_the_call(content, thought))
            for sign in found or {"none"}:
                lengths[sign].append(tokens)
    return {
        "answers": answers,
        "signs": {
            sign: {
                "answers": len(lengths[sign]),
                "share": len(lengths[sign]) / answers if answers else None,
                "mean_tokens": mean([tokens for tokens in lengths[sign] if tokens]),
            }
            for sign in (*SIGNS, "none")
        },
    }


def _answers(saved: SavedTrajectory) -> list[tuple[str, str, int]]:
    """Of each answer its words, what was thought before, and its length in tokens (0: not known)."""
    said = [message for message in map(from_chat, map(dict, saved.messages)) if message.role == "assistant"]
    spent = list(saved.spent)
    found = []
    for n, message in enumerate(said):
        own = spent[n] if n < len(spent) else None
        thought = thinking_in(message) or (own.thought if own else "")
        found.append((text_of(message), thought, own.completion_tokens if own else 0))
    return found


def _rate(run: Sequence[SavedTrajectory]) -> dict[str, Any]:
    hits = sum(saved.succeeded for saved in run)
    return {"share": hits / len(run) if run else None, "hits": hits, "of": len(run), "ci95": wilson(hits, len(run))}


def _faults(run: Sequence[SavedTrajectory]) -> dict[str, int]:
    found: Counter[str] = Counter(dict.fromkeys(BLAMES, 0))
    for saved in run:
        faults = saved.details.get("faults")
        if isinstance(faults, dict):
            found.update({str(blame): int(count) for blame, count in faults.items() if isinstance(count, int)})
    return dict(found)


def _cost(run: Sequence[SavedTrajectory]) -> dict[str, int]:
    """Tokens that were asked and answered, of the policy and of the judge; a server's cache is not subtracted."""
    judge = [tokens for saved in run if isinstance(tokens := saved.details.get("judge_tokens"), list)]
    return {
        "policy_prompt_tokens": sum(spent.prompt_tokens for saved in run for spent in saved.spent),
        "policy_completion_tokens": sum(spent.completion_tokens for saved in run for spent in saved.spent),
        "judge_prompt_tokens": sum(tokens[0] for tokens in judge),
        "judge_completion_tokens": sum(tokens[1] for tokens in judge),
    }


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {"mean": mean(values), "p50": quantile(values, 0.5), "p90": quantile(values, 0.9), "of": len(values)}
