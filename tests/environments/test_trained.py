"""A policy of middling skill plays tasks through the real gateway, and the real trainer learns from them.

Its words are a script, so that its skill is known; the weights that learn are those of a tiny random model.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from tests.conftest import GatewayThread
from tests.environments.swe.conftest import adder, has_what_it_needs, task  # noqa: F401  (fixtures)
from tests.environments.test_desktop_display import MISSING
from tests.environments.test_desktop_rollout import TASK as WRITING
from tests.environments.test_desktop_rollout import judged, middling
from tests.support.servers import running
from tests.training.homes import Bench, settings
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Task
from turnwise.environments.host import Host
from turnwise.environments.kinds import kind_of
from turnwise.environments.rollout import Ended, GatewayAt, Play, Rollouts
from turnwise.environments.transcript import instructions_of
from turnwise.types import MODEL_NAME

SUM = Task("sum", "tools", "What is 40 + 2?", {"answer": "42"})
SUMS = [["```python\nprint(40 + 2)\n```", "Answer: 42"], ["Answer: 41"], ["Answer: 42"], ["no idea", "Answer: 7"]]
SUBMIT = "```bash\nsubmit\n```"


def tiny(folder: Path, like: Path) -> Path:
    """A random model with the tokenizer and the template of a real one."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(like / name, folder / name)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def learner(home: Path, weights: Path, *streams: str, **each: object) -> Config:
    """Settings under which one group of each of these streams is a batch."""
    each |= {"groups": 1, "temperature": 1.0}
    of_streams = {f"streams.{name}.{key}": value for name in streams for key, value in each.items()}
    more = {"gate.enabled": False, "server.port": 0, "skills.enabled": False, "train.microbatch_tokens": 4096}
    return settings(home, weights, **of_streams, **more)


def play(config: Config, tokenizer: Tokenizer, plays: list[Play], said: list[list[str]], one: Bench) -> list[Ended]:
    """Play through a real gateway, one after the other; the engine says what each rollout is to say."""
    script = iter([text for episode in said for text in episode])
    with running(StubEngine(tokenizer, lambda prompt: next(script)).app()) as engine_url:
        gateway = GatewayThread(config, engine_url)
        gateway.start(config)
        token, of_person = ((config.home / name).read_text().strip() for name in ("token", "token.person"))

        def actor(play: Play) -> ModelActor:
            kind = kind_of(play.task.environment)
            instructions = instructions_of(kind, play.task, "blocks")
            url = f"{gateway.url}/s/{play.session}/v1"
            return ModelActor(url, token, MODEL_NAME, play.headers, instructions, kind.read)

        leases = one.journal.environments
        host = Host(leases, lambda kind, at: kind_of(kind).make(at, config), config.home.parent / "at", 1)
        ended = list(Rollouts(host, leases, GatewayAt(gateway.url, token, of_person), actor).run(plays, 1))
        gateway.stop()
    return ended


def learned(one: Bench, *streams: str) -> dict[str, int]:
    """Make one update; gives how many answers of each session it learned from."""
    assert one.claim_and_work()
    version = one.journal.versions.get(1)
    assert version is not None and all(version.metrics[f"{name}_pg"] != 0 for name in streams)
    assert any(bool(t.abs().max() > 0) for name, t in one.weights(1).items() if "lora_B" in name)
    trained = Counter()
    for turn in map(one.journal.turns.get, version.turn_ids):
        assert turn is not None
        trained[turn.session_id] += 1
    return trained


@pytest.mark.slow
def test_one_update_learns_from_both_and_its_version_leads_back_to_each_rollout(
    tmp_path: Path,
    model_dir: Path,
    tokenizer: Tokenizer,
    task: Task,  # noqa: F811
) -> None:
    config = learner(tmp_path / "home", tiny(tmp_path / "tiny", model_dir), "tools", "swe", method="grpo")
    one = Bench(config)
    mending = [f"```bash\n{each.calls[0].arguments['command']}\n```" for each in kind_of("swe").oracle(task)]
    plays = [Play("r", SUM, i, 4) for i in range(4)] + [Play("r", task, i, 2) for i in range(2)]
    ended = play(config, tokenizer, plays, [*SUMS, mending, ["```bash\nls\n```", SUBMIT]], one)
    assert [(each.reward, each.note) for each in ended] == [(r, None) for r in (1.0, 0.0, 1.0, 0.0, 1.0, 0.0)]
    assert learned(one, "tools", "swe") == {
        **{f"r.sum.{i}": len(said) for i, said in enumerate(SUMS)},
        "r.adder-0.0": len(mending),
        "r.adder-0.1": 2,
    }


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=MISSING or "all is here")
def test_one_update_learns_from_a_desktop_by_outcomes_and_votes(
    tmp_path: Path, model_dir: Path, tokenizer: Tokenizer
) -> None:
    config = learner(tmp_path / "home", tiny(tmp_path / "tiny", model_dir), "desktop")
    one = Bench(config)
    said = middling()
    ended = play(config, tokenizer, [Play("d", WRITING, i, 4) for i in range(4)], said, one)
    assert [(each.reward, each.note) for each in ended] == [(r, None) for r in (1.0, 0.0, 0.0, 1.0)]
    assert asyncio.run(judged(config.home)), "a model was asked about the steps"
    assert learned(one, "desktop") == {f"d.{WRITING.id}.{i}": len(each) for i, each in enumerate(said)}
