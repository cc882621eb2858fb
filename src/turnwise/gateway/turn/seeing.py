"""Pictures of a request: decoded and checked, kept in the home by their hash, and named by it from here on.

A message then says `sha256:…` and a size where it had the whole file: history, record and prompt know it by that.
Nothing is fetched, and nobody's file is shown to a model that cannot see it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Lock

from turnwise.config import Config
from turnwise.errors import PictureLost, PictureRefused
from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.content import image_field, refuse_images
from turnwise.gateway.wire.request import ModelRequest
from turnwise.messages import images_of, with_images
from turnwise.pictures.placed import PlacedPicture, ShownPicture
from turnwise.pictures.reading import Picture, data_of_url, read_picture, sha256_of_bytes
from turnwise.pictures.store import PictureStore
from turnwise.tokens.pictured import SCHEME
from turnwise.tokens.rendering import PromptRenderer
from turnwise.types import Image

MOST_PICTURES = 100
"""In one request."""
MOST_KNOWN = 4096
"""Pictures whose size is remembered: a client sends its whole history anew with each request."""


class Seeing:
    """Takes the pictures of requests in. ``images``: whether the engine is told them."""

    def __init__(self, config: Config, renderer: PromptRenderer | None, images: bool) -> None:
        self._kind = config.engine.kind
        self._store = PictureStore(config.home)
        self._images = images
        self._has_ids = renderer is not None
        self._model_sees = renderer is None or renderer.sees
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = Lock()

    def take_in(self, request: ModelRequest, format_name: str, *, keep: bool = True) -> ModelRequest:
        """The request with its pictures named by their hash, and their files beside it; with ``keep`` they are in the
        home when this returns. For an upstream, which is told them as they came, nothing changes. Takes CPU time.

        Raises ApiError (400) for a picture that is not taken, or that nobody here sees.
        """
        if not any(images_of(message) for message in request.messages):
            return request
        if not self._model_sees:
            refuse_images(request.messages, format_name)
        if not self._images:
            why = f"the {self._kind} engine takes token ids without pictures; use 'local' or 'vllm'"
            refuse_images(request.messages, format_name, why)
        if not self._has_ids:
            return request
        files: dict[str, bytes] = {}
        messages = []
        for at, message in enumerate(request.messages):
            where = f"message {at}"

            def taken(image: Image, where: str = where) -> Image:
                return self._taken(image, files, where, format_name)

            messages.append(with_images(message, taken))
        if keep:
            for sha256, data in files.items():
                self._store.keep(sha256, data)
        return replace(request, messages=messages, files=files)

    def shown(self, pictures: Iterable[PlacedPicture], files: Mapping[str, bytes]) -> list[ShownPicture]:
        """The pictures of a prompt with their files: those that came with the request (``files``), which a sweep of the
        home may have taken by now, since no turn has them yet, and else those of the home. Raises ApiError (400) where
        one of an earlier turn is gone."""
        try:
            return [ShownPicture(one, files.get(one.sha256) or self._store.read(one.sha256)) for one in pictures]
        except PictureLost as e:
            raise ApiError(400, f"{e}; send the conversation with its pictures", code="picture_lost") from e

    def _taken(self, image: Image, files: dict[str, bytes], where: str, format_name: str) -> Image:
        try:
            data = data_of_url(image.url)
            sha256 = sha256_of_bytes(data)
            width, height = self._size(sha256, data)
        except PictureRefused as e:
            param, kind = image_field(format_name)
            raise ApiError(400, f"{where}, {kind!r}: {e}", param=param, code="invalid_image") from e
        files[sha256] = data
        if len(files) > MOST_PICTURES:
            param, _ = image_field(format_name)
            raise ApiError(400, f"a request may have {MOST_PICTURES} pictures", param=param, code="too_many_images")
        return Image(f"{SCHEME}{sha256}", image.said | {"width": width, "height": height})

    def _size(self, sha256: str, data: bytes) -> tuple[int, int]:
        with self._lock:
            if sha256 in self._known:
                self._known.move_to_end(sha256)
                return self._known[sha256]
        picture: Picture = read_picture(data)
        with self._lock:
            self._known[sha256] = (picture.width, picture.height)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return picture.width, picture.height
