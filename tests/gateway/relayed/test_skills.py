"""Skills in front of an upstream: they are in what it is asked, in either format, and not in the record."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import GatewayThread, Running
from tests.gateway.relayed.test_upstream import ask, relay
from tests.skills.texts import text
from tests.support.servers import wait_until
from turnwise.evolving.writing import skill_of_wish
from turnwise.journal import Journal
from turnwise.journal.skills.records import SkillChange
from turnwise.messages import text_of
from turnwise.skills.library import Library
from turnwise.skills.placing import EXTRACTIVE
from turnwise.skills.serving import HEAD
from turnwise.skills.skill_file import parse
from turnwise.skills.vectors import PACKAGE
from turnwise.skills.wishes import PersonsWish
from turnwise.types import SkillState

__all__ = ["relay"]
pytestmark = pytest.mark.skipif(find_spec(PACKAGE) is None, reason="the word vectors are not installed")
ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How do I write dates?"}]


def sent(relay: Running) -> str:
    """What the model behind the upstream was asked last."""
    return relay.stub.tokenizer.decode(relay.stub.sampled[-1][0], skip_special_tokens=False)


def test_an_upstream_is_told_and_the_record_is_as_it_was_asked(relay: Running) -> None:
    library = Library(relay.config, relay.journal)
    ask(relay, ASK)
    before = sent(relay)
    library.add([parse(text(), "f")], SkillState.ACTIVE, "person")
    wait_until(lambda: relay.journal.skills.used(relay.turn(ask(relay, ASK)).id))
    told = sent(relay).split("<|im_end|>")[0]
    assert HEAD not in before and told.index("Be brief.") < told.index(HEAD) < told.index("year-month-day")
    turn = relay.turn(ask(relay, ASK))
    assert [text_of(message) for message in turn.messages] == ["Be brief.", "How do I write dates?"]


def test_on_request_an_upstream_is_told_a_wish_behind_the_question(relay: Running, tmp_path: Path) -> None:
    config = relay.config.model_copy(
        update={"home": tmp_path / "placed", "skills": relay.config.skills.model_copy(update={"placing": "question"})}
    )
    thread = GatewayThread(config, str(relay.config.engine.url))
    with closing(Journal.open(config)) as journal:
        library = Library(config, journal)
        skill = skill_of_wish(PersonsWish("From now on end with Cheers.", general=True), "hi", ())
        change = SkillChange(skill.name, SkillState.ACTIVE, skill.content)
        library.take_wishes(library.sync(), "a wish", [change], EXTRACTIVE)
        thread.start(config)
        try:
            token = (config.home / "token").read_text().strip()
            placed = Running(thread.url, token, relay.stub, journal, config)
            turn = placed.turn(
                ask(placed, [*ASK, {"role": "assistant", "content": "Ok."}, {"role": "user", "content": "So?"}])
            )
            asked = sent(relay)
            assert "So?\nFrom now on end with Cheers.<|im_end|>" in asked and asked.count("Cheers") == 1
            assert HEAD not in asked and text_of(turn.messages[-1]) == "So?" and turn.placed == ()
            ask(placed, [{"role": "system", "content": "Greet."}, {"role": "assistant", "content": "Ok."}])
            assert HEAD in sent(relay) and "Cheers" in sent(relay), "without a question it is in the block"
        finally:
            thread.stop()
