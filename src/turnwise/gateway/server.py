"""The gateway loop: opens the journal, waits for the engine, serves HTTP, and does the upkeep beside it.

Upkeep: following the published version, closing idle sessions and overdue groups of rollouts, writing records.jsonl,
and a heartbeat for `status`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from filelock import FileLock, Timeout

from turnwise.access_tokens import load_tokens
from turnwise.capabilities import capabilities
from turnwise.config import Config
from turnwise.engines.choose import token_engine
from turnwise.engines.upstream.client import make_upstream
from turnwise.errors import ConfigError, JournalFull, TurnwiseError
from turnwise.gateway.app import make_app
from turnwise.gateway.hang_ups import HangUps
from turnwise.gateway.limits import KEPT_S, Door, Limits, raise_file_limit
from turnwise.gateway.turn.opening import TurnOpener
from turnwise.gateway.turn.relaying import Relaying, UpstreamVersions
from turnwise.gateway.turn.sampling import Answering
from turnwise.gateway.versions import ServingVersions
from turnwise.journal import Journal
from turnwise.journal.deletion.retention import Keeper
from turnwise.journal.records.export import CHUNK, RecordsExporter
from turnwise.loops.process import loop_main
from turnwise.models import resolve_model
from turnwise.net import bind, url_of
from turnwise.skills.compressing.prompts import ShortPrompts
from turnwise.skills.serving import ServingSkills
from turnwise.tokens.rendering import load_renderer

log = logging.getLogger(__name__)

UPKEEP_S = 1.0
GRACE_S = 6
LAST_WORDS_S = 1.0
"""Before answers under way are cut off at the end of the grace, they are ended with an error for so long."""
LOST_AFTER_S = 10.0
"""A turn without an end that nobody has had in hand for this long has lost it."""


class _Server(uvicorn.Server):
    """Leaves the signals alone: the loop's own handlers set `stop`."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(config: Config, engine_url: str | list[str], sock: socket.socket, stop: asyncio.Event) -> None:
    """Run the gateway until `stop` is set; answers in flight finish within a few seconds.

    `engine_url` is where the engine is, or its replicas are.
    """
    journal = await asyncio.to_thread(Journal.open, config)
    lock = FileLock(config.home / "gateway.lock")
    try:
        lock.acquire(timeout=1)  # a command may hold it for a moment, to see whether we run
    except Timeout:
        said = f"another gateway already serves the home {config.home}, or `turnwise journal vacuum` is at work there"
        raise ConfigError(said) from None
    if not await asyncio.to_thread(journal.store.hold_for_gateway):
        raise ConfigError(f"another gateway serves the journal {journal.store.database.place}; stop it first")
    url = url_of(config, sock.getsockname()[1])
    try:
        await asyncio.to_thread(journal.status.say, "gateway", {"pid": os.getpid(), "url": url})
    except JournalFull as e:
        log.warning("where the gateway is found is written down once there is room: %s", e)
    urls = [engine_url] if isinstance(engine_url, str) else engine_url
    if capabilities(config).token_ids:
        engine = token_engine(config, urls)
        renderer = await asyncio.to_thread(load_renderer, resolve_model(config.model.path))
        versions = ServingVersions(journal, engine)
        answering = Answering(journal, engine, renderer, versions)
    else:
        engine, renderer, versions = make_upstream(config), None, UpstreamVersions()
        answering = Relaying(journal, engine)
    skills = ServingSkills(config, journal)
    await asyncio.to_thread(skills.take_up)
    if not (config.skills.enabled and config.skills.evolve):
        await asyncio.to_thread(journal.failures.pass_over)
    opener = TurnOpener(
        config, journal, renderer, versions, answering.max_model_len, skills, ShortPrompts(config, journal)
    )
    tokens = load_tokens(config)
    try:
        interrupted = await asyncio.to_thread(journal.turns.recover_interrupted)
    except JournalFull as e:
        interrupted = 0
        log.warning("turns of an earlier gateway are closed once there is room: %s", e)
    if interrupted:
        log.warning("%d turns had been interrupted by an earlier stop; they are excluded from training", interrupted)

    @asynccontextmanager
    async def background() -> AsyncGenerator[None, None]:
        kept = upkeep(config, journal, opener, url, stop)
        tasks = [asyncio.create_task(work) for work in (versions.follow(), skills.follow(), kept)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    app = make_app(config, opener, answering, tokens, background)
    limits = Limits.of(config.server)
    raise_file_limit(limits)
    server = _Server(
        uvicorn.Config(
            HangUps(app),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=KEPT_S,
            server_header=False,
            http=Door(limits).protocol(),
            ws="none",
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        asyncio.get_running_loop().call_later(max(0.0, GRACE_S - LAST_WORDS_S), opener.leaving.break_off)
        await serving
    finally:
        stopping.cancel()
        await engine.close()
        try:
            await asyncio.to_thread(RecordsExporter(journal).export_all)
        except (TurnwiseError, OSError) as e:  # the journal still has them: the next start writes them out
            log.warning("the last records were not written: %s", e)
        journal.close()
        lock.release()


async def upkeep(config: Config, journal: Journal, opener: TurnOpener, url: str, stop: asyncio.Event) -> None:
    """Close idle sessions, export records, keep to the limits of what is kept, say that we live, and where.

    Sets `stop` where another gateway has taken the journal, whose turns under way it would exclude.
    """
    exporter, keeper = RecordsExporter(journal), Keeper(journal)

    async def stay_the_one() -> None:
        if not await asyncio.to_thread(journal.store.still_held):
            log.error("another gateway has taken the journal %s; this one stops", journal.store.database.place)
            stop.set()

    async def close_idle() -> None:
        before = await asyncio.to_thread(journal.store.monotonic) - config.sessions.idle_close_s
        for session_id in await asyncio.to_thread(journal.sessions.idle, before):
            await asyncio.to_thread(journal.sessions.close, session_id, "idle", before)

    async def close_overdue() -> None:
        await asyncio.to_thread(journal.rollouts.close_overdue)

    async def close_lost() -> None:
        """Answers whose end could not be written, because the disk was full for example."""
        await asyncio.to_thread(journal.turns.recover_interrupted, opener.in_hand.lost_for(LOST_AFTER_S))

    async def export() -> None:
        if config.journal.records:
            while await asyncio.to_thread(exporter.export_some) >= CHUNK:  # as fast as events come
                pass

    async def keep() -> None:
        """Drop from memory what was forgotten, and from the journal what is beyond its limits."""
        await asyncio.to_thread(journal.lookups.drop_forgotten)
        await asyncio.to_thread(keeper.tick)

    async def heartbeat() -> None:
        opener.traffic.tick()
        versions = opener.versions
        status = {"pid": os.getpid(), "url": url, "version": versions.number, "version_error": versions.error}
        await asyncio.to_thread(journal.status.say, "gateway", status)

    said: dict[str, str] = {}  # what fails again and again, on a full disk say, is said once
    while True:
        # What fails does not keep the others from their work.
        for task in (stay_the_one, close_idle, close_overdue, close_lost, export, keep, heartbeat):
            try:
                await task()
                said.pop(task.__name__, None)
            except (TurnwiseError, OSError) as e:
                if said.get(task.__name__) != str(e):
                    log.warning("upkeep: %s", e)
                said[task.__name__] = str(e)
            except Exception:
                log.exception("upkeep failed; it goes on")
        await asyncio.sleep(UPKEEP_S)


def _spare_the_collector() -> None:
    """Take what the imports made out of the collector's sight, and let it come less often.

    It would walk some hundred thousand objects that stay for ever, again and again while requests are served: measured
    at a sixth of the gateway's processor time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description="the gateway loop of turnwise, alone")
    parser.add_argument("--engine-url", required=True, action="append", help="several times for several replicas")
    parser.add_argument("--fd", type=int, help="a listening socket inherited from the supervisor")

    async def run(config: Config, args: argparse.Namespace, stop: asyncio.Event) -> None:
        _spare_the_collector()
        inherited = args.fd is not None
        sock = socket.socket(fileno=args.fd) if inherited else bind(config.server.host, config.server.port)
        await serve(config, args.engine_url, sock, stop)

    loop_main("gateway", parser, run)
