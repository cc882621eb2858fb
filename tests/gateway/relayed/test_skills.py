"""Skills in front of an upstream: they are in what it is asked, in either format, and not in the record."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.conftest import Running
from tests.gateway.relayed.test_upstream import ask, relay
from tests.skills.texts import text
from tests.support.servers import wait_until
from turnwise.messages import text_of
from turnwise.skills.library import Library
from turnwise.skills.serving import HEAD
from turnwise.skills.skill_file import parse
from turnwise.skills.vectors import PACKAGE
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
