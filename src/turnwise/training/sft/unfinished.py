"""The fine-tuning of a home that is not finished: what it is of, and how far it came, in the folder ``sft``.

There is one at most. The same command goes on with it, to the same weights; another one is told what differs, because
half of one course and half of another would be neither.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from turnwise.config import TrainConfig
from turnwise.errors import DataError, PlaceTaken
from turnwise.files import write_atomically
from turnwise.training.sft.checkpoints import CheckpointStore
from turnwise.training.sft.conversations import DataFile

OF_TRAIN = ("weights", "lora_rank", "lora_alpha", "weight_decay", "grad_clip", "seed", "dtype")
"""Settings of the section `train` that the course depends on."""
LORA_SFT_LR = 2e-4


@dataclass(frozen=True, slots=True)
class SftSettings:
    """What is asked of a fine-tuning. ``batch_tokens``: tokens of an optimiser step, about; ``lr``: at the peak.

    ``eval_share``: of the conversations, set aside to measure on; ``warm_up``: share of the steps; ``context``: longest
    prompt and answer, in tokens.
    """

    epochs: int = 2
    lr: float = LORA_SFT_LR
    batch_tokens: int = 4096
    eval_share: float = 0.05
    warm_up: float = 0.05
    context: int = 4096
    skip_broken: bool = False


@dataclass(frozen=True, slots=True)
class SftStory:
    """All that the course of a run depends on. ``parent_digest`` is of the parent's ``meta.json``: its number alone may
    name another version, where an older journal was put back."""

    file: str
    sha256: str
    model: str
    parent: int
    parent_digest: str
    settings: dict[str, Any]
    train: dict[str, Any]
    pictures: str = ""

    @classmethod
    def of(
        cls, data: DataFile, model: str, parent: int, meta: dict[str, Any], s: SftSettings, t: TrainConfig
    ) -> SftStory:
        digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
        train = {name: getattr(t, name) for name in OF_TRAIN}
        return cls(data.path.name, data.sha256, model, parent, digest, asdict(s), train, data.pictures)

    @property
    def origin(self) -> str:
        told = asdict(self)
        if not self.pictures:
            del told["pictures"]  # so that a run without any is the one that it was before there were some
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def differences(self, now: SftStory) -> list[str]:
        """What another run would have to be given to be this one, as sentences."""
        found = []
        if self.sha256 != now.sha256:
            same = self.file == now.file
            was = f"{now.file} has changed since it began" if same else f"it learns from {self.file}, not {now.file}"
            found.append(f"{was} (sha256 {self.sha256[:12]}… then, {now.sha256[:12]}… now)")
        elif self.pictures != now.pictures:
            found.append("its pictures have changed since it began")
        if self.model != now.model:
            found.append(f"the model was {self.model}, and is {now.model}")
        if self.parent != now.parent:
            found.append(
                f"it began on version {self.parent}, and version {now.parent} serves now (`turnwise versions rollback "
                f"{self.parent}` serves the other again)"
            )
        elif self.parent_digest != now.parent_digest:
            found.append(f"version {self.parent} is another one than it was")
        for name, value in now.settings.items():
            if self.settings.get(name) != value:
                found.append(f"--{name.replace('_', '-')} was {self.settings.get(name)}, and is {value}")
        for name, value in now.train.items():
            if self.train.get(name) != value:
                found.append(f"train.{name} was {self.train.get(name)}, and is {value}")
        return found


class Unfinished:
    """The folder of a home's unfinished run. One process works with it at a time: `locked`."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "sft"
        self._file = self.folder / "run.json"
        self.pictures = home / "sft-pictures"
        """Those of the file, while a process works with it."""
        home.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(home / "sft.lock")

    def lock(self) -> None:
        """Raises PlaceTaken where another process works with it."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise PlaceTaken("another `turnwise sft` is at work in this home; wait until it has ended") from None
        shutil.rmtree(self.pictures, ignore_errors=True)  # of one that was killed

    def unlock(self) -> None:
        shutil.rmtree(self.pictures, ignore_errors=True)
        self._lock.release()

    @property
    def run(self) -> str | None:
        """The id of the run that is there, or None."""
        return self._read()[0] if self._file.exists() else None

    def begin_or_go_on(self, story: SftStory) -> tuple[str, CheckpointStore]:
        """The id of the run and its checkpoints. Raises DataError where another one is unfinished."""
        if not self._file.exists():
            self.drop()  # what a killed one left that had not begun
            self.folder.mkdir(parents=True)
            run = uuid.uuid4().hex
            write_atomically(self._file, json.dumps({"run": run} | asdict(story)).encode())
            return run, CheckpointStore(self.folder)
        run, there = self._read()
        differs = ["its run.json cannot be read"] if there is None else there.differences(story)
        if run is None or differs:
            why = "\n".join(f"  {one}" for one in differs)
            raise DataError(
                f"a fine-tuning{f' of {there.file}' if there else ''} is unfinished here, and cannot go on so:\n"
                f"{why}\nGive what it was begun with, or add --anew, which drops it and begins from the start."
            )
        return run, CheckpointStore(self.folder)

    def drop(self) -> None:
        """Forget the run."""
        self._file.unlink(missing_ok=True)  # first: what is left without it is a run that had not begun
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self) -> tuple[str | None, SftStory | None]:
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            return told.pop("run"), SftStory(**told)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None, None
