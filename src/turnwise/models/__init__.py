"""The models: which are embedded, where one lies, how it gets there, and whether it can run."""

from turnwise.models.fetch import pull
from turnwise.models.folders import answer_defaults, longest_context, model_named, resolve_model
from turnwise.models.table import EMBEDDED, TABLE, EmbeddedModel

__all__ = [
    "EMBEDDED",
    "TABLE",
    "EmbeddedModel",
    "answer_defaults",
    "longest_context",
    "model_named",
    "pull",
    "resolve_model",
]
