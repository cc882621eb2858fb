"""What was forgotten is in no file of the home, byte for byte, and what learned from it is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from sqlalchemy import insert

from tests.conftest import Running
from tests.skills.texts import text
from tests.support.servers import wait_until
from tests.support.versions import answered, new_turn
from turnwise.config import Config, load_config
from turnwise.errors import JournalError, UnknownTurn
from turnwise.journal import Answer, Journal, schema
from turnwise.journal.deletion.forgetting import forget, plan
from turnwise.journal.records.export import RecordsExporter
from turnwise.journal.skills.replays import ReplayResult
from turnwise.messages import saying, text_of
from turnwise.skills.library import Library
from turnwise.skills.skill_file import parse
from turnwise.types import (
    Exclusion,
    FinishReason,
    Message,
    PolicyVersion,
    Proposal,
    SkillState,
    TurnState,
    Verdict,
    Vote,
)

SECRET = "xylophone-4711"
"""Planted so that it is stored as it is: what is longer than `schema.COMPRESS_FROM` would be compressed."""


@pytest.fixture
def config(home: Path) -> Config:
    return load_config(overrides={"home": home, "server.port": 0, "train.min_batch": 1})


def files_with(home: Path, secret: str) -> list[str]:
    """The files in which these bytes stand anywhere: in rows, in free pages, in unused parts of pages, in logs.

    They are read by a process of their own: one that closes a database's file loses all its locks on it, and a gateway
    of this process with them.
    """
    grep = ["grep", "--recursive", "--files-with-matches", "--fixed-strings", "--text", secret, "."]
    found = subprocess.run(grep, cwd=home, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode in (0, 1), found.stderr
    return [line.removeprefix("./") for line in found.stdout.splitlines()]


def says(text: str) -> list[Message]:
    return [saying("user", text)]


def speak(journal: Journal, session: str, text: str, **changes: object) -> str:
    """A turn asked and answered with this text; gives its id."""
    new = new_turn(session_id=session, messages=says(text), **changes)
    journal.turns.begin(new)
    message = saying("assistant", f"about {text}")
    journal.turns.finish(new.id, Answer(message, f"c-{new.id}", FinishReason.STOP, [7, 8], [-0.5, -0.25]))
    return new.id


def judged(journal: Journal, text: str, proposed: str | None = None) -> None:
    """Judge what waits; the verdict on `proposed` has no hint and proposes one for the review list instead."""
    for task in journal.judging.claim("judge", 9, 60):
        votes = [Vote(1, text, f"raw {text}")]
        if task.turn_id == proposed:
            verdict = Verdict(1, None, "model", f"reason {text}", votes, proposal=Proposal(text, f"proposed {text}"))
        else:
            verdict = Verdict(1, f"hint {text}", "model", f"reason {text}", votes)
        journal.judging.record(task, verdict)


def talk(journal: Journal, session: str, text: str, turns: int = 6) -> list[str]:
    """A conversation in which all but the last turn have a verdict, a hint and raw votes."""
    ids: list[str] = []
    for n in range(turns):
        before = {"parent_id": ids[-1], "answers": ids[-1], "next_state": says(f"{text} {n}")} if ids else {}
        extends = {"extends_parent": True, "bridged": True} if ids else {}
        ids.append(speak(journal, session, f"{text} {n}", **before, **extends))
        judged(journal, text, proposed=ids[0])
    return ids


@pytest.mark.parametrize("served", [False, True], ids=["stopped", "served"])
def test_nothing_is_left_of_it_in_any_file(journal: Journal, home: Path, served: bool) -> None:
    """While a gateway runs the file is not written anew: what is deleted must be overwritten where it stood."""
    lock = FileLock(home / "gateway.lock")
    if served:
        lock.acquire()
    for n in range(30):  # pages are shared with others, split and filled again
        talk(journal, f"other-{n}", f"small talk {n}", turns=3)
        if n % 6 == 0:
            talk(journal, "private", f"{SECRET} {n}")
    (home / "checkpoints/batch-000001-step-001").mkdir(parents=True)
    RecordsExporter(journal).export_all()
    talk(journal, "private", SECRET)  # and what is still in the outbox
    assert {"journal.db", "journal.db-wal", "records.jsonl"} & set(files_with(home, SECRET))
    assert any(SECRET in row["hint"] for row in journal.review.proposals())
    done = forget(journal, "private")
    assert done.turns == 36
    assert files_with(home, SECRET) == []
    assert journal.sessions.show("private") is None
    assert sum(journal.status.figures()["turns"].values()) == 90
    RecordsExporter(journal).export_all()
    assert files_with(home, SECRET) == []
    kinds = [json.loads(line)["kind"] for line in journal.store.config.records_path.read_text().splitlines()]
    assert kinds.count("turn") == 90 and kinds[-1] == "forgotten"
    lock.release()


def test_skills_that_were_made_from_it_go_with_it(journal: Journal, config: Config, home: Path, place: str) -> None:
    ids, [other] = talk(journal, "private", SECRET), talk(journal, "other", "small talk", turns=1)
    library = Library(config, journal)
    add = library.add
    add([parse(text("theirs", body="Do it."), "theirs")], SkillState.ACTIVE, "person")
    before = library.sync().revision.number
    add([parse(text("of-secrets", body=f"Say {SECRET}."), "of-secrets")], SkillState.ACTIVE, "evolver",
        ((ids[0], "private"),))  # fmt: skip
    library.edit("of-secrets", text("of-secrets", body=f"Never say {SECRET}."))
    version = library.sync().skills["of-secrets"].version.id
    with journal.store.transaction() as c:
        c.execute(insert(schema.skill_uses).values(turn_id=other, version=version))
    journal.replays.note(version, ReplayResult("failed", "it helped nobody", same=3))
    assert "skills/of-secrets/SKILL.md" in files_with(home, SECRET)
    assert plan(journal, "private").skills == {"of-secrets": 1}
    if place == "postgres":  # another process would not find this test's database
        assert forget(journal, "private").skills == {"of-secrets": 1}
        library.sync()
    else:
        told = run("forget", "private", "--yes", "--home", str(home))
        assert "the skill of-secrets, which was made from it, goes with it; 1 turn" in told
    assert files_with(home, SECRET) == [] and files_with(home, "of-secrets") == []
    assert set(library.sync().skills) == {"theirs"}
    assert set(library.rollback(before + 1).skills) == {"theirs"}, "no rollback brings it back"
    assert journal.skills.used(other) == () and journal.replays.of(version) is None


@pytest.mark.files
def test_a_skill_that_was_changed_by_hand_and_not_looked_at_goes_as_well(
    journal: Journal, config: Config, home: Path
) -> None:
    ids = talk(journal, "private", SECRET)
    library = Library(config, journal)
    made = parse(text("of-secrets", body=f"Say {SECRET}."), "of-secrets")
    library.add([made], SkillState.ACTIVE, "evolver", ((ids[0], "private"),))
    file = config.skills_dir / "of-secrets" / "SKILL.md"
    file.write_bytes(b"no front-matter, and " + SECRET.encode())
    refused = subprocess.run(
        [sys.executable, "-m", "turnwise", "forget", "private", "--yes", "--home", str(home)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 1 and "mend or delete it first" in refused.stderr
    file.write_bytes(text("of-secrets", body=f"By hand: {SECRET}."))
    run("forget", "private", "--yes", "--home", str(home))
    assert files_with(home, SECRET) == [] and Library(config, journal).sync().skills == {}


@pytest.mark.files
def test_nothing_is_left_beside_a_running_server(gateway: Running, home: Path) -> None:
    client = gateway.client(**{"x-session-id": "private"})
    messages: list[dict[str, str]] = []
    for n in range(8):
        messages.append({"role": "user", "content": f"say: {SECRET} {n}"})
        reply = client.chat.completions.create(model="turnwise", messages=messages)  # type: ignore[arg-type]
        messages.append({"role": "assistant", "content": reply.choices[0].message.content or ""})
    other = gateway.client(**{"x-session-id": "other"})
    other.chat.completions.create(model="turnwise", messages=[{"role": "user", "content": "hello"}])
    wait_until(lambda: "records.jsonl" in files_with(home, SECRET))
    told = run("forget", "private", "--yes", "--json", "--home", str(home))
    done = json.loads(told)
    assert done["turns"] == 8 and done["sessions"] == ["private"]
    assert files_with(home, SECRET) == []
    # The conversation goes on as if it were new, and no bridge is built on what was dropped from memory.
    wait_until(lambda: "forgotten" in gateway.config.records_path.read_text())
    messages.append({"role": "user", "content": "say: go on"})
    reply = client.chat.completions.create(model="turnwise", messages=messages)  # type: ignore[arg-type]
    assert gateway.turn(reply).parent_id is None


def run(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "turnwise", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_versions_that_learned_from_it_are_named(journal: Journal) -> None:
    turn_id = answered(journal, session_id="private")
    journal.verdicts.feedback(turn_id, 1, None)
    batch = journal.batches.claim("trainer", 60)
    assert batch is not None
    journal.batches.finish(batch, PolicyVersion(1, 0, "versions/v1", 0.0))
    done = forget(journal, "private")
    assert done.versions == {1: [turn_id]}
    version = journal.versions.get(1)
    assert version is not None and version.turn_ids == [turn_id], "ids stay"
    assert "version 1: 1 turn" in run_say(done.__dict__)


def run_say(told: dict[str, object]) -> str:
    from turnwise.cli.options import out
    from turnwise.cli.versions.forgetting import say_forgotten

    with out.capture() as capture:
        say_forgotten(told, False, "are forgotten")
    return capture.get()


def test_a_batch_under_way_is_done_again_without_it(journal: Journal, home: Path) -> None:
    mine, other = answered(journal, session_id="private"), answered(journal, session_id="other")
    for turn_id in (mine, other):
        journal.verdicts.feedback(turn_id, 1, None)
    batch = journal.batches.claim("trainer", 60)
    assert batch is not None and len(batch.samples) == 2
    checkpoint = home / f"checkpoints/batch-{batch.id:06d}-step-001"
    checkpoint.mkdir(parents=True)
    assert forget(journal, "private").released_batches == [batch.id]
    assert not checkpoint.exists(), "its weights had seen the turn"
    with pytest.raises(JournalError, match="no longer leased"):
        journal.batches.renew(batch, 60)
    again = journal.batches.claim("trainer", 60)
    assert again is not None and [s.turn_id for s in again.samples] == [other]


@pytest.mark.parametrize("state", [TurnState.JUDGING, TurnState.READY, TurnState.LEASED])
def test_a_reaction_that_came_from_it_is_taken_from_other_sessions(
    journal: Journal, home: Path, state: TurnState
) -> None:
    first = speak(journal, "root", "harmless")
    speak(journal, "private", "x", branch_of="root", parent_id=first, answers=first, next_state=says(SECRET))
    if state is not TurnState.JUDGING:
        judged(journal, SECRET)
    if state is TurnState.LEASED:
        assert journal.batches.claim("trainer", 60) is not None
    RecordsExporter(journal).export_all()
    turn = journal.turns.get(first)
    assert turn is not None and turn.state is state
    done = forget(journal, "private")
    assert done.reactions == [first]
    assert files_with(home, SECRET) == []
    turn = journal.turns.get(first)
    assert turn is not None and turn.exclusion is Exclusion.FORGOTTEN
    assert text_of(turn.answer) == "about harmless"


def test_branches_hold_copies_which_is_said_or_forgotten_too(journal: Journal, home: Path) -> None:
    ids = talk(journal, "private", "spoken", turns=2)
    speak(journal, "branch", f"spoken, then {SECRET}", branch_of="private", parent_id=ids[0])
    twig = speak(journal, "twig", f"copied {SECRET}", branch_of="branch")
    speak(journal, "apart", "nothing")
    assert plan(journal, "private").branches == ["branch"]
    assert sorted(plan(journal, "private", with_branches=True).sessions) == ["branch", "private", "twig"]
    assert forget(journal, "private").branches == ["branch"]
    assert journal.sessions.show("branch")["parent_id"] is None
    assert "twig" in plan(journal, "branch").branches and journal.turns.get(twig) is not None
    forget(journal, "branch", with_branches=True)
    assert files_with(home, SECRET) == []
    assert [row["id"] for row in journal.sessions.last_seen()] == ["apart"]


def test_an_answer_under_way_is_given_and_not_recorded(journal: Journal) -> None:
    first = answered(journal, session_id="private")
    new = new_turn(session_id="private", parent_id=first)
    journal.turns.begin(new)
    forget(journal, "private")
    journal.turns.finish(new.id, Answer(saying("assistant", SECRET), "c", FinishReason.STOP, [7], [-0.5]))
    assert journal.turns.get(new.id) is None
    with pytest.raises(UnknownTurn, match="ask again"):
        journal.turns.begin(new_turn(session_id="private", parent_id=first, extends_parent=True))


def test_every_table_with_a_turn_is_known_to_be_cleared(journal: Journal) -> None:
    """A table that is added later has a `turn_id` and is cleared of it, or stands here with the reason why not."""
    without = {"sessions", "turns", "blobs", "counts", "batches", "versions", "loops", "meta"}
    """Cleared by name; shared content that nobody has any more; figures; ids only; ids only; heartbeats; positions."""
    without |= {"skill_versions", "libraries"}  # files of the person's, and which of them there were
    without |= {"promotions"}  # versions, and why a person had them serve
    without |= {"trajectories", "task_groups", "environment_leases"}  # cleared by their sessions
    without |= {"replays", "compressions"}  # figures of such files, which go with them; cleared by its session
    assert {name for name, table in schema.metadata.tables.items() if "turn_id" not in table.c} <= without


@pytest.mark.parametrize(
    ("prefix", "found"), [("session-a", "session-a"), ("session-ab", "session-abc"), ("o", "other")]
)
def test_a_session_is_found_by_its_beginning(journal: Journal, prefix: str, found: str) -> None:
    for session in ("session-a", "session-abc", "other"):
        answered(journal, session_id=session)
    assert journal.sessions.find(prefix) == found


@pytest.mark.parametrize(("prefix", "fault"), [("se", "several sessions"), ("zzz", "there is no session")])
def test_an_unclear_session_is_refused(journal: Journal, prefix: str, fault: str) -> None:
    for session in ("session-a", "session-b"):
        answered(journal, session_id=session)
    with pytest.raises(JournalError, match=fault):
        journal.sessions.find(prefix)
