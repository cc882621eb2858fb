"""Opening a turn: a checked request becomes a recorded turn, is answered by the engine, and is made durable.

The way of a request, each step taken once:

    parse    the codec's body becomes typed messages (`wire`), whole with what it names from the record (`asked`)
    place    which session it belongs to, which answer it reacts to, whether it was asked before (here, `lineage`)
    render   the prompt's ids, bridged from the turn before where that is exact (`prompting`)
    record   the request, and its messages as the next state of the turn they answer, are in the journal
    sample   the engine answers (`sampling`, or `relaying` for an upstream)
    close    the complete answer is in the journal before its last byte leaves

Within a step all look-ups come before the decisions. A client that goes away leaves an aborted turn, an engine that
fails leaves an excluded one, and neither loses what came before.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from turnwise.capabilities import capabilities
from turnwise.config import Config
from turnwise.engines.base import BEHIND_PEOPLE, SamplingParams
from turnwise.errors import JournalFull, RolloutRefused
from turnwise.gateway.errors import TOO_LONG, ApiError
from turnwise.gateway.lineage.history import Lineage, Placement
from turnwise.gateway.lineage.placement import lineage_of, own_session, place, repeated
from turnwise.gateway.turn.asked import WholeRequest, read_asked
from turnwise.gateway.turn.in_hand import InHand
from turnwise.gateway.turn.injecting import Injecting, ToldPrompt
from turnwise.gateway.turn.leaving import Leaving
from turnwise.gateway.turn.playing import Playing
from turnwise.gateway.turn.prompting import Prompting
from turnwise.gateway.turn.relaying import UpstreamVersions
from turnwise.gateway.turn.sampling import OpenTurn
from turnwise.gateway.turn.seeing import Seeing
from turnwise.gateway.turn.unrecorded import Unrecorded
from turnwise.gateway.versions import ServingVersions
from turnwise.gateway.wire.honouring import as_honoured
from turnwise.gateway.wire.http_request import Caller
from turnwise.gateway.wire.request import Final, ModelRequest, Usage, unsupported
from turnwise.gateway.wire.thinking import refuse_template_arguments
from turnwise.gateway.wire.tool_choice import check_choice
from turnwise.journal import Journal, NewTurn, SameRequest, Turn
from turnwise.messages import answer_of, images_of, text_of, with_text
from turnwise.schedule.traffic import STATUS_KEY, Traffic
from turnwise.skills.compressing.prompts import ShortPrompts
from turnwise.skills.serving import ServingSkills
from turnwise.tokens.rendering import Prompt, PromptRenderer
from turnwise.types import UNANSWERED, FinishReason, TurnKind


@dataclass(frozen=True, slots=True)
class _SameRequests:
    """Turns with this very request, newest first: those that count for its session, and of these the recent ones."""

    all: list[SameRequest]
    recent: list[SameRequest]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a request belongs and what it is. ``earlier``: the turn that it asks again; ``parent``: that it extends."""

    placement: Placement
    lineage: Lineage
    earlier: SameRequest | None
    parent: Turn | None
    session_id: str


class TurnOpener:
    """Opens turns."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        renderer: PromptRenderer | None,
        versions: ServingVersions | UpstreamVersions,
        max_model_len: Callable[[], Awaitable[int]],
        skills: ServingSkills | None = None,
        short: ShortPrompts | None = None,
    ) -> None:
        self.config = config
        self.journal = journal
        self.renderer = renderer
        self.versions = versions
        self._able = capabilities(config)
        self._prompting = Prompting(config, journal, renderer)
        self._seeing = Seeing(config, renderer, self._able.images)
        self._max_model_len = max_model_len
        self._injecting = Injecting(journal, self._prompting, renderer, skills, short)
        self.in_hand = InHand()
        self.traffic = Traffic(lambda under_way: journal.status.say_soon(STATUS_KEY, {"under_way": under_way}))
        self.playing = Playing(journal, self.traffic)
        self.leaving = Leaving()
        self.unrecorded = Unrecorded(config.journal.when_full)

    async def open_turn(self, request: ModelRequest, caller: Caller, format_name: str) -> OpenTurn:
        """Place, render and record a request. Raises ApiError, with nothing recorded unless the next state was. The
        turn is in hand from here on; whoever opened it lets it go."""
        caller = await self.playing.recognised(caller)
        if caller.rollout is None:
            return await self._open_turn(request, caller, format_name)
        await self.playing.give_way()
        try:
            return await self._open_turn(request, caller, format_name)
        except (ApiError, RolloutRefused) as e:
            await self.playing.refused(caller, e.code)
            raise

    async def _open_turn(self, request: ModelRequest, caller: Caller, format_name: str) -> OpenTurn:
        request = self._possible(self._as_its_stream_says(request, caller))
        if any(map(images_of, request.messages)):
            request = await asyncio.to_thread(self._seeing.take_in, request, format_name)
        version, pinned = await self.versions.resolve(request.model)
        limit = await self._max_model_len()
        turn, new = await asyncio.to_thread(self._opened, request, caller, format_name, version, pinned, limit)
        self.in_hand.take(turn.id)
        try:
            if new is not None:
                await self._record(turn, new)
            elif turn.by_person:
                self.traffic.began(turn.id)
        except BaseException:
            self.let_go(turn.id)
            raise
        return turn

    def let_go(self, turn_id: str) -> None:
        """Nobody answers this turn any more; its end may still be written."""
        self.in_hand.let_go(turn_id)
        self.traffic.ended(turn_id)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Tokens of the prompt that a request would make. Nothing is recorded."""
        request = await asyncio.to_thread(self._seeing.take_in, request, "messages", keep=False)
        version, _ = await self.versions.resolve(request.model)
        return len((await asyncio.to_thread(self._injecting.whole, request, version)).ids)

    def _sampling(self, request: ModelRequest, room: int, caller: Caller) -> SamplingParams:
        """How to sample; a step of a rollout stands back behind people where the engine knows what that is."""
        params = self._prompting.sampling(request, room)
        stands_back = caller.rollout is not None and self.config.engine.knows_priorities
        return replace(params, priority=BEHIND_PEOPLE) if stands_back else params

    # -- parse: what the engine cannot do is refused or left out -------------------------------------------------------

    def _as_its_stream_says(self, request: ModelRequest, caller: Caller) -> ModelRequest:
        """A request of a rollout with its stream's temperature and limit, where it names none."""
        stream = None if caller.rollout is None else self.config.streams.named(caller.rollout.stream)
        if stream is None or not self._able.token_ids:
            return request
        sampling = request.sampling
        if sampling.temperature is None:
            sampling = replace(sampling, temperature=stream.temperature)
        return replace(request, sampling=sampling, max_tokens=request.max_tokens or stream.max_tokens)

    def _possible(self, request: ModelRequest) -> ModelRequest:
        """The request as the engine can take it. Raises ApiError (400) that names what it cannot do."""
        kind = self.config.engine.kind
        if request.structured is not None and not self._able.structured:
            why = f"the {kind} engine cannot hold an answer to a schema; ask for JSON in the prompt"
            raise unsupported(request.structured_field, why)
        if request.grammar is not None and not self._able.grammars:
            why = f"the {kind} engine holds no answer to a grammar; ask for the form in the prompt"
            raise unsupported("structured_outputs", why)
        if self._able.token_ids:
            if request.sampling.temperature is None:
                default = self._prompting.defaults.temperature
                request = replace(request, sampling=replace(request.sampling, temperature=default))
            can_force = self._able.forced_calls and self.renderer is not None and self.renderer.grammar.calls == "json"
            check_choice(request, can_force)
            refuse_template_arguments(request)
            _check_bonds(request)
        return as_honoured(request, self.config)

    # -- place, render, and what is to be recorded ---------------------------------------------------------------------

    def _opened(
        self, request: ModelRequest, caller: Caller, format_name: str, version: int, pinned: bool, limit: int
    ) -> tuple[OpenTurn, NewTurn | None]:
        """The turn that a request opens, and what is to be recorded of it (None: it is recorded already)."""
        asked = read_asked(request, caller, format_name, self.journal)
        with self.journal.store.one_snapshot():
            own = own_session(self.journal, asked.claim)
            if caller.rollout is not None and own != caller.session_id:
                raise ApiError(
                    409,
                    f"the session {caller.session_id} is another client's; name the rollout otherwise",
                    code="session_taken",
                )
            same = self._same_requests(asked, own)
            retried = None if asked.wants_choices else _retried(same.recent, caller)
            answered = None if retried is None else self.journal.lookups.turn(retried.id)
            if answered is not None:
                return self._replay(answered, asked.request, caller), None
            found = self._place(asked, own, same)
        told = self._render(asked, found, version, limit)
        turn = OpenTurn(
            id=f"turn-{uuid.uuid4().hex}",
            session_id=found.session_id,
            version=version,
            request=told.request,
            prompt=told.prompt,
            params=self._sampling(told.request, limit - len(told.prompt.ids), caller),
            context_hash=asked.history.chain[-1],
            thread=asked.history.thread,
            session_done=asked.caller.session_done,
            supersedes=None if found.earlier is None else found.earlier.id,
            pictures=self._seeing.shown(told.prompt.pictures, told.request.files),
            lineage=found.lineage,
            in_hand=self.in_hand,
            leaving=self.leaving,
            unrecorded=self.unrecorded,
        )
        return turn, _new_turn(turn, asked, found, told, pinned)

    def _same_requests(self, asked: WholeRequest, own: str | None) -> _SameRequests:
        same = self.journal.lookups.same_request(asked.caller.key, asked.request_hash)
        if asked.caller.session_id is not None:
            same = [row for row in same if row.session_id == own]
        window = self.config.sessions.retry_window_s
        return _SameRequests(same, [row for row in same if self.journal.lookups.is_recent(row, window)])

    def _place(self, asked: WholeRequest, own: str | None, same: _SameRequests) -> _Place:
        """Where a request belongs. A repeated one belongs beside the turn that it repeats."""
        messages, caller = asked.request.messages, asked.caller
        if asked.kind is TurnKind.SIDE:
            return self._placed(Placement(own, None, None, messages, None, []), Lineage.SIDE)
        placement = place(self.journal, messages, asked.history, asked.claim)
        if same.recent and caller.is_retry:
            earlier = same.all[0]
        else:
            earlier = repeated(same.all, placement, messages, named=bool(same.recent and caller.session_id))
        if earlier is not None:
            return self._placed(_beside(placement, earlier), Lineage.REGENERATED, earlier)
        return self._placed(placement, lineage_of(self.journal, messages, placement))

    def _placed(self, placement: Placement, lineage: Lineage, earlier: SameRequest | None = None) -> _Place:
        parent = None if placement.parent is None else self.journal.lookups.turn(placement.parent.id)
        return _Place(placement, lineage, earlier, parent, placement.session_id or f"session-{uuid.uuid4().hex}")

    def _render(self, asked: WholeRequest, found: _Place, version: int, limit: int) -> ToldPrompt:
        """The prompt. Raises ApiError (400) where it does not fit into the model's context."""
        placement, main = found.placement, asked.kind is TurnKind.MAIN
        of = (asked.request, found.parent, placement.added, found.session_id)
        told = self._injecting.prompt(*of, main=main, version=version, limit=limit)
        if len(told.prompt.ids) >= limit:
            self._refuse_length(len(told.prompt.ids), limit, placement, asked.caller)
        return told

    def _refuse_length(self, tokens: int, limit: int, placement: Placement, caller: Caller) -> NoReturn:
        """Raises ApiError for a prompt that does not fit. It is no turn and opens no session; all that is kept of it is
        what it says of the answer before, and that its client is done."""
        try:
            if placement.answers is not None and placement.next_state:
                self.journal.turns.react(placement.answers, placement.next_state)
            if caller.session_done and placement.session_id is not None:
                self.journal.sessions.close(placement.session_id, "the client said it is done")
        except JournalFull:
            if not self.unrecorded.serve:
                raise
        raise ApiError(
            400,
            f"the prompt has {tokens} tokens, the model's context is {limit}; shorten the conversation",
            param="messages",
            code=TOO_LONG,
        )

    def _replay(self, row: Turn, request: ModelRequest, caller: Caller) -> OpenTurn:
        """The turn of an answered request that is asked again: its recorded answer is given once more."""
        message = row.answer or answer_of("")
        if request.prefill:
            message = with_text(message, text_of(message).removeprefix(request.prefill))
        usage = Usage(row.prompt_tokens, row.response_tokens)
        if row.used_prompt is not None and row.used_response is not None:
            usage = Usage(row.used_prompt, row.used_response)
        return OpenTurn(
            id=row.id,
            session_id=row.session_id,
            version=row.version,
            request=request,
            prompt=Prompt([0] * usage.prompt_tokens, None, False),
            params=self._prompting.sampling(request, 1),
            context_hash="",
            thread=None,
            session_done=False,
            lineage=Lineage.RETRY,
            in_hand=self.in_hand,
            leaving=self.leaving,
            unrecorded=self.unrecorded,
            replay=Final(message, FinishReason(row.finish_reason), usage, row.stop_string),
            response_ids=row.response_ids,
            by_person=row.kind is TurnKind.MAIN and caller.rollout is None,
        )

    # -- record --------------------------------------------------------------------------------------------------------

    async def _record(self, turn: OpenTurn, new: NewTurn) -> None:
        try:
            written = self.journal.turns.begin_soon(new)
            if new.by_person:
                self.traffic.began(turn.id)  # noted behind it, so that no request waits for that
            await asyncio.shield(asyncio.wrap_future(written))
        except JournalFull as e:
            if not self.unrecorded.serve:
                raise
            if new.by_person:
                self.traffic.began(turn.id)
            self.unrecorded.note(turn.id, e)
            turn.recorded = False
        else:
            self.unrecorded.room_again()


def _new_turn(turn: OpenTurn, asked: WholeRequest, found: _Place, told: ToldPrompt, pinned: bool) -> NewTurn:
    """What is recorded of an open turn: of a prompt that extends its parent's, only what it adds."""
    request, caller, placement, parent = asked.request, asked.caller, found.placement, found.parent
    prompt, extends = told.prompt, told.extends
    known = len(prompt.ids) if not extends or parent is None else parent.prompt_tokens + parent.response_tokens
    return NewTurn(
        id=turn.id,
        session_id=turn.session_id,
        client=caller.key,
        source=caller.source if caller.session_id else ("body" if request.session else "lineage"),
        kind=asked.kind,
        parent_id=parent.id if parent is not None else placement.follows,
        branch_of=placement.branch_of,
        extends_parent=extends,
        bridged=prompt.bridged,
        version=turn.version,
        pinned=pinned,
        model=request.model,
        request_hash=asked.request_hash,
        retry_key=caller.retry_key,
        temperature=turn.params.temperature,
        hint_at=prompt.hint_at,
        messages=placement.added if extends else request.messages,
        tools=request.tools,
        params=_recorded(request),
        prompt_ids=prompt.ids[known:] if extends else prompt.ids,
        prompt_tokens=len(prompt.ids),
        next_state=placement.next_state,
        answers=placement.answers,
        format=asked.format,
        agent=caller.agent,
        unrecognised=turn.lineage is Lineage.UNRECOGNISED,
        generation=told.skills.generation,
        skills=told.skills.versions,
        withheld=told.skills.withheld,
        placed=prompt.placed,
        compression=told.compression,
        rollout=caller.rollout,
        supersedes=turn.supersedes,
        pictures=prompt.pictures,
        files=request.files,
    )


def _check_bonds(request: ModelRequest) -> None:
    """An answer that is sampled is held to one thing at a time. Raises ApiError (400)."""
    held = request.structured_field if request.structured is not None else "structured_outputs"
    bound = request.structured is not None or request.grammar is not None
    if bound and request.tools is not None:
        raise unsupported(held, "an answer held to a form cannot call a tool; send none, or forbid them by tool_choice")
    if request.structured is not None and request.grammar is not None:
        raise unsupported("structured_outputs", f"the answer is held to '{held}' already; send one of the two")


def _retried(recent: list[SameRequest], caller: Caller) -> SameRequest | None:
    """The answered turn that a retry asks for again; `recent` are the turns with this very request, newest first.

    Without a key of its own a retry may as well be that of a request that failed beside one like it.
    """
    if caller.retry_key:
        return next((row for row in recent if row.retry_key == caller.retry_key and _complete(row)), None)
    if caller.is_retry and recent and all(_complete(row) for row in recent):
        return recent[0]
    return None


def _recorded(request: ModelRequest) -> dict[str, Any]:
    """What the record keeps of a request beside its messages and tools."""
    kept = request.record | ({"withheld_tools": request.withheld} if request.withheld else {})
    return kept | ({"ignored": list(request.ignored)} if request.ignored else {})


def _beside(placement: Placement, sibling: SameRequest) -> Placement:
    """A repeated request belongs into its sibling's session and answers nothing anew."""
    return Placement(sibling.session_id, None, placement.parent, placement.added, None, [], placement.follows)


def _complete(row: SameRequest) -> bool:
    return row.finish_reason is not None and row.finish_reason not in UNANSWERED
