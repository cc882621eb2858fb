"""A picture from outside: decoded whole, within limits, before anything else is done with it.

Nothing is fetched: a picture comes in the request, as a data URL, or not at all. Only formats with one still image are
read; what a file says of its size is looked at before a pixel of it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import struct
import warnings
import zlib
from dataclasses import dataclass

from PIL import Image, ImageOps, UnidentifiedImageError

from turnwise.errors import PictureRefused

MOST_BYTES = 10_000_000
"""Of a picture's file."""
MOST_PIXELS = 25_000_000
"""Width times height: as pixels in memory that is 75 MB."""
LONGEST_EDGE = 16_384
FORMATS = ("PNG", "JPEG", "WEBP", "GIF")
"""As Pillow names them: its other readers are never tried."""
_TAKEN = "PNG, JPEG, WebP or GIF"
_SCHEME = "data:"
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, EOFError, struct.error, zlib.error, IndexError, KeyError)
"""What Pillow's readers raise on files that are cut off, forged or mean."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A file that was decoded whole: its SHA-256 in hex, and its size in pixels, upright."""

    sha256: str
    data: bytes
    kind: str
    width: int
    height: int


def data_of_url(url: str) -> bytes:
    """The bytes in a picture's data URL, not looked into yet. Raises PictureRefused with what is wrong."""
    if url[: len(_SCHEME)].lower() != _SCHEME:
        raise PictureRefused("a picture must be sent as a data URL (data:image/png;base64,…): no address is fetched")
    head, comma, body = url[len(_SCHEME) :].partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise PictureRefused("the picture's data URL has no ';base64,' before its data")
    if len(body) > MOST_BYTES * 4 // 3 + 4:
        raise PictureRefused(f"a picture's file may have at most {MOST_BYTES // 10**6} MB; send a smaller one")
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError) as e:
        raise PictureRefused(f"the picture's data is no base64: {e}") from e


def sha256_of_bytes(data: bytes) -> str:
    """By which a picture is known, in hex."""
    return hashlib.sha256(data).hexdigest()


def read_picture(data: bytes) -> Picture:
    """The picture in a file's bytes, decoded to see that it can be. Raises PictureRefused."""
    if len(data) > MOST_BYTES:
        raise PictureRefused(f"a picture's file may have at most {MOST_BYTES // 10**6} MB; send a smaller one")
    kind, image = _decoded(data)
    return Picture(sha256_of_bytes(data), data, f"image/{kind.lower()}", image.width, image.height)


def pixels_of(data: bytes) -> Image.Image:
    """The pixels of a picture's file, upright and in RGB, as a model's processor takes them. Raises PictureRefused."""
    return _decoded(data)[1]


def _decoded(data: bytes) -> tuple[str, Image.Image]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is damaged and can be read all the same, and of large ones
            with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
                _check_size(opened)
                if getattr(opened, "is_animated", False):
                    raise PictureRefused("a picture that moves is not taken; send one still image of it")
                kind = str(opened.format)
                return kind, ImageOps.exif_transpose(opened).convert("RGB")
    except PictureRefused:
        raise
    except UnidentifiedImageError as e:
        raise PictureRefused(f"the picture is no {_TAKEN}") from e
    except Image.DecompressionBombError as e:
        raise PictureRefused(_too_large()) from e
    except MemoryError as e:
        raise PictureRefused("the picture takes more memory than there is; send a smaller one") from e
    except _BROKEN as e:
        raise PictureRefused(f"the picture cannot be decoded: {str(e)[:200] or type(e).__name__}") from e


def _check_size(image: Image.Image) -> None:
    """Of what the file's head says, before its pixels are made."""
    width, height = image.size
    if width < 1 or height < 1:
        raise PictureRefused("the picture has no pixels")
    if width * height > MOST_PIXELS or max(width, height) > LONGEST_EDGE:
        raise PictureRefused(_too_large())


def _too_large() -> str:
    return (
        f"a picture may have at most {MOST_PIXELS // 10**6} million pixels and edges of {LONGEST_EDGE}; scale it down"
    )
