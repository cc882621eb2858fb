"""The compact forms in which token ids, log-probs and messages are stored; no other room of the program reads them."""

from __future__ import annotations

import json
import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

PLAIN = b"\x00"
"""The first byte of a blob that is not compressed; a zlib stream never begins with it."""

COMPRESS_FROM = 256
"""Bytes below which compressing costs more time than it saves space."""


def deflate(raw: bytes) -> bytes:
    """As a blob, compressed where that pays."""
    return PLAIN + raw if len(raw) < COMPRESS_FROM else zlib.compress(raw, 1)


def _inflate(blob: bytes) -> bytes:
    return blob[1:] if blob[:1] == PLAIN else zlib.decompress(blob)


def pack_json(value: Any) -> bytes:
    return deflate(json_bytes(value))


def json_bytes(value: Any) -> bytes:
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def unpack_json(blob: bytes) -> Any:
    return json.loads(_inflate(blob).decode("utf-8", "surrogatepass"))


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids [N] as little-endian int32."""
    return _pack(array("i", ids))


def unpack_ids(blob: bytes) -> list[int]:
    return id_array(blob).tolist()


def id_array(blob: bytes) -> array[int]:
    """Packed token ids as 4 bytes each."""
    return _unpack(array("i"), blob)


def pack_spans(spans: Sequence[tuple[int, int]]) -> bytes | None:
    """Starts and ends within a prompt's ids; None where there are none."""
    return pack_ids([place for span in spans for place in span]) if spans else None


def unpack_spans(blob: bytes | None) -> tuple[tuple[int, int], ...]:
    places = unpack_ids(blob) if blob else []
    return tuple(zip(places[::2], places[1::2], strict=True))


def pack_logprobs(values: Sequence[float] | None) -> bytes | None:
    """Log-probs [N] as little-endian float32, the precision the engine computes them in."""
    return None if values is None else _pack(array("f", values))


def unpack_logprobs(blob: bytes | None) -> list[float] | None:
    return None if blob is None else _unpack(array("f"), blob).tolist()


def _pack(values: array[Any]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return deflate(values.tobytes())


def _unpack(values: array[Any], blob: bytes) -> array[Any]:
    values.frombytes(_inflate(blob))
    if sys.byteorder == "big":
        values.byteswap()
    return values
