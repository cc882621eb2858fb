"""Verdicts: what a judge or a person says of a turn, and what becomes of the turn by it.

A person may say otherwise of a turn that was trained on, or is in a batch: then it is a sample once more (late.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, insert, select

from turnwise.errors import TooLate, UnknownTurn
from turnwise.journal import schema
from turnwise.journal.packing import pack_json
from turnwise.journal.queue import late
from turnwise.journal.queue.choosing import is_fresh
from turnwise.journal.queue.serving import serving
from turnwise.journal.rollouts.groups import group_of_step, settle_group
from turnwise.journal.skills.generations import why_left_out
from turnwise.journal.store import Store
from turnwise.journal.turns.recording import Turns
from turnwise.journal.turns.set_aside import set_aside
from turnwise.messages import saying
from turnwise.sampling import Signal, signal_of_verdict
from turnwise.types import REVIVABLE, Exclusion, TurnState, Verdict

T, SA, D = schema.turns.c, schema.samples.c, schema.verdicts.c
UNDER_WAY = "the turn is in an update that is under way, and what you say of it counts when that ends"


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
            row = c.execute(select(T.state, T.exclusion, T.step).where(T.id == turn_id)).one_or_none()
            if row is None:
                raise UnknownTurn(f"there is no turn {turn_id}")
            if row.step is not None:
                raise TooLate("the turn is a step of a rollout, which is scored as a whole: post its outcome")
            state = TurnState(row.state)
            if score is None:
                if state is TurnState.WAITING:
                    words = [saying("user", text or "")]
                    self._turns.take_next_state(c, turn_id, words, self._store.clock())
                    return "taken as the turn's next state"
                raise TooLate(f"the turn is already {state}; send a score to change its verdict")
            verdict = Verdict(score=score, hint=text, judge="person", reason="explicit feedback")
            if takes_feedback(state, row.exclusion):
                self.settle(c, turn_id, verdict)
                return "taken as the turn's verdict"
            number = self._insert(c, turn_id, verdict)
            if state is TurnState.LEASED:
                return f"recorded; {UNDER_WAY}"
            if state is TurnState.TRAINED and self._offer_again(c, turn_id, number, verdict):
                return "taken for the next update: the turn was trained on otherwise"
            return f"recorded, but the turn is already {row.exclusion or state}"

    def settle(self, c: Connection, turn_id: str, verdict: Verdict) -> None:
        """Record a verdict and make the turn a sample, or exclude it for want of a signal. A step of a rollout waits
        for its group instead."""
        group = c.execute(group_of_step(turn_id)).scalar_one_or_none()
        if group is not None:
            self._insert(c, turn_id, verdict)
            self._store.move(c, turn_id, TurnState.JUDGED)
            settle_group(self._store, c, group)
            return
        self._make_sample(c, turn_id, self._insert(c, turn_id, verdict), verdict)

    def settle_again(self, c: Connection, turn_id: str, number: int, verdict: Verdict) -> bool:
        """Go by a recorded verdict once more; False where it can change nothing any more."""
        row = c.execute(select(T.state, T.exclusion).where(T.id == turn_id)).one_or_none()
        if row is None or not takes_feedback(TurnState(row.state), row.exclusion):
            return False
        self._make_sample(c, turn_id, number, verdict)
        return True

    def use_late_ones(self, c: Connection, turn_ids: Sequence[str]) -> None:
        """Go by what the person said of these turns while they were in a batch, which has just ended."""
        newer = select(func.max(D.id)).join(schema.samples, SA.turn_id == D.turn_id)
        newer = newer.where(D.turn_id.in_(turn_ids), D.judge == "person", D.id > func.coalesce(SA.verdict, 0))
        newest = newer.group_by(D.turn_id)
        said = select(D.id, D.turn_id, D.score, D.hint, T.state, T.exclusion).join(schema.turns, T.id == D.turn_id)
        for row in c.execute(said.where(D.id.in_(newest)).order_by(D.id)).all():
            verdict, state = Verdict(row.score, row.hint, "person"), TurnState(row.state)
            if takes_feedback(state, row.exclusion):
                self._make_sample(c, row.turn_id, row.id, verdict)
            elif state is TurnState.TRAINED:
                self._offer_again(c, row.turn_id, row.id, verdict)

    def _offer_again(self, c: Connection, turn_id: str, number: int, verdict: Verdict) -> bool:
        """Make a sample of a trained turn once more, if the person says otherwise of it than it was trained with.

        Not where it could not be trained on now: then it stays as it is, and what was said stays recorded.
        """
        train = self._store.config.train
        of = c.execute(select(T.version).where(T.id == turn_id)).scalar_one()
        signal = self._signal(c, turn_id, verdict)
        if isinstance(signal, Exclusion) or not (train.enabled and train.w_binary):
            return False
        if not (late.differs(c, turn_id, signal.reward) and is_fresh(c, of, serving(c), train.max_staleness)):
            return False
        if not late.leave_version(c, turn_id):
            return False
        self._make_sample(c, turn_id, number, verdict)
        return True

    def _signal(self, c: Connection, turn_id: str, verdict: Verdict) -> Signal | Exclusion:
        turn = c.execute(select(T.session_id, T.response_tokens, T.hint_at).where(T.id == turn_id)).one()
        method = self._store.config.train.method
        said = (verdict.score, verdict.hint, turn.hint_at, turn.response_tokens, verdict.confidence)
        signal = signal_of_verdict(method, *said)
        if not isinstance(signal, Exclusion) and set_aside(c, turn.session_id, self._store.config.gate):
            signal = Exclusion.SET_ASIDE
        return why_left_out(c, self._store, turn_id) or signal

    def _make_sample(self, c: Connection, turn_id: str, number: int, verdict: Verdict) -> None:
        """Make the turn a sample of the verdict of this number, or exclude it.

        One that is on its way into a version once more, and of which that is taken back, is trained as it was.
        """
        self._store.move(c, turn_id, TurnState.JUDGED)
        c.execute(delete(schema.samples).where(SA.turn_id == turn_id))
        signal, learned = self._signal(c, turn_id, verdict), late.last_learned(c, turn_id)
        if learned is not None and (isinstance(signal, Exclusion) or late.same_sign(signal.reward, learned.reward)):
            late.return_to(c, turn_id, learned)
            to, columns, signal = TurnState.TRAINED, {"batch_id": learned.batch_id}, Signal(learned.reward, None)
        elif isinstance(signal, Exclusion):
            self._store.move(c, turn_id, TurnState.EXCLUDED, exclusion=signal)
            return
        else:
            to, columns = TurnState.READY, {"batch_id": None}
        ready = {"created_at": self._store.clock(), "ready_mono": self._store.now(c)}
        values = {"reward": signal.reward, "hint": signal.hint, "verdict": number}
        c.execute(insert(schema.samples).values(turn_id=turn_id, **values, **ready))
        self._store.move(c, turn_id, to, **columns)

    def _insert(self, c: Connection, turn_id: str, verdict: Verdict) -> int:
        """Record a verdict; gives its number."""
        votes = [{"score": v.score, "hint": v.hint, "raw": v.raw} for v in verdict.votes]
        said = {name: getattr(verdict, name) for name in ("judge", "score", "hint", "reason")}
        cost = {name: getattr(verdict, name) for name in ("prompt_tokens", "completion_tokens", "seconds")}
        row = {"turn_id": turn_id, "votes": pack_json(votes), "created_at": self._store.clock()}
        number = c.execute(insert(schema.verdicts).values(row | said | cost).returning(D.id)).scalar_one()
        known = {**said, "confidence": verdict.confidence, "votes": votes, "cost": cost}
        self._store.log(c, "verdict", turn_id, known)
        return number
