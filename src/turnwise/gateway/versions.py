"""Which policy version serves: follows the journal, loads new adapters into the engine, and unloads unused ones.

A new version is taken up only once the engine has it, so that no request waits for a load or meets an adapter that is
not there. If a load fails, the last version goes on serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from turnwise.engines.base import Engine
from turnwise.engines.vllm import BASE_MODEL
from turnwise.errors import AdapterError, EngineError, JournalError, ModelError
from turnwise.gateway.errors import ApiError
from turnwise.journal import Journal
from turnwise.models import resolve_model
from turnwise.models.identity import refuse_folder_of_other_base
from turnwise.patterns import anchored
from turnwise.types import BASE_VERSION, MODEL_NAME, PolicyVersion

log = logging.getLogger(__name__)

_PINNED = anchored(rf"^{MODEL_NAME}@(?:(base)|v(\d{{1,9}}))$")
POLL_S = 0.3
KEEP_LOADED = 2


def adapter_name(version: int) -> str:
    """The engine's name for a version."""
    return BASE_MODEL if version == BASE_VERSION else f"v{version}"


class ServingVersions:
    """The serving version and the adapters that the engine holds."""

    def __init__(self, journal: Journal, engine: Engine) -> None:
        self._journal = journal
        self._engine = engine
        self.number = BASE_VERSION
        self.error: str | None = None
        self.ready = False  # the published version has been taken up at least once
        self._loaded: dict[int, None] = {BASE_VERSION: None}  # in the order of their last use
        self._in_use: Counter[int] = Counter()
        self._to_unload = False  # another version was loaded, or an unused one was kept for an answer under way
        self._lock = asyncio.Lock()

    async def resolve(self, model: str) -> tuple[int, bool]:
        """A model name of the API as (version, pinned). Raises ApiError (404) for a name that does not exist."""
        if model == MODEL_NAME:
            return self.number, False
        match = _PINNED.match(model)
        if match is None:
            raise ApiError(
                404,
                f"there is no model {model!r}; use '{MODEL_NAME}' (what is learned), '{MODEL_NAME}@base' or "
                f"'{MODEL_NAME}@v3' for a version",
                param="model",
                code="model_not_found",
            )
        version = BASE_VERSION if match.group(1) else int(match.group(2))
        if version != BASE_VERSION:
            await self._published(version)
        return version, True

    async def _published(self, version: int) -> PolicyVersion:
        """A version whose weights are there. Raises ApiError (404)."""
        found = await asyncio.to_thread(self._journal.versions.get, version)
        if found is not None and not found.pruned:
            return found
        fault = f"there is no version {version}" if found is None else f"version {version} was pruned"
        text = f"{fault}; see GET /v1/models or `turnwise versions list`"
        raise ApiError(404, text, param="model", code="model_not_found")

    @asynccontextmanager
    async def using(self, version: int) -> AsyncGenerator[None, None]:
        """Keeps a version loaded while a request is made with it."""
        self._in_use[version] += 1
        try:
            yield
        finally:
            self._in_use[version] -= 1

    async def ensure_loaded(self, version: int, *, again: bool = False) -> str:
        """Make the engine hold a version and return its name there. `again` after the engine forgot it."""
        if version in self._loaded and not again:
            self._loaded[version] = self._loaded.pop(version)
            return adapter_name(version)  # while another one is being loaded, too
        async with self._lock:
            if again and version in self._loaded:
                self._loaded = {BASE_VERSION: None}  # restarted: it knows none of them
            if version not in self._loaded:
                found = await self._published(version)
                path = self._journal.store.config.home / found.path
                ours = self._journal.store.config.versions_dir / f"v{version}"
                if not path.is_relative_to(ours.parent) and (ours.exists() or not path.exists()):
                    path = ours  # the home was moved or copied
                await asyncio.to_thread(self._check_base, version, path)
                await self._engine.load_adapter(adapter_name(version), path)
                self._loaded[version] = None
                self._to_unload = True
        return adapter_name(version)

    def _check_base(self, version: int, folder: Path) -> None:
        """Raises ApiError (409) for a version of another base model than the one that is served."""
        try:
            refuse_folder_of_other_base(version, folder, resolve_model(self._journal.store.config.model.path))
        except AdapterError as e:
            raise ApiError(409, str(e), param="model", code="other_base_model") from e
        except ModelError:
            return  # an engine elsewhere has the model, and this machine none

    async def follow(self) -> None:
        """Take up each newly published version, for as long as the gateway runs."""
        pause = POLL_S
        while True:
            try:
                newest = await asyncio.to_thread(self._journal.versions.latest)
                if newest != self.number:
                    await self.ensure_loaded(newest)
                    log.info("now serving version %d (before: %d)", newest, self.number)
                    self.number = newest
                    self._to_unload = True
                if self._to_unload:
                    await self._unload_unused()
                self.error = None
                self.ready = True
                pause = POLL_S
            except (EngineError, ApiError) as e:
                if str(e) != self.error:
                    log.warning("version not taken up, version %d goes on serving: %s", self.number, e)
                self.error = str(e)
                pause = min(pause * 2, 5.0)
            except JournalError as e:
                log.warning("could not look for a new version: %s", e)
                pause = min(pause * 2, 5.0)
            except Exception:
                log.exception("could not look for a new version")
                pause = min(pause * 2, 5.0)
            await asyncio.sleep(pause)

    async def _unload_unused(self) -> None:
        async with self._lock:
            adapters = [version for version in reversed(self._loaded) if version not in (BASE_VERSION, self.number)]
            unused = [version for version in adapters[KEEP_LOADED - 1 :] if self._in_use[version] == 0]
            self._to_unload = len(unused) < len(adapters[KEEP_LOADED - 1 :])
            for version in unused:
                self._loaded.pop(version, None)
                await self._engine.unload_adapter(adapter_name(version))
