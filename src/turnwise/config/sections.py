"""The sections of the configuration: what each loop can be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from turnwise import machine
from turnwise.config.addresses import DATABASE_URL, DatabaseUrl
from turnwise.config.backends import address_without_key, refused_by_backend
from turnwise.config.modes import WHEN, When
from turnwise.methods import METHODS, OF_TURNS, method_of_turns
from turnwise.patterns import anchored

LOOPBACK = {"127.0.0.1", "localhost", "::1"}

_HOST_NAME = anchored(r"[A-Za-z0-9_.-]+")
FILE_ORIGINS = frozenset({"null", "file://"})
"""What a browser engine sends for pages from files. Any page can have itself sent as 'null', so a token is needed."""
_ORIGIN = anchored(r"[a-z][a-z0-9+.-]*://[^/\s*]+")

Seconds = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class ServerConfig(Section):
    """Where the gateway listens and how it treats requests."""

    host: str = Field(default="127.0.0.1", description="Address to listen on. Anything but loopback needs a token.")
    port: int = Field(default=8377, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    auth: bool = Field(default=True, description="Require the bearer token. Only a loopback address may switch it off.")
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="Names beside its own that a request may ask for, as behind a reverse proxy."
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description="Web pages that may ask, such as 'https://chat.example.com'; no others may."
    )
    max_body_mb: float = Field(default=8.0, gt=0, description="Largest request body, in megabytes.")
    max_header_kb: int = Field(default=64, ge=4, le=1024, description="Largest request line and headers, in KB.")
    header_timeout_s: Seconds = Field(default=10.0, description="Longest time a client may take to send its headers.")
    max_connections: int = Field(default=512, ge=8, description="Most connections at once; more get a 503.")
    max_connections_per_address: int = Field(
        default=256, ge=4, description="Most of them from one address. All programs of this machine share one."
    )
    request_timeout_s: Seconds = Field(default=600.0, description="Longest time one answer may take.")
    engine_stall_s: Seconds = Field(default=60.0, description="Longest wait for the engine's next token.")
    engine_return_s: Seconds = Field(
        default=60.0, description="How long a request without a token yet waits for an engine that is restarted."
    )
    rollouts_pause_s: float = Field(
        default=1.0,
        ge=0,
        description="Steps of rollouts wait while a person's request is answered, and for so long behind it; 0: never.",
    )
    rollouts_wait_s: Seconds = Field(default=20.0, description="Longest that one step waits for that.")
    strict: bool = Field(
        default=False, description="Refuse what an engine cannot honour, rather than name it in `x-turnwise-ignored`."
    )

    @field_validator("allowed_hosts", "cors_origins", mode="before")
    @classmethod
    def _from_the_command_line(cls, given: object) -> object:
        return [part.strip() for part in given.split(",")] if isinstance(given, str) else given

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no host name; write it without scheme, port and wildcards")
        return names

    @field_validator("cors_origins")
    @classmethod
    def _origins_alone(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin) and origin not in FILE_ORIGINS:
                raise ValueError(
                    f"{origin!r} is no origin; write it as 'https://chat.example.com', without a path, or as 'null' or "
                    "'file://' for a page that a program loads from its files"
                )
        return origins

    @model_validator(mode="after")
    def _open_bind_needs_token(self) -> ServerConfig:
        if not self.auth and self.host not in LOOPBACK:
            raise ValueError(f"server.auth = false is only allowed on loopback, not on {self.host}")
        if not self.auth and FILE_ORIGINS.intersection(self.cors_origins):
            raise ValueError("server.cors_origins may hold 'null' and 'file://' only with server.auth = true")
        return self


class ModelConfig(Section):
    """The model that is served and trained."""

    path: str = Field(
        default="smollm2-135m-instruct",
        description="A name of `turnwise pull --list`, 'auto' (the largest of them that fits), a folder, or a hub id.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Longest answer of a client without a limit; unset: embedded 512 or 1024, else all room.",
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Where the client names none; unset: embedded 0.6 or 0.7, else 1."
    )


class EngineConfig(Section):
    """The process that turns token ids into token ids."""

    kind: Literal["local", "vllm", "sglang", "upstream"] = Field(
        default="local",
        description="'local' is started by turnwise; the others run at engine.url (see engines.md). "
        "With an address and no kind, it is 'vllm'.",
    )
    url: str | None = Field(default=None, description="Address of the engine's server; 'local' has none.")
    urls: tuple[str, ...] = Field(default=(), description="Addresses of several replicas, in place of engine.url.")
    api: Literal["openai", "anthropic"] = Field(
        default="openai", description="What an 'upstream' speaks: chat completions or messages."
    )
    model: str | None = Field(default=None, description="The model's name at an 'upstream'; unset: as requested.")
    api_key_env: str = Field(
        default="TURNWISE_ENGINE_API_KEY", description="Environment variable with the key of the server at engine.url."
    )
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto",
        description="Number format of the local engine; 'auto' is bfloat16 where the processor has it, with half the "
        "memory.",
    )
    threads: int = Field(
        default=0,
        ge=0,
        description="Most CPU threads of a step of the local engine; it takes as many as are fastest. "
        "0: all it may use.",
    )
    max_num_seqs: int = Field(default=16, ge=1, le=256, description="Requests decoded together.")
    max_queue: int = Field(default=64, ge=0, description="Requests that may wait; more get a 429.")
    max_model_len: int = Field(
        default=4096,
        ge=64,
        description="Longest prompt plus answer, in tokens; an 'upstream' has none unless it is set.",
    )
    kv_cache_mb: int | None = Field(
        default=None,
        ge=16,
        description="Memory for keys and values, in megabytes; unset: 192, and 384 where they are float32.",
    )
    priority_scheduling: bool = Field(
        default=False,
        description="Whether the 'vllm' server was started with --scheduling-policy priority: then a person's requests "
        "come before those of rollouts, as they always do at 'local'.",
    )

    @model_validator(mode="after")
    def _others_order_nothing(self) -> EngineConfig:
        if self.priority_scheduling and self.kind in {"sglang", "upstream"}:
            raise ValueError(f"priority_scheduling is for kind = 'vllm'; nothing of it is told to {self.kind!r}")
        return self

    @property
    def knows_priorities(self) -> bool:
        """Whether the engine takes requests in the order of their priority; others refuse the field or ignore it."""
        return self.kind == "local" or (self.kind == "vllm" and self.priority_scheduling)

    @model_validator(mode="before")
    @classmethod
    def _address_alone_is_vllm(cls, given: object) -> object:
        if isinstance(given, dict) and "kind" not in given and (given.get("url") or given.get("urls")):
            return {**given, "kind": "vllm"}
        return given

    @field_validator("urls", mode="before")
    @classmethod
    def _from_the_command_line(cls, given: object) -> object:
        return [part.strip() for part in given.split(",")] if isinstance(given, str) else given

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the engine's servers are; empty for the local one."""
        return self.urls or ((self.url,) if self.url is not None else ())

    @property
    def upstream_context(self) -> int | None:
        """What a person says of an upstream's context; the default is the local engine's and says nothing of it."""
        return self.max_model_len if "max_model_len" in self.model_fields_set else None


class SessionsConfig(Section):
    """How requests become sessions."""

    idle_close_s: Seconds = Field(default=1800.0, description="A session without a request for this long is closed.")
    retry_window_s: Seconds = Field(
        default=120.0, description="A request resent within this time is answered from the record."
    )


LORA_LR, FULL_LR = 6e-4, 1e-5
"""Learning rates where none is given. Papers train every weight at 1e-5 and an adapter at ten times that and more."""


class TrainConfig(Section):
    """How samples become policy versions."""

    enabled: bool = Field(default=True, description="Make samples to train on, and run the trainer.")
    when: When = Field(default="idle", description=WHEN)
    method: Annotated[str, AfterValidator(method_of_turns)] = Field(
        default="combined", description=f"Which signals the loss uses: {', '.join(OF_TURNS)}."
    )
    estimator: Literal["exact", "topk", "sampled"] = Field(
        default="exact", description="Estimator of the distillation term."
    )
    teacher: Literal["policy", "base"] = Field(
        default="base", description="Which weights read the hint: the base model, or the policy as it is."
    )
    divergence: Literal["reverse", "forward"] = Field(default="reverse", description="KL direction of exact and topk.")
    top_k: int = Field(default=50, ge=1, description="Tokens kept by the topk estimator.")
    advantage_clip: float = Field(
        default=2.0, gt=0, description="Largest advantage of a token with the sampled estimator, in nats, either way."
    )
    w_binary: float = Field(default=1.0, ge=0, description="Weight of the score.")
    w_opd: float = Field(default=1.0, ge=0, description="Weight of the distillation term.")
    lessons: int = Field(
        default=16, ge=0, description="Questions per update that are answered as the standing wishes say; 0: none."
    )
    lesson_passes: int = Field(default=8, ge=1, description="Most passes over the lessons of an update.")
    lesson_tokens: int = Field(default=64, ge=8, description="Most tokens of a lesson's answer.")
    lesson_prompt: int = Field(
        default=1024, ge=64, description="Own prompts with more tokens than this make no lesson; everyday questions do."
    )
    min_batch: int = Field(default=8, ge=1, description="Ready samples that start a step.")
    max_batch: int = Field(default=24, ge=1, description="Most samples in one step; the rest stay ready.")
    max_age_s: Seconds = Field(default=1800.0, description="A sample this old starts a step however few there are.")
    max_staleness: int = Field(
        default=8, ge=0, description="A sample made further away than this many versions, along parents, is excluded."
    )
    max_rollout_steps: int = Field(
        default=4096,
        ge=1,
        description="Steps of rollouts in one update, which its streams share; a stream has a whole group at least.",
    )
    weights: Literal["lora", "full"] = Field(
        default="lora", description="What is trained: an adapter, or every weight of the model (see training.md)."
    )
    reference: Literal["kept", "read"] = Field(
        default="kept",
        description="With weights = 'full', the base model that is compared with: kept in memory, or read from its "
        "folder each time. An adapter needs neither.",
    )
    backend: Literal["local", "fsdp2", "tinker"] = Field(
        default="local",
        description="Where the weights are: in this process, cut over several, or at a server with the Tinker API (see "
        "training.md).",
    )
    processes: int = Field(
        default=2, ge=2, description="Processes of 'fsdp2' that are started here; torchrun says it itself."
    )
    rank_timeout_s: Seconds = Field(
        default=600.0, description="Longest wait of processes of 'fsdp2' for one of them that hangs."
    )
    tinker_url: str | None = Field(
        default=None, description="Address of the server of 'tinker'; unset: the client's own (`TINKER_BASE_URL`)."
    )
    tinker_model: str | None = Field(
        default=None, description="The base model's name at that server; unset: `model.path`."
    )
    tinker_reduction: Literal["sum", "mean"] = Field(
        default="sum",
        description="How that server puts the losses of tokens together: their sum, as the Tinker service has it, or "
        "the mean over texts of the mean over tokens, as SkyRL's JAX engine.",
    )
    tinker_timeout_s: Seconds = Field(default=600.0, description="Longest wait for one answer of that server.")
    lr: float = Field(default=LORA_LR, gt=0, description=f"Learning rate; with weights = 'full' {FULL_LR:g} if unset.")
    epochs: int = Field(default=1, ge=1, description="Passes over a batch.")
    minibatch: int = Field(
        default=8, ge=1, description="Samples per optimiser step; one of fewer takes a smaller step."
    )
    microbatch_tokens: int = Field(
        default=0,
        ge=0,
        description="Tokens per forward pass, from 64; changes memory and time, not the result. 0: 4096 on a GPU with "
        "backend = 'local', which takes half as many where its memory does not hold them, and else 256.",
    )
    beta_kl: float = Field(default=0.02, ge=0, description="Weight of the KL to the base model.")
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="Lower clip of the ratio.")
    clip_high: float = Field(default=0.28, gt=0, description="Upper clip of the ratio.")
    tis_cap: float = Field(
        default=2.0, ge=0, description="Cap of the sampler/trainer importance weight; 0 switches it off."
    )
    aggregation: Literal["turn-mean", "token-mean"] = Field(
        default="turn-mean", description="How token losses are averaged."
    )
    grad_clip: float = Field(default=1.0, gt=0, description="Largest gradient norm.")
    weight_decay: float = Field(default=0.1, ge=0, description="AdamW weight decay.")
    lora_rank: int = Field(default=16, ge=1, le=256, description="Rank of an adapter.")
    lora_alpha: float = Field(default=32.0, gt=0, description="Scale of an adapter.")
    seed: int = Field(default=0, ge=0, description="Seed of the adapter's start and of the order of samples.")
    threads: int = Field(
        default=0,
        ge=0,
        description="CPU threads of the trainer; 0: all cores that it may use where it trains when nobody is there, "
        "else half.",
    )
    device: str = Field(default="auto", description="'auto', 'cpu', 'cuda' or 'cuda:N'.")
    dtype: Literal["auto", "bfloat16", "float32"] = Field(
        default="auto",
        description="Number format that is computed in; 'auto' is bfloat16 where the processor has it. What is learned "
        "is kept in float32.",
    )
    lease_s: Seconds = Field(
        default=60.0,
        description="A trainer that is gone for this long loses its batch; one that lives and gets no further does so "
        "after ten minutes and this.",
    )
    keep_checkpoints: int = Field(default=3, ge=1, description="Newest versions whose optimiser state is kept.")

    @model_validator(mode="before")
    @classmethod
    def _every_weight_moves_less(cls, given: object) -> object:
        if isinstance(given, dict) and given.get("weights") == "full":
            return {"lr": FULL_LR} | given
        return given

    def cpu_threads(self, alone: bool = False) -> int:
        """The threads to compute with; ``alone``: nobody is answered meanwhile.

        Threads of one operation wait for each other. One that shares its core with the engine, at lower priority, holds
        up all of them: half of the cores do more work then than all of them.
        """
        mine = machine.cores()
        return self.threads or (mine if alone else max(1, mine // 2))

    @model_validator(mode="after")
    def _backend_fits(self) -> TrainConfig:
        if said := refused_by_backend(self):
            raise ValueError(said)
        return self

    @field_validator("microbatch_tokens")
    @classmethod
    def _a_pass_holds_something(cls, tokens: int) -> int:
        if 0 < tokens < 64:
            raise ValueError(f"{tokens} tokens are too few for a pass: 64 or more, or 0")
        return tokens

    @field_validator("tinker_url")
    @classmethod
    def _an_address(cls, url: str | None) -> str | None:
        return None if url is None else address_without_key(url)

    @model_validator(mode="after")
    def _some_signal(self) -> TrainConfig:
        used = METHODS[self.method].weights
        if not any(getattr(self, weight) for weight in used):
            names = " and ".join(f"train.{weight} = 0" for weight in used)
            raise ValueError(
                f'{names} with train.method = "{self.method}" would train on the KL term alone; '
                "raise a weight, choose another method, or switch training off with train.enabled = false"
            )
        return self


class JournalConfig(Section):
    """The record."""

    url: DatabaseUrl = Field(default="", repr=False, description=DATABASE_URL)
    busy_timeout_s: Seconds = Field(default=15.0, description="Longest wait for another writer.")
    records: bool = Field(
        default=True, description="Also write every interaction, vote, hint and decision to records.jsonl."
    )
    keep_days: float | None = Field(
        default=None, gt=0, description="Turns older than this are deleted (see journal.md); unset: kept."
    )
    keep_mb: float | None = Field(
        default=None, gt=0, description="The oldest turns are deleted while rows and indexes take more; unset: kept."
    )
    keep_versions: int | None = Field(
        default=None,
        ge=0,
        description="Newest versions whose weights are kept, beside those in use; 0: all; unset: 20 adapters, or 3 "
        "whole models.",
    )
    when_full: Literal["refuse", "serve"] = Field(
        default="refuse",
        description="On a full disk: refuse requests with a 507, or serve them and record and learn nothing of them.",
    )
