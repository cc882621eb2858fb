"""`turnwise versions export`: what goes out is what serves here, and says nothing of whose it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from tests.training.tiny import by_the_model, ids, plain_model, shake, train_config
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.errors import AdapterError
from turnwise.journal import Journal
from turnwise.training.export import export_adapter, export_merged
from turnwise.training.policy import Policy
from turnwise.training.publish import staged_version
from turnwise.types import PolicyVersion


@pytest.fixture
def version(tiny_dir: Path, tmp_path: Path) -> Path:
    """The folder of a version whose adapter is far from the base model."""
    policy = Policy(tiny_dir, train_config())
    shake(policy)
    made = PolicyVersion(3, 0, str(tmp_path / "v3"), 1.0, {"loss": 0.5}, turn_ids=["turn-of-a-person"])
    with staged_version(made, policy.weights, policy.state(), None) as put:
        put()
    return tmp_path / "v3"


@pytest.fixture
def home_with_journal(tmp_path: Path) -> Path:
    Journal.open(load_config(None, {"home": tmp_path / "home"})).close()
    return tmp_path / "home"


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids(1, 12)])).logits


def test_a_merged_model_says_what_base_and_adapter_say(tiny_dir: Path, version: Path, tmp_path: Path) -> None:
    export_merged(version, tiny_dir, tmp_path / "whole")
    base = AutoModelForCausalLM.from_pretrained(tiny_dir)
    plain = logits(base)
    served = logits(PeftModel.from_pretrained(base, version))
    assert (served - plain).abs().max() > 0.1
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "whole")), served, atol=1e-4)
    assert (tmp_path / "whole" / "tokenizer.json").read_bytes() == (tiny_dir / "tokenizer.json").read_bytes()
    # It is a model folder like any other: it can be served and trained here.
    exported = by_the_model(plain_model(tmp_path / "whole", None, train_config()), ids(1, 7), ids(2, 5), 1.0)
    assert exported.shape == (5,)


def test_in_bfloat16_it_is_half_as_large(tiny_dir: Path, version: Path, tmp_path: Path) -> None:
    export_merged(version, tiny_dir, tmp_path / "whole")
    export_merged(version, tiny_dir, tmp_path / "half", bfloat16=True)
    size = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")}
    assert size["half"] < 0.6 * size["whole"]


def test_an_adapter_goes_out_as_peft_reads_it_and_names_no_turn_and_no_folder(
    tiny_dir: Path, version: Path, tmp_path: Path
) -> None:
    export_adapter(version, "tiny", tmp_path / "adapter")
    base = AutoModelForCausalLM.from_pretrained(tiny_dir)
    served = logits(PeftModel.from_pretrained(base, version))
    again = AutoModelForCausalLM.from_pretrained(tiny_dir)
    assert torch.equal(logits(PeftModel.from_pretrained(again, tmp_path / "adapter")), served)
    assert sorted(f.name for f in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    settings = (tmp_path / "adapter" / "adapter_config.json").read_text()
    assert json.loads(settings)["base_model_name_or_path"] == "tiny" and str(tmp_path) not in settings


def test_an_adapter_of_another_model_is_refused_and_nothing_is_left(
    tiny_dir: Path, version: Path, tmp_path: Path
) -> None:
    weights = load_file(version / "adapter_model.safetensors")
    more = {name.replace("layers.1", "layers.9"): tensor for name, tensor in weights.items()}
    save_file(more, version / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="other layers"):
        export_merged(version, tiny_dir, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_adapter_is_refused_and_nothing_is_left(version: Path, tmp_path: Path) -> None:
    (version / "adapter_model.safetensors").write_bytes(b"cut")
    with pytest.raises(AdapterError, match="damaged"):
        export_adapter(version, "tiny", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0", "out"], "say --merged"),
        (["7", "out"], "no published version 7"),
        (["1", "out", "--bfloat16"], "--bfloat16 is for --merged"),
        (["0", ".", "--merged"], "there already"),
    ],
)
def test_what_cannot_go_out_is_refused_in_a_sentence(words: list[str], said: str, home_with_journal: Path) -> None:
    done = CliRunner().invoke(app, ["versions", "export", *words, "--home", str(home_with_journal)])
    assert done.exit_code != 0 and said in " ".join(str(done.exception or done.output).split())


def test_the_base_model_goes_out_by_the_command(tiny_dir: Path, home_with_journal: Path, tmp_path: Path) -> None:
    target = tmp_path / "base"
    words = ["versions", "export", "0", str(target), "--merged", "--set", f"model.path={tiny_dir}"]
    done = CliRunner().invoke(app, [*words, "--home", str(home_with_journal)])
    assert done.exit_code == 0, done.output
    assert "the base model is in" in done.output
    assert torch.equal(
        logits(AutoModelForCausalLM.from_pretrained(target)), logits(AutoModelForCausalLM.from_pretrained(tiny_dir))
    )


def test_a_version_of_every_weight_goes_out_as_a_model_folder(tiny_dir: Path, tmp_path: Path) -> None:
    policy = Policy(tiny_dir, train_config(weights="full"))
    shake(policy)
    made = PolicyVersion(3, 0, str(tmp_path / "v3"), 1.0, turn_ids=["turn-of-a-person"])
    with staged_version(made, policy.weights, policy.state(), None) as put:
        put()
    with pytest.raises(AdapterError, match="has no adapter; say --merged"):
        export_adapter(tmp_path / "v3", "base", tmp_path / "adapter")
    export_merged(tmp_path / "v3", tiny_dir, tmp_path / "whole")
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "whole")), logits(policy.model))
    assert not (tmp_path / "whole" / "meta.json").exists() and not (tmp_path / "adapter").exists()
