"""A server with the Tinker API, as its own client speaks to it: every call has a limit, and says that it lives.

The client waits and asks again for minutes by itself, so that its calls run on a thread beside; where the server does
not answer meanwhile, that is said at once. The key is the client's business: it reads it from its environment variable,
and no word of it gets into an error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import httpx
from torch import Tensor

from turnwise.config import TrainConfig
from turnwise.errors import AdapterError, ConfigError, ServerLost, ServerRefused
from turnwise.training.asking import GivenAnswer
from turnwise.training.hosted.folding import Targets

T = TypeVar("T")
KEY = "TINKER_API_KEY"
COMMAND = "TINKER_CREDENTIAL_CMD"
"""Environment variable of the client with a command that prints a key."""
POLL_S = 0.1
LOOK_EVERY_S = 3.0
"""Between two looks whether a server that is waited for still answers."""
SILENT = 3
"""Looks in a row without an answer, after which it is lost."""
MOST_BYTES = 16 << 30
"""Of an adapter's archive."""
SAID = 300
"""Characters of a server's own words that are passed on."""
FORGOTTEN = "not loaded"
"""What SkyRL says of weights that it had before it was started anew."""


class TinkerServer:
    """A connection, which is made when it is first needed. ``alive`` is called every moment of waiting and may raise.

    Raises ConfigError where the client is not installed or there is no key.
    """

    def __init__(self, config: TrainConfig, model: Path | str) -> None:
        try:
            self.api: Any = import_module("tinker")
        except ImportError as e:
            raise ConfigError(
                f'train.backend = "tinker" needs the client of that API ({e}); pip install "turnwise[tinker]"'
            ) from e
        if not (os.environ.get(KEY) or os.environ.get(COMMAND)):
            raise ConfigError(
                f'train.backend = "tinker" needs the key of its server in the environment variable {KEY} (any word '
                'that begins with "tml-" for a server of your own that asks for none)'
            )
        os.environ.setdefault("TINKER_TELEMETRY", "0")  # the client would tell the server of every error here
        self.model = config.tinker_model or str(model)
        self.alive: Callable[[], None] = lambda: None
        self._config, self._service = config, None

    @property
    def where(self) -> str:
        """Its address, for a person."""
        return self._config.tinker_url or os.environ.get("TINKER_BASE_URL") or "the Tinker service"

    def begin(self) -> HostedAdapter:
        """A new adapter, which is a no-op until trained, in a session of its own."""
        config = self._config
        return self._adapter(
            lambda service: service.create_lora_training_client(
                base_model=self.model, rank=config.lora_rank, seed=config.seed, train_unembed=False
            )
        )

    def saved(self, path: str, *, with_optimizer: bool) -> HostedAdapter:
        """An adapter as it was saved there, in a session of its own. Raises AdapterError where the server has none."""
        self.connect()
        return self.beside(path, with_optimizer=with_optimizer)

    def beside(self, path: str, *, with_optimizer: bool) -> HostedAdapter:
        """The same in the session that there is."""
        how = "create_training_client_from_state" + ("_with_optimizer" if with_optimizer else "")
        try:
            return HostedAdapter(self, self.call("load an adapter", lambda: getattr(self.service, how)(path)))
        except ServerRefused as e:
            raise AdapterError(f"{e}; roll back to a version that it has, or to 0, the base model") from e

    def _adapter(self, make: Callable[[Any], Any]) -> HostedAdapter:
        self.connect()
        try:
            return HostedAdapter(self, self.call("make an adapter", lambda: make(self.service)))
        except ServerRefused as e:  # no room, or no such model: no fault of what is to be trained on
            raise ServerLost(str(e)) from e

    @property
    def service(self) -> Any:
        assert self._service is not None
        return self._service

    def connect(self) -> None:
        """A new session; the one before ends, and with it what the server kept in memory for it."""
        self.close()
        if not self._answers():
            raise ServerLost(f"nothing answers at {self.where}; start it, or set train.tinker_url")
        url = self._config.tinker_url
        named = {} if url is None else {"base_url": url}
        self._service = self.call("begin a session", lambda: self.api.ServiceClient(**named))

    def close(self) -> None:
        """End the session."""
        service, self._service = self._service, None
        if service is not None:
            # Its own end waits for the server; without signs of life the server ends the session by itself.
            threading.Thread(target=lambda: service.holder.close(), daemon=True).start()

    def base_logprobs(self, texts: Sequence[Targets]) -> list[Tensor]:
        """What the base model makes of each response: log-probs [R]."""
        if not texts:
            return []
        return _logprobs(self, self._sampler(base_model=self.model), texts)

    def base_answers(self, prompts: Sequence[Sequence[int]], **how: Any) -> list[GivenAnswer]:
        """Answers of the base model; ``how`` as `HostedAdapter.answers`."""
        return _answers(self, self._sampler(base_model=self.model), prompts, **how)

    def _sampler(self, **whose: str) -> Any:
        return self.call("begin to sample", lambda: self.service.create_sampling_client(**whose))

    def download(self, path: str, target: Path) -> None:
        """Write the archive of an adapter that was saved for sampling into a file."""
        run, name = path.removeprefix("tinker://").split("/", 1)
        bare = name.rpartition("/")[2]

        def work() -> None:
            rest = self.service.create_rest_client()
            try:
                found = rest.get_checkpoint_archive_url(run, f"sampler_weights/{bare}").result()
            except self.api.APIStatusError as e:
                if e.status_code not in (404, 405):
                    raise
                found = rest.get_checkpoint_archive_url(run, bare).result()  # SkyRL knows it without its kind
            size = 0
            with (
                httpx.stream("GET", found.url, follow_redirects=True, timeout=60) as answer,
                target.open("wb") as file,
            ):
                answer.raise_for_status()
                for chunk in answer.iter_bytes():
                    size += len(chunk)
                    if size > MOST_BYTES:
                        raise ServerRefused(f"the archive of {path} has more than {MOST_BYTES >> 30} GiB")
                    file.write(chunk)

        self.call("send an adapter", work)

    def call(self, what: str, work: Callable[[], T]) -> T:
        """What ``work`` gives; it runs beside. Raises ServerLost and ServerRefused, naming ``what``, and whatever
        ``alive`` raises."""
        found: list[T] = []
        failed: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                found.append(work())
            except BaseException as e:
                failed.append(e)
            finally:
                done.set()

        threading.Thread(target=run, name="tinker-call", daemon=True).start()
        waited, look, silent = 0.0, LOOK_EVERY_S, 0
        while not done.wait(POLL_S):
            waited += POLL_S  # how long `alive` takes itself, hours while the person is there, does not count
            self.alive()
            if waited > self._config.tinker_timeout_s:
                raise ServerLost(
                    f"{self.where} did not {what} within train.tinker_timeout_s = {self._config.tinker_timeout_s:g}"
                )
            if waited >= look:
                look, silent = waited + LOOK_EVERY_S, 0 if self._answers() else silent + 1
                if silent == SILENT:
                    raise ServerLost(f"{self.where} went away while it was to {what}")
        if failed:
            raise self._as_ours(what, failed[0]) from None
        return found[0]

    def _answers(self) -> bool:
        """Whether the server is there; of one without an address of ours the client says so itself, later."""
        if self._config.tinker_url is None:
            return True
        try:
            url = f"{self._config.tinker_url.rstrip('/')}/api/v1/healthz"
            return httpx.get(url, timeout=5).status_code < 500
        except (httpx.HTTPError, OSError):
            return False

    def _as_ours(self, what: str, error: BaseException) -> BaseException:
        if isinstance(error, (ServerRefused, ServerLost)) or not isinstance(error, Exception):
            return error
        said = " ".join(f"{type(error).__name__}: {error}".split())
        for secret in filter(None, (os.environ.get(KEY),)):
            said = said.replace(secret, "…")
        said = said[:SAID]
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return ServerLost(f"{self.where} lets nobody in with the key in {KEY} ({said}); set another one")
        lost = isinstance(error, (self.api.APIConnectionError, httpx.TransportError, TimeoutError))
        if lost or FORGOTTEN in said or (status is not None and status >= 500):
            return ServerLost(f"{self.where} went away while it was to {what} ({said})")
        return ServerRefused(f"{self.where} could not {what}: {said}")


class HostedAdapter:
    """An adapter in training at the server, with its optimiser."""

    def __init__(self, server: TinkerServer, client: Any) -> None:
        self._server, self._client, self._api = server, client, server.api.types
        self._sampled_as: Any = None

    def logprobs(self, texts: Sequence[Targets]) -> list[Tensor]:
        """Log-probs [R] of each response under the weights as they are."""
        if not texts:
            return []
        data = [self._datum(t, weights=[0.0] * (len(t.targets) - t.length) + [1.0] * t.length) for t in texts]
        out = self._call("score texts", lambda: self._client.forward(data, "cross_entropy").result())
        return _of_responses(texts, out)

    def learn(
        self, texts: Sequence[Targets], loss: str, inputs: Sequence[dict[str, Any]], **settings: float
    ) -> list[Tensor]:
        """Add the gradient of a loss of the API, with these ``inputs`` beside each text's targets; gives the log-probs
        [R] before it. ``settings`` are the loss's own."""
        data = [self._datum(text, **given) for text, given in zip(texts, inputs, strict=True)]
        told = settings or None
        out = self._call("train", lambda: self._client.forward_backward(data, loss, loss_fn_config=told).result())
        self._sampled_as = None
        return _of_responses(texts, out)

    def step(self, **adam: float) -> dict[str, float]:
        """Move the weights by the gradients that were added; gives what the server measured."""
        params = self._api.AdamParams(**adam)
        self._sampled_as = None
        return dict(self._call("take a step", lambda: self._client.optim_step(params).result()).metrics or {})

    def save(self, name: str) -> str:
        """Keep weights and optimiser at the server; gives the path that they are loaded from."""
        return self._call("save", lambda: self._client.save_state(name).result()).path

    def save_for_sampling(self, name: str) -> str:
        """Keep the weights as a PEFT archive; gives its path."""
        path = self._call("save", lambda: self._client.save_weights_for_sampler(name).result()).path
        run, _, rest = path.removeprefix("tinker://").partition("/")
        return path if "/" in rest else f"tinker://{run}/sampler_weights/{rest}"  # SkyRL leaves its kind out

    def answers(self, prompts: Sequence[Sequence[int]], **how: Any) -> list[GivenAnswer]:
        """An answer of at most ``most`` tokens to each prompt, at ``temperature``; ``ends``: what tokens end one."""
        if self._sampled_as is None:
            path = self.save_for_sampling("asked")
            self._sampled_as = self._call(
                "begin to sample", lambda: self._server.service.create_sampling_client(model_path=path)
            )
        return _answers(self._server, self._sampled_as, prompts, **how)

    def _datum(self, text: Targets, **inputs: Any) -> Any:
        model_input = self._api.ModelInput.from_ints(text.inputs)
        return self._api.Datum(model_input=model_input, loss_fn_inputs={"target_tokens": text.targets, **inputs})

    def _call(self, what: str, work: Callable[[], T]) -> T:
        return self._server.call(what, work)


def _of_responses(texts: Sequence[Targets], out: Any) -> list[Tensor]:
    return [t.of_response(o["logprobs"].tolist()) for t, o in zip(texts, out.loss_fn_outputs, strict=True)]


def _logprobs(server: TinkerServer, sampler: Any, texts: Sequence[Targets]) -> list[Tensor]:
    whole = [server.api.types.ModelInput.from_ints([*t.inputs, t.targets[-1]]) for t in texts]

    def work() -> list[Any]:
        return [future.result() for future in [sampler.compute_logprobs(text) for text in whole]]

    return [t.of_response(found) for t, found in zip(texts, server.call("score texts", work), strict=True)]


def _answers(
    server: TinkerServer,
    sampler: Any,
    prompts: Sequence[Sequence[int]],
    *,
    most: int,
    seed: int,
    ends: Sequence[int],
    temperature: float,
) -> list[GivenAnswer]:
    types = server.api.types

    def work() -> list[Any]:
        asked = []
        for i, prompt in enumerate(prompts):
            params = types.SamplingParams(max_tokens=most, seed=seed + i, temperature=temperature, stop=list(ends))
            asked.append(sampler.sample(types.ModelInput.from_ints(list(prompt)), 1, params))
        return [future.result().sequences[0] for future in asked]

    found = server.call("sample answers", work)
    return [GivenAnswer(list(s.tokens), list(s.logprobs or []), str(s.stop_reason) == "stop") for s in found]
