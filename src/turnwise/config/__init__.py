"""The settings: their sections, the tree that holds them, and the page made from it."""

from turnwise.config.gate import GateConfig
from turnwise.config.judging import JudgeConfig, TrajectoryJudgeConfig
from turnwise.config.sections import LOOPBACK, ModelConfig, ServerConfig, TrainConfig
from turnwise.config.streams import Recipe, StreamConfig, StreamsConfig, of_person, recipes
from turnwise.config.tree import Config, cache_dir, load_config

__all__ = [
    "LOOPBACK",
    "Config",
    "GateConfig",
    "JudgeConfig",
    "ModelConfig",
    "Recipe",
    "ServerConfig",
    "StreamConfig",
    "StreamsConfig",
    "TrainConfig",
    "TrajectoryJudgeConfig",
    "cache_dir",
    "load_config",
    "of_person",
    "recipes",
]
