"""Families with tool calls: prompt, answer, what is read from it, and the next prompt, with each family's own renderer.

Their tokenizers are made on the spot with the marks that the renderers look for: the words are cut differently than by
the real ones, the marks and the templates are the families' own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from renderers import configs
from renderers.base import ToolCallParseStatus, create_renderer
from transformers import PreTrainedTokenizerFast

from tests.support.models import QWEN3_TOKENS, make_qwen3, make_tokenizer
from turnwise.errors import EngineError
from turnwise.messages import answer_of, calls_of, from_chat, history_to_chat, saying, text_of, thinking_in, with_calls
from turnwise.tokens.answer_parser import AnswerParser, AnswerParts
from turnwise.tokens.qwen25 import Qwen25Renderer
from turnwise.tokens.renderer_choice import keeping_thinking, thinking_switch
from turnwise.tokens.rendering import GRAMMARS, PromptRenderer, load_renderer
from turnwise.types import Message, ToolCall

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
QWEN_VISION = dict.fromkeys(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"], True)
GLM_TOKENS = {
    **dict.fromkeys(["[gMASK]", "<sop>", "<|endoftext|>"], True),
    **dict.fromkeys(["<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"], True),
    **dict.fromkeys(["<think>", "</think>", "<tool_call>", "</tool_call>"], False),
    **dict.fromkeys(["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"], False),
    **dict.fromkeys(["<tool_response>", "</tool_response>"], False),
}
PLACE: dict[str, Any] = {"type": "object", "properties": {"at": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "description": "looks", "parameters": PLACE}}
    for name in ("look", "find")
]
ASKED = [saying("system", "Be brief."), saying("user", "Where is it?")]
ARGUMENTS = [("look", {"at": "the <b>door</b>\nand on", "n": 3}), ("find", {"at": '{"a": 1}'})]


def json_calls() -> str:
    calls = (json.dumps({"name": name, "arguments": given}) for name, given in ARGUMENTS)
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def xml_calls() -> str:
    def one(name: str, given: dict[str, Any]) -> str:
        inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in given.items())
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"

    return "\n".join(one(name, given) for name, given in ARGUMENTS)


def glm_calls() -> str:
    def one(name: str, given: dict[str, Any]) -> str:
        inner = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in given.items())
        return f"<tool_call>{name}\n{inner}</tool_call>"

    return "\n".join(one(name, given) for name, given in ARGUMENTS)


QWEN25_TOKENS = {mark: special for mark, special in QWEN3_TOKENS.items() if "think" not in mark}


@dataclass(frozen=True)
class Family:
    """Its renderer (None: our own), the marks of its tokenizer, how it writes calls, and the mark that ends them."""

    config: Any
    marks: dict[str, bool]
    calls: str
    before_calls: str = "\n"
    end: str = "<|im_end|>"


FAMILIES = {
    "Qwen2.5": Family(None, QWEN25_TOKENS, json_calls()),
    "Qwen3": Family(configs.Qwen3RendererConfig, QWEN3_TOKENS, json_calls()),
    "Qwen3.5": Family(configs.Qwen35RendererConfig, QWEN3_TOKENS | QWEN_VISION, xml_calls(), "\n\n"),
    "Qwen3.6": Family(configs.Qwen36RendererConfig, QWEN3_TOKENS | QWEN_VISION, xml_calls(), "\n\n"),
    "Qwen3.8": Family(configs.Qwen38RendererConfig, QWEN3_TOKENS | QWEN_VISION, xml_calls(), "\n\n"),
    "Qwen3-VL": Family(configs.Qwen3VLRendererConfig, QWEN3_TOKENS | QWEN_VISION, json_calls()),
    "GLM-5": Family(configs.GLM5RendererConfig, GLM_TOKENS, glm_calls(), "\n", "<|observation|>"),
    "GLM-4.5": Family(configs.GLM45RendererConfig, GLM_TOKENS, glm_calls(), "\n", "<|observation|>"),
}


DROPPING = {"Qwen3", "Qwen3.5", "Qwen3.6", "GLM-4.5", "GLM-5"}
"""Those whose templates take past thoughts out of a history when the user speaks again."""
ASKED_BY_THEIR_TEMPLATE = {"Qwen3.6", "Qwen3.8", "GLM-5"}
"""Those whose templates have an argument for thoughts that stay."""


@cache
def renderer_of(name: str) -> tuple[PromptRenderer, Any]:
    family = FAMILIES[name]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(family.marks), clean_up_tokenization_spaces=False
    )
    if family.config is None:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "tokenizer.json"
            make_tokenizer(family.marks).save(str(file))
            ours = Qwen25Renderer(file, "You help.")
        return PromptRenderer(ours, lambda ids: str(tokenizer.decode(ids)), ours.encode), tokenizer
    own = create_renderer(tokenizer, family.config())
    switch, keeping = thinking_switch(tokenizer, own), partial(keeping_thinking, tokenizer)
    encode = partial(tokenizer.encode, add_special_tokens=False)
    return PromptRenderer(own, lambda ids: str(tokenizer.decode(ids)), encode, switch, keeping), tokenizer


def read(renderer: PromptRenderer, prompt: list[int], answer: list[int]) -> tuple[Message, list[AnswerParts]]:
    """An answer as the gateway reads it, token by token."""
    parser = AnswerParser(renderer.grammar, with_tools=True, in_reasoning=renderer.ends_in_reasoning(prompt))
    parts = [parser.feed(renderer.decode([token])) for token in answer if token not in renderer.stop_token_ids]
    parts.append(parser.finish())
    if renderer.grammar.calls != "json":
        theirs = renderer.parse(answer, TOOLS, prompt)
        assert {call.status for call in theirs.tool_calls} <= {ToolCallParseStatus.OK}
        calls = [(call.name or "", call.arguments or {}) for call in theirs.tool_calls]
        parts.append(parser.adopt(theirs.content, theirs.reasoning_content, calls))
    return parser.message, parts


def bare(text: str) -> str:
    """A prompt without white space and reasoning, which each template lays out and keeps in its own way."""
    return re.sub(r"<think>.*?</think>|</?think>|\s", "", text, flags=re.DOTALL)


def test_every_family_that_is_claimed_is_tested() -> None:
    tested = {type(renderer_of(name)[0].renderer).__name__ for name in FAMILIES}
    # Our own: the gateway's tests use the first, and tests/pictures the others.
    assert GRAMMARS.keys() - tested == {
        "ChatMLRenderer",
        "SmolVLMRenderer",
        "QwenSeeingRenderer",
        "QwenThinkingRenderer",
    }
    listed = PAGE.read_text(encoding="utf-8").partition("## Model families")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| ([^|]+?) \|", listed, re.MULTILINE)) - {"family", "---"} == FAMILIES.keys() | {
        "SmolLM2"
    }


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("thought", ["", "It may be\nnear the door."])
def test_calls_are_read_and_the_next_prompt_begins_with_what_was_sampled(name: str, thought: str) -> None:
    family = FAMILIES[name]
    renderer, tokenizer = renderer_of(name)
    prompt = renderer.render(ASKED, TOOLS)
    opened = "" if renderer.ends_in_reasoning(prompt.ids) else "<think>\n"
    thinking = f"{opened}{thought}\n</think>\n\n" if renderer.grammar.reasoning else ""
    text = f"{thinking}I look.{family.before_calls}{family.calls}{family.end}"
    answer = tokenizer.encode(text, add_special_tokens=False)

    message, parts = read(renderer, prompt.ids, answer)
    assert thinking_in(message).strip() == (thought if renderer.grammar.reasoning else "")
    assert text_of(message).strip() == "I look."
    called = [(call.name, json.loads(call.arguments)) for call in calls_of(message)]
    assert called == ARGUMENTS
    given = [piece for part in parts for piece in part.calls]
    assert [piece.name for piece in given if piece.name] == ["look", "find"]

    calls = [ToolCall(call.name, call.arguments, f"call_{i}") for i, call in enumerate(calls_of(message))]
    message = with_calls(message, calls)
    results = [
        from_chat({"role": "tool", "content": f"result {i}", "tool_call_id": f"call_{i}"}) for i in range(len(called))
    ]
    bridged = renderer.bridge(prompt.ids, answer, prompt.hint_at, results, TOOLS)
    assert bridged is not None and bridged.ids[: len(prompt.ids) + len(answer)] == [*prompt.ids, *answer]
    assert "result 1" in renderer.decode(bridged.ids) and bridged.hint_at == prompt.hint_at

    anew = renderer.render([*ASKED, message, *results], TOOLS)
    assert renderer.ends_in_reasoning(anew.ids) == renderer.ends_in_reasoning(bridged.ids)
    assert bare(renderer.decode(anew.ids)) == bare(renderer.decode(bridged.ids))


@pytest.mark.parametrize("thinking", [None, False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_hint_goes_behind_what_the_user_said(name: str, thinking: bool | None) -> None:
    renderer, _ = renderer_of(name)
    prompt = renderer.render(ASKED, TOOLS, thinking)
    assert prompt.hint_at is not None
    before = renderer.decode(prompt.ids[: prompt.hint_at])
    assert before.rstrip().removesuffix("/nothink").rstrip().endswith("Where is it?")
    assert "Where" not in renderer.decode(prompt.ids[prompt.hint_at :])


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"Qwen3-VL"}))  # its template has no such switch
def test_what_is_said_without_thinking_is_no_reasoning(name: str) -> None:
    renderer, tokenizer = renderer_of(name)
    prompt = renderer.render(ASKED, TOOLS, False)
    answer = tokenizer.encode(f"By the door.{FAMILIES[name].end}", add_special_tokens=False)
    message, _ = read(renderer, prompt.ids, answer)
    assert (text_of(message).strip(), thinking_in(message)) == ("By the door.", "")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_asks_for_no_thinking_where_the_family_can(name: str) -> None:
    renderer, _ = renderer_of(name)
    by_itself, quiet, loud = (renderer.render(ASKED, TOOLS, thinking).ids for thinking in (None, False, True))
    if name in ("Qwen3-VL", "Qwen2.5"):  # their templates have no such switch
        assert quiet == loud == by_itself
        return
    assert by_itself in (quiet, loud) and quiet != loud
    assert not renderer.ends_in_reasoning(quiet) and renderer.decode(quiet).rstrip().endswith("</think>")
    said = [saying("user", "And now?")]
    answer = renderer_of(name)[1].encode("By the door.<|im_end|>", add_special_tokens=False)
    for before, after in ((quiet, True), (loud, False)):  # a template writes a past of the other kind otherwise
        assert renderer.bridge(before, answer, None, said, TOOLS, after) is None


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"Qwen2.5"}))  # which has no thoughts
@pytest.mark.parametrize("thinking", [None, True])
def test_a_prompt_goes_on_behind_thoughts_that_are_to_stay(name: str, thinking: bool | None) -> None:
    """A template may drop them when the user speaks again: then only who asks for them gets a prompt that goes on."""
    renderer, tokenizer = renderer_of(name)
    asked, said = renderer.render(ASKED, None, thinking), [saying("user", "And now?")]
    opened = "" if renderer.ends_in_reasoning(asked.ids) else "<think>\n"
    answer = tokenizer.encode(f"{opened}I look.\n</think>\n\nThere.", add_special_tokens=False)
    answer.append(renderer.stop_token_ids[0])
    gone_on = renderer.bridge(asked.ids, answer, asked.hint_at, said, None, thinking, keep_thinking=True)
    assert gone_on is not None and gone_on.ids[: len(asked.ids) + len(answer)] == [*asked.ids, *answer]
    assert renderer.decode(gone_on.ids).rpartition("now?")[2] == renderer.decode(asked.ids).rpartition("it?")[2]
    by_itself = renderer.bridge(asked.ids, answer, asked.hint_at, said, None, thinking)
    assert by_itself is None or by_itself.ids == gone_on.ids
    assert (by_itself is None) is (name in DROPPING)
    thought = answer_of("There.", "I look.")
    anew = renderer.render([*ASKED, thought, *said], None, thinking, keep_thinking=True)
    assert ("I look." in renderer.decode(anew.ids)) is (name in ASKED_BY_THEIR_TEMPLATE)


def test_a_model_folder_is_asked_not_to_think_as_its_own_template_asks(tmp_path: Path) -> None:
    renderer = load_renderer(make_qwen3(tmp_path))
    tokenizer: Any = renderer.renderer._tokenizer  # type: ignore[attr-defined]
    for thinking in (False, True):
        text = tokenizer.apply_chat_template(
            history_to_chat(ASKED), tools=TOOLS, add_generation_prompt=True, tokenize=False, enable_thinking=thinking
        )
        assert renderer.decode(renderer.render(ASKED, TOOLS, thinking).ids) == text
    asked = renderer.render(ASKED, None, False)
    answer = tokenizer.encode("By the door.<|im_end|>", add_special_tokens=False)
    said = [saying("user", "And now?")]
    bridged = renderer.bridge(asked.ids, answer, asked.hint_at, said, None, False)
    assert bridged is not None and bridged.ids[: len(asked.ids) + len(answer)] == [*asked.ids, *answer]


def test_a_family_that_is_not_known_is_asked_through_its_template(tmp_path: Path) -> None:
    folder = make_qwen3(tmp_path)
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    renderer = load_renderer(folder)
    assert type(renderer.renderer).__name__ == "DefaultRenderer"
    quiet = renderer.decode(renderer.render(ASKED, None, False).ids)
    assert quiet == renderer.decode(renderer.render(ASKED, None).ids) + "<think>\n\n</think>\n\n"


def test_a_family_that_wants_a_users_message_says_so() -> None:
    renderer, _ = renderer_of("Qwen3.8")
    with pytest.raises(EngineError, match="user") as refused:
        renderer.render([saying("system", "Greet.")], None)
    assert refused.value.status == 400


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - {"Qwen3.8"}))
def test_instructions_alone_are_a_prompt(name: str) -> None:
    renderer, _ = renderer_of(name)
    prompt = renderer.render([saying("system", "Greet.")], None)
    assert "Greet." in renderer.decode(prompt.ids)
    assert prompt.hint_at is None


@pytest.mark.parametrize("name", FAMILIES)
def test_the_beginning_of_an_answer_stands_behind_where_it_would_begin(name: str) -> None:
    renderer, _ = renderer_of(name)
    asked = renderer.render(ASKED, None, False)
    begun = asked.begun(renderer.encode("It is"))
    assert (begun.asked, renderer.decode(begun.ids)) == (asked.ids, renderer.decode(asked.ids) + "It is")
    assert not renderer.ends_in_reasoning(begun.asked)
