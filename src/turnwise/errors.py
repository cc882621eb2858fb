"""Errors a person can use: what was wrong, where, and what to do about it."""

from __future__ import annotations


class TurnwiseError(Exception):
    """Base of all errors that turnwise raises on purpose; the command line prints the sentence and exits with 1."""


class ConfigError(TurnwiseError):
    """A setting is unknown, out of range or contradicts another one."""


class ModelError(TurnwiseError):
    """A model folder is missing, broken or of a kind that cannot be used."""


class JournalError(TurnwiseError):
    """The journal cannot be opened or refused a move."""


class JournalUnavailable(JournalError):
    """No write would succeed now, whatever is written: locked by another, read-only, damaged, or failing to be read."""


class JournalFull(JournalUnavailable):
    """The disk has no room for a write. What is recorded stays, and writes succeed again once there is room."""


class LeaseLost(JournalError):
    """The lease expired or another worker took it over: drop the work, it is not yours any more."""


class PlaceTaken(JournalError):
    """Another trainer is at work in this home, and only one may be."""


class EngineError(TurnwiseError):
    """The engine refused or failed. ``status`` is the HTTP status that fits the fault.

    ``retry_after`` is how many seconds the engine asked to be left alone, and ``code`` its own word for programs, where
    it said so.
    """

    def __init__(
        self, message: str, status: int = 502, retry_after: float | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.code = code


class UnknownModel(EngineError):
    """The engine does not know the adapter, for example because it was restarted."""


class EngineUnreachable(EngineError):
    """Nothing answers at the engine's address, or it went away in the middle of an answer."""


class AdapterError(TurnwiseError):
    """An adapter directory is missing, broken or does not fit the model."""


class ServerLost(TurnwiseError):
    """The server that holds the weights in training does not answer, lets nobody in, or was restarted in the middle."""


class ServerRefused(TurnwiseError):
    """That server answers, and says that it cannot do what it was asked."""


class DiskFull(TurnwiseError):
    """There is no room for a file. None is half written; the work goes on once there is room."""


class UnknownTurn(JournalError):
    """There is no turn with this id."""


class AmbiguousId(JournalError):
    """Several sessions or turns begin like what was given."""


class TooLate(JournalError):
    """The turn is past the point where this could be done to it."""


class RolloutRefused(JournalError):
    """What a client says of a rollout contradicts what it said before, or comes too late. ``code`` is for programs."""

    def __init__(self, message: str, code: str, status: int = 409) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class DataError(TurnwiseError):
    """A file of conversations cannot be read, or holds what cannot be learned."""


class PictureRefused(TurnwiseError):
    """What was sent as a picture is none that is taken: what is wrong with it, for whoever sent it."""


class PictureLost(TurnwiseError):
    """A picture that was kept is gone, or its file holds something else by now."""


class SkillError(TurnwiseError):
    """A skill's file cannot be read as one, or the library cannot do with it what was asked."""


class SandboxError(TurnwiseError):
    """The machine cannot hold an agent's commands in a sandbox, or one could not be started."""


class FolderFault(TurnwiseError):
    """A file in an agent's folder cannot be read or written: a link, no plain file, too large, or not inside."""


class BenchDataError(TurnwiseError):
    """The data of a bench cannot be read as what it should be."""


class SensorFault(TurnwiseError):
    """A sensor of the schedule cannot know what it is asked, such as the keyboard's on a machine without a display."""
