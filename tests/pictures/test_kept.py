"""Files of pictures: there before their turn, gone with the last one, and never trained on when they are others."""

from __future__ import annotations

import base64
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.rows import turn_row
from tests.support.thinker import thinking_gateway
from tests.support.tiny_vision import make_model, png
from tests.support.versions import answered, new_turn
from tests.training.homes import Bench, settings
from turnwise.config import Config
from turnwise.errors import PictureLost
from turnwise.gateway.turn.seeing import Seeing
from turnwise.gateway.wire.request import ModelRequest
from turnwise.journal import Answer, Journal
from turnwise.journal.deletion.forgetting import forget
from turnwise.journal.deletion.retention import prune
from turnwise.journal.pictures import sweep_pictures
from turnwise.journal.replay.copying import copy_journal
from turnwise.messages import saying
from turnwise.pictures.placed import PlacedPicture
from turnwise.pictures.reading import sha256_of_bytes
from turnwise.pictures.store import PictureStore
from turnwise.tokens.rendering import load_renderer
from turnwise.types import FinishReason, Image, Message, Text, TurnState

TAKE_IN = Seeing.take_in
RED, BLUE = png((200, 20, 20), 100, 60), png((10, 20, 220), 100, 60)


def with_pictures(*files: bytes) -> dict[str, Any]:
    placed = [PlacedPicture(sha256_of_bytes(f), 3 * n, 3 * n + 2, 9, 1, 1, 1, 1) for n, f in enumerate(files)]
    return {"pictures": tuple(placed), "files": {sha256_of_bytes(f): f for f in files}}


def kept(journal: Journal) -> set[str]:
    return set(PictureStore(journal.store.config.home).all())


def test_a_file_goes_with_the_last_session_that_has_it(journal: Journal) -> None:
    answered(journal, session_id="one", **with_pictures(RED, BLUE))
    answered(journal, session_id="two", **with_pictures(RED))
    assert kept(journal) == {sha256_of_bytes(RED), sha256_of_bytes(BLUE)}
    forget(journal, "one")
    assert kept(journal) == {sha256_of_bytes(RED)}
    forget(journal, "two")
    assert kept(journal) == set()


def test_a_turn_has_its_pictures_although_a_sweep_came_between(journal: Journal) -> None:
    PictureStore(journal.store.config.home).keep(sha256_of_bytes(RED), RED)  # as the gateway does when one comes in
    assert sweep_pictures(journal.store) == 1
    turn = answered(journal, **with_pictures(RED))
    assert kept(journal) == {sha256_of_bytes(RED)} and sweep_pictures(journal.store) == 0
    [sample] = journal.batches.read([turn])
    assert [(p.start, p.end, p.sha256) for p in sample.pictures] == [(0, 2, sha256_of_bytes(RED))]


def test_a_request_is_answered_although_a_sweep_came_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its picture is in the home before any turn has it, and the engine is told it before it is recorded."""
    with thinking_gateway(tmp_path, (100, 60)) as thinking, closing(Journal.open(thinking.config)) as journal:
        swept: list[int] = []

        def take_in_and_sweep(self: Seeing, *given: Any, **more: Any) -> ModelRequest:
            found = TAKE_IN(self, *given, **more)
            swept.append(sweep_pictures(journal.store))
            return found

        monkeypatch.setattr(Seeing, "take_in", take_in_and_sweep)
        url = f"data:image/png;base64,{base64.b64encode(RED).decode()}"
        asked = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
        headers = {"Authorization": f"Bearer {thinking.token}"}
        body = {"model": "turnwise", "messages": asked}
        answer = httpx.post(f"{thinking.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert (answer.status_code, swept) == (200, [1]), answer.text
        assert kept(journal) == {sha256_of_bytes(RED)}


def test_a_turn_that_is_made_whole_keeps_the_pictures_of_before(journal: Journal) -> None:
    first = answered(journal, session_id="one", **with_pictures(RED))
    after = with_pictures(RED, BLUE)
    second = answered(journal, session_id="two", parent_id=first, branch_of="one", extends_parent=True, **after)
    forget(journal, "one")
    [sample] = journal.batches.read([second])
    assert [p.sha256 for p in sample.pictures] == [sha256_of_bytes(RED), sha256_of_bytes(BLUE)]
    assert kept(journal) == {sha256_of_bytes(RED), sha256_of_bytes(BLUE)}


def test_what_is_pruned_takes_its_files_along(journal: Journal) -> None:
    turn = new_turn(**with_pictures(RED))
    journal.turns.begin(turn)
    journal.turns.finish(turn.id, Answer(saying("assistant", ""), None, FinishReason.ERROR, [], []))
    assert prune(journal, journal.store.clock() + 1, None, dry_run=True).turns == 1 and kept(journal)
    assert prune(journal, journal.store.clock() + 1, None).turns == 1 and not kept(journal)


def test_a_copy_of_the_journal_has_the_same_files(journal: Journal, config: Config, tmp_path: Path) -> None:
    answered(journal, **with_pictures(RED))
    (tmp_path / "copy").mkdir()
    copy_journal(config, tmp_path / "copy")
    assert PictureStore(tmp_path / "copy").read(sha256_of_bytes(RED)) == RED


def test_a_file_that_was_changed_is_refused_and_mended_when_it_comes_again(tmp_path: Path) -> None:
    store, name = PictureStore(tmp_path), sha256_of_bytes(RED)
    store.keep(name, RED)
    (store.folder / name).write_bytes(RED[:-1] + b"?")
    with pytest.raises(PictureLost, match="its file was changed"):
        store.read(name)
    store.keep(name, RED)
    assert store.read(name) == RED
    (store.folder / name).unlink()
    with pytest.raises(PictureLost, match="any more"):
        store.read(name)


@pytest.mark.slow
def test_a_turn_whose_picture_is_lost_or_changed_is_excluded_with_its_reason(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    bench = Bench(settings(tmp_path / "home", model))
    renderer, journal = load_renderer(model), bench.journal
    files = [png((200, 20, 20), 100, 60, n) for n in range(4)]
    for n, data in enumerate(files):
        image = Image(f"sha256:{sha256_of_bytes(data)}", {"width": 100, "height": 60})
        prompt = renderer.render([Message("user", (image, Text("What is it?")))], None)
        about = {"prompt_ids": prompt.ids, "prompt_tokens": len(prompt.ids), "hint_at": prompt.hint_at}
        about |= {"pictures": prompt.pictures, "files": {sha256_of_bytes(data): data}}
        turn = new_turn(f"turn-{n}", session_id=f"s-{n}", **about)
        journal.turns.begin(turn)
        answer = Answer(saying("assistant", "…"), None, FinishReason.STOP, [30 + n, 40, 50], [-4.0] * 3)
        journal.turns.finish(turn.id, answer)
        journal.verdicts.feedback(turn.id, 1 if n % 2 else -1, None)
    folder = PictureStore(bench.config.home).folder
    (folder / sha256_of_bytes(files[0])).unlink()
    (folder / sha256_of_bytes(files[1])).write_bytes(files[2])
    assert bench.claim_and_work()
    assert journal.versions.latest() == 1
    states = {n: journal.turns.get(f"turn-{n}") for n in range(4)}
    assert [states[n].state for n in (2, 3)] == [TurnState.TRAINED] * 2  # type: ignore[union-attr]
    assert "any more" in why(journal, "turn-0") and "its file was changed" in why(journal, "turn-1")
    journal.close()


def why(journal: Journal, turn: str) -> str:
    row = turn_row(journal, turn)
    assert row.state == TurnState.EXCLUDED
    return str(row.last_error)
