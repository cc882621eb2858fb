"""States of labelled texts are read once for a model, and never taken for those of another one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from tests.training.tiny import ids, no_tick, train_config
from turnwise.training.kinds import kept_states
from turnwise.training.kinds.kept_states import states_of_labelled
from turnwise.training.kinds.lines import DEPTHS
from turnwise.training.policy import Policy

PROMPTS = [ids(n, 5 + n % 3) for n in range(6)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_states, "cache_dir", lambda: tmp_path)
    return tmp_path / kept_states.FOLDER


def reads(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts are read through the model at a time, from now on."""
    counted: list[int] = []
    usual = policy.states_within

    def counting(prompts: list[list[int]], depths: tuple[float, ...]) -> torch.Tensor:
        counted.append(len(prompts))
        return usual(prompts, depths)

    monkeypatch.setattr(policy, "states_within", counting)
    return counted


def test_they_are_read_once_and_found_behind_a_start(
    policy: Policy, tiny_dir: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = states_of_labelled(policy, PROMPTS, no_tick)
    assert torch.equal(found, policy.states_within(PROMPTS, DEPTHS)) and len(list(cache.iterdir())) == 1
    later = Policy(tiny_dir, train_config())
    counted = reads(later, monkeypatch)
    assert torch.equal(states_of_labelled(later, PROMPTS, no_tick), found) and counted == [1]
    states_of_labelled(later, PROMPTS[1:], no_tick)
    assert counted == [1, 1, 5] and len(list(cache.iterdir())) == 2, "other prompts have a file of their own"


def test_another_model_reads_for_itself(policy: Policy, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = states_of_labelled(policy, PROMPTS, no_tick)
    with torch.no_grad():
        policy._embeddings.weight += 1e-4
    policy._known_states.clear()
    counted = reads(policy, monkeypatch)
    assert not torch.equal(states_of_labelled(policy, PROMPTS, no_tick), first) and counted == [1, len(PROMPTS)]


@pytest.mark.parametrize("broken", [b"", b"no tensors", "cut", "other"])
def test_a_damaged_file_is_written_anew(policy: Policy, cache: Path, broken: bytes | str) -> None:
    found = states_of_labelled(policy, PROMPTS, no_tick)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    other = kept_states.save({"states": found[:, :, 1:].contiguous()})
    file.write_bytes(broken if isinstance(broken, bytes) else {"cut": whole[: len(whole) // 2], "other": other}[broken])
    assert torch.equal(states_of_labelled(policy, PROMPTS, no_tick), found)
    assert file.read_bytes() == whole


def test_values_that_are_no_numbers_are_not_taken(policy: Policy, cache: Path) -> None:
    found = states_of_labelled(policy, PROMPTS, no_tick)
    (file,) = cache.iterdir()
    file.write_bytes(kept_states.save({"states": torch.full_like(found, float("nan"))}))
    assert torch.equal(states_of_labelled(policy, PROMPTS, no_tick), found)


def test_without_room_for_a_cache_it_works_as_well(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kept_states, "cache_dir", lambda: tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        assert torch.equal(states_of_labelled(policy, PROMPTS, no_tick), policy.states_within(PROMPTS, DEPTHS))
    assert "cannot be written" in caplog.text


def test_few_files_are_kept(policy: Policy, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_states, "MOST_FILES", 2)
    for n in range(3):
        states_of_labelled(policy, PROMPTS[n : n + 2], no_tick)
    assert len(list(cache.iterdir())) == 2
    states_of_labelled(policy, PROMPTS[2:4], no_tick)
    assert len(list(cache.iterdir())) == 2
