"""What is said of engines at an address, by `doctor` and before a start: servers on loopback, played from bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.engines.test_sglang import likeliest
from tests.engines.test_vllm_client import VLLM, one_token
from tests.support.raw_http import Part, answer, plays
from turnwise.config import load_config
from turnwise.doctor.checks import examine
from turnwise.engines.examine import examine_engine, refuse_impossible
from turnwise.errors import ConfigError

HEALTHY = answer(200, b"")
LORA = answer(404, {"error": {"message": "The lora adapter 'no-such-adapter' cannot be found."}})
NO_LORA = answer(404, {"detail": "Not Found"})


async def remarks(*answers: list[Part], **changes: Any) -> list[tuple[str, str]]:
    async with plays(*answers) as played:
        return list(await examine_engine(load_config(overrides={"engine.url": played.url} | changes)))


async def test_the_local_engine_is_not_asked() -> None:
    assert await examine_engine(load_config()) == []


async def test_a_vllm_server_that_has_all_is_fine() -> None:
    (found,) = await remarks(HEALTHY, VLLM, LORA, one_token(0.0))
    assert found[0] == "ok"
    assert "64 tokens" in found[1]


async def test_a_vllm_server_without_adapters_and_with_raw_logprobs_is_told_apart() -> None:
    found = await remarks(HEALTHY, VLLM, NO_LORA, one_token(-2.0), one_token(-2.0))
    assert [level for level, _ in found] == ["ok", "fault", "note"]
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in found[1][1]
    assert "--logprobs-mode processed_logprobs" in found[2][1]


async def test_an_sglang_server_is_asked_the_same() -> None:
    models = answer(200, {"data": [{"id": "m", "max_model_len": 64}]})
    refused = answer(400, {"success": False, "error_message": "LoRA is not enabled. Please set `--enable-lora`."})
    unknown = answer(400, {"success": False, "error_message": "LoRA adapter no-such-adapter is not loaded."})
    sglang = {"engine.kind": "sglang"}
    found = await remarks(HEALTHY, models, refused, likeliest(-1.0), likeliest(-1.0), **sglang)
    assert [level for level, _ in found] == ["ok", "fault", "note"]
    assert "--enable-lora" in found[1][1]
    assert "SGLANG_RETURN_ORIGINAL_LOGPROB" in found[2][1]
    ((level, _),) = await remarks(HEALTHY, models, unknown, likeliest(-1.0), likeliest(-2.0), **sglang)
    assert level == "ok"


async def test_what_is_not_trained_is_not_asked_for_adapters() -> None:
    assert len(await remarks(HEALTHY, VLLM, **{"train.enabled": False})) == 1


@pytest.mark.parametrize("kind", ["vllm", "sglang", "upstream"])
async def test_nothing_at_the_address_is_said(kind: str) -> None:
    given = {"engine.kind": kind, "engine.url": "http://127.0.0.1:9", "train.enabled": False}
    ((level, text),) = await examine_engine(load_config(overrides=given))
    assert level == "silent"
    assert "engine.url" in text


async def test_every_replica_is_looked_at() -> None:
    async with plays(HEALTHY, VLLM, LORA, one_token(0.0)) as played:
        urls = f"{played.url},http://127.0.0.1:9"
        found = await examine_engine(load_config(overrides={"engine.urls": urls}))
    assert [level for level, _ in found] == ["ok", "silent"]


async def test_a_server_of_another_kind_is_a_fault() -> None:
    ((level, text),) = await remarks(HEALTHY, answer(200, b"<html>", "text/html"))
    assert (level, "not a vLLM server" in text) == ("fault", True)


async def test_a_start_is_refused_where_an_engine_cannot_do_what_is_configured() -> None:
    async with plays(HEALTHY, VLLM, NO_LORA, one_token(0.0)) as played:
        with pytest.raises(ConfigError, match=r"--enable-lora .* or set train\.enabled = false"):
            await refuse_impossible(load_config(overrides={"engine.url": played.url}))


async def test_a_start_waits_for_an_engine_that_is_not_there_yet(caplog: pytest.LogCaptureFixture) -> None:
    await refuse_impossible(load_config(overrides={"engine.url": "http://127.0.0.1:9"}))
    assert "nothing answers at http://127.0.0.1:9" in caplog.text


async def test_a_start_does_not_wait_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(_config: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("turnwise.engines.examine.EXAMINATION_S", 0.05)
    monkeypatch.setattr("turnwise.engines.examine.examine_engine", hang)
    await refuse_impossible(load_config())
    assert "turnwise doctor" in caplog.text


async def test_doctor_shows_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[engine]\nurl = "http://127.0.0.1:9"\n')
    findings = await asyncio.to_thread(examine, None, tmp_path)
    assert [f.level for f in findings if f.check == "engine"] == ["fault"]
