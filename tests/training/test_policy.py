"""Log-probs of recorded answers equal what the model itself says about these ids, however they are batched."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from tokenizers.processors import TemplateProcessing
from transformers import GraniteConfig, GraniteForCausalLM, MistralConfig, MistralForCausalLM

from tests.training.tiny import VOCABULARY, by_the_model, ids, make_model, plain_model, sample, shake, train_config
from turnwise.errors import AdapterError, ModelError
from turnwise.training.batching import TokenText, merge_prefixes, row_of, texts_of
from turnwise.training.policy import (
    HINT_HEADER,
    Policy,
    hinted_prompt,
    sampling_temperature,
)
from turnwise.training.weights.devices import pick_device, with_passes


def logprobs(policy: Policy, rows: list, temperature: float = 1.0) -> list[float]:
    with torch.no_grad():
        hidden = policy.hidden(rows)
    tokens = torch.tensor([y for row in rows for s in row.spans for y in row.ids[s.start : s.end]])
    return policy.token_logprobs(hidden, torch.full(tokens.shape, temperature), tokens).tolist()


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_every_response_token_is_scored_from_the_first_on(policy: Policy, tiny_dir: Path, temperature: float) -> None:
    prompt, response = ids(1, 7), ids(2, 5)
    got = logprobs(policy, [row_of(0, prompt, response)], temperature)
    plain = plain_model(tiny_dir, None, train_config())
    assert got == pytest.approx(by_the_model(plain, prompt, response, temperature).tolist(), abs=1e-4)


def test_greedy_answers_are_scored_at_temperature_one() -> None:
    assert sampling_temperature(0.0) == 1.0
    assert sampling_temperature(0.7) == 0.7


def test_padding_and_neighbours_change_nothing(policy: Policy) -> None:
    rows = [row_of(i, ids(10 + i, 4 + 9 * i), ids(20 + i, 3 + i)) for i in range(3)]
    together = logprobs(policy, rows)
    assert together == pytest.approx([x for row in rows for x in logprobs(policy, [row])], abs=1e-5)


def test_a_merged_session_scores_as_its_turns_do_alone(policy: Policy) -> None:
    shake(policy)
    first = sample(0, session_id="s")
    second = sample(1, session_id="s", prompt_ids=[*first.prompt_ids, *first.response_ids, *ids(5, 4)])
    merged = merge_prefixes(texts_of([first, second], [0, 1]))
    assert len(merged) == 1
    alone = [logprobs(policy, [row_of(0, s.prompt_ids, s.response_ids)]) for s in (first, second)]
    assert logprobs(policy, merged) == pytest.approx(alone[0] + alone[1], abs=1e-5)


def test_answers_at_forks_score_as_they_do_alone(policy: Policy) -> None:
    shake(policy)
    trunk = ids(3, 40)
    texts = [
        TokenText(0, trunk, ids(20, 6)),
        TokenText(1, trunk, ids(21, 9)),
        TokenText(2, [*trunk[:30], *ids(22, 7)], ids(23, 5)),
        TokenText(3, [*trunk, *ids(21, 9), *ids(24, 8)], ids(25, 4)),
        TokenText(4, ids(26, 12), ids(27, 3)),
    ]
    rows = merge_prefixes(texts)
    assert policy.reads_forks and sorted(len(row.forks) for row in rows) == [0, 2]
    alone = {t.sample: logprobs(policy, [row_of(0, t.prompt_ids, t.response_ids)]) for t in texts}
    order = [span.sample for row in rows for span in row.spans]
    assert logprobs(policy, rows) == pytest.approx([x for i in order for x in alone[i]], abs=1e-5)


def test_a_model_with_a_sliding_window_gets_no_forks(tiny_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_dir, tmp_path / "windows")
    model = MistralForCausalLM(
        MistralConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, sliding_window=8, eos_token_id=257, bos_token_id=None,
        )
    )  # fmt: skip
    model.save_pretrained(tmp_path / "windows")
    assert not Policy(tmp_path / "windows", train_config()).reads_forks


def test_the_reference_is_the_base_model_whatever_the_adapter_says(policy: Policy) -> None:
    rows = [row_of(0, ids(1, 7), ids(2, 5))]
    base = logprobs(policy, rows)
    shake(policy)
    assert logprobs(policy, rows) != pytest.approx(base, abs=1e-2)
    with policy.reference():
        assert logprobs(policy, rows) == base


def test_a_new_policy_is_the_base_model_and_its_start_is_fixed_by_the_seed(tiny_dir: Path) -> None:
    one, same, other = (Policy(tiny_dir, train_config(seed=seed)).state() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    assert all(not t.any() for name, t in one.items() if "lora_B" in name)


def test_loading_the_policy_leaves_the_programs_random_numbers_alone(tiny_dir: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    Policy(tiny_dir, train_config())
    assert torch.equal(torch.rand(1), expected)


def test_state_and_load_are_inverse(policy: Policy) -> None:
    start = policy.state()
    state = shake(policy)
    assert all(torch.equal(policy.state()[name], state[name]) for name in state)
    policy.load(None)
    assert all(torch.equal(policy.state()[name], start[name]) for name in start)


def test_a_state_is_a_copy(policy: Policy) -> None:
    state = policy.state()
    shake(policy)
    assert any(not torch.equal(policy.state()[name], state[name]) for name in state)


def test_the_adapter_is_on_all_projections_but_the_vocabularys(policy: Policy) -> None:
    names = {name.split(".")[-3] for name in policy.state()}
    assert names == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_an_adapter_of_another_shape_is_refused_and_nothing_changes(policy: Policy) -> None:
    before = policy.state()
    wrong = dict(before)
    name = next(iter(wrong))
    wrong[name] = torch.zeros(2, 2)
    with pytest.raises(AdapterError, match=r"\[2, 2\]"):
        policy.load(wrong)
    with pytest.raises(AdapterError, match="other layers"):
        policy.load({"elsewhere": torch.zeros(1)})
    assert all(torch.equal(policy.state()[n], before[n]) for n in before)


# -- the teacher's context ------------------------------------------------------------------------------------------


def test_the_hint_is_inserted_among_the_recorded_ids(policy: Policy) -> None:
    prompt = ids(1, 8)
    got = hinted_prompt(prompt, "be brief", 6, policy.tokenizer)
    inserted = got[6:-2]
    assert got[:6] + got[-2:] == prompt
    assert policy.tokenizer.decode(inserted) == HINT_HEADER + "be brief"


@pytest.mark.parametrize(("hint", "at"), [(None, 3), ("", 3), ("be brief", None)])
def test_without_a_hint_the_teacher_reads_the_very_same_ids(policy: Policy, hint: str | None, at: int | None) -> None:
    prompt = ids(1, 8)
    assert hinted_prompt(prompt, hint, at, policy.tokenizer) == prompt


# -- what cannot be trained -----------------------------------------------------------------------------------------


def test_a_missing_model_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="doctor"):
        Policy(tmp_path / "nothing", train_config())


def test_a_model_that_rescales_its_logits_is_refused_at_start_up(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    GraniteForCausalLM(
        GraniteConfig(
            vocab_size=260,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            logits_scaling=8.0,
            initializer_range=0.25,
        )
    ).save_pretrained(folder)
    with pytest.raises(ModelError, match="vocabulary projection"):
        Policy(folder, train_config())


def test_a_pass_on_a_gpu_holds_more_tokens_than_one_on_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_passes(train_config(microbatch_tokens=0)).microbatch_tokens == 256
    assert with_passes(train_config(microbatch_tokens=64)).microbatch_tokens == 64
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # what a machine with a GPU says; it is not used
    assert with_passes(train_config(microbatch_tokens=0, device="auto")).microbatch_tokens == 4096
    many = train_config(microbatch_tokens=0, device="auto", backend="fsdp2")
    assert with_passes(many).microbatch_tokens == 256, "several processes cannot make a pass smaller"
    with pytest.raises(ValidationError, match="64 or more, or 0"):
        train_config(microbatch_tokens=63)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_a_model_error() -> None:
    with pytest.raises(ModelError, match=r"train\.device"):
        pick_device("cuda")


def test_looking_by_text_gives_what_a_mask_over_the_whole_row_gives(tiny_dir: Path) -> None:
    """Forks of forks, a text that goes on in a fork, rows of several lengths side by side, layers computed twice."""
    policy = Policy(tiny_dir, train_config())
    shake(policy)
    trunk, branch = ids(3, 40), ids(21, 30)
    texts = [
        TokenText(0, trunk, ids(20, 6)),
        TokenText(1, [*trunk, *branch], ids(21, 9)),
        TokenText(2, [*trunk, *branch[:20], *ids(22, 7)], ids(23, 5)),
        TokenText(3, [*trunk, *branch[:20], *ids(22, 7), *ids(23, 5), *ids(24, 8)], ids(25, 4)),
        TokenText(4, [*trunk[:30], *ids(28, 4)], ids(29, 1)),
        TokenText(5, ids(26, 12), ids(27, 3)),
        TokenText(6, ids(26, 12), ids(31, 3)),
    ]
    rows = policy.rows_of(texts)
    assert policy.looks_by_text and sorted(len(row.forks) for row in rows) == [1, 3]

    def computed(by_text: bool, recompute: bool) -> list[torch.Tensor]:
        policy.looks_by_text = by_text
        hidden = policy.hidden(rows, recompute)
        (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
        gradients = [p.grad for p in policy.parameters() if p.grad is not None]
        policy.model.zero_grad()
        return [hidden.detach(), *gradients]

    expected = computed(False, False)
    assert len(expected) == 1 + len(policy.parameters())
    for recompute in (False, True):
        for one, other in zip(computed(True, recompute), expected, strict=True):
            assert (one - other).norm() < 1e-5 * other.norm()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_not_trained_is_held_in_the_number_format_that_was_asked_for(tiny_dir: Path, dtype: str) -> None:
    policy = Policy(tiny_dir, train_config(dtype=dtype))
    trained = {id(parameter) for parameter in policy.parameters()}
    held = {p.dtype for p in policy.model.parameters() if id(p) not in trained}
    assert held == {getattr(torch, dtype)}
    assert policy.logits(policy.hidden([row_of(0, ids(1, 4), ids(2, 3))])).dtype == torch.float32


@pytest.fixture
def reading(tiny_dir: Path) -> Policy:
    """A policy with an adapter of its own, which what is said of the base model must not show."""
    policy = Policy(tiny_dir, train_config())
    shake(policy)
    return policy


def base_states(folder: Path, prompts: list[list[int]]) -> list[list[torch.Tensor]]:
    """What the base model has behind each of its blocks, from none on, and last behind its norm, at a prompt's end."""
    plain, said = plain_model(folder, None, train_config()), []
    for prompt in prompts:
        with torch.no_grad():
            made = plain.model(input_ids=torch.tensor([prompt]), output_hidden_states=True)
        said.append([state[0, -1] for state in [*made.hidden_states, made.last_hidden_state]])
    return said


def test_states_within_are_the_base_models_behind_that_share_of_its_blocks(reading: Policy, tiny_dir: Path) -> None:
    prompts = [ids(1, 9), [*ids(1, 9), *ids(2, 4)], ids(3, 5)]  # the second goes on from the first
    expected = base_states(tiny_dir, prompts)
    blocks = len(expected[0]) - 2
    assert blocks == 2
    depths = {0.5: 1, 0.4: 1, 0.0: 0}
    found = reading.states_within(prompts, list(depths))
    assert found.dtype == torch.float32 and found.shape[:2] == (3, 3)
    for states, those in zip(found, expected, strict=True):
        for state, block in zip(states, depths.values(), strict=True):
            assert torch.allclose(state, those[block], atol=1e-5)


def test_the_state_of_a_text_is_the_base_models_last_one_whatever_stands_beside_it(
    reading: Policy, tiny_dir: Path
) -> None:
    texts = ["be brief", "answer in French", "be"]
    prompts = [reading.tokenizer.encode(text).ids for text in texts]
    found = reading.states_of(texts)
    for state, those in zip(found, base_states(tiny_dir, prompts), strict=True):
        assert torch.allclose(state, those[-1], atol=1e-5)
    assert torch.equal(reading.states_of(texts[::-1]), found.flip(0))
    [begins] = reading.tokenizer.encode("<").ids
    reading.tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begins)])
    reading._known_states.clear()
    assert reading.tokenizer.encode("be").ids[0] == begins
    assert torch.equal(reading.states_of(texts), found), "a text is read without what begins a conversation"


def test_what_was_asked_of_the_base_model_is_remembered_until_there_is_too_much_of_it(
    reading: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.training.policy.MOST_STATES", 2)
    read: list[int] = []
    hidden = reading.hidden
    monkeypatch.setattr(reading, "hidden", lambda rows, **said: (read.append(len(rows)), hidden(rows, **said))[1])
    one, other, third = ([ids(seed, 6)] for seed in (1, 2, 3))
    for prompts, times in ((one, 1), (one, 1), (other, 2), (one, 2), (third, 3), (other, 3), (one, 4)):
        reading.states_within(prompts, [0.5])
        assert len(read) == times
    reading.states_within(one, [0.25])
    assert len(read) == 5, "at another depth it is another state"
    assert len(reading._known_states) == 2
    many = [*one, *other, *third, *other]
    found = reading.states_within(many, [0.5])
    assert torch.equal(found[1], found[3]) and not torch.equal(found[0], found[1]), "in the order of the question"
    assert len(reading._known_states) == 2
    read.clear()
    assert torch.allclose(reading.states_within(many[1:3], [0.5]), found[1:3], atol=1e-5)
    assert not read, "each by itself, whatever was asked beside it"
