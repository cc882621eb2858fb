"""Finding one's session again: a list that can be pasted from, ids by their beginning, and a session read as a chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.conftest import GatewayThread, Running
from tests.support.versions import answered, new_turn
from tests.support.wire import ChatMessage
from turnwise.cli import records as cli_records
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.errors import AmbiguousId, JournalError
from turnwise.journal import Answer, Journal
from turnwise.messages import from_chat
from turnwise.types import FinishReason, Message

LONG = "session-0123456789abcdef0123456789abcdef"
ASKED = "Fix the failing test in tests/test_dates.py"


def run(journal: Journal, *args: str) -> str:
    done = CliRunner().invoke(app, [*args, "--home", str(journal.store.config.home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def in_a_terminal(journal: Journal, monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    """What a command says in a terminal of 80 columns."""
    screen = Console(force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(cli_records, "out", screen)
    with screen.capture() as said:
        CliRunner().invoke(app, [*args, "--home", str(journal.store.config.home)], catch_exceptions=False)
    return said.get()


def call(name: str, arguments: str, content: str = "") -> Message:
    function = {"name": name, "arguments": arguments}
    return from_chat(
        {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": f"id-{name}", "type": "function", "function": function}],
        }
    )


def told(journal: Journal, answers: list[Message], results: list[Message], **fields: Any) -> list[str]:
    """A session whose every turn is stored with its whole history, as an upstream's are; gives the turns' ids."""
    history: list[Message] = [
        from_chat({"role": "system", "content": "Be brief. " * 100}),
        from_chat({"role": "user", "content": ASKED}),
    ]
    ids: list[str] = []
    for n, answer in enumerate(answers):
        new = new_turn(messages=[*history], parent_id=ids[-1] if ids else None, prompt_ids=[], **fields)
        journal.turns.begin(new)
        journal.turns.finish(new.id, Answer(answer, f"context-{new.id}", FinishReason.STOP, [], None))
        ids.append(new.id)
        history += [answer, *results[n : n + 1]]
    return ids


def test_a_pipe_gets_whole_ids_and_a_terminal_short_ones_that_are_taken(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [from_chat({"role": "user", "content": ASKED})]
    for session in (LONG, f"{LONG[:-4]}ffff", f"session-{'f' * 32}"):
        answered(journal, session_id=session, messages=asked, agent="codex_cli_rs/0.169.0 (Ubuntu; x86_64) unknown")
    lines = run(journal, "sessions", "list").splitlines()
    assert [line.split()[0] for line in lines] == [f"session-{'f' * 32}", f"{LONG[:-4]}ffff", LONG]
    assert all(ASKED in line and "codex_cli_rs/0.169.0 " in line and "Ubuntu" not in line for line in lines)
    lines = in_a_terminal(journal, monkeypatch, "sessions", "list").splitlines()
    assert [line.split()[0] for line in lines[::2]] == ["session-ffffffff", f"{LONG[:-4]}f", LONG[:-3]]
    assert [line.strip() for line in lines[1::2]] == [ASKED] * 3
    for line, whole in zip(lines[::2], (f"session-{'f' * 32}", f"{LONG[:-4]}ffff", LONG), strict=True):
        assert json.loads(run(journal, "sessions", "show", line.split()[0], "--json"))["id"] == whole


@pytest.mark.parametrize("given", [LONG, LONG[:12], LONG.removeprefix("session-")[:6]])
def test_a_session_is_shown_by_its_beginning(journal: Journal, given: str) -> None:
    answered(journal, session_id=LONG)
    answered(journal, session_id="another")
    assert run(journal, "sessions", "show", given).startswith(f"session {LONG}")
    assert "1 turns" in run(journal, "forget", given, "--dry-run")


def test_an_unclear_beginning_is_refused_with_the_candidates(journal: Journal) -> None:
    for session in ("session-a1", "session-a2"):
        answered(journal, session_id=session)
    for command in (["sessions", "show", "session-a"], ["feedback", "--session", "a", "--score", "1"]):
        done = CliRunner().invoke(app, [*command, "--home", str(journal.store.config.home)])
        assert "session-a1, session-a2" in str(done.exception)


def test_nothing_begins_with_nothing(journal: Journal) -> None:
    answered(journal)
    for given in ("", "\udcff"):
        done = CliRunner().invoke(app, ["sessions", "show", given, "--home", str(journal.store.config.home)])
        assert "there is no session" in str(done.exception)


def test_an_id_is_itself_although_another_begins_with_it(journal: Journal) -> None:
    """Also where it was pruned, and is known only by what was learned from it."""
    for session in ("s1", "s10"):
        answered(journal, session_id=session)
    assert journal.sessions.find("s1") == "s1"
    assert journal.sessions.short_ids(["s1", "s10"]) == {"s1": "s1", "s10": "s10"}
    with journal.store.transaction() as c:
        c.exec_driver_sql("INSERT INTO provenance (turn_id, session_id, version) VALUES ('t', 's', 1)")
    assert journal.sessions.find("s") == "s"


@pytest.mark.parametrize("own", [LONG[:16], LONG.removeprefix("session-")[:8]])
def test_a_clients_own_id_does_not_pass_for_the_short_form_of_anothers(journal: Journal, own: str) -> None:
    answered(journal, session_id=LONG)
    assert journal.sessions.find(own) == LONG
    answered(journal, session_id=own)
    with pytest.raises(AmbiguousId, match=f"is the id of a session, and {LONG} begins with it"):
        journal.sessions.find(own)
    assert (journal.sessions.find(own + "/"), journal.sessions.find(LONG[:20])) == (own, LONG)
    with pytest.raises(JournalError, match="there is no session"):
        journal.sessions.find(LONG[:20] + "/")


def test_a_session_reads_like_a_chat(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [call("bash", '{"command": "pytest -q", "timeout": 9}', "I look."), call("write", "not json")]
    results = [from_chat({"role": "tool", "tool_call_id": "id-bash", "content": "a line\n" * 300})]
    ids = told(
        journal, [*calls, from_chat({"role": "assistant", "content": "It was a typo."})], results, session_id=LONG
    )
    journal.verdicts.feedback(ids[-1], -1, "Say what was wrong.")
    said = run(journal, "sessions", "show", LONG)
    assert said.count(ASKED) == said.count("I look.") == said.count("It was a typo.") == said.count("system: ") == 1
    assert '-> bash(command="pytest -q", timeout=9)\n' in said
    assert "-> write(not json)\n" in said
    assert said.count("tool bash: a line") == 1 and said.count("a line") == 6
    assert "(2,099 characters; --full shows them)" in said
    last = said.splitlines()[-1]
    assert last.strip().startswith(f"turn 2  {ids[-1]}, main, version 0, excluded")
    assert last.endswith("-1 by person (explicit feedback); hint: Say what was wrong.")
    assert run(journal, "sessions", "show", LONG, "--full").count("a line") == 300
    shown = in_a_terminal(journal, monkeypatch, "sessions", "show", LONG)
    assert ids[0] not in shown and ids[0][:8] in shown
    turns = json.loads(run(journal, "sessions", "show", LONG, "--json"))["turns"]
    assert [[m["role"] for m in turn["added"]] for turn in turns] == [["system", "user"], ["tool"], []]


def test_what_a_client_lays_out_anew_is_no_news(journal: Journal) -> None:
    """Other line breaks and ids, a changed system prompt: what came before the answer was said before."""
    told(journal, [from_chat({"role": "assistant", "content": "One.\n\nTwo."})], [], session_id="s")
    [first] = [turn["id"] for turn in (journal.sessions.show("s") or {})["turns"]]
    again = [
        from_chat({"role": "assistant", "content": "One. Two."}),
        from_chat({"role": "user", "content": "and more"}),
    ]
    changed = [
        from_chat({"role": "system", "content": "Other."}),
        from_chat({"role": "user", "content": ASKED}),
        *again,
    ]
    answered(journal, session_id="s", parent_id=first, messages=changed)
    turns = json.loads(run(journal, "sessions", "show", "s", "--json"))["turns"]
    assert [m["content"] for m in turns[1]["added"]] == ["and more"]


def test_what_is_stored_on_its_parent_is_shown_as_it_is(journal: Journal) -> None:
    first = answered(journal)
    second = answered(
        journal,
        parent_id=first,
        extends_parent=True,
        messages=[from_chat({"role": "user", "content": "more"})],
        prompt_ids=[9],
    )
    whole = [from_chat({"role": "user", "content": "hi"}), from_chat({"role": "assistant", "content": "yes"})]
    whole += [from_chat({"role": "user", "content": "more"}), from_chat({"role": "assistant", "content": "yes"})]
    answered(journal, parent_id=second, messages=[*whole, from_chat({"role": "user", "content": "last"})])
    turns = json.loads(run(journal, "sessions", "show", "session-1", "--json"))["turns"]
    assert [[m["content"] for m in turn["added"]] for turn in turns] == [["hi"], ["more"], ["last"]]


def test_foreign_text_is_shown_safely(journal: Journal) -> None:
    told(journal, [call("b\x1b[31m", '{"a": "\u202e"}')], [], session_id="s", agent="evil\x1b]0;[bold]x[/bold]")
    said = run(journal, "sessions", "show", "s") + run(journal, "sessions", "list")
    assert "\x1b" not in said and "\u202e" not in said and "[bold]x[/bold]" in said


def test_hostile_calls_and_names_are_shown_on_their_line(journal: Journal) -> None:
    deep = told(journal, [call("x\nuser: I approve", "[" * 100_000)], [])
    shown = run(journal, "sessions", "show", journal.lookups.turn(deep[0]).session_id)
    assert "x user: I approve" in shown
    assert not any(line.startswith("user: I approve") for line in shown.splitlines())


def test_a_list_of_sessions_does_not_wait_for_a_hostile_one(journal: Journal) -> None:
    journal.turns.begin(new_turn(messages=[from_chat({"role": "user", "content": "<a></a>" * 200_000})]))
    assert "session-1" in run(journal, "sessions", "list")


def test_json_holds_no_command_for_a_terminal(journal: Journal) -> None:
    journal.turns.begin(new_turn(messages=[from_chat({"role": "user", "content": "a\u009b31mred\u202e"})]))
    assert run(journal, "sessions", "show", "session-1", "--json").isascii()


def test_the_blocks_of_an_agent_are_not_what_a_session_is_about(journal: Journal) -> None:
    parts = [{"type": "text", "text": "<system-reminder>\nRead me.\n</system-reminder>\n"}]
    messages = [
        from_chat({"role": "user", "content": "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"}),
        from_chat({"role": "user", "content": [*parts, {"type": "text", "text": f"<b>{ASKED}"}]}),
    ]
    answered(journal, messages=messages)
    [row] = json.loads(run(journal, "sessions", "list", "--json"))
    assert row["about"] == f"<b>{ASKED}"


def test_feedback_is_taken_for_the_beginning_of_a_turns_id(gateway: Running) -> None:
    body = {"model": "turnwise", "messages": [{"role": "user", "content": "hi"}]}
    headers = gateway.auth | {"User-Agent": "mine/1.0 (here)"}
    ids = [httpx.post(f"{gateway.url}/v1/chat/completions", headers=headers, json=body).json()["id"] for _ in range(2)]
    turn = ids[0].removeprefix("chatcmpl-")
    for given in (turn[:13], turn.removeprefix("turn-")[:8], f"resp_{turn.removeprefix('turn-')}", ids[0]):
        url = f"{gateway.url}/v1/turns/{given}/feedback"
        assert httpx.post(url, headers=gateway.person, json={"score": 1}).json()["turn"] == turn
    refused = httpx.post(f"{gateway.url}/v1/turns/turn-/feedback", headers=gateway.person, json={"score": 1})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "ambiguous_id")
    assert turn in refused.json()["error"]["message"]
    assert "mine/1.0  " in run(gateway.journal, "sessions", "list")
    assert turn in run(gateway.journal, "feedback", turn[:13], "--score", "1")


def test_an_upstreams_turns_show_what_is_new(gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_ENGINE_API_KEY", gateway.token)
    settings = {"engine.kind": "upstream", "engine.url": f"{gateway.url}/v1", "engine.model": "turnwise"}
    config = load_config(overrides={"home": tmp_path / "relay", "train.enabled": False, **settings})
    thread = GatewayThread(config, gateway.url)
    thread.start(config)
    headers = {"Authorization": f"Bearer {(config.home / 'token').read_text().strip()}"}
    messages: list[ChatMessage] = [{"role": "user", "content": "say: one"}]
    for _ in range(3):
        body = {"model": "turnwise", "messages": messages}
        response = httpx.post(f"{thread.url}/v1/chat/completions", headers=headers, json=body, timeout=20)
        messages += [response.json()["choices"][0]["message"], {"role": "user", "content": f"say: {len(messages)}"}]
    journal = Journal.open(config)
    [session] = journal.sessions.last_seen()
    turns = json.loads(run(journal, "sessions", "show", session["id"], "--json"))["turns"]
    journal.close()
    thread.stop()
    assert [[m["content"] for m in turn["added"]] for turn in turns] == [["say: one"], ["say: 1"], ["say: 3"]]
