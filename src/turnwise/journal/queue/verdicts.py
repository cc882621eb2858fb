"""Verdicts: what a judge or a person says of a turn, and what becomes of the turn by it."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from turnwise.errors import TooLate, UnknownTurn
from turnwise.journal import schema
from turnwise.journal.packing import pack_json
from turnwise.journal.skills.generations import why_left_out
from turnwise.journal.store import Store
from turnwise.journal.turns.recording import Turns
from turnwise.journal.turns.set_aside import set_aside
from turnwise.messages import saying
from turnwise.sampling import signal_of_verdict
from turnwise.types import REVIVABLE, Exclusion, TurnState, Verdict

T = schema.turns.c


def takes_feedback(state: TurnState, exclusion: str | None) -> bool:
    """Whether the person's word can still change what is learned from a turn."""
    open_states = {TurnState.WAITING, TurnState.JUDGING, TurnState.READY}
    return state in open_states or (state is TurnState.EXCLUDED and exclusion in REVIVABLE)


class Verdicts:
    """Settles turns."""

    def __init__(self, store: Store, turns: Turns) -> None:
        self._store = store
        self._turns = turns

    def feedback(self, turn_id: str, score: int | None, text: str | None) -> str:
        """The person's own word on a turn; it outranks every judge. Returns what came of it, as a sentence.

        A score alone or with text (the text becomes the hint) settles the verdict. Text alone is the next state, for
        the judge. Raises UnknownTurn, and TooLate for one that is past being judged.
        """
        with self._store.transaction() as c:
            row = c.execute(select(T.state, T.exclusion).where(T.id == turn_id)).one_or_none()
            if row is None:
                raise UnknownTurn(f"there is no turn {turn_id}")
            state = TurnState(row.state)
            if score is None:
                if state is TurnState.WAITING:
                    words = [saying("user", text or "")]
                    self._turns.take_next_state(c, turn_id, words, self._store.clock())
                    return "taken as the turn's next state"
                raise TooLate(f"the turn is already {state}; send a score to change its verdict")
            verdict = Verdict(score=score, hint=text, judge="person", reason="explicit feedback")
            if not takes_feedback(state, row.exclusion):
                self._insert(c, turn_id, verdict)
                return f"recorded, but the turn is already {row.exclusion or state}"
            self.settle(c, turn_id, verdict)
            return "taken as the turn's verdict"

    def settle(self, c: Connection, turn_id: str, verdict: Verdict) -> None:
        """Record a verdict and make the turn a sample, or exclude it for want of a signal."""
        self._insert(c, turn_id, verdict)
        self._store.move(c, turn_id, TurnState.JUDGED)
        c.execute(delete(schema.samples).where(schema.samples.c.turn_id == turn_id))
        turn = c.execute(select(T.session_id, T.response_tokens, T.hint_at).where(T.id == turn_id)).one()
        method = self._store.config.train.method
        said = (verdict.score, verdict.hint, turn.hint_at, turn.response_tokens, verdict.confidence)
        signal = signal_of_verdict(method, *said)
        if not isinstance(signal, Exclusion) and set_aside(c, turn.session_id, self._store.config.gate):
            signal = Exclusion.SET_ASIDE
        signal = why_left_out(c, self._store, turn_id) or signal
        if isinstance(signal, Exclusion):
            self._store.move(c, turn_id, TurnState.EXCLUDED, exclusion=signal)
            return
        ready = {"created_at": self._store.clock(), "ready_mono": self._store.now(c)}
        values = {"reward": signal.reward, "hint": signal.hint}
        c.execute(insert(schema.samples).values(turn_id=turn_id, **values, **ready))
        self._store.move(c, turn_id, TurnState.READY)

    def _insert(self, c: Connection, turn_id: str, verdict: Verdict) -> None:
        votes = [{"score": v.score, "hint": v.hint, "raw": v.raw} for v in verdict.votes]
        said = {name: getattr(verdict, name) for name in ("judge", "score", "hint", "reason")}
        cost = {name: getattr(verdict, name) for name in ("prompt_tokens", "completion_tokens", "seconds")}
        row = {"turn_id": turn_id, "votes": pack_json(votes), "created_at": self._store.clock()}
        c.execute(insert(schema.verdicts).values(row | said | cost))
        known = {**said, "confidence": verdict.confidence, "votes": votes, "cost": cost}
        self._store.log(c, "verdict", turn_id, known)
