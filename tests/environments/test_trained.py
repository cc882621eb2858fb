"""A policy of middling skill plays tasks of two kinds through the real gateway, and the real trainer learns from both.

Its words are a script, so that its skill is known; the weights that learn are those of a tiny random model.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from tests.conftest import GatewayThread
from tests.environments.swe.conftest import adder, has_what_it_needs, task  # noqa: F401  (fixtures)
from tests.support.servers import running
from tests.training.homes import Bench, settings
from turnwise.bench.stub_engine import StubEngine
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Task
from turnwise.environments.host import Host
from turnwise.environments.kinds import kind_of
from turnwise.environments.rollout import GatewayAt, Play, Rollouts
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


@pytest.mark.slow
def test_one_update_learns_from_both_and_its_version_leads_back_to_each_rollout(
    tmp_path: Path,
    model_dir: Path,
    tokenizer: Tokenizer,
    task: Task,  # noqa: F811
) -> None:
    streams = {f"streams.{name}.{key}": value for name in ("tools", "swe") for key, value in
               {"groups": 1, "method": "grpo", "temperature": 1.0}.items()}  # fmt: skip
    more = {"gate.enabled": False, "server.port": 0, "skills.enabled": False, "train.microbatch_tokens": 4096}
    config = settings(tmp_path / "home", tiny(tmp_path / "tiny", model_dir), **streams, **more)
    mending = [f"```bash\n{each.calls[0].arguments['command']}\n```" for each in kind_of("swe").oracle(task)]
    script = iter([said for episode in (*SUMS, mending, ["```bash\nls\n```", SUBMIT]) for said in episode])
    with running(StubEngine(tokenizer, lambda prompt: next(script)).app()) as engine_url:
        gateway = GatewayThread(config, engine_url)
        gateway.start(config)
        one = Bench(config)
        keys = [(config.home / name).read_text().strip() for name in ("token", "token.person")]

        def actor(play: Play) -> ModelActor:
            kind = kind_of(play.task.environment)
            instructions = instructions_of(kind, play.task, "blocks")
            url = f"{gateway.url}/s/{play.session}/v1"
            return ModelActor(url, keys[0], MODEL_NAME, play.headers, instructions, kind.read)

        leases = one.journal.environments
        host = Host(leases, lambda kind, at: kind_of(kind).make(at, config), tmp_path / "at", 1)
        plays = [Play("r", SUM, i, 4) for i in range(4)] + [Play("r", task, i, 2) for i in range(2)]
        ended = list(Rollouts(host, leases, GatewayAt(gateway.url, *keys), actor).run(plays, 1))
        gateway.stop()
    assert [(each.reward, each.note) for each in ended] == [(r, None) for r in (1.0, 0.0, 1.0, 0.0, 1.0, 0.0)]
    assert one.claim_and_work()
    version = one.journal.versions.get(1)
    assert version is not None and version.metrics["tools_pg"] != 0 and version.metrics["swe_pg"] != 0
    trained = defaultdict(int)
    for turn in map(one.journal.turns.get, version.turn_ids):
        assert turn is not None
        trained[turn.session_id] += 1
    assert trained == {
        **{f"r.sum.{i}": len(said) for i, said in enumerate(SUMS)},
        "r.adder-0.0": len(mending),
        "r.adder-0.1": 2,
    }
    assert any(bool(t.abs().max() > 0) for name, t in one.weights(1).items() if "lora_B" in name)
