"""Token truth: what is learned are the ids that the gateway would ask with, and that the model would answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from renderers.base import build_training_sample, create_renderer, load_tokenizer
from renderers.configs import Qwen3RendererConfig

from tests.conftest import Running
from tests.support.models import make_qwen3
from turnwise.errors import DataError
from turnwise.messages import history_from_chat
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.training.batching import merge_prefixes
from turnwise.training.sft.conversations import Dialogue
from turnwise.training.sft.encoding import Encoded, Told, encode, encode_all, texts_of

TOOL = {"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}


def dialogue(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, line: int = 1) -> Dialogue:
    taught = frozenset(i for i, m in enumerate(messages) if m["role"] == "assistant")
    return Dialogue(line, history_from_chat(messages), tools, taught)


def chat(*said: str, **last: Any) -> list[dict[str, Any]]:
    """Messages of user and assistant by turns; `last` changes the last one."""
    roles = ("user", "assistant")
    messages: list[dict[str, Any]] = [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]
    messages[-1] |= last
    return messages


def encoded(renderer: PromptRenderer, one: Dialogue, context: int = 4096) -> Encoded:
    found = encode(renderer, one, context, Told())
    assert found is not None
    return found


def learned(found: Encoded) -> list[list[int]]:
    return [list(text.ids[start:end]) for text in found.texts for start, end in text.taught]


def spelled(renderer: PromptRenderer, ids: list[int]) -> str:
    """The ids as text, marks and all."""
    tokenizer: Any = renderer.renderer.tokenizer  # type: ignore[attr-defined]
    return tokenizer.decode(ids, skip_special_tokens=False)


@pytest.fixture(scope="module")
def smollm(model_dir: Path) -> PromptRenderer:
    return load_renderer(model_dir)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> PromptRenderer:
    return load_renderer(make_qwen3(tmp_path_factory.mktemp("qwen3")))


def test_a_conversation_through_the_real_gateway_has_these_ids(gateway: Running, smollm: PromptRenderer) -> None:
    """Three turns over HTTP, as an agent has them; the stub engine tells which ids it was asked with, and gave."""
    client, messages = gateway.client(), list[dict[str, Any]]()
    for text in ("say: Yes,  indeed.\n\nA new line: ☕", "say:  two spaces first", "what?"):
        messages.append({"role": "user", "content": text})
        answer = client.chat.completions.create(model="turnwise", messages=messages)  # type: ignore[arg-type]
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    found = encoded(smollm, dialogue(messages))
    [text] = found.texts
    asked = [(prompt, given) for prompt, given, _ in gateway.stub.sampled]
    assert len(asked) == 3
    assert [list(text.ids[:start]) for start, _ in text.taught] == [prompt for prompt, _ in asked]
    assert learned(found) == [given for _, given in asked]


def test_only_answers_are_learned_each_with_the_token_that_ends_it(smollm: PromptRenderer) -> None:
    messages = [{"role": "system", "content": "SYSTEM"}, *chat("QUESTION", "first", "AGAIN", "second")]
    said = [spelled(smollm, ids) for ids in learned(encoded(smollm, dialogue(messages)))]
    assert said == ["first<|im_end|>", "second<|im_end|>"]


def test_tool_calls_are_learned_and_results_are_not(smollm: PromptRenderer) -> None:
    messages = [
        *chat("where is it?", "I look.", tool_calls=[CALL]),
        {"role": "tool", "tool_call_id": "c1", "content": "RESULT"},
        {"role": "assistant", "content": "there"},
    ]
    found = encoded(smollm, dialogue(messages, [TOOL]))
    said = [spelled(smollm, ids) for ids in learned(found)]
    assert said[1] == "there<|im_end|>"
    assert said[0].endswith("</tool_call><|im_end|>")
    assert '"name": "look"' in said[0]
    assert len(found.texts) == 1
    assert "RESULT" in spelled(smollm, list(found.texts[0].ids))


def test_answers_of_weight_0_are_context(smollm: PromptRenderer) -> None:
    one = dialogue(chat("a", "first", "b", "second"))
    found = encoded(smollm, Dialogue(1, one.messages, None, frozenset({3})))
    assert [spelled(smollm, ids) for ids in learned(found)] == ["second<|im_end|>"]
    assert "first" in spelled(smollm, list(found.texts[0].ids))


def test_an_answer_that_quotes_a_mark_forges_no_end(smollm: PromptRenderer) -> None:
    end = smollm.stop_token_ids[0]
    [ids] = learned(encoded(smollm, dialogue(chat("a", "it writes <|im_end|>\n<|im_start|>user"))))
    assert ids.count(end) == 1
    assert ids[-1] == end


@pytest.mark.parametrize(
    "content", ["plain", "\n\nline breaks first", "  spaces first", "<think>\n\n</think>\n\nx", "é☕"]
)
def test_an_answer_stands_behind_the_very_prompt(qwen3: PromptRenderer, content: str) -> None:
    """Whatever a tokenizer would merge across the seam, prompt and answer are apart."""
    one = dialogue(chat("a", content))
    found = encoded(qwen3, one)
    [text] = found.texts
    prompt = qwen3.render(one.messages[:1], None).ids
    assert list(text.ids[: text.taught[0][0]]) == prompt
    assert qwen3.decode(learned(found)[0]).endswith("<|im_end|>")


def test_masks_are_those_of_the_librarys_own_training_samples(qwen3: PromptRenderer, tmp_path: Path) -> None:
    """`renderers.build_training_sample` of each answer at the end of its conversation, thinking and calls included."""
    tokenizer = load_tokenizer(str(make_qwen3(tmp_path / "qwen3")))
    theirs = create_renderer(tokenizer, Qwen3RendererConfig())
    messages = [
        *chat("where?", "", reasoning_content="I should look", tool_calls=[CALL]),
        {"role": "tool", "tool_call_id": "c1", "content": "RESULT"},
        {"role": "assistant", "content": "there", "reasoning_content": "so it is there"},
    ]
    found = encoded(qwen3, dialogue(messages, [TOOL]))
    [text] = found.texts  # a tool's result is no new question: what was thought before it stays
    sample: Any = build_training_sample(
        theirs,
        messages,
        role_to_mask=lambda m: m["role"] == "assistant",
        tools=[TOOL],  # type: ignore[arg-type]
    )
    mask = [any(start <= k < end for start, end in text.taught) for k in range(len(text.ids))]
    assert list(text.ids) == sample.token_ids[: len(text.ids)]
    assert mask == sample.loss_mask[: len(text.ids)]
    assert not any(sample.loss_mask[len(text.ids) :])


def test_thinking_that_the_template_drops_later_is_learned_where_it_was_thought(qwen3: PromptRenderer) -> None:
    messages = chat("a", "one", "b", "two", reasoning_content="SECOND THOUGHT")
    messages[1]["reasoning_content"] = "FIRST THOUGHT"
    found = encoded(qwen3, dialogue(messages))
    shown = [qwen3.decode(list(text.ids)) for text in found.texts]
    assert len(found.texts) == 2
    assert "FIRST THOUGHT" in shown[0]
    assert "FIRST THOUGHT" not in shown[1]
    assert ["THOUGHT" in qwen3.decode(ids) for ids in learned(found)] == [True, True]
    assert [text.ids[start - 1] for text in found.texts for start, _ in text.taught]


def test_thinking_of_a_family_without_it_is_left_out_and_counted(smollm: PromptRenderer) -> None:
    told = Told()
    found = encode(smollm, dialogue(chat("a", "one", reasoning_content="THOUGHT")), 4096, told)
    assert found is not None
    assert [spelled(smollm, ids) for ids in learned(found)] == ["one<|im_end|>"]
    assert told.thoughts == 1


def test_a_long_conversation_ends_with_the_last_answer_that_fits(smollm: PromptRenderer) -> None:
    one = dialogue(chat("a", "first", "b", "second " * 50, "c", "third"))
    first = len(encoded(smollm, dialogue(chat("a", "first"))).texts[0].ids)
    told = Told()
    found = encode(smollm, one, first, told)
    assert found is not None
    assert [spelled(smollm, ids) for ids in learned(found)] == ["first<|im_end|>"]
    assert (told.cut, told.too_long) == (1, 0)
    assert encode(smollm, one, first - 1, told) is None
    assert (told.cut, told.too_long, told.lines) == (1, 1, [1])
    with pytest.raises(DataError, match="raise --context"):
        encode_all(smollm, [one], first - 1, lambda: None)


def test_what_a_template_does_not_take_is_named_by_its_line(tmp_path: Path) -> None:
    from tests.training.sft.chat_model import make_chat_model

    folder = make_chat_model(tmp_path / "strict")
    about = json.loads((folder / "tokenizer_config.json").read_text())
    about["chat_template"] = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system messages') }}{% endif %}"
        "{# thinking and tools are of another renderer #}" + about["chat_template"]
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    renderer = load_renderer(folder)
    bad = dialogue([{"role": "system", "content": "x"}, *chat("a", "b")], line=17)
    with pytest.raises(DataError, match=r"line 17: this model's template does not take"):
        encode_all(renderer, [dialogue(chat("a", "b")), bad], 4096, lambda: None)


def test_texts_carry_all_of_it(smollm: PromptRenderer) -> None:
    found = encoded(smollm, dialogue(chat("a", "first", "b", "second")))
    texts = texts_of(found, 5)
    assert [t.sample for t in texts] == [5, 5]
    assert [*texts[1].prompt_ids, *texts[1].response_ids] == list(found.texts[0].ids)
    assert [list(t.response_ids) for t in texts] == learned(found)
    [row] = merge_prefixes(texts)
    assert row.ids == list(found.texts[0].ids)
    assert found.tokens == len(row.ids)
    assert found.learned == sum(s.end - s.start for s in row.spans)
