"""Pictures from outside: what is taken, and what is refused before it can do anything."""

from __future__ import annotations

import base64
import contextlib
import io
import random
import struct
import zlib

import pytest
from PIL import Image

from tests.support.tiny_vision import png
from turnwise.errors import PictureRefused
from turnwise.pictures import reading
from turnwise.pictures.reading import data_of_url, pixels_of, read_picture


def encoded(kind: str, size: tuple[int, int] = (12, 8), **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (200, 10, 10)).save(out, kind, **options)
    return out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_that_says(width: int, height: int, pixels: bytes = b"") -> bytes:
    """A PNG whose head says such a size, whatever follows."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", reading.FORMATS)
def test_a_still_image_is_taken(kind: str) -> None:
    found = read_picture(encoded(kind))
    assert (found.width, found.height, found.kind) == (12, 8, f"image/{kind.lower()}")


def test_a_picture_that_lies_on_its_side_is_set_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded("JPEG", exif=exif)
    assert (read_picture(data).width, read_picture(data).height) == (8, 12)
    assert pixels_of(data).size == (8, 12)


def test_a_bomb_is_refused_by_what_its_head_says() -> None:
    for size in ((50_000, 50_000), (30_000, 10), (5_001, 5_000), (2**31 - 1, 2**31 - 1)):
        with pytest.raises(PictureRefused, match="at most 25 million pixels"):
            read_picture(png_that_says(*size, bytes(1000)))


HOSTILE = {
    "nothing": b"",
    "words": b"I am no picture",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "tiff": encoded("TIFF"),
    "bmp": encoded("BMP"),
    "cut off": png((1, 2, 3))[:60],
    "no pixels": png_that_says(0, 0),
    "too few pixels": png_that_says(100, 100, b"\0" * 10),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_picture_is_refused(what: str) -> None:
    with pytest.raises(PictureRefused):
        read_picture(HOSTILE[what])


def test_a_picture_that_moves_is_refused() -> None:
    out, frames = io.BytesIO(), [Image.new("RGB", (8, 8), (n, 0, 0)) for n in (10, 200)]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(PictureRefused, match="moves"):
        read_picture(out.getvalue())


def test_a_file_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(PictureRefused, match="at most 10 MB"):
        read_picture(bytes(reading.MOST_BYTES + 1))
    with pytest.raises(PictureRefused, match="at most 10 MB"):
        data_of_url("data:image/png;base64," + "A" * (reading.MOST_BYTES * 4 // 3 + 5))


@pytest.mark.parametrize("url", ["http://127.0.0.1/x.png", "//host/x.png", "file:///x.png", "", "sha256:" + "0" * 64])
def test_no_address_is_fetched(url: str) -> None:
    with pytest.raises(PictureRefused, match="no address is fetched"):
        data_of_url(url)


def test_a_data_url_is_read_as_browsers_write_it() -> None:
    data = png((1, 2, 3))
    body = base64.b64encode(data).decode()
    assert data_of_url(f"DATA:image/png;BASE64,{body[:70]}\n{body[70:]}") == data
    for wrong in ("data:image/png,abc", "data:image/png;base64", "data:image/png;base64,a"):
        with pytest.raises(PictureRefused):
            data_of_url(wrong)


def test_files_that_were_changed_at_random_are_read_or_refused() -> None:
    rng = random.Random(5)
    for n in range(300):
        data = bytearray(encoded(reading.FORMATS[n % 4], (20, 20)))
        for _ in range(rng.randint(1, 12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(PictureRefused):
            read_picture(bytes(data[: rng.randint(1, len(data))] if n % 3 == 0 else data))
