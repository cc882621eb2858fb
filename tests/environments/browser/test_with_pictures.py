"""An agent that sees plays in the real browser through the real program; one MM-GRPO update of what it did is right.

The model is tiny and random, so its answers mean nothing: what is done in the browser is a script's, and what is
compared is ids, log-probs and weights.
"""

from __future__ import annotations

import base64
import io
import json
import os
import statistics
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoProcessor
from typer.testing import CliRunner

from tests.environments.browser.conftest import needs_browser
from tests.pictures.test_qwen_ids import by_processor
from tests.support import tiny_qwen_vl
from tests.support.processes import Server, serving
from tests.support.tiny_vision import make_model
from tests.training.test_whole_update import DECAY, LR, ByHand
from tests.training.tiny import no_tick, shake
from turnwise.cli.main import app
from turnwise.config import Config, load_config, recipes
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Observation, Task
from turnwise.environments.browser.kind import KIND
from turnwise.environments.host import Host
from turnwise.environments.rollout import Ended, GatewayAt, Play, Rollouts
from turnwise.environments.tasks import written
from turnwise.journal import Journal
from turnwise.journal.rollouts.steps import step_figures
from turnwise.messages import LEFT_OUT
from turnwise.pictures.layout import layout_of
from turnwise.pictures.patches import PatchLayout
from turnwise.pictures.store import PictureStore
from turnwise.training.backends.local import LocalBackend
from turnwise.training.batching import merge_prefixes, texts_of
from turnwise.training.policy import Policy
from turnwise.training.step import plan
from turnwise.types import MODEL_NAME, Batch, Sample

pytestmark = [pytest.mark.slow, needs_browser]

CLICK, WAIT, RIGHT, WRONG = "click 60 115", "wait 0", "done 42", "done 7"
PLAYED = {
    "first": [[CLICK, WAIT, RIGHT], [CLICK, WRONG], [WAIT, CLICK, WRONG]],
    "alike": [[WRONG], [CLICK, WRONG]],
    "last": [[RIGHT], [CLICK, CLICK, WRONG]],
}
"""What is done in each rollout of each task's group. The rewards of the second are all 0."""
ALL_KEPT = "first-2"
"""The rollout whose pictures are all kept."""
SETTINGS = {
    "engine__threads": 1,
    "engine__dtype": "float32",
    "engine__max_model_len": 2048,
    "train__dtype": "float32",
    "train__threads": 1,
    "streams__web__temperature": 0.75,  # float32 has it exactly
    "streams__web__max_tokens": 6,
    "skills__enabled": False,
    "judge__enabled": False,
    "train__enabled": False,  # the tests train, to look at each step
}


@dataclass
class Run:
    server: Server
    model: Path
    sent: dict[str, list[list[dict[str, Any]]]]
    ended: list[Ended]
    tasks: dict[str, Task]


class Noted(ModelActor):
    """Keeps what it sends."""

    def __init__(self, sent: list[list[dict[str, Any]]], *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._sent = sent

    def _ask(self, observation: Observation) -> Any:
        self._sent.append(deepcopy(self.transcript.messages))
        return super()._ask(observation)


@pytest.fixture(scope="module", params=["idefics3", "qwen3_vl"])
def run(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    site: str,
) -> Iterator[Run]:
    make = make_model if request.param == "idefics3" else tiny_qwen_vl.make_model
    model = make(tmp_path_factory.mktemp("vision") / "model")
    place = tmp_path_factory.mktemp("served")
    with serving(place / "home", model, **SETTINGS) as server:
        data = {"url": f"{site}/", "answer": "42", "observe": "screenshot", "window": [200, 200]}
        tasks = {name: Task(name, "web", "Press.", data) for name in PLAYED}
        sent: dict[str, list[list[dict[str, Any]]]] = {}
        person = server.person["Authorization"].removeprefix("Bearer ")

        def actor(play: Play) -> ModelActor:
            rest = iter(PLAYED[play.task.id][play.index])
            name = f"{play.task.id}-{play.index}"
            url, told = f"{server.url}/s/{play.session}/v1", KIND.instructions_in_blocks(play.task)
            of = (
                url,
                server.token,
                MODEL_NAME,
                play.headers,
                told,
                lambda said: KIND.read(f"```web\n{next(rest)}\n```"),
            )
            keep = 9 if name == ALL_KEPT else server.config.streams.web.keep_pictures
            return Noted(sent.setdefault(name, []), *of, keep_pictures=keep)

        journal = server.journal()
        host = Host(journal.environments, lambda kind, at: KIND.make(at, server.config), place / "at", 2)
        rollouts = Rollouts(host, journal.environments, GatewayAt(server.url, server.token, person), actor)
        plays = [Play("r", tasks[name], i, len(group)) for name, group in PLAYED.items() for i in range(len(group))]
        ended = list(rollouts.run(plays, 1))
        journal.close()
        yield Run(server, model, sent, ended, tasks)


def config_of(run: Run, **changes: object) -> Config:
    given = {"train.device": "cpu", "train.lora_rank": 4, "train.lr": LR, "train.weight_decay": DECAY}
    given |= {"train.grad_clip": 1.0, "train.dtype": "float32", "gate.enabled": False, "train.microbatch_tokens": 4096}
    given |= {"streams.web.groups": 2, "streams.web.minibatch": 1, "model.path": str(run.model)}
    return load_config(overrides={"home": run.server.config.home, **given, **changes})


@pytest.fixture(scope="module")
def batch(run: Run) -> Batch:
    journal = Journal.open(config_of(run))
    found = journal.batches.claim("trainer", 600)
    journal.close()
    assert found is not None
    return found


def scaled(model: Path) -> tuple[int, int]:
    """To which size the model's processor scales a picture of 200 by 200 pixels."""
    return (64, 64) if isinstance(layout_of(model), PatchLayout) else (96, 96)


def pictures_in(message: dict[str, Any]) -> list[bytes]:
    content = message["content"] if isinstance(message["content"], list) else []
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    return [base64.b64decode(address.partition(",")[2]) for address in urls]


def processors_ids(model: Path, messages: list[dict[str, Any]]) -> list[int]:
    """What the model's own processor makes of a request."""
    told, pictures = [], []
    qwen = isinstance(layout_of(model), PatchLayout)
    for message in messages:
        given = message["content"]
        parts = [{"type": "text", "text": given}] if isinstance(given, str) else given
        if message["role"] == "assistant" and not qwen:  # it begins with the blank that was sampled behind the colon
            parts = [{"type": "text", "text": given.removeprefix(" ")}]
        joined = [{"type": "image"} if part["type"] == "image_url" else part for part in parts]
        told.append({"role": message["role"], "content": joined})
        pictures += [Image.open(io.BytesIO(data)) for data in pictures_in(message)]
    if qwen:
        return by_processor(model, told, pictures)
    processor = AutoProcessor.from_pretrained(model)
    text = processor.apply_chat_template(told, add_generation_prompt=True)
    return processor(text=text, images=[pictures])["input_ids"][0]


def test_the_rollouts_ended_as_the_script_has_it(run: Run) -> None:
    assert [(each.reward, each.failure, each.note) for each in run.ended] == [
        (float(steps[-1] == RIGHT), None, None) for group in PLAYED.values() for steps in group
    ]


def test_the_latest_picture_is_sent_and_words_stand_for_the_others(run: Run) -> None:
    for name, requests in run.sent.items():
        for n, messages in enumerate(requests):
            seen = [len(pictures_in(message)) for message in messages if message["role"] == "user"]
            assert seen == ([1] * (n + 1) if name == ALL_KEPT else [0] * n + [1])
            assert str(messages).count(LEFT_OUT) == (0 if name == ALL_KEPT else n)
            assert str(messages).count("Succeeded: ") == n, "all feedback is kept"
            assert len([m for m in messages if m["role"] == "assistant"]) == n


def test_what_the_processor_makes_is_what_was_served_and_is_trained(run: Run, batch: Batch) -> None:
    shown = scaled(run.model)
    journal = run.server.journal()
    compared = 0
    for sample in batch.samples:
        turn = journal.turns.get(sample.turn_id)
        assert turn is not None and turn.prompt_ids == sample.prompt_ids
        _, task, index = sample.session_id.split(".")
        messages = run.sent[f"{task}-{index}"][sample.step or 0]
        assert len(sample.pictures) == sum(len(pictures_in(message)) for message in messages)
        assert {(p.width, p.height, p.shown_width, p.shown_height) for p in sample.pictures} == {(200, 200, *shown)}
        if not turn.bridged:  # else the answers stand in it as they were sampled
            assert sample.prompt_ids == processors_ids(run.model, messages)
            compared += 1
    journal.close()
    assert compared >= 7


def test_own_and_merged_samples_are_counted_and_share_rows_as_they_are_counted(run: Run, batch: Batch) -> None:
    def rows(session: str) -> tuple[int, int]:
        """Of a rollout's three steps: rows, and places where a row forks."""
        steps = [sample for sample in batch.samples if sample.session_id == session]
        assert len(steps) == 3
        made = merge_prefixes(texts_of(steps, range(3)))
        return len(made), sum(len(row.forks) for row in made)

    assert rows("r.first.2") == (1, 0), "each step goes on behind the answer of the one before"
    count, forks = rows("r.first.0")
    assert count - 1 + forks == 2, "each step has a prompt of its own, from where a picture is words"
    journal = run.server.journal()
    figures = step_figures(journal.store, [each.play.session for each in run.ended])
    journal.close()
    steps = sum(len(each) for group in PLAYED.values() for each in group)
    assert (figures.own, figures.merged) == (steps - 2, 2), "the two later steps of the rollout that kept all"
    assert figures.pictures == steps + 3 and list(figures.shown) == [((200, 200), scaled(run.model))]


def test_each_step_reacts_to_the_whole_observation_although_the_history_changed(run: Run) -> None:
    journal = run.server.journal()
    with journal.store.reading() as c:
        ids = list(c.exec_driver_sql("SELECT id FROM turns WHERE session_id = 'r.first.0' ORDER BY idx").scalars())
    first, second = (journal.turns.get(turn_id) for turn_id in ids[:2])
    journal.close()
    assert first is not None and second is not None
    for turn in (first, second):
        [message] = turn.next_state
        assert "Succeeded: " in str(message) and "sha256:" in str(message)
    assert second.parent_id == first.id and not second.bridged


def qwen_logits(policy: Policy, ids: Tensor, places: list[int], seen: Any) -> Tensor:
    """By transformers' own positions and pictures, which it would take from the ids: a random model may say a
    placeholder that is no picture."""
    whole: Any = policy.model.get_base_model()  # pyright: ignore[reportCallIssue]
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    mask[0, places] = True
    positions, _ = whole.model.get_rope_index(ids, mask.int(), seen["image_grid_thw"])
    shown = whole.get_image_features(seen["pixel_values"], seen["image_grid_thw"])
    embedded = whole.get_input_embeddings()(ids).clone()
    embedded[mask] = torch.cat(list(shown.pooler_output)).to(embedded)
    deeper = [torch.cat(list(of_block)).to(embedded) for of_block in shown.deepstack_features]
    states = whole.model.language_model(
        inputs_embeds=embedded, position_ids=positions, visual_pos_masks=mask, deepstack_visual_embeds=deeper
    )
    return whole.lm_head(states.last_hidden_state)


class NaiveGrpo:
    """Multi-turn GRPO as OpenWebRL §4.4 writes it, a turn at a time through the whole model of transformers."""

    def __init__(self, policy: Policy, processor: Any, store: PictureStore, samples: list[Sample]) -> None:
        self.policy, self.processor, self.store, self.samples = policy, processor, store, samples
        with torch.no_grad():
            self.old = [self.logprobs(sample) for sample in samples]

    def logprobs(self, sample: Sample) -> Tensor:
        files = [io.BytesIO(self.store.read(picture.sha256)) for picture in sample.pictures]
        seen = self.processor(images=[[Image.open(file) for file in files]], return_tensors="pt")
        ids = torch.tensor([sample.prompt_ids + sample.response_ids])
        places = [at for picture in sample.pictures for at in picture.places(sample.prompt_ids)]
        if "image_grid_thw" in seen:
            logits = qwen_logits(self.policy, ids, places, seen)
        elif int((ids == sample.pictures[0].placeholder).sum()) == len(places):
            logits = self.policy.model(input_ids=ids, **seen).logits
        else:  # a random model may say a placeholder, which transformers would want a picture for
            whole: Any = self.policy.model.get_base_model()  # pyright: ignore[reportCallIssue]
            embedded = whole.get_input_embeddings()(ids).clone()
            shown = whole.get_image_features(seen["pixel_values"], seen["pixel_attention_mask"].bool()).pooler_output
            embedded[0, places] = torch.cat(list(shown)).flatten(0, -2).to(embedded)
            logits = self.policy.model(inputs_embeds=embedded).logits
        table = (logits[0].double() / sample.temperature).log_softmax(-1)[len(sample.prompt_ids) - 1 : -1]
        return torch.stack([table[k, token] for k, token in enumerate(sample.response_ids)])

    def loss(self, chosen: list[int]) -> Tensor:
        """Of one group: the mean over its trajectories of the sum over turns of the mean over tokens."""
        group = self.samples[chosen[0]].group
        assert group is not None
        outcomes = group.outcomes
        mean, spread = statistics.fmean(outcomes), statistics.stdev(outcomes)
        trajectories: dict[str, list[Tensor]] = {}
        for i in chosen:
            sample = self.samples[i]
            advantage = (sample.reward - mean) / (spread + 1e-6)
            rho = (self.logprobs(sample) - self.old[i]).exp()
            sampled = torch.tensor(sample.logprobs, dtype=torch.float64)
            weight = (self.old[i] - sampled).exp().clamp(max=2.0)
            kept = torch.minimum(rho * advantage, rho.clamp(1 - 0.2, 1 + 0.28) * advantage)
            trajectories.setdefault(sample.session_id, []).append((-weight * kept).mean())
        return sum((torch.stack(turns).sum() for turns in trajectories.values()), torch.zeros(())) / len(outcomes)


def test_one_update_over_trajectories_with_pictures_equals_a_naive_one(run: Run, batch: Batch) -> None:
    config = config_of(run)
    stream = config.streams.web
    assert (stream.method, stream.aggregation, stream.epochs, stream.beta_kl) == ("grpo", "trajectory-sum", 2, 0.0)
    assert stream.dynamic_sampling and (config.train.clip_low, config.train.clip_high) == (0.2, 0.28)
    assert {sample.session_id.split(".")[1] for sample in batch.samples} == {"first", "last"}, "alike: dropped"
    backend = LocalBackend(config, run.model)
    backend.prepare(0)
    store = PictureStore(config.home)
    reference = Policy(run.model, config.train, None, store)
    for policy in (backend.policy, reference):
        policy.model.double()
        shake(policy)
    started = reference.state()

    signals = backend.signals(batch, no_tick)
    steps = plan(batch, config.train, recipes(config.train, config.streams))
    metrics = [backend.step(batch, signals, chosen, no_tick)[0] for chosen in steps]
    assert len(steps) == 4, "two groups, two passes"

    naive = NaiveGrpo(reference, AutoImageProcessor.from_pretrained(run.model), store, batch.samples)
    by_hand = ByHand(reference, config.train)
    for chosen, measured in zip(steps, metrics, strict=True):
        loss = naive.loss(chosen)
        assert measured["loss"] == pytest.approx(loss.item(), abs=1e-6)
        by_hand.step(list(torch.autograd.grad(loss, reference.parameters())), 1.0)
    assert max(m["clip_fraction"] for m in metrics) > 0, "the clip cut something off"
    found, expected = backend.policy.state(), reference.state()
    assert max(float((expected[name] - started[name]).abs().max()) for name in started) > 5e-3
    assert max(float((expected[name] - found[name]).abs().max()) for name in started) < 1e-6


def test_engine_and_trainer_say_the_same_of_every_step(run: Run, batch: Batch) -> None:
    config = config_of(run)
    policy = Policy(run.model, config.train, None, PictureStore(config.home))
    naive = NaiveGrpo(policy, AutoImageProcessor.from_pretrained(run.model), PictureStore(config.home), batch.samples)
    for sample, trainers in zip(batch.samples, naive.old, strict=True):
        assert sample.logprobs == pytest.approx(trainers.tolist(), abs=1e-4)


def test_the_command_tells_what_became_of_the_pictures(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text(
        written(Task("cli", "web", "Press.", {**run.tasks["last"].data, "observe": "text"}))
    )
    home = ["--home", str(run.server.config.home), "--set", f"model.path={run.model}", "--form", "blocks"]
    asked = ["rollout", str(tmp_path / "tasks"), "--group", "1", "--observe", "marks", *home]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert "reward -1, 3 steps" in said.output, "nothing that a random model says is a call"
    assert "pictures: 3 taken, 2 of them replaced by words later, 3 in prompts" in said.output
    assert "steps: 3 samples of their own, 0 that go on from the one before" in said.output
    edge = scaled(run.model)[0]
    assert f"3 pictures of 200 by 200 pixels, seen scaled to {edge} by {edge}" in said.output


def test_what_a_script_solves_is_recorded_with_its_pictures_and_learned_from(run: Run, tmp_path: Path) -> None:
    oracle = [[{"name": "wait", "arguments": {"seconds": 0}}], [{"name": "done", "arguments": {"answer": "42"}}]]
    data = {**run.tasks["last"].data, "oracle": oracle}
    (tmp_path / "tasks").write_text(written(Task("cli", "web", "Press.", data)))
    file, settings = tmp_path / "solved.jsonl", ["--set", f"model.path={run.model}"]
    of = [
        "--agent",
        "oracle",
        "--group",
        "2",
        "--observe",
        "both",
        "--form",
        "blocks",
        "--home",
        str(tmp_path / "home"),
    ]
    played = CliRunner().invoke(app, ["rollout", str(tmp_path / "tasks"), *of, "--record", str(file), *settings])
    assert played.exit_code == 0, played.output
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    shown = [
        part["image_url"]["url"]
        for line in lines
        for message in line["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    assert len(lines) == 2 and len(shown) == 4 and all(name.startswith("solved-pictures/") for name in shown)
    assert {f"solved-pictures/{f.name}" for f in (tmp_path / "solved-pictures").iterdir()} == set(shown)
    learned = CliRunner().invoke(app, ["sft", str(file), "--check", "--home", str(tmp_path / "home"), *settings])
    assert learned.exit_code == 0, learned.output
    assert "conversations to learn with" in learned.output
    (tmp_path / "other-pictures").write_text("no folder")
    link = tmp_path / "links" / "link.jsonl"
    link.parent.mkdir()
    link.symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("other.jsonl", "cannot be made: File exists"), ("pipe", "is no regular file")):
        refused = CliRunner().invoke(
            app, ["rollout", str(tmp_path / "tasks"), *of, "--record", str(tmp_path / name), *settings]
        )
        assert refused.exit_code != 0 and why in str(refused.exception), refused.output
    again = ["rollout", str(tmp_path / "tasks"), *of, "--record", str(link), *settings]
    assert CliRunner().invoke(app, again).exit_code == 0
    through = CliRunner().invoke(app, ["sft", str(link), "--check", "--home", str(tmp_path / "home"), *settings])
    assert through.exit_code == 0, through.output
    assert [each.name for each in link.parent.iterdir()] == ["link.jsonl"] and len(file.read_text().splitlines()) == 4


def test_a_picture_that_was_changed_is_not_trained_on(run: Run, batch: Batch) -> None:
    """The last test of the file: it spoils the home."""
    config = config_of(run)
    backend = LocalBackend(config, run.model)
    sha256 = batch.samples[0].pictures[0].sha256
    (PictureStore(config.home).folder / sha256).write_bytes(b"another")
    shown = [sample for sample in batch.samples if sha256 in {picture.sha256 for picture in sample.pictures}]
    left, faults = backend.without_faults(batch)
    assert set(faults) == {sample.turn_id for sample in shown} and len(left.samples) == len(batch.samples) - len(shown)
    assert all("its file was changed" in fault for fault in faults.values()) and json.dumps(faults)
