"""How the whole learns (`mode`), when weights are trained (`train.when`), and what would keep them from it for ever."""

from __future__ import annotations

from typing import Any, Literal

from turnwise.methods import METHODS

When = Literal["always", "idle", "manual", "off"]
WHEN = (
    "When weights are trained: 'always', as soon as there is a batch; 'idle', while you are away (see training.md); "
    "'manual', when `turnwise train now` says so; 'off': samples wait."
)
Mode = Literal["both", "skills-only", "weights-only"]
MODE = (
    "What learns: 'both'; 'skills-only' (no trainer; on any upstream API, too); 'weights-only' (no skill in a prompt)."
)

Setting = tuple[str, str]
MEANS: dict[Mode, dict[Setting, bool]] = {
    "both": {},
    "skills-only": {("train", "enabled"): False, ("skills", "enabled"): True},
    "weights-only": {("skills", "enabled"): False, ("skills", "evolve"): False, ("train", "enabled"): True},
}
"""What a mode says of other settings. To say otherwise beside it is an error: one of the two was not meant."""
SUGGESTS: dict[Mode, dict[Setting, bool]] = {"skills-only": {("skills", "evolve"): True}}
"""What it says where nothing else does: with skills alone nothing would be learned unless skills come of use."""


def as_the_mode_says(given: Any) -> Any:
    """A tree of settings with what its mode means, where the tree does not say."""
    mode = given.get("mode") if isinstance(given, dict) else None
    if not isinstance(mode, str) or mode not in MEANS:
        return given
    tree = dict(given)
    for (section, key), value in (SUGGESTS.get(mode, {}) | MEANS[mode]).items():
        settings = tree.get(section, {})
        if isinstance(settings, dict):
            tree[section] = {key: value} | settings
    return tree


def contradiction(mode: Mode, config: Any) -> str | None:
    """What the settings say against their mode, and what to do."""
    for (section, key), value in MEANS[mode].items():
        if getattr(getattr(config, section), key) is not value:
            said, meant = str(not value).lower(), str(value).lower()
            return f'mode = "{mode}" means {section}.{key} = {meant}, but it is {said}; take one of the two out'
    return None


def trains_never(config: Any) -> str | None:
    """Which settings together keep every version from being published, or samples from being tried again, and what to
    do; None where none do."""
    train, gate = config.train, config.gate
    if not (config.trains and gate.enabled):
        return None
    if train.max_batch < 2:
        return (
            "train.max_batch = 1 leaves no place for a sample that the gate refused, which is tried again beside a new "
            "one; set train.max_batch to 2 or more"
        )
    if gate.unmeasured != "hold":
        return None
    if train.backend == "tinker":
        return (
            'gate.unmeasured = "hold" refuses what was not measured, and train.backend = "tinker" can measure neither '
            'step_kl nor drift_kl, which are of whole distributions; set gate.unmeasured = "pass"'
        )
    if gate.probe_share == 0 and METHODS[train.method].scores and train.w_binary > 0:
        return (
            'gate.unmeasured = "hold" waits for a session that was set aside, and with gate.probe_share = 0 none ever '
            'is; set gate.probe_share above 0, or gate.unmeasured = "pass"'
        )
    if gate.answers < 2:  # one alone has no other question that it could be compared with
        return (
            f'gate.unmeasured = "hold" refuses what was not measured, and with gate.answers = {gate.answers} some '
            'figures of answers never are; set gate.answers to 2 or more, or gate.unmeasured = "pass"'
        )
    return None
