"""Whether the trainer may work now: `train.when`, the window, and what a person asked for.

It is asked before a batch is taken and between two micro-batches. Nothing here stops a batch: who asks stands still.
"""

from __future__ import annotations

import time

from turnwise.config import Config
from turnwise.errors import ConfigError
from turnwise.journal.journal import Journal
from turnwise.schedule.asked import REFRESHED_S, TrainRequest, answer, take_up, train_request
from turnwise.schedule.watch import WindowWatch

ASKED_EVERY_S = 0.5


class Leave:
    """The leave of one trainer. Raises ConfigError where there is none ever (`train.when = "off"`)."""

    def __init__(self, config: Config, journal: Journal, watch: WindowWatch | None = None) -> None:
        self._when, self._journal = config.train.when, journal
        if self._when == "off":
            raise ConfigError('train.when is "off", so nothing is trained; set it to "idle", "manual" or "always"')
        self._watch = (watch or WindowWatch.of(config, journal)) if self._when == "idle" else None
        self._request: TrainRequest | None = None
        self._asked_at = self._refreshed_at = float("-inf")
        self.stood_s = 0.0
        """How long the batch in work has been held up."""

    @property
    def asked(self) -> bool:
        """Whether a person has asked for training at once."""
        return self._request is not None

    def why_not(self, *, due: bool, stopped: bool) -> str | None:
        """Why nothing may be trained now, as a sentence; None where it may. `due`, `stopped`: as `next_window`.

        Raises JournalError.
        """
        self._look_for_request()
        if self._watch is None:
            if self.asked or self._when == "always":
                return None
            return 'train.when is "manual"; `turnwise train now` trains'
        if self.asked:
            self._watch.look(due=False, stopped=True)
            return None
        outlook = self._watch.look(due=due, stopped=stopped)
        return None if (outlook.may_train if due else outlook.open) else outlook.why

    def done(self, said: str) -> None:
        """What was asked for is done, or cannot be."""
        if self._request is not None:
            answer(self._journal, self._request, said)
            self._request = None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _look_for_request(self) -> None:
        now = time.monotonic()
        if self._request is not None:
            if now - self._refreshed_at >= REFRESHED_S:
                take_up(self._journal, self._request)
                self._refreshed_at = now
            return
        if now - self._asked_at < ASKED_EVERY_S:
            return
        self._asked_at = now
        found = train_request(self._journal)
        if found is not None and found.open:
            take_up(self._journal, found)
            self._request, self._refreshed_at = found, now
