"""Opening a turn: a checked request becomes a recorded turn, is answered by the engine, and is made durable.

The order is fixed. The request, and its messages as the next state of the turn they answer, are in the journal before
generation starts (here); the complete answer is there before its last byte leaves (`sampling`). A client that goes
away leaves an aborted turn, an engine that fails leaves an excluded one, and neither loses what came before.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NoReturn

from turnwise.capabilities import capabilities
from turnwise.config import Config
from turnwise.engines.base import SamplingParams
from turnwise.errors import JournalFull
from turnwise.gateway.errors import TOO_LONG, ApiError
from turnwise.gateway.lineage.history import Lineage, Placement, hash_history, turn_kind
from turnwise.gateway.lineage.placement import Claim, lineage_of, own_session, place, repeated
from turnwise.gateway.turn.in_hand import InHand
from turnwise.gateway.turn.leaving import Leaving
from turnwise.gateway.turn.relaying import UpstreamVersions
from turnwise.gateway.turn.sampling import OpenTurn
from turnwise.gateway.turn.unrecorded import Unrecorded
from turnwise.gateway.versions import ServingVersions
from turnwise.gateway.wire.content import refuse_images
from turnwise.gateway.wire.honouring import as_honoured
from turnwise.gateway.wire.http_request import Caller
from turnwise.gateway.wire.request import Final, ModelRequest, Usage, check_conversation, unsupported, without_prefill
from turnwise.gateway.wire.responses.named_items import can_be_named, with_named_items
from turnwise.gateway.wire.thinking import is_bound, refuse_template_arguments, thinking_of
from turnwise.gateway.wire.tool_choice import check_choice
from turnwise.journal import Journal, NewTurn
from turnwise.journal.schema import unpack_ids, unpack_json
from turnwise.messages import from_chat, text_of, with_text
from turnwise.models import answer_defaults
from turnwise.tokens.forced_calls import forced_call
from turnwise.tokens.rendering import Prompt, PromptRenderer
from turnwise.types import FinishReason, TurnKind

log = logging.getLogger(__name__)

LEAST_TEMPERATURE = 0.05
"""Below it, sampling is greedy: log-probs at such temperatures only measure rounding."""


class Capture:
    """Opens turns."""

    def __init__(
        self,
        config: Config,
        journal: Journal,
        renderer: PromptRenderer | None,
        versions: ServingVersions | UpstreamVersions,
        max_model_len: Callable[[], Awaitable[int]],
    ) -> None:
        self.config = config
        self.journal = journal
        self.renderer = renderer
        self.versions = versions
        self._able = capabilities(config)
        self._defaults = answer_defaults(config.model)
        self._max_model_len = max_model_len
        self.in_hand = InHand()
        self.leaving = Leaving()
        self.unrecorded = Unrecorded(config.journal.when_full)

    async def open_turn(self, request: ModelRequest, client: Caller, format_name: str) -> OpenTurn:
        """Place, render and record a request. Raises ApiError, with nothing recorded unless the next state was.

        The turn is in hand from here on; whoever opened it lets it go.
        """
        if not self._able.images:
            refuse_images(request.messages, format_name)
        if request.structured is not None and not self._able.structured:
            kind = self.config.engine.kind
            raise unsupported(
                request.structured_field,
                f"the {kind} engine cannot hold an answer to a schema; ask for JSON in the prompt",
            )
        if request.grammar is not None and not self._able.grammars:
            why = f"the {self.config.engine.kind} engine holds no answer to a grammar; ask for the form in the prompt"
            raise unsupported("structured_outputs", why)
        if self._able.token_ids:
            if request.temperature is None:
                request = replace(request, temperature=self._defaults.temperature)
            can_force = self._able.forced_calls and self.renderer is not None and self.renderer.grammar.calls == "json"
            check_choice(request, can_force)
            refuse_template_arguments(request)
            self._check_bonds(request)
        request = as_honoured(request, self.config)
        version, pinned = await self.versions.resolve(request.model)
        limit = await self._max_model_len()
        prepared = await asyncio.to_thread(self._prepare, request, client, format_name, version, pinned, limit)
        turn, new = prepared
        turn.in_hand, turn.unrecorded = self.in_hand, self.unrecorded
        self.in_hand.take(turn.id)
        try:
            if new is not None:
                await self._record(turn, new)
        except BaseException:
            self.in_hand.let_go(turn.id)
            raise
        return turn

    def _check_bonds(self, request: ModelRequest) -> None:
        """An answer that is sampled is held to one thing at a time. Raises ApiError (400)."""
        held = request.structured_field if request.structured is not None else "structured_outputs"
        bound = request.structured is not None or request.grammar is not None
        if bound and request.tools is not None:
            raise unsupported(
                held, "an answer held to a form cannot call a tool; send none, or forbid them by tool_choice"
            )
        if request.structured is not None and request.grammar is not None:
            raise unsupported("structured_outputs", f"the answer is held to '{held}' already; send one of the two")

    async def _record(self, turn: OpenTurn, new: NewTurn) -> None:
        try:
            await asyncio.shield(asyncio.wrap_future(self.journal.begin_turn_soon(new)))
        except JournalFull as e:
            if not self.unrecorded.serve:
                raise
            self.unrecorded.note(turn.id, e)
            turn.recorded = False
        else:
            self.unrecorded.room_again()

    async def count_tokens(self, request: ModelRequest) -> int:
        """Tokens of the prompt that a request would make. Nothing is recorded."""
        await self.versions.resolve(request.model)
        if self.renderer is None:
            raise unsupported("count_tokens", "this engine does not take token ids, so there is nothing to count")
        if not self._able.images:
            refuse_images(request.messages, "messages")
        asked = without_prefill(request)
        rendered = await asyncio.to_thread(self.renderer.render, asked.messages, asked.tools, thinking_of(asked))
        return len(self._begun(rendered, asked).ids)

    def _prepare(
        self, request: ModelRequest, client: Caller, format_name: str, version: int, pinned: bool, limit: int
    ) -> tuple[OpenTurn, NewTurn | None]:
        """The turn that a request opens, and what is to be recorded of it (None: it is recorded already)."""
        request, client = self._with_previous(request, client)
        request = without_prefill(request)
        messages, tools = request.messages, request.tools
        kind = turn_kind(client.turn_type, messages, request.max_tokens)
        history = hash_history(messages)
        claim = Claim(
            client.key,
            client.session_id or request.session,
            weak=client.session_id is None,
            main=client.turn_type == TurnKind.MAIN,
        )
        own = own_session(self.journal, claim)
        # The name in the body is part of what makes two requests the same one, for their session may be another.
        # So are wishes that change the prompt or bind the answer; where there are none the digest is as it always was.
        wishes = (request.tool_choice, request.structured, request.thinking)
        parts = [history.chain[-1], json.dumps(tools), request.model, kind, request.session]
        parts += [json.dumps(wishes)] if wishes != (None, None, None) else []
        parts += [json.dumps(request.grammar)] if request.grammar is not None else []
        request_hash = _digest(*parts, *([f"begun {request.prefill}"] if request.prefill else []))
        same = self.journal.same_request(client.key, request_hash)
        if client.session_id is not None:
            same = [row for row in same if row.session_id == own]
        recent = [row for row in same if self.journal.is_recent(row, self.config.sessions.retry_window_s)]
        answered = self._retried(recent, client)
        if answered is not None:
            return self._replay(answered, request), None
        earlier = None  # the turn that this one asks again
        if kind is TurnKind.SIDE:
            placement, lineage = Placement(own, None, None, messages, None, []), Lineage.SIDE
        else:
            placement = place(self.journal, messages, history, claim)
            if recent and client.is_retry:
                earlier = same[0]
            else:
                earlier = repeated(same, placement, messages, named=bool(recent and client.session_id))
            if earlier is None:
                lineage = lineage_of(self.journal, messages, placement)
            else:
                placement, lineage = _beside(placement, earlier), Lineage.REGENERATED
        turn_id = f"turn-{uuid.uuid4().hex}"
        session_id = placement.session_id or f"session-{uuid.uuid4().hex}"
        parent = None if placement.parent is None else self.journal.turn_row(placement.parent.id)
        prompt, extends = self._prompt(request, parent, placement, session_id)
        room = limit - len(prompt.ids)
        if room < 1:
            self._refuse(len(prompt.ids), limit, placement, client)
        params = self._sampling(request, room)
        known = len(prompt.ids) if not extends or parent is None else parent.prompt_tokens + parent.response_tokens
        new = NewTurn(
            id=turn_id,
            session_id=session_id,
            client=client.key,
            source=client.source if client.session_id else ("body" if request.session else "lineage"),
            kind=kind,
            parent_id=parent.id if parent is not None else placement.follows,
            branch_of=placement.branch_of,
            extends_parent=extends,
            bridged=prompt.bridged,
            version=version,
            pinned=pinned,
            model=request.model,
            request_hash=request_hash,
            retry_key=client.retry_key,
            temperature=params.temperature,
            hint_at=prompt.hint_at,
            messages=placement.added if extends else messages,
            tools=tools,
            params=_recorded(request),
            prompt_ids=prompt.ids[known:] if extends else prompt.ids,
            prompt_tokens=len(prompt.ids),
            next_state=placement.next_state,
            answers=placement.answers,
            format=format_name,
            agent=client.agent,
            unrecognised=lineage is Lineage.UNRECOGNISED,
        )
        turn = OpenTurn(
            id=turn_id,
            session_id=session_id,
            version=version,
            request=request,
            prompt=prompt,
            params=params,
            context_hash=history.chain[-1],
            thread=history.thread,
            session_done=client.session_done,
            supersedes=None if earlier is None else earlier.id,
            lineage=lineage,
        )
        return turn, new

    def _refuse(self, tokens: int, limit: int, placement: Placement, client: Caller) -> NoReturn:
        """Raises ApiError for a prompt that does not fit. It is no turn and opens no session; all that is kept of it is
        what it says of the answer before, and that its client is done."""
        try:
            if placement.answers is not None and placement.next_state:
                self.journal.react(placement.answers, placement.next_state)
            if client.session_done and placement.session_id is not None:
                self.journal.close_session(placement.session_id, "the client said it is done")
        except JournalFull:
            if not self.unrecorded.serve:
                raise
        raise ApiError(
            400,
            f"the prompt has {tokens} tokens, the model's context is {limit}; shorten the conversation",
            param="messages",
            code=TOO_LONG,
        )

    def _retried(self, recent: list[Any], client: Caller) -> Any:
        """The answered turn that a retry asks for again; `recent` are the turns with this very request, newest first.

        Without a key of its own a retry may as well be that of a request that failed beside one like it.
        """
        if client.retry_key:
            return next((row for row in recent if row.retry_key == client.retry_key and _complete(row)), None)
        if client.is_retry and recent and all(_complete(row) for row in recent):
            return recent[0]
        return None

    def _with_previous(self, request: ModelRequest, client: Caller) -> tuple[ModelRequest, Caller]:
        """The request whole: items that are only named put in, and the history of the response it goes on from before
        it, in that response's session."""
        referring = bool(request.named_items)
        if referring:
            messages = with_named_items(request.messages, request.named_items, self.journal, client.key)
            request = replace(request, messages=messages, named_items={})
        if request.previous is None:
            if referring:
                check_conversation(request.messages, "input")
            return request, client
        row = self.journal.turn_row(request.previous)
        if row is None or not can_be_named(row, client.key):
            raise ApiError(
                400,
                "there is no such previous response; send the history in 'input' instead",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        history = [*self.journal.context_messages(row.id), from_chat(unpack_json(row.answer))]
        if unpack_json(row.params).get("instructions") and history[0].role == "system":
            history = history[1:]  # instructions hold for one response
        instructed = 1 if request.record.get("instructions") else 0  # what is in the input stays behind the history
        messages = [*request.messages[:instructed], *history, *request.messages[instructed:]]
        check_conversation(messages, "input")
        session = client.session_id or row.session_id
        return replace(request, messages=messages), replace(client, session_id=session, source="previous_response")

    def _prompt(self, request: ModelRequest, parent: Any, placement: Placement, session_id: str) -> tuple[Prompt, bool]:
        """The prompt, bridged from its parent where that is exact, and whether it is stored as an extension."""
        renderer, tools = self.renderer, request.tools
        if renderer is None:
            return Prompt([], None, False), False
        thinking = thinking_of(request)
        prompt, extends = None, False
        if parent is not None and _bridgeable(parent) and self.journal.same_tools(parent, tools):
            prompt_ids, response_ids = self.journal.context_ids(parent)
            prompt = renderer.bridge(prompt_ids, response_ids, parent.hint_at, placement.added, tools, thinking)
            extends = prompt is not None and parent.session_id == session_id
        prompt = prompt or renderer.render(request.messages, tools, thinking)
        if is_bound(request) and renderer.ends_in_reasoning(prompt.ids):
            bonds = {request.structured_field: request.structured, "structured_outputs": request.grammar}
            field = next((name for name, bond in bonds.items() if bond is not None), "tool_choice")
            raise unsupported(field, "this model thinks first, which no grammar allows; ask for it in words")
        return self._begun(prompt, request), extends

    def _begun(self, prompt: Prompt, request: ModelRequest) -> Prompt:
        """The prompt with the beginning of the answer that the client wrote, if it did. Raises ApiError (400)."""
        if not request.prefill or self.renderer is None:
            return prompt
        if self.renderer.ends_in_reasoning(prompt.ids):
            raise unsupported("messages", "this model thinks first, so no beginning of its answer can be given")
        return prompt.begun(self.renderer.encode(request.prefill))

    def _sampling(self, request: ModelRequest, room: int) -> SamplingParams:
        temperature = 1.0 if request.temperature is None else request.temperature
        greedy = temperature < LEAST_TEMPERATURE or request.top_p == 0
        return SamplingParams(
            max_tokens=min(request.max_tokens or self._defaults.max_tokens or room, room),
            temperature=0.0 if greedy else temperature,
            top_p=request.top_p or 1.0,
            top_k=-1 if not request.top_k else request.top_k,
            seed=request.seed,
            stop=request.stops,
            stop_token_ids=() if self.renderer is None else tuple(self.renderer.stop_token_ids),
            structured=request.structured,
            call=self._call(request),
            grammar=request.grammar,
            min_p=request.min_p or 0.0,
            frequency_penalty=request.frequency_penalty or 0.0,
            presence_penalty=request.presence_penalty or 0.0,
            repetition_penalty=request.repetition_penalty or 1.0,
        )

    def _call(self, request: ModelRequest) -> dict[str, Any] | None:
        if request.tool_choice is None or request.tools is None or self.renderer is None:
            return None
        return forced_call(request.tool_choice, request.tools, self.renderer.grammar.space)

    def _replay(self, row: Any, request: ModelRequest) -> OpenTurn:
        recorded = unpack_json(row.answer)
        message, stop_string = from_chat(recorded), recorded.get("stop_string")
        if request.prefill:
            message = with_text(message, text_of(message).removeprefix(request.prefill))
        usage = Usage(row.prompt_tokens, row.response_tokens)
        if row.used_prompt is not None:
            usage = Usage(row.used_prompt, row.used_response)
        return OpenTurn(
            id=row.id,
            session_id=row.session_id,
            version=row.version,
            request=request,
            prompt=Prompt([0] * usage.prompt_tokens, None, False),
            params=self._sampling(request, 1),
            context_hash="",
            thread=None,
            session_done=False,
            lineage=Lineage.RETRY,
            replay=Final(message, FinishReason(row.finish_reason), usage, stop_string),
            response_ids=unpack_ids(row.response_ids),
        )


def _recorded(request: ModelRequest) -> dict[str, Any]:
    """What the record keeps of a request beside its messages and tools."""
    kept = request.record | ({"withheld_tools": request.withheld} if request.withheld else {})
    return kept | ({"ignored": list(request.ignored)} if request.ignored else {})


def _bridgeable(parent: Any) -> bool:
    """Whether a prompt with the same tools (they stand in it) may go on from what the parent's engine sampled.

    Not after a stop string: the client never saw it, so the history it sends is another text.
    """
    if parent.response_ids is None or not parent.response_tokens:
        return False
    return "stop_string" not in unpack_json(parent.answer)


def _beside(placement: Placement, sibling: Any) -> Placement:
    """A repeated request belongs into its sibling's session and answers nothing anew."""
    return Placement(sibling.session_id, None, placement.parent, placement.added, None, [], placement.follows)


def _complete(row: Any) -> bool:
    return row.finish_reason not in (None, FinishReason.ABORT, FinishReason.ERROR)


def _digest(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
