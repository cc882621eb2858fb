"""Fine-tuning on conversations with pictures: what is taken from a file, the ids that are learned, and the loss.

The model is tiny and random, of SmolVLM's real architecture, template and processor.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import io
import json
import os
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image as Pixels
from torch import Tensor
from transformers import AutoImageProcessor

from tests.pictures.test_served import processor_ids
from tests.support import tiny_qwen_vl
from tests.support.tiny_vision import make_model, png
from tests.training.sft.chat_model import sft_home, write
from tests.training.tiny import no_tick, shake, train_config
from turnwise.config import Config
from turnwise.environments.base import Instructions, Observation
from turnwise.environments.transcript import RolloutTranscript
from turnwise.errors import ConfigError, DataError, DiskFull, PictureRefused
from turnwise.messages import LEFT_OUT, from_chat, with_images
from turnwise.pictures.reading import MOST_BYTES
from turnwise.pictures.store import PictureStore
from turnwise.tokens.rendering import PromptRenderer, load_renderer
from turnwise.training.batching import TokenText
from turnwise.training.policy import Policy
from turnwise.training.publish import version_dir
from turnwise.training.sft.conversations import Dialogue, read_data
from turnwise.training.sft.course import SftProgress, SftStopped
from turnwise.training.sft.encoding import Encoded, Told, encode, texts_of
from turnwise.training.sft.pictures import FilePictures
from turnwise.training.sft.run import SftTeller, fine_tune, look
from turnwise.training.sft.unfinished import SftSettings, SftStory
from turnwise.training.supervised import likelihood_loss, rows_of
from turnwise.training.weights.files import load_version_dir
from turnwise.types import Image

RED, BLUE, GREEN = png((200, 20, 20), 100, 60), png((10, 20, 220), 60, 90), png((10, 220, 20), 40, 24)


@pytest.fixture(scope="module", params=["idefics3", "qwen3_vl"])
def vision(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make = make_model if request.param == "idefics3" else tiny_qwen_vl.make_model
    return make(tmp_path_factory.mktemp("vision") / "model")


@pytest.fixture(scope="module")
def renderer(vision: Path) -> PromptRenderer:
    return load_renderer(vision)


def url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def shown(address: str, words: str = "What is it?") -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": address}}, {"type": "text", "text": words}]
    return {"role": "user", "content": parts}


def said(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def one(tmp_path: Path, row: dict[str, Any], store: PictureStore | None = None) -> Dialogue:
    file = write(tmp_path / "data.jsonl", [row])
    [found] = read_data(file, take=FilePictures(tmp_path, store).take).conversations
    return found


def encoded(renderer: PromptRenderer, dialogue: Dialogue) -> Encoded:
    found = encode(renderer, dialogue, 4096, Told())
    assert found is not None
    return found


# -- what is taken -----------------------------------------------------------------------------------------------------


def test_a_picture_in_the_line_and_one_beside_the_file_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "shots").mkdir()
    (tmp_path / "shots" / "1.png").write_bytes(RED)
    store = PictureStore(tmp_path / "kept")
    pictures = FilePictures(tmp_path, store)
    inside, beside, again = (pictures.take(Image(at)) for at in (url(RED), "shots/1.png", "./shots/1.png"))
    assert inside == beside == again
    assert inside.said == {"width": 100, "height": 60} and inside.url.startswith("sha256:")
    assert store.all() == [inside.url.removeprefix("sha256:")]


def test_the_digest_tells_what_was_shown_where(tmp_path: Path) -> None:
    def digest(*order: bytes) -> str:
        pictures = FilePictures(tmp_path, None)
        for data in order:
            pictures.take(Image(url(data)))
        return pictures.digest

    assert digest() == ""
    assert digest(RED, BLUE) == digest(RED, BLUE)
    assert len({digest(RED, BLUE), digest(BLUE, RED), digest(RED), digest(RED, RED)}) == 4


def open_files() -> list[str]:
    """The names of the files that this process has open."""
    found: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself, or one that was closed meanwhile
            found.append(str(descriptor.readlink()))
    return found


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("https://example.org/a.png", "none is fetched"),
        ("FILE:///etc/passwd", "none is fetched"),
        ("/etc/hostname", "no path in the folder"),
        ("../secret.png", "no path in the folder"),
        ("a/../../secret.png", "no path in the folder"),
        ("..\\secret.png", "no path in the folder"),
        ("a\0.png", "no path in the folder"),
        ("", "no path in the folder"),
        ("sha256:" + "0" * 64, "named by its hash alone"),
        ("out.png", "is a link"),
        ("round.png", "is a link"),
        ("away/secret.png", "is a link"),
        (".", "cannot be read beside the file|is no file"),
        ("gone.png", "cannot be read beside the file"),
        ("x" * 5000, "cannot be read beside the file"),
        ("pipe", "is no file"),
        ("folder", "cannot be read beside the file|is no file"),
        ("words.png/1.png", "cannot be read beside the file"),
        ("words.png", "no PNG"),
        ("large.png", "at most 10 MB"),
        ("data:text/html;base64,AAAA", "no PNG"),
        ("data:image/png;base64,%%", "no base64"),
    ],
)
def test_nothing_else_of_this_machine_is_reached(tmp_path: Path, name: str, why: str) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret.png").write_bytes(RED)
    (inside / "out.png").symlink_to(tmp_path / "secret.png")
    (inside / "away").symlink_to(tmp_path)
    (inside / "round.png").symlink_to("round.png")
    (inside / "words.png").write_text("no picture")
    (inside / "folder").mkdir()
    os.mkfifo(inside / "pipe")
    with (inside / "large.png").open("wb") as large:
        large.truncate(MOST_BYTES + 1)
    for _ in range(3):
        with pytest.raises(PictureRefused, match=why):
            FilePictures(inside, PictureStore(tmp_path)).take(Image(name))
    assert not [file for file in open_files() if file.startswith(str(tmp_path))], "what is refused stays open"
    assert PictureStore(tmp_path).all() == []


@pytest.mark.parametrize(
    ("messages", "more", "why"),
    [
        ([shown("gone.png"), said("It.")], {}, "message 0: the picture 'gone.png' cannot be read"),
        ([{"role": "system", "content": shown(url(RED))["content"]}, said("It.")], {}, "only user and tool show some"),
        (
            [{"role": "user", "content": "?"}, {"role": "assistant", "content": shown(url(RED))["content"]}],
            {},
            "of the role assistant and has a picture",
        ),
        ([shown(url(RED)), said("It.")], {"keep_pictures": 0}, "1 or more"),
        ([shown(url(RED)), said("It.")], {"keep_pictures": True}, "1 or more"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": url(RED)}]}, said("It.")],
            {},
            'an image_url without {"url": …}',
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "?", "image_url": {"url": url(RED)}}]}, said("It.")],
            {},
            "a text and a picture; write two",
        ),
        ([{"role": "user", "content": [{"type": "video_url"}]}, said("It.")], {}, "the type 'video_url'"),
    ],
)
def test_a_line_that_shows_nothing_is_refused(tmp_path: Path, messages: Any, more: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError) as refused:
        one(tmp_path, {"messages": messages, **more})
    assert why in str(refused.value) and "line 1" in str(refused.value)


def test_a_model_that_sees_nothing_says_so(tmp_path: Path, chat_dir: Path) -> None:
    file = write(tmp_path / "data.jsonl", [{"messages": [shown(url(RED)), said("It.")]}])
    with pytest.raises(DataError, match="message 0 has a picture, and this model sees none"):
        look(sft_home(tmp_path / "home", chat_dir), file, SftSettings(), lambda text: None)


# -- what is learned ---------------------------------------------------------------------------------------------------


def test_ids_are_those_of_the_models_own_processor(tmp_path: Path, vision: Path, renderer: PromptRenderer) -> None:
    """A bridged second turn as well: nothing stands between the first answer and what was shown next."""
    tool = {"role": "tool", "tool_call_id": "c", "content": shown(url(GREEN), "So.")["content"]}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        shown(url(RED)),
        said("Red."),
        shown(url(BLUE), "And that?"),
        {**said("Let me see."), "tool_calls": [call]},
    ]
    found = encoded(renderer, one(tmp_path, {"messages": [*messages, tool, said("Green.")]}))
    [text] = found.texts
    assert [(p.width, p.height) for p in text.pictures] == [(100, 60), (60, 90), (40, 24)]
    ids = processor_ids(vision, RED)
    first, second, third = texts_of(found, 3)
    assert first.prompt_ids == ids and second.prompt_ids[: len(ids)] == ids
    assert [len(t.pictures) for t in (first, second, third)] == [1, 2, 3]
    assert renderer.decode(first.response_ids).strip().startswith("Red.")
    for told in (first, second, third):
        for picture in told.pictures:
            assert picture.places(told.prompt_ids), "it stands where the model sees it"


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> PromptRenderer:
    return load_renderer(tiny_qwen_vl.make_model(tmp_path_factory.mktemp("thinks") / "model", thinks=True))


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("keep", [1, 2])
def test_each_answer_is_learned_from_the_pictures_that_it_was_given_with(
    tmp_path: Path, renderer: PromptRenderer, thinker: PromptRenderer, keep: int, thinks: bool
) -> None:
    """A rollout's recorded line gives, for each step, the prompt that the gateway made of what the agent sent."""
    renderer = thinker if thinks else renderer
    told, sent = RolloutTranscript(Instructions("Look.", ()), keep), []
    for n, seen in enumerate([(RED,), (BLUE, GREEN), (), (GREEN,)]):
        told.hear(Observation(f"page {n}", images=seen))
        sent.append(json.loads(json.dumps(told.messages)))
        told.say(f"step {n}", thought=f"thought {n}" if thinks else "")
    told.hear(Observation("the end", images=(RED,)))  # behind the last answer
    (tmp_path / "shots").mkdir()
    for name, data in told.files.items():
        (tmp_path / "shots" / name).write_bytes(data)
    line = told.line("shots")
    assert "base64" not in line and json.loads(line)["keep_pictures"] == keep and "the end" not in line
    found = texts_of(encoded(renderer, one(tmp_path, json.loads(line))), 0)
    take = FilePictures(tmp_path, None).take
    assert len(found) == 4
    for text, messages in zip(found, sent, strict=True):
        served = renderer.render([with_images(from_chat(m), take) for m in messages], None, keep_thinking=thinks)
        assert (text.prompt_ids, text.pictures) == (served.ids, served.pictures)
    last = renderer.decode(found[-1].prompt_ids)
    assert LEFT_OUT in last and ("thought 0" in last) is thinks


@pytest.mark.parametrize("thought", ["and on, and on", ""])
def test_an_answer_that_ended_in_its_thoughts_is_context(tmp_path: Path, thinker: PromptRenderer, thought: str) -> None:
    told = RolloutTranscript(Instructions("Look.", ()))
    for n, words in enumerate(["", "a step"]):
        told.hear(Observation(f"page {n}", images=(RED,)))
        sent = json.loads(json.dumps(told.messages))
        told.say(words, thought=thought if not words else "a thought")
    (tmp_path / "shots").mkdir()
    for name, data in told.files.items():
        (tmp_path / "shots" / name).write_bytes(data)
    dialogue = one(tmp_path, json.loads(told.line("shots")))
    [text] = texts_of(encoded(thinker, dialogue), 0)
    take = FilePictures(tmp_path, None).take
    served = thinker.render([with_images(from_chat(m), take) for m in sent], None, keep_thinking=True)
    assert text.prompt_ids == served.ids and thought in thinker.decode(text.prompt_ids)
    assert thinker.decode(text.response_ids).startswith("a thought")


def test_two_conversations_that_differ_in_a_picture_alone_are_two(tmp_path: Path, renderer: PromptRenderer) -> None:
    same = png((1, 2, 3), 100, 60)
    red, again, other = (
        encoded(renderer, one(tmp_path, {"messages": [shown(url(data)), said("It.")]})) for data in (RED, RED, same)
    )
    assert red.texts[0].ids == other.texts[0].ids
    assert red.digest == again.digest != other.digest


def naive_loss(policy: Policy, processor: Any, texts: list[TokenText], files: dict[str, bytes]) -> Tensor:
    """Each answer alone through the whole model of transformers, with the pixels that its own processor makes."""
    terms = []
    for text in texts:
        images = [[Pixels.open(io.BytesIO(files[picture.sha256])) for picture in text.pictures]]
        seen = processor(images=images, return_tensors="pt")
        ids = torch.tensor([text.ids])
        if "image_grid_thw" in seen:
            seen["mm_token_type_ids"] = (ids == policy.model.config.image_token_id).int()
        seen["pixel_values"] = seen["pixel_values"].double()
        logits = policy.model(input_ids=ids, **seen).logits[0]
        table = torch.log_softmax(logits, dim=-1)
        begin = len(text.prompt_ids)
        terms += [-table[begin - 1 + k, token] for k, token in enumerate(text.response_ids)]
    return torch.stack(terms).mean()


@pytest.mark.parametrize("weights", ["lora", "full"])
def test_loss_and_gradient_equal_those_of_the_whole_model(
    tmp_path: Path, vision: Path, renderer: PromptRenderer, weights: str
) -> None:
    store = PictureStore(tmp_path)
    policy = Policy(vision, train_config(weights=weights), None, store)
    policy.model.double()
    shake(policy)
    same = png((1, 2, 3), 100, 60)
    rows = [
        {"messages": [shown(url(RED)), said("Red."), shown(url(BLUE), "And that?"), said("Blue.")]},
        {"messages": [shown(url(same)), said("Black.")]},
        {"messages": [shown(url(RED)), said("R."), shown(url(GREEN), "So?"), said("G.")], "keep_pictures": 1},
    ]
    texts: list[TokenText] = []
    for n, row in enumerate(rows):
        texts += texts_of(encoded(renderer, one(tmp_path, row, store)), n)
    found = likelihood_loss(policy, rows_of(policy, texts), 4096, no_tick, learn=True)
    ours = [p.grad.clone() for p in policy.parameters() if p.grad is not None]
    policy.model.zero_grad()
    files = {name: store.read(name) for name in store.all()}
    expected = naive_loss(policy, AutoImageProcessor.from_pretrained(vision), texts, files)
    theirs = torch.autograd.grad(expected, policy.parameters())
    # what is seen comes from a tower in its own precision, here and there
    assert found == pytest.approx(expected.item(), abs=1e-5)
    assert len(ours) == len(theirs)
    assert max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) < 1e-4
    assert max(float(b.abs().max()) for b in theirs) > 1e-2, "there is something to compare"


def picture_home(home: Path, model: Path) -> Config:
    settings = {"train.microbatch_tokens": 512, "engine.max_model_len": 1024, "train.dtype": "float32"}
    return sft_home(home, model, **settings)


def test_a_run_publishes_what_it_learned_from_pictures(tmp_path: Path, vision: Path, renderer: PromptRenderer) -> None:
    """Two pictures of one size and the same words: only who sees can tell which answer is which."""
    config, (one_picture, other) = picture_home(tmp_path / "home", vision), (RED, png((10, 20, 220), 100, 60))
    (tmp_path / "one.png").write_bytes(one_picture)
    rows = [{"messages": [shown(at), said(word)]} for at, word in (("one.png", "Yes."), (url(other), "No."))]
    file = write(tmp_path / "data.jsonl", rows)
    asked = SftSettings(epochs=60, lr=1e-2, batch_tokens=1024, eval_share=0, context=1024)
    version = fine_tune(config, file, asked, threading.Event(), SftTeller(lambda text: None, lambda at: None))
    assert version.number == 1
    assert not (config.home / "sft-pictures").exists() and PictureStore(config.home).all() == []
    store = PictureStore(tmp_path)
    policy = Policy(vision, config.train, None, store)
    policy.load(load_version_dir(version_dir(config.versions_dir, 1)).weights)

    def loss(picture: bytes, word: str) -> float:
        texts = texts_of(encoded(renderer, one(tmp_path, {"messages": [shown(url(picture)), said(word)]}, store)), 0)
        return likelihood_loss(policy, rows_of(policy, texts), 1024, no_tick, learn=False)

    assert loss(one_picture, "Yes.") < loss(other, "Yes.") - 0.1
    assert loss(other, "No.") < loss(one_picture, "No.") - 0.1


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_was_stopped_goes_on_with_the_same_pictures_alone(
    tmp_path: Path, vision: Path, changed: bool
) -> None:
    picture = tmp_path / "red.png"
    rows = [{"messages": [shown("red.png", f"Question {n}?"), said("It is red.")]} for n in range(4)]
    file = write(tmp_path / "data.jsonl", rows)
    asked = SftSettings(epochs=4, lr=1e-3, batch_tokens=64, eval_share=0, context=1024)

    def run(home: str, stop_at: int | None = None, *, anew: bool = False) -> list[str]:
        stop, told = threading.Event(), list[str]()

        def look_at(at: SftProgress) -> None:
            if at.step == stop_at:
                stop.set()

        fine_tune(picture_home(tmp_path / home, vision), file, asked, stop, SftTeller(told.append, look_at), anew=anew)
        return told

    picture.write_bytes(RED)
    with pytest.raises(SftStopped):
        run("stopped", stop_at=2)
    if changed:
        picture.write_bytes(BLUE)
        with pytest.raises(DataError, match="its pictures have changed since it began"):
            run("stopped")
    told = run("stopped", anew=changed)
    assert any("goes on behind step" in line for line in told) is not changed
    run("whole")
    found, expected = (
        load_version_dir(version_dir(tmp_path / home / "versions", 1)).weights for home in ("stopped", "whole")
    )
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


def test_a_model_that_sees_is_learned_by_the_local_trainer_alone(tmp_path: Path, vision: Path) -> None:
    file = write(tmp_path / "data.jsonl", [{"messages": [shown(url(RED)), said("It.")]}])
    config = sft_home(tmp_path / "home", vision, **{"train.enabled": False, "train.backend": "fsdp2"})
    with pytest.raises(ConfigError, match=r'set train\.backend = "local"'):
        fine_tune(config, file, SftSettings(), threading.Event(), SftTeller(lambda text: None, lambda at: None))


def test_a_home_that_is_full_is_named_and_not_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's word for want of room is a stand-in: no disk is filled."""

    def full(self: PictureStore, sha256: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PictureStore, "keep", full)
    with pytest.raises(DiskFull, match="kept"):
        one(tmp_path, {"messages": [shown(url(RED)), said("It.")]}, PictureStore(tmp_path / "kept"))


def test_an_answer_whose_pictures_are_too_many_is_left_out_and_a_later_one_is_not(
    tmp_path: Path, renderer: PromptRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.messages.LEFT_OUT", "…")  # as short as it is in the ids of a real tokenizer
    many = {"role": "user", "content": [part for _ in range(4) for part in shown(url(RED))["content"]]}
    messages = [many, said("Four."), shown(url(GREEN), "And now?"), said("One.")]
    whole = encoded(renderer, one(tmp_path, {"messages": messages, "keep_pictures": 1}))
    lengths = [len(text.ids) for text in whole.texts]
    assert len(lengths) == 2 and lengths[1] < lengths[0]
    told = Told()
    cut = encode(renderer, one(tmp_path, {"messages": messages, "keep_pictures": 1}), lengths[0] - 1, told)
    assert cut is not None and [text.ids for text in cut.texts] == [whole.texts[1].ids] and told.cut == 1


def test_a_run_without_pictures_is_the_one_that_it_was_before_there_were_some() -> None:
    """A run that was stopped by an earlier release goes on: its checkpoints have this digest of it."""
    story = SftStory("a.jsonl", "0" * 64, "m", 0, "1" * 64, {"epochs": 2}, {"seed": 0})
    fields = {name: value for name, value in asdict(story).items() if name != "pictures"}
    assert story.origin == hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    assert replace(story, pictures="2" * 64).origin != story.origin
