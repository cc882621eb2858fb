"""The file of `turnwise rollout --record`: solved rollouts as lines for `turnwise sft`, their pictures in a folder
beside it, `NAME-pictures`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwise.environments.curation import RecordedEpisode


class SolvedFile:
    """Lines are added to ``file``. ``with_pictures``: there may be some. Raises ConfigError where either cannot be."""

    def __init__(self, file: Path, with_pictures: bool) -> None:
        from turnwise.files import ready_for_lines

        ready_for_lines(file)
        place = file.resolve()  # /dev/stdout may be a file elsewhere
        self._file, self._folder = file, place.with_name(f"{place.stem}-pictures")
        if not with_pictures:
            return
        if file.exists() and not file.is_file():
            raise ConfigError(f"{file} is no regular file, so no pictures can lie beside it; give --record another one")
        if "\\" in self._folder.name or self._folder.is_symlink():
            said = f"pictures in {self._folder} could not be learned from: it is a link, or has a backslash in its name"
            raise ConfigError(f"{said}; give --record another name")
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as e:
            raise ConfigError(f"the folder {self._folder} for pictures cannot be made: {e.strerror}") from e

    def add(self, episodes: Sequence[RecordedEpisode]) -> None:
        """Pictures are there before a line names them."""
        from turnwise.files import write_atomically

        with self._file.open("a", encoding="utf-8") as lines:
            for episode in episodes:
                for name, data in episode.transcript.files.items():
                    if not (picture := self._folder / name).exists():
                        write_atomically(picture, data)
                lines.write(f"{episode.transcript.line(self._folder.name)}\n")
