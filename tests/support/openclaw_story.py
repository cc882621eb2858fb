"""What must stand in the journal after OpenClaw's own gateway ran, live or sent again from the recording.

The story: a conversation with a title (steps 1 and 2) that is compacted and goes on (step 3), with a memory flush; the
main conversation (steps 4 and 5) with a heartbeat between them; a sub-agent (step 6).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.support.scripted_agent import MARK, SUB_AGENT_STEP
from turnwise.gateway.lineage.history import side_rule
from turnwise.messages import history_from_chat
from turnwise.types import TurnKind, TurnState


def asked_steps(messages: list[dict[str, Any]] | None) -> list[str]:
    """The steps that a person asked for in these messages, all in one line each."""
    return [step for m in messages or [] if m["role"] == "user" for step in MARK.findall(str(m["content"]))]


def check_story(sessions: list[dict[str, Any]]) -> None:
    turns = [turn for session in sessions for turn in session["turns"]]
    side = [turn for turn in turns if turn["kind"] == TurnKind.SIDE]
    rules = Counter(side_rule(history_from_chat(turn["added"]), None) for turn in side)
    assert set(rules) == {"title", "memory", "compaction", "heartbeat"}, rules
    for turn in side:
        assert turn["state"] == TurnState.EXCLUDED, turn
        assert not turn["next_state"], turn

    main = {s["id"]: [t for t in s["turns"] if t["kind"] == TurnKind.MAIN] for s in sessions}
    main = {name: of_one for name, of_one in main.items() if of_one}
    link = {s["id"]: s["parent_id"] for s in sessions}
    steps = {name: [asked_steps(t["next_state"]) for t in of_one] for name, of_one in main.items()}
    by_size = sorted(main, key=lambda name: len(main[name]))
    assert len(main) == 4, {name: len(of_one) for name, of_one in main.items()}

    [titled] = [name for name in main if steps[name] == [[], ["2"], [], ["3"]]]
    [compacted] = [name for name in main if link[name] is not None]
    assert link[compacted] == titled, "the history that was compacted is a branch of the whole one"
    assert len(main[compacted]) == 2 and not main[compacted][0]["bridged"]
    assert "compacted into the following summary" in str(main[compacted][0]["added"])

    [through_heartbeat] = [name for name in main if steps[name][:4] == [[], ["5"], [], [str(SUB_AGENT_STEP)]]]
    assert len({through_heartbeat, titled, compacted}) == 3
    assert "Say hello and nothing else." in str(main[by_size[0]][0]["added"]), "a sub-agent is a session of its own"
    assert len(main[by_size[0]]) == 1
    for of_one in main.values():
        for turn in of_one[:-1]:
            assert turn["next_state"], turn["answer"]
            assert not any(m["role"] in ("assistant", "system") for m in turn["next_state"])
            assert "HEARTBEAT" not in str(turn["next_state"]) and "heartbeat monitor" not in str(turn["next_state"])
