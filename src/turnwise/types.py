"""The domain on one page: messages, verdicts, samples, policy versions, and the states of a turn with its legal moves.

Nothing here does I/O, and nothing here imports torch. The journal stores these things, the loops pass them on,
and the transition table below is the only place that says which move of a turn is legal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from msgspec import Struct

from turnwise.methods import PERSONAL
from turnwise.pictures.placed import PlacedPicture, without

MODEL_NAME = "turnwise"
"""What clients call the model that learns."""
UPSTREAM = "upstream"
"""Whose the models are that turnwise only relays."""
BASE_VERSION = 0
"""The policy version that is the model as it came: no adapter."""


class Text(Struct, frozen=True):
    """Words, as they were written."""

    text: str


class Image(Struct, frozen=True):
    """A picture at an address, or in a data URL; one that was taken in has its SHA-256 (`sha256:…`) in place of it.

    ``said`` is what else the client said of it, as OpenAI's `detail`; of one that was taken in, its size, too.
    """

    url: str
    said: dict[str, Any] = {}


class Thinking(Struct, frozen=True):
    """What a model thought before it spoke."""

    text: str


class ToolCall(Struct, frozen=True):
    """A call that an answer makes. ``arguments`` are JSON text as it was written, which may be broken or cut off.

    ``id`` is empty until the call has one.
    """

    name: str
    arguments: str
    id: str = ""


class ToolResult(Struct, frozen=True):
    """What came back to the call with this id."""

    call_id: str
    parts: tuple[Text | Image, ...] = ()


Part = Text | Image | Thinking | ToolCall | ToolResult


class Message(Struct, frozen=True):
    """One message of a conversation; `turnwise.messages` makes and opens it.

    ``role`` is "system", "user", "assistant" or "tool". An assistant's parts stand in this order: at most one Thinking,
    what it says, its calls. A tool's message has one ToolResult and nothing else. Words that stand together are one
    Text: there are several parts where an image stands between them.
    """

    role: str
    parts: tuple[Part, ...] = ()
    name: str | None = None


class TurnState(StrEnum):
    """Where a turn stands on its way from an answer to a gradient."""

    SERVED = "served"  # the request was taken; the answer is being generated
    WAITING = "waiting"  # answered and durable; the next state has not come yet
    JUDGING = "judging"  # the next state is here; a judge has it, or will
    JUDGED = "judged"  # has a verdict, or is a step of a rollout that waits for its group
    READY = "ready"  # is a sample the trainer may take
    LEASED = "leased"  # is in a batch that a trainer works on
    TRAINED = "trained"  # is part of a policy version
    EXCLUDED = "excluded"  # never trained on; the reason stands beside it


class Exclusion(StrEnum):
    """Why a turn is never trained on."""

    SIDE_TURN = "side turn"
    ABORTED = "aborted by the client"
    INTERRUPTED = "interrupted before the answer was complete"
    NO_NEXT_STATE = "no next state"
    NO_VALID_VOTE = "no valid vote"
    NO_SIGNAL = "no signal"
    NOT_TRAINABLE = "no token ids or no response tokens"
    PINNED_VERSION = "made by a pinned version, not by the serving policy"
    SUPERSEDED = "superseded by a retry or a regenerated answer"
    STALE = "stale beyond the limit"
    SUPPORT_DATA = "support data of an evolved skill generation"
    EARLIER_GENERATION = "of an earlier generation of skills"
    INFRASTRUCTURE = "infrastructure failure"
    TOO_LONG = "its prompt is too long for the upstream"
    CONTENT_FILTER = "ended by the upstream's content filter"
    REFUSED_BY_GATE = "its policy version was refused by the gate"
    SET_ASIDE = "its session is set aside for the gate"
    FAILED_IN_TRAINING = "training on it failed"
    MASKED = "masked by its client"
    CUT_OFF = "its rollout was cut off before its end"
    NO_OUTCOME = "its rollout has no outcome"
    GROUP_CLOSED = "its group was closed before it was complete"
    CONSTANT_GROUP = "the rollouts of its group ended alike"
    FORGOTTEN = "forgotten by request"


TRANSITIONS: dict[TurnState, frozenset[TurnState]] = {
    TurnState.SERVED: frozenset({TurnState.WAITING, TurnState.EXCLUDED}),
    # waiting -> judged: the person scored the turn, or nobody votes on this step of a rollout
    # waiting -> ready: the only turn of a session
    TurnState.WAITING: frozenset({TurnState.JUDGING, TurnState.JUDGED, TurnState.READY, TurnState.EXCLUDED}),
    TurnState.JUDGING: frozenset({TurnState.JUDGED, TurnState.EXCLUDED}),
    # judged -> trained: the person took back what made a sample of it once more
    TurnState.JUDGED: frozenset({TurnState.READY, TurnState.EXCLUDED, TurnState.TRAINED}),
    TurnState.READY: frozenset({TurnState.LEASED, TurnState.JUDGED, TurnState.EXCLUDED}),
    TurnState.LEASED: frozenset({TurnState.TRAINED, TurnState.READY, TurnState.EXCLUDED}),
    TurnState.TRAINED: frozenset({TurnState.JUDGED}),  # the person says otherwise than it was trained with
    # A person's explicit feedback brings back a turn that was excluded for want of a signal, or refused too often.
    TurnState.EXCLUDED: frozenset({TurnState.JUDGED}),
}
"""The legal moves. The journal refuses any other."""

REVIVABLE = frozenset(
    {Exclusion.NO_NEXT_STATE, Exclusion.NO_VALID_VOTE, Exclusion.NO_SIGNAL, Exclusion.REFUSED_BY_GATE}
)
"""The exclusions that a person's explicit feedback undoes; another configuration, what the gate refused, as well."""


class TurnKind(StrEnum):
    MAIN = "main"  # the agent's own work: trainable
    SIDE = "side"  # titles, heartbeats, memory upkeep: served and recorded, never trained


class FinishReason(StrEnum):
    STOP = "stop"  # the model ended its answer, or a stop string did
    LENGTH = "length"  # the token limit did
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"  # an upstream's filter ended it, or its model refused
    ABORT = "abort"  # the client went away
    ERROR = "error"  # the engine failed
    INTERRUPTED = "interrupted"  # the server stopped in the middle of it


UNANSWERED = frozenset({FinishReason.ABORT, FinishReason.ERROR, FinishReason.INTERRUPTED})
"""How a turn ends whose client has no whole answer."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One opinion of one judge call. ``score`` is None when the reply could not be read."""

    score: int | None
    hint: str | None = None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What might be a hint, but comes from a source without trust: for the person to look at, never trained on.

    ``source`` says where it came from ("tool web_search").
    """

    source: str
    hint: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge made of a turn.

    ``score``: +1, 0 or -1. ``hint``: the directive part of the next state made into an instruction, or None.
    ``judge``: who decided ("signals", "model", "person"). ``rewards`` are the votes behind the score. ``proposal``: a
    hint that nobody vouches for, which goes to the review list and into nothing else. ``confidence``: how likely the
    score is right, as far as the judge knows; a person's own word has 1.
    """

    score: int
    hint: str | None
    judge: str
    reason: str = ""
    votes: list[Vote] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    proposal: Proposal | None = None
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """A turn leased to a judge. The lease is lost when another worker holds a newer ``lease_token``.

    ``cut_off``: a token limit ended the answer. ``tools``: the definitions that the request had. ``votes``: how many a
    model casts on a step of a rollout, of which no hint is wanted; None for a person's turn.
    """

    turn_id: str
    lease_token: str
    attempts: int
    messages: list[Message]
    answer: Message
    next_state: list[Message]
    cut_off: bool = False
    tools: list[dict[str, Any]] | None = None
    votes: int | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a client says of a session that plays a task: the stream, the task, and the group of those that play it,
    with how many there are to be."""

    stream: str
    task_id: str
    group_id: str
    group_size: int


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """The rollouts of one task that are compared with each other.

    ``outcomes``: of each of its trajectories that has one, also of one without a token to train on.
    """

    id: str
    outcomes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """A turn as the trainer sees it: ids, reward and hint. A person's turn is a judged one, and its reward the score
    times its confidence. One of a rollout is the step with the index ``step`` of the trajectory ``session_id``, and its
    reward what `sampling.step_reward` gives."""

    turn_id: str
    session_id: str
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float] | None
    temperature: float
    version: int
    reward: float
    hint: str | None
    hint_at: int | None
    question: str | None = None
    """What the last user message says, where it asks something: words that judge the answer before ask nothing."""
    placed: tuple[tuple[int, int], ...] = ()
    """Starts and ends of wishes of the person in the prompt, which turnwise put behind their questions."""
    stream: str = PERSONAL
    group: TaskGroup | None = None
    step: int | None = None
    pictures: tuple[PlacedPicture, ...] = ()
    """Those that stand in the prompt."""

    def as_asked(self) -> Sample:
        """The same without these wishes in its prompt: what the person asked by themselves, and what is to be answered
        as wished when nothing says so any more. Its log-probs are those of the prompt that had them."""
        kept = list(self.prompt_ids)
        for start, end in sorted(self.placed, reverse=True):
            del kept[start:end]
        before = sum(end - start for start, end in self.placed if self.hint_at is not None and end <= self.hint_at)
        hint_at = None if self.hint_at is None else self.hint_at - before
        pictures = without(self.pictures, self.placed)
        return replace(self, prompt_ids=kept, hint_at=hint_at, placed=(), pictures=pictures)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples leased together for one optimiser update, in a fixed order, on top of version ``parent``.

    ``hints`` are the last ones that were given, on this batch's turns and earlier ones, oldest first; ``hint_turns``
    the turns that they were given on, and ``hinted`` those of these turns that are still there.
    """

    id: int
    lease_token: str
    parent: int
    samples: list[Sample]
    hints: list[str] = field(default_factory=list)
    hint_turns: list[str] = field(default_factory=list)
    hinted: list[Sample] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A published set of weights: a PEFT adapter directory, its parent and what it was trained on.

    ``pruned``: its directory was deleted; what is known of it stays. ``source``: what it learned from where that is no
    turn: the file of a supervised fine-tuning, its hash and how it was read.
    """

    number: int
    parent: int | None
    path: str
    created_at: float
    metrics: dict[str, float] = field(default_factory=dict)
    gate: dict[str, Any] = field(default_factory=dict)
    turn_ids: list[str] = field(default_factory=list)
    pruned: bool = False
    source: dict[str, Any] | None = None


class SkillState(StrEnum):
    """Where a skill stands in the library."""

    REVIEW = "review"  # waits for the person's word: in the journal alone
    CANDIDATE = "candidate"  # injected, and measured
    ACTIVE = "active"  # injected
    PROVEN = "proven"  # injected, and seen to help
    DISABLED = "disabled"  # in the folder, never injected
    RETIRED = "retired"  # out of the folder; every version of it stays in the journal


INJECTED = frozenset({SkillState.CANDIDATE, SkillState.ACTIVE, SkillState.PROVEN})
"""The states in which a skill may stand in a prompt."""
IN_FOLDER = INJECTED | {SkillState.DISABLED}
"""The states in which a skill is a file."""


@dataclass(frozen=True, slots=True)
class Skill:
    """What a `SKILL.md` says. ``content``: the file byte for byte; ``body``: what stands behind its front-matter."""

    name: str
    description: str
    category: str | None
    body: str
    content: bytes


@dataclass(frozen=True, slots=True)
class SkillEntry:
    """A skill in a revision of the library: which of its recorded versions counts, and where it stands."""

    version: int
    state: SkillState


@dataclass(frozen=True, slots=True)
class LibraryRevision:
    """The library after one change. Numbers count changes; ``generation`` counts those that came of failures, and never
    goes down, whatever is rolled back."""

    number: int
    generation: int
    what: str
    at: float
    cost: int = 0
    """Ready samples that the change took off the trainer's queue."""
    entries: dict[str, SkillEntry] = field(default_factory=dict)
