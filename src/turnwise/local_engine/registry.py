"""The weights that requests can name: the base, adapters loaded over it, and whole models of its shapes.

A request pins its weights until it ends, so an adapter that is replaced or unloaded lives as long as its last request.
Only a few merged copies are kept in memory; the least recently used one goes, and comes back on demand. A whole model
is loaded, named and unloaded as an adapter is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

from turnwise.errors import AdapterError, EngineError
from turnwise.local_engine.folders import adapter_folder
from turnwise.local_engine.model.runner import BASE, Runner, Weights
from turnwise.local_engine.model.whole import read_version
from turnwise.loops.memory import give_back

MAX_MERGED = 2
"""Merged adapters in memory: the serving one, and the one it replaces or a pinned one. More live while in use."""


class WeightsRegistry:
    """Thread-safe. ``on_gone`` is told of weights that no request can reach any more.

    Adapters are loaded from below ``adapters_dir`` alone; None: from nowhere.
    """

    def __init__(
        self,
        runner: Runner,
        on_gone: Callable[[Weights], None],
        max_merged: int = MAX_MERGED,
        adapters_dir: Path | None = None,
    ) -> None:
        self._runner = runner
        self._adapters_dir = adapters_dir
        self._on_gone = on_gone
        self._max_merged = max_merged
        self._lock = threading.Lock()
        self._merging = threading.Lock()
        base = Weights(BASE, None, runner.merge(None))
        self._named = {BASE: base}
        self._users: dict[Weights, int] = {}
        self._recent: list[Weights] = []

    def list(self) -> list[Weights]:
        with self._lock:
            return list(self._named.values())

    @property
    def base(self) -> Weights:
        """The model without an adapter, which is always here."""
        return self._named[BASE]

    def load(self, name: str, path: str, *, replace: bool = False) -> None:
        """Read, check and merge an adapter, then serve it as ``name``. Nothing changes when it fails.

        Raises EngineError 400 when it is broken, does not fit, lies elsewhere or the name is taken, 404 when there is
        no such folder, 403 when adapters come from nowhere.
        """
        folder = adapter_folder(path, self._adapters_dir)
        self._check_free(name, replace)
        try:
            found = read_version(name, folder, self._runner.shapes, self._runner.weights)
            weights = Weights(name, changed(found, path=path))
            self._merge(weights)
        except AdapterError as e:
            raise EngineError(str(e), 400) from e
        with self._lock:
            old = self._named.get(name)
            if old is not None and not replace:
                raise EngineError(f"an adapter named {name!r} is loaded already; set load_inplace to replace it", 400)
            self._named[name] = weights
        if old is not None:
            self._retire(old)
        self._shrink()

    def unload(self, name: str) -> None:
        """Serve ``name`` no more; requests in flight finish. Raises EngineError 404 when it is not loaded."""
        with self._lock:
            weights = self._named.get(name)
            if weights is None or weights.adapter is None:
                raise EngineError(f"no adapter named {name!r} is loaded", 404)
            del self._named[name]
        self._retire(weights)

    def acquire(self, name: str) -> Weights:
        """The weights named ``name``, merged and pinned until ``release``. Raises EngineError 404."""
        with self._lock:
            weights = self._named.get(name)
            if weights is None:
                raise EngineError(f"the model {name!r} does not exist; loaded are: {', '.join(self._named)}", 404)
            self._users[weights] = self._users.get(weights, 0) + 1
            if weights in self._recent:
                self._recent.remove(weights)
                self._recent.append(weights)
        if weights.merged is None:
            try:
                self._merge(weights)
            except AdapterError as e:  # a whole model whose folder is gone
                self.release(weights)
                raise EngineError(str(e), 404) from e
            except BaseException:
                self.release(weights)
                raise
            self._shrink()
        return weights

    def release(self, weights: Weights) -> None:
        with self._lock:
            self._users[weights] -= 1
            gone = self._users[weights] == 0 and self._named.get(weights.name) is not weights
            if self._users[weights] == 0:
                del self._users[weights]
        if gone:
            self._drop(weights)

    def is_merged(self, name: str) -> bool:
        """Whether ``acquire`` returns at once."""
        with self._lock:
            return name not in self._named or self._named[name].merged is not None

    def _check_free(self, name: str, replace: bool) -> None:
        if name == BASE:
            raise EngineError(f"{BASE!r} is the model without an adapter; choose another lora_name", 400)
        with self._lock:
            if name in self._named and not replace:
                raise EngineError(f"an adapter named {name!r} is loaded already; set load_inplace to replace it", 400)

    def _merge(self, weights: Weights) -> None:
        with self._merging:
            if weights.merged is None:
                weights.merged = self._runner.merge(weights.adapter)
                with self._lock:
                    self._recent.append(weights)

    def _shrink(self) -> None:
        with self._lock:
            for weights in [w for w in self._recent[:-1] if w not in self._users]:
                if len(self._recent) > self._max_merged:
                    self._recent.remove(weights)
                    weights.merged = None
        give_back()

    def _retire(self, weights: Weights) -> None:
        with self._lock:
            unused = weights not in self._users
        if unused:
            self._drop(weights)

    def _drop(self, weights: Weights) -> None:
        with self._lock:
            if weights in self._recent:
                self._recent.remove(weights)
        weights.merged = None  # a request that has ended may be held on to for a while, and its weights by it
        self._on_gone(weights)
