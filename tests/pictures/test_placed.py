"""Where pictures stand: what tells prompts apart, and what moves them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.capabilities import check
from turnwise.config import load_config
from turnwise.errors import ConfigError
from turnwise.pictures.placed import PlacedPicture, inserted, keys_of, misplaced, without
from turnwise.training.batching import Fork, TokenText, distinct_tokens, merge_prefixes
from turnwise.types import Sample

SEEN = 9
IDS = [1, 5, SEEN, SEEN, 6, SEEN, 2, 3]


def placed(sha: str, start: int = 1, end: int = 6) -> PlacedPicture:
    return PlacedPicture(sha * 64, start, end, SEEN, 10, 10, 32, 32)


def test_placeholders_are_told_apart_by_picture_and_place_and_nothing_else_is() -> None:
    keys, other = keys_of(IDS, [placed("a")]), keys_of(IDS, [placed("b")])
    assert [k for k in keys if k > 0] == [1, 5, 6, 2, 3]
    assert len({k for k in (*keys, *other) if k < 0}) == 6
    assert keys == keys_of(IDS, [placed("a")]) and keys_of(IDS, []) == IDS
    assert keys_of([*IDS, SEEN], [placed("a")])[-1] == SEEN, "one that was sampled shows nothing"


def test_what_is_put_in_or_taken_out_moves_the_pictures_behind_it() -> None:
    both = (placed("a"), placed("b", 10, 12))
    assert [p.start for p in inserted(both, 7, 4)] == [1, 14]
    assert [p.start for p in without(inserted(both, 7, 4), [(7, 11)])] == [1, 10]


def test_a_samples_wishes_are_taken_out_without_losing_its_pictures() -> None:
    ids = [1, 2, 70, 71, *IDS]
    sample = Sample("t", "s", ids, [4], None, 1.0, 0, 1.0, None, 4, placed=((2, 4),), pictures=(placed("a", 5, 10),))
    bare = sample.as_asked()
    assert bare.prompt_ids == [1, 2, *IDS] and bare.pictures[0].places(bare.prompt_ids) == [4, 5, 7]


def test_pictures_that_do_not_fit_their_ids_are_said() -> None:
    assert misplaced(IDS, [placed("a")], [3]) is None
    assert "3 placeholders" in str(misplaced(IDS, [placed("a")], [4]))
    assert "within another" in str(misplaced(IDS, [placed("a"), placed("b", 5, 7)], [3, 1]))
    assert "of 8 ids" in str(misplaced(IDS, [placed("a", 1, 9)], [3]))


def test_rows_share_a_beginning_only_where_the_pictures_are_the_same() -> None:
    one, same, other = (TokenText(n, IDS, [50 + n], (placed(sha),)) for n, sha in enumerate("aab"))
    [row] = merge_prefixes([one, same])
    assert row.ids == [*IDS, 50, 3, 51] and row.shown == {"a" * 64: [(2, 0), (3, 1), (5, 2)]}
    [row] = merge_prefixes([one, other])
    assert row.forks == [Fork(9, 1)], "they have in common what stands before the first placeholder"
    assert row.shown == {"b" * 64: [(2, 0), (3, 1), (5, 2)], "a" * 64: [(9, 0), (10, 1), (12, 2)]}
    assert distinct_tokens([one, same]) == 10 and distinct_tokens([one, other]) == 16


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"engine.kind": "sglang", "engine.url": "http://127.0.0.1:1"}, 'set engine.kind = "local" or "vllm"'),
        ({"train.backend": "fsdp2"}, 'set train.backend = "local"'),
    ],
)
def test_what_a_model_that_sees_cannot_do_is_refused_when_the_configuration_is_read(
    tmp_path: Path, settings: dict[str, str], why: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "idefics3"}))
    common: dict[str, object] = {"home": tmp_path / "home", "model.path": str(tmp_path)}
    check(load_config(overrides=common))
    check(load_config(overrides=common | {"engine.url": "http://127.0.0.1:1"}))  # a vLLM server
    with pytest.raises(ConfigError, match="sees pictures") as refused:
        load_config(overrides=common | settings)
    assert why in str(refused.value)
