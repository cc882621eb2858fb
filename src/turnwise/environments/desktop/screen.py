"""A display of its own: an X server without a screen, in a sandbox, with a cookie, on a socket in our folder alone.

Its picture lies in a file that the server maps, so that a screenshot asks nobody.
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from pathlib import Path

from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.desktop.lines import line_from
from turnwise.errors import FolderFault
from turnwise.sandbox.bubblewrap import Room
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.guest import Ends, Guest
from turnwise.sandbox.limits import Allowed, BoxLimits

WIDTH, HEIGHT = 1024, 768
DISPLAY = ":0"
COOKIE = "auth"
FRAME = "Xvfb_screen0"
START_S = 60.0
LIMITS = BoxLimits(seconds=3600, memory_mb=256, processes=8, file_mb=16)
MOST_OF_A_FRAME = 16 << 20
SOCKETS = "/tmp/.X11-unix"
_WILD, _KIND = 0xFFFF, b"MIT-MAGIC-COOKIE-1"
_FIELDS = 25
"""Numbers of 32 bits at the beginning of a picture in the format of xwd."""


class Display:
    """An X server over ``folder``, which is made. Raises InfrastructureFailure where it does not start."""

    def __init__(self, folder: Path) -> None:
        self._files, place = folder / "screen", folder / "screen-place"
        for each in (self._files, place):
            each.mkdir(parents=True, mode=0o700)
        self.cookie = self._files / COOKIE
        self.cookie.write_bytes(_cookie())
        self.sockets = place / "tmp" / ".X11-unix"
        self.sockets.mkdir(parents=True)
        self.sockets.chmod(0o1777)
        words = ["Xvfb", DISPLAY, "-screen", "0", f"{WIDTH}x{HEIGHT}x24", "-auth", COOKIE, "-fbdir", "."]
        words += ["-nolisten", "tcp", "-nolisten", "local", "-noreset", "-displayfd", "1"]
        hears, says = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            self._guest = Guest(Room(self._files, place), LIMITS, Allowed(), words, Ends(nothing, says, nothing))
            os.close(says)
            says = -1
            if line_from(hears, START_S) != DISPLAY.removeprefix(":").encode():
                self._guest.end()
                raise InfrastructureFailure(f"the X server did not start within {START_S:.0f} s")
        finally:
            for descriptor in (hears, says, nothing):
                if descriptor >= 0:
                    os.close(descriptor)

    @property
    def lives(self) -> bool:
        return self._guest.process is not None and self._guest.process.poll() is None

    def frame(self) -> bytes:
        """What is on the screen now, in the server's own format. Raises InfrastructureFailure."""
        try:
            return GuestFolder(self._files).read(FRAME, MOST_OF_A_FRAME)
        except (OSError, FolderFault) as e:
            raise InfrastructureFailure(f"the screen cannot be read: {e}") from e

    def close(self) -> None:
        self._guest.end()


def png(frame: bytes) -> bytes:
    """A picture of the X server (xwd, 32 bits a pixel) as PNG. Raises InfrastructureFailure for another format."""
    size = 4 * _FIELDS
    if len(frame) < size:
        raise InfrastructureFailure("the X server wrote no picture")
    fields = struct.unpack(f">{_FIELDS}I", frame[:size])
    header, width, height, swapped, bits, row, colors = (fields[at] for at in (0, 4, 5, 7, 11, 12, 19))
    start = header + 12 * colors
    pixels = frame[start : start + row * height]
    if swapped or bits != 32 or row != 4 * width or len(pixels) != row * height:
        raise InfrastructureFailure("the X server wrote a picture in a format that is not known here")
    colored = bytearray(3 * width * height)
    for channel in range(3):
        colored[channel::3] = pixels[2 - channel :: 4]
    lines = b"".join(b"\0" + colored[at : at + 3 * width] for at in range(0, len(colored), 3 * width))
    parts = [
        (b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def _cookie() -> bytes:
    """An authority file with one new cookie, which is good from any host."""
    parts = [b"", DISPLAY.removeprefix(":").encode(), _KIND, secrets.token_bytes(16)]
    return struct.pack(">H", _WILD) + b"".join(struct.pack(">H", len(part)) + part for part in parts)
