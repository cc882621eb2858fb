"""The one typed configuration tree. The TOML file, the command line, `doctor` and docs/configuration.md come from it.

Unknown keys are errors, and so is a file that cannot be read: a setting is never silently ignored. Importing this
module imports neither torch nor any loop.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import Field, ValidationError, field_validator, model_validator

from turnwise.capabilities import check
from turnwise.config.compress import CompressConfig
from turnwise.config.environments import EnvironmentsConfig
from turnwise.config.gate import GateConfig
from turnwise.config.judging import JudgeConfig
from turnwise.config.modes import MODE, Mode, as_the_mode_says, contradiction, trains_never
from turnwise.config.schedule import ScheduleConfig
from turnwise.config.sections import (
    EngineConfig,
    JournalConfig,
    ModelConfig,
    Section,
    ServerConfig,
    SessionsConfig,
    TrainConfig,
)
from turnwise.config.skills import SkillsConfig
from turnwise.config.streams import StreamsConfig
from turnwise.errors import ConfigError


class Config(Section):
    """All of turnwise's settings. Defaults run on a laptop."""

    home: Path = Field(
        default_factory=lambda: Path(os.environ.get("TURNWISE_HOME") or platformdirs.user_data_path("turnwise")),
        description="Folder of the journal, the versions, the token and the logs (environment: TURNWISE_HOME).",
    )
    mode: Mode = Field(default="both", description=MODE)
    server: ServerConfig = ServerConfig()
    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    sessions: SessionsConfig = SessionsConfig()
    judge: JudgeConfig = JudgeConfig()
    train: TrainConfig = TrainConfig()
    streams: StreamsConfig = StreamsConfig()
    environments: EnvironmentsConfig = EnvironmentsConfig()
    gate: GateConfig = GateConfig()
    skills: SkillsConfig = SkillsConfig()
    compress: CompressConfig = CompressConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    journal: JournalConfig = JournalConfig()

    @model_validator(mode="before")
    @classmethod
    def _as_the_mode_says(cls, given: object) -> object:
        return as_the_mode_says(given)

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        """Loops and journal must mean the same folder, wherever they run."""
        return home.expanduser().resolve()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.train.max_batch < self.train.min_batch:
            least, most = self.train.min_batch, self.train.max_batch
            raise ValueError(
                f"train.max_batch must be at least train.min_batch, or no batch could ever begin: they are {most} and "
                f"{least}; set train.max_batch to {least} or more, or lower train.min_batch"
            )
        if said := contradiction(self.mode, self) or trains_never(self):
            raise ValueError(said)
        return self

    @property
    def trains(self) -> bool:
        """Whether a trainer runs beside the gateway, now or when the person is away."""
        return self.train.enabled and self.train.when != "off"

    @property
    def keep_versions(self) -> int:
        """Newest versions whose weights are kept; 0: all. A whole model takes as much room as hundreds of adapters."""
        if self.journal.keep_versions is not None:
            return self.journal.keep_versions
        return 20 if self.train.weights == "lora" else 3

    @property
    def journal_path(self) -> Path:
        return self.home / "journal.db"

    @property
    def versions_dir(self) -> Path:
        return self.home / "versions"

    @property
    def skills_dir(self) -> Path:
        return self.home / "skills"

    @property
    def token_path(self) -> Path:
        return self.home / "token"

    @property
    def records_path(self) -> Path:
        return self.home / "records.jsonl"


def cache_dir() -> Path:
    """Where models are kept (environment: TURNWISE_CACHE)."""
    return Path(os.environ.get("TURNWISE_CACHE") or platformdirs.user_cache_path("turnwise"))


def load_config(path: Path | None = None, overrides: dict[str, object] | None = None) -> Config:
    """Read the TOML file (default: ``config.toml`` in the home folder, if there is one) and apply ``overrides``.

    ``overrides`` maps dotted keys to values, such as ``{"server.port": 9000}``; they win over the file.
    Raises ConfigError with the key, the value and what would be accepted.
    """
    overrides = {k: v for k, v in (overrides or {}).items() if v is not None}
    tree: dict[str, object] = {}
    home = overrides.get("home") or Config().home
    file = path or Path(str(home)) / "config.toml"
    if path is not None or file.exists():
        try:
            tree = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"no configuration file at {file}; create it or leave out --config") from None
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(f"cannot read {file}: {e}") from e
        except tomllib.TOMLDecodeError as e:
            raise ConfigError(f"{file} is not valid TOML: {e}; mend it or move it away") from e
    for dotted, value in overrides.items():
        node = tree
        *parents, leaf = dotted.split(".")
        for parent in parents:
            child = node.setdefault(parent, {})
            if not isinstance(child, dict):
                raise ConfigError(f"{file}: {parent} must be a table")
            node = child
        node[leaf] = value
    origin = str(file) if file.exists() else "defaults and command line"
    try:
        config = Config.model_validate(tree)
    except ValidationError as e:
        lines = [f"  {'.'.join(map(str, d['loc'])) or 'config'}: {_reason(d)}" for d in e.errors()]
        raise ConfigError(f"the configuration ({origin}) is not valid:\n" + "\n".join(lines)) from e
    try:
        check(config)
    except ConfigError as e:
        raise ConfigError(f"the configuration ({origin}) cannot work: {e}") from e
    return config


def _reason(detail: Any) -> str:
    if detail["type"] == "extra_forbidden":
        return "no such key (see docs/configuration.md or `turnwise config`)"
    said = str(detail["ctx"]["error"] if detail["type"] == "value_error" else detail["msg"])
    secret = detail["loc"][:1] == ("journal",) or detail["loc"][:2] == ("schedule", "calendar")
    if secret or isinstance(detail["input"], dict):  # there may be a password in an address
        return said
    return f"{said} (got {detail['input']!r})"
