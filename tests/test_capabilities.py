"""Which settings of the engine work together, and that the page about engines says the same."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from turnwise.capabilities import CAPABILITIES, Capabilities, capabilities, check
from turnwise.config import load_config
from turnwise.config.reference import as_toml
from turnwise.errors import ConfigError

PAGE = Path(__file__).parents[1] / "docs/engines.md"
NAMES = [field.name for field in fields(Capabilities)]
URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("given", "kind", "addresses"),
    [
        ({}, "local", ()),
        ({"engine.url": URL}, "vllm", (URL,)),
        ({"engine.urls": f"{URL}, http://b"}, "vllm", (URL, "http://b")),
        ({"engine.url": URL, "engine.kind": "sglang"}, "sglang", (URL,)),
        ({"engine.url": URL, "engine.kind": "upstream", "train.enabled": False}, "upstream", (URL,)),
    ],
)
def test_what_works(given: dict[str, Any], kind: str, addresses: tuple[str, ...]) -> None:
    config = load_config(overrides=given)
    assert (config.engine.kind, config.engine.addresses) == (kind, addresses)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine.kind": "vllm"}, "needs the address"),
        ({"engine.kind": "sglang"}, "set engine.url"),
        ({"engine.kind": "local", "engine.url": URL}, "starts its own engine"),
        ({"engine.kind": "local", "engine.urls": "http://a,http://b"}, 'set engine.kind to "vllm" or "sglang"'),
        ({"engine.url": URL, "engine.urls": "http://a"}, "both set"),
        ({"engine.urls": "http://a,http://a"}, "twice"),
        ({"engine.url": "127.0.0.1:8000"}, "http://"),
        ({"engine.url": "http://"}, "name a host"),
        ({"engine.kind": "upstream", "engine.url": URL}, "train.enabled = false"),
        ({"engine.kind": "upstream", "engine.url": URL}, "no token ids and log-probs and adapters"),
        ({"engine.kind": "upstream", "engine.urls": "http://a,http://b", "train.enabled": False}, "name one"),
        ({"engine.model": "x"}, "engine.model"),
        ({"engine.url": URL, "engine.api": "anthropic"}, "engine.api"),
        ({"engine.kind": "triton"}, "engine.kind"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_change(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(overrides=given)


def test_the_check_is_pure_and_silent_where_all_is_well() -> None:
    assert check(load_config()) is None


def test_an_anthropic_upstream_has_no_structured_output() -> None:
    given = {"engine.kind": "upstream", "engine.url": URL, "train.enabled": False}
    assert capabilities(load_config(overrides=given)).structured
    assert not capabilities(load_config(overrides=given | {"engine.api": "anthropic"})).structured


def test_several_addresses_are_printed_as_they_are_read(tmp_path: Path) -> None:
    config = load_config(overrides={"engine.urls": "http://a,http://b"})
    file = tmp_path / "c.toml"
    file.write_text(as_toml(config))
    assert load_config(file).engine == config.engine


def test_the_page_shows_the_table() -> None:
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    shown = {row[0].strip("`"): [cell.split(",")[0] for cell in row[1:]] for row in rows if row[0].strip("`") in NAMES}
    expected = {name: ["yes" if getattr(able, name) else "no" for able in CAPABILITIES.values()] for name in NAMES}
    assert shown == expected
    head = next(row for row in rows if row[0] == "what it can do")
    assert [cell.strip("`") for cell in head[1:]] == list(CAPABILITIES)
