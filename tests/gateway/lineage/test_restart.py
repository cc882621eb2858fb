"""A gateway that is stopped and started again on its home: clients that name no session notice nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.gateway.callers import FORMATS, Caller, Talk, user
from tests.gateway.starting import gateway_on, settings, stub_engine
from tests.support.wire import nested_calls
from turnwise.types import TurnState


def test_the_lineage_and_the_token_outlive_a_restart(tmp_path: Path, qwen3_dir: Path) -> None:
    config = settings(tmp_path / "home", qwen3_dir)
    hows = itertools.product(FORMATS, (False, True))
    opened = {how: [user(f"say: For {how}.\n{nested_calls({'a': 1})}")] for how in hows}
    with stub_engine(qwen3_dir) as (stub, url):
        with gateway_on(config, stub, url) as before:
            talks = {how: Talk(Caller(before, *how), opening, tools=True) for how, opening in opened.items()}
            for talk in talks.values():
                talk.ask()
                assert talk.give_results() == 1
        with gateway_on(config, stub, url) as after:
            assert after.token == before.token
            for how, talk in talks.items():
                talk.caller.gateway = after
                first, second = talk.turns[0], talk.ask()
                assert (second.session_id, second.parent_id, second.index) == (first.session_id, first.id, 1), how
                assert second.bridged
                known = [*first.prompt_ids, *first.response_ids]
                assert second.prompt_ids[: len(known)] == known
                assert after.turn(first.id).state is TurnState.JUDGING
                assert [m["role"] for m in after.next_state(first.id)] == ["tool"]
            assert after.journal.status.figures()["sessions"]["total"] == len(talks)
