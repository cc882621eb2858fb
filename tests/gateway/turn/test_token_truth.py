"""Token truth in every wire format: the ids in the journal are those on the engine's wire, and so are those trained on.

The client sends back what it was sent, in its own format. The engine writes down what it was given and what it sampled,
and samples as models do now and then: other tokens than a tokenizer makes of the same text.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.conftest import Running
from tests.gateway.callers import FORMATS, LIMITS, STOPS, Caller, Talk, user
from tests.gateway.conftest import Agents
from tests.support.models import QWEN3_TOKENS
from tests.support.wire import nested_calls
from turnwise.bench.stub_engine import StubEngine
from turnwise.journal import WholeTurn
from turnwise.training.batching import merge_prefixes, texts_of
from turnwise.types import FinishReason, Sample

THOUGHT = "<think>\n  wo sums — 二つ 🤖 \n\n</think>\n\n"
CALLS = nested_calls({"a": 1}, {"a": 22, "note": 'q"}</tool_call>{'}, {"a": 3, "b": {"c": [1.0, None]}})
ODD_CALLS = '<tool_call>\n{"name":"add",  "arguments":{"a":1.50,"b":"\\u00e9 🧀","a2":[ ]}}\n</tool_call>'
SAID = {
    "parallel calls": CALLS,
    "text and calls": "Adding.  \n" + CALLS,
    "thinking and calls": THOUGHT + "Adding.\n" + CALLS,
    "an empty thought": "<think>\n\n</think>\n\n" + nested_calls({"a": 5}),
    "calls laid out in another way": THOUGHT + " \n" + ODD_CALLS + "\n\n" + ODD_CALLS + " \n",
    "a call inside the thought": "<think>\n" + nested_calls({"a": 9}) + "\n</think>\n\n" + nested_calls({"a": 5}),
    "characters of several tokens": "día 🤖 数を三つ 👩‍👩‍👧 ﬁn\u2028 e\u0301\n" + nested_calls({"a": "🧀", "é": "数"}),
}


def trained_on(turns: list[WholeTurn]) -> dict[str, list[int]]:
    """What stands at the responses' places of the rows that the trainer makes of these turns, by turn."""
    samples = [
        Sample(t.id, t.session_id, t.prompt_ids, t.response_ids, t.logprobs, 1.0, 0, 1.0, None, None) for t in turns
    ]
    rows = merge_prefixes(texts_of(samples, range(len(samples))))
    return {samples[s.sample].turn_id: row.ids[s.start : s.end] for row in rows for s in row.spans}


def check_truth(turns: list[WholeTurn], stub: StubEngine) -> None:
    """Every turn is what the engine took and gave, token for token, and nothing else of it is trained on."""
    assert [(t.prompt_ids, t.response_ids) for t in turns] == [(p, r) for p, r, _ in stub.sampled[-len(turns) :]]
    assert all(t.logprobs == [-0.125 * (i + 1) for i in range(len(t.response_ids))] for t in turns)
    assert trained_on(turns) == {t.id: t.response_ids for t in turns}


def extends(after: WholeTurn, before: WholeTurn) -> bool:
    known = [*before.prompt_ids, *before.response_ids]
    return after.bridged and after.prompt_ids[: len(known)] == known and len(after.prompt_ids) > len(known)


class Spelling:
    """A tokenizer that spells: a token or more for each character, and one for each mark."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces = re.compile("|".join([*map(re.escape, QWEN3_TOKENS), "."]), re.DOTALL)

    def encode(self, text: str, add_special_tokens: bool) -> Any:
        pieces = self._pieces.findall(text)
        return SimpleNamespace(
            ids=[id for p in pieces for id in self._tokenizer.encode(p, add_special_tokens=False).ids]
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def spell(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    spelling: Any = Spelling(caller.gateway.stub.tokenizer)
    text = "a word"
    assert spelling.encode(text, False).ids != caller.gateway.stub.tokenizer.encode(text, add_special_tokens=False).ids
    monkeypatch.setattr(caller.gateway.stub, "tokenizer", spelling)


def begin(caller: Caller, said: str, request: pytest.FixtureRequest, by_id: bool = False) -> Talk:
    """A conversation like no other in which every answer is the same."""
    spell(caller, request.getfixturevalue("monkeypatch"))
    caller.gateway.stub.reply = lambda _: said
    talk = Talk(caller, [user(f"Please. {request.node.name}")], tools=True, by_id=by_id)
    talk.body[LIMITS[caller.name]] = 1000
    return talk


@pytest.mark.parametrize("name", SAID)
def test_a_prompt_after_calls_goes_on_from_the_very_ids(
    caller: Caller, name: str, request: pytest.FixtureRequest
) -> None:
    talk = begin(caller, SAID[name], request)
    for _ in range(3):
        assert talk.ask().finish_reason is FinishReason.TOOL_CALLS
        assert talk.give_results(), "the client has calls to answer"
    talk.ask()
    check_truth(talk.turns, caller.gateway.stub)
    assert all(map(extends, talk.turns[1:], talk.turns))
    assert len({turn.session_id for turn in talk.turns}) == 1


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_a_prompt_after_a_response_named_by_its_id_goes_on_from_the_very_ids(
    qwen: Agents, how: str, request: pytest.FixtureRequest
) -> None:
    caller = Caller(qwen, "responses", how == "streamed")
    talk = begin(caller, SAID["thinking and calls"], request, by_id=True)
    for _ in range(3):
        talk.ask()
        assert talk.give_results() == 3
    talk.ask()
    check_truth(talk.turns, qwen.stub)
    assert all(map(extends, talk.turns[1:], talk.turns))


def cut_points(stub: StubEngine, said: str) -> list[int]:
    """Limits that end an answer at its beginning, in a character, in the thought, between two calls and in one.

    None is 1: a request for one token is a client's question whether the model is there.
    """
    ids = Spelling(stub.tokenizer).encode(said, add_special_tokens=False).ids
    texts = [stub.tokenizer.decode(ids[:n], skip_special_tokens=False) for n in range(len(ids))]
    in_character = next(n for n, text in enumerate(texts) if text.endswith("\ufffd"))
    after_first_call = next(n for n, text in enumerate(texts) if "</tool_call>" in text)
    return [2, in_character, texts.index(next(t for t in texts if "</think>" in t)) - 1, after_first_call, len(ids) - 3]


@pytest.mark.parametrize("place", range(5), ids=["at once", "in a character", "in the thought", "between", "in a call"])
def test_an_answer_cut_short_is_trained_on_as_far_as_it_was_sampled(
    caller: Caller, place: int, request: pytest.FixtureRequest
) -> None:
    said = THOUGHT + "Adding 🧀.\n" + nested_calls({"a": 1}, {"a": 2, "note": "dos"})
    limit = cut_points(caller.gateway.stub, said)[place]
    talk = begin(caller, said, request)
    cut = talk.ask(**{LIMITS[caller.name]: limit})
    assert (cut.finish_reason, len(cut.response_ids)) == (FinishReason.LENGTH, limit)
    called = talk.give_results()
    if not called:
        talk.say("go on")
    after = talk.ask()
    check_truth(talk.turns, caller.gateway.stub)
    if place in (3, 4):
        assert called and extends(after, cut), "results do not take the thought out of the past"
    if extends(after, cut):
        assert after.prompt_ids[len(cut.prompt_ids) + limit] == caller.gateway.stub.end_token, "closed in the prompt"


@pytest.mark.parametrize("said", ["one 🤖 END two", THOUGHT + "día END x", nested_calls({"a": 1}) + "\nEND\n" + CALLS])
@pytest.mark.parametrize("caller", [f"{n}-{how}" for n in STOPS for how in ("whole", "streamed")], indirect=True)
def test_an_answer_ended_by_a_stop_string_is_trained_on_with_it(
    caller: Caller, said: str, request: pytest.FixtureRequest
) -> None:
    talk = begin(caller, said, request)
    stopped = talk.ask(**{STOPS[caller.name]: ["END"]})
    stub = caller.gateway.stub
    assert stub.tokenizer.decode(stopped.response_ids).endswith("END"), "the client never saw it; it was sampled"
    assert "END" not in str(talk.last.get("content") or talk.last["choices"][0]["message"])
    if not talk.give_results():
        talk.say("go on")
    after = talk.ask()
    check_truth(talk.turns, stub)
    assert not after.bridged, "the client's history is another text"


@pytest.fixture(params=[f"{name}-{how}" for name in FORMATS for how in ("whole", "streamed")])
def plain(gateway: Running, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A client of a model with plain ChatML, whose prompts go on after a user's words too."""
    name, how = request.param.split("-")
    caller = Caller(gateway, name, how == "streamed")
    spell(caller, monkeypatch)
    return caller


def test_a_prompt_after_words_goes_on_from_the_very_ids(plain: Caller) -> None:
    texts = ["día 🤖 数を三つ 👩‍👩‍👧 e\u0301", " spaces  before\nand lines behind \n", "<b>&amp;</b> <|im_end|", "done"]
    talk = Talk(plain, [user("say: " + texts[0])])
    for text in texts[1:]:
        talk.ask()
        talk.say("say: " + text)
    talk.ask()
    for limit in (2, 3, 5):
        talk.body |= {LIMITS[plain.name]: limit}
        talk.say("say: 🧀🧀🧀 and more of it than it may say 🧀")
        talk.ask()
    check_truth(talk.turns, plain.gateway.stub)
    assert all(map(extends, talk.turns[1:], talk.turns))
    assert [len(turn.response_ids) for turn in talk.turns[-3:]] == [2, 3, 5]
