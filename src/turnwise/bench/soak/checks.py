"""What must be true after a soak, from what the clients saw and from the journal of the program that has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from turnwise.bench.soak.ledger import Asked, FaultPhase, Ledger
from turnwise.bench.soak.memory import Growth
from turnwise.journal import Journal
from turnwise.journal.audit import AuditedBatch, AuditedTurn, AuditedVersion, audit
from turnwise.messages import text_of
from turnwise.patterns import pattern
from turnwise.types import Exclusion, TurnState

UNDONE = {Exclusion.ABORTED, Exclusion.SUPERSEDED, Exclusion.INTERRUPTED, Exclusion.INFRASTRUCTURE}
"""A turn that was excluded for these is no answer that counts; one that was asked for anew is superseded."""
AFTER_S = 30.0
"""How long after a fault its end is still felt: a loop that starts again, a lock that was held."""
_KEY = pattern(r"\((c\d+-\d+-\d+\.)\)")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be true. ``faults`` say what is not, and where."""

    name: str
    looked_at: int
    faults: list[str]

    def summary(self) -> str:
        shown = "; ".join(self.faults[:_SHOWN])
        more = f"; and {len(self.faults) - _SHOWN} more" if len(self.faults) > _SHOWN else ""
        return f"{self.name}: {shown}{more}"


@dataclass
class Kept:
    """What the journal holds that the checks look at."""

    turns: dict[str, AuditedTurn]
    texts: dict[str, str]
    keys: dict[str, list[str]]
    batches: list[AuditedBatch]
    batch_turns: dict[int, list[str]]
    versions: list[AuditedVersion]
    integrity: list[str] = field(default_factory=list)


def read(journal: Journal) -> Kept:
    """All of it, in one snapshot."""
    found = audit(journal.store)
    keys: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for turn in found.turns.values():
        named = _KEY.findall(" ".join(map(text_of, turn.messages)))
        if named:
            keys.setdefault(named[-1], []).append(turn.id)
        if turn.answer is not None:
            texts[turn.id] = text_of(turn.answer)
    batch_turns = {batch.id: batch.turn_ids for batch in found.batches}
    return Kept(found.turns, texts, keys, found.batches, batch_turns, found.versions, found.damage)


# -- the clients' side ------------------------------------------------------------------------------------------------


def answers_are_kept(asked: Iterable[Asked], kept: Kept) -> Check:
    """Every answer that a client has whole is in the journal, with the text it was given."""
    whole = [a for a in asked if a.whole]
    faults = []
    for a in whole:
        row = kept.turns.get(a.turn_id or "")
        if row is None:
            faults.append(f"turn {a.turn_id} ({a.key}) was answered at {a.ended_s:.0f} s and is not in the journal")
        elif row.state == TurnState.SERVED:
            faults.append(f"turn {row.id} ({a.key}) was answered and stands as being served")
        elif row.exclusion in UNDONE - {Exclusion.SUPERSEDED}:
            faults.append(f"turn {row.id} ({a.key}) was answered at {a.ended_s:.0f} s and is {row.exclusion!r}")
        elif kept.texts.get(row.id) != a.text:
            faults.append(f"turn {row.id}: the client has {a.text!r}, the journal {kept.texts.get(row.id)!r}")
    return Check("answers lost", len(whole), faults)


def answers_are_kept_once(asked: Iterable[Asked], kept: Kept) -> Check:
    """Of all that was recorded of one request, retries included, one turn counts, and it is one its client was told."""
    told: dict[str, set[str]] = {}
    for a in asked:
        if a.whole and a.turn_id:
            told.setdefault(a.key, set()).add(a.turn_id)
    faults = []
    for key, turn_ids in told.items():
        counting = [i for i in kept.keys.get(key, []) if kept.turns[i].exclusion not in UNDONE]
        if len(counting) != 1:
            states = [f"{i} {kept.turns[i].state}" for i in kept.keys.get(key, [])]
            faults.append(f"request {key} is {len(counting)} turns: {', '.join(states)}")
        elif counting[0] not in turn_ids:
            faults.append(f"request {key} counts as turn {counting[0]}, which nobody was told")
    return Check("answers kept twice", len(told), faults)


def nothing_hung(asked: Iterable[Asked]) -> Check:
    late = [f"{a.key} ({a.wire}) from {a.sent_s:.0f} s to {a.ended_s:.0f} s" for a in asked if a.late]
    return Check("requests that hung", sum(1 for _ in asked), late)


def refusals_are_announced(ledger: Ledger) -> Check:
    """Nothing is refused but while something was done to the program that explains it."""
    faults = []
    for a in ledger.asked:
        if a.whole or a.hung_up or a.late or (a.status == 429):
            continue
        phases = ledger.phases_during(a.sent_s, a.ended_s, AFTER_S)
        if not explained(a.status, a.error, phases):
            during = ", ".join(f"{p.kind} {p.about}" for p in phases) or "nothing"
            faults.append(f"{a.key} at {a.ended_s:.0f} s, during {during}: {a.status} {a.error}")
    for at_s, what, status in ledger.side:
        if status is None or status < 400 or status in (404, 409, 429):
            continue
        if not explained(status, None, ledger.phases_during(at_s, at_s + AFTER_S, AFTER_S)):
            faults.append(f"{what} at {at_s:.0f} s: {status}")
    return Check("refusals that nothing explains", len(ledger.asked) + len(ledger.side), faults)


def explained(status: int | None, error: str | None, phases: list[FaultPhase]) -> bool:
    """Whether a request may have failed so while these things were done."""
    what = {p.kind for p in phases}
    about = {p.about for p in phases}
    hung = any(p.kind.startswith("hang") for p in phases)
    if status is None or (status == 200 and error is not None and "insufficient_storage" not in error):
        # The connection, or the stream, broke off.
        return bool(about & {"gateway", "engine"}) or "disk" in what
    if status == 507 or (status == 200 and error is not None):
        return "disk" in what or hung  # a loop that hangs may hold the journal's lock
    if status in (502, 503, 504):
        return bool(about & {"gateway", "engine"}) or hung
    return False


def everything_recovered(ledger: Ledger) -> Check:
    left = [f"{p.kind} {p.about} at {p.began_s:.0f} s" for p in ledger.phases if p.ended_s is None]
    return Check("faults it did not recover from", len(ledger.phases), left)


# -- the journal's side -----------------------------------------------------------------------------------------------


def trained_once(kept: Kept) -> Check:
    """No turn is part of two versions, but for one that a late score was on, and what is trained is part of one."""
    of = {batch.id: batch for batch in kept.batches}
    used = Counter(
        turn for v in kept.versions if v.batch_id is not None for turn in kept.batch_turns.get(v.batch_id, [])
    )
    late = {i: row.learned_before for i, row in kept.turns.items()}
    faults = [f"turn {turn} is part of {n} versions" for turn, n in used.items() if n > 1 + late.get(turn, 0)]
    trained = {i for i, row in kept.turns.items() if row.state == TurnState.TRAINED}
    faults += [f"turn {turn} is trained and part of no version" for turn in sorted(trained - set(used))]
    faults += [
        f"version {v.number} is of batch {v.batch_id}, which is {of[v.batch_id].state if v.batch_id in of else 'gone'}"
        for v in kept.versions
        if v.batch_id is not None and (v.batch_id not in of or of[v.batch_id].state != "done")
    ]
    return Check("turns trained twice", len(trained), faults)


def batches_ended(kept: Kept) -> Check:
    """Every batch came to one of its ends, and its turns with it.

    The last one may be open, with all of its turns: a trainer that is asked to stop leaves it to the next one.
    """
    faults = []
    last = max((batch.id for batch in kept.batches), default=0)
    published = {v.batch_id for v in kept.versions}
    for batch in kept.batches:
        states = Counter(kept.turns[i].state for i in kept.batch_turns[batch.id] if i in kept.turns)
        mine = [i for i in kept.batch_turns[batch.id] if i in kept.turns and kept.turns[i].batch_id == batch.id]
        wrong = [i for i in mine if kept.turns[i].state == TurnState.LEASED]
        if batch.state == "open":
            if batch.id == last and set(states) == {TurnState.LEASED}:
                continue
            faults.append(f"batch {batch.id} is still open: {dict(states)}")
        elif batch.state not in ("done", "refused", "released"):
            faults.append(f"batch {batch.id} is {batch.state!r}, which no batch may be")
        elif wrong:
            faults.append(f"batch {batch.id} is {batch.state} and turn {wrong[0]} is still leased to it")
        elif batch.state == "done" and batch.id not in published:
            faults.append(f"batch {batch.id} is done and no version is of it")
    return Check("batches without their end", len(kept.batches), faults)


def journal_is_whole(kept: Kept) -> Check:
    return Check("faults of the journal's file", len(kept.turns), kept.integrity)


def last_version_serves(ledger: Ledger, kept: Kept, serving: int | None, answered_by: int | None) -> Check:
    """The highest number serves, unless an earlier version was made to serve after it was published.

    This is said by numbers alone: times say nothing where the clock was stepped.
    """
    newest = max((v.number for v in kept.versions), default=0)
    expected: int | None = newest
    if ledger.rollbacks and ledger.rollbacks[-1].newest == newest:
        expected = ledger.rollbacks[-1].to if ledger.rollbacks[-1].clear else None
    faults = []
    if expected is not None and serving != expected:
        faults.append(f"version {expected} should serve, and {serving} does")
    if serving is not None and answered_by != serving:
        faults.append(f"status says version {serving}, and an answer came from {answered_by}")
    return Check("wrong versions serving", 1, faults)


def it_learned(kept: Kept) -> Check:
    faults = [] if kept.versions else ["no version was published, so hot swaps and training were not tried"]
    return Check("nothing learned", len(kept.versions), faults)


def memory_is_flat(growth: list[Growth]) -> Check:
    faults = [
        f"the {g.loop} went from {g.first_mb:.0f} to {g.last_mb:.0f} MB in {g.seconds / 60:.0f} minutes"
        for g in growth
        if g.judged and not g.flat
    ]
    return Check("processes that grow", sum(1 for g in growth if g.judged), faults)
