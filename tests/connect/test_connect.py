"""`turnwise connect` by bytes: apply, apply again, undo, and every case in which it must not write."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from turnwise.agents.known import AGENTS
from turnwise.cli.main import app
from turnwise.connect import files
from turnwise.connect.files import write_atomically
from turnwise.errors import TurnwiseError

BEFORE: dict[str, tuple[str, str]] = {
    "openclaw": (
        ".openclaw/openclaw.json",
        "{\n  // mine\n  tools: { exec: { ask: 'always' } },\n"
        "  agents: { defaults: { sandbox: { mode: 'all' } } },\n}\n",
    ),
    "opencode": (".config/opencode/opencode.json", '{"permission": {"bash": "ask"}, "theme": "dark"}'),
    "codex": (".codex/config.toml", '# mine\napproval_policy = "on-request"\nsandbox_mode = "read-only"\n'),
    "claude-code": (
        ".claude/settings.json",
        '{\n    "permissions": {"deny": ["Bash"]},\n    "env": {"MY": "1"}\n}\n',
    ),
    "qwen-code": (".qwen/settings.json", '{"tools": {"approvalMode": "default"}, "modelProviders": {"openai": []}}'),
    "aider": (".aider.conf.yml", "# mine\nauto-commits: false\nyes-always: false\nmodel: sonnet # fast\n"),
    "mini-swe-agent": ("mini/.env", "# mine\nMSWEA_GLOBAL_COST_LIMIT='1'\nexport MSWEA_MODEL_NAME=other\n"),
}
"""Each client's file as somebody may have it, with settings of theirs on what the agent may do."""

KEPT = {
    "openclaw": ["// mine", "tools: { exec: { ask: 'always' } }", "sandbox: { mode: 'all' }"],
    "opencode": ['"permission": {"bash": "ask"}', '"theme": "dark"'],
    "codex": ["# mine", 'approval_policy = "on-request"', 'sandbox_mode = "read-only"'],
    "claude-code": ['"permissions": {"deny": ["Bash"]}', '"MY": "1"'],
    "qwen-code": ['"tools": {"approvalMode": "default"}'],
    "aider": ["# mine", "auto-commits: false", "yes-always: false", "# fast"],
    "mini-swe-agent": ["# mine", "MSWEA_GLOBAL_COST_LIMIT='1'"],
}


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of its own, and no variable that leads out of it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENCLAW_CONFIG_PATH", "OPENCLAW_STATE_DIR", "OPENCODE_CONFIG", "XDG_CONFIG_HOME", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path / "mini"))
    return tmp_path


def connect(person: Path, client: str, *args: str, answer: str | None = None) -> Result:
    base = ["connect", client, "--home", str(person / "turnwise"), "--set", "server.port=9"]
    return CliRunner().invoke(app, [*base, *args], input=answer)


def elsewhere(url: str) -> list[str]:
    """Arguments for a server elsewhere that is down, so that a person says how much fits."""
    return ["--yes", "--url", url, "--set", "engine.max_model_len=8192"]


def write(person: Path, client: str, mode: int = 0o644) -> Path:
    name, text = BEFORE[client]
    file = person / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    file.chmod(mode)
    return file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_client_has_an_example() -> None:
    assert set(BEFORE) == set(AGENTS) == set(KEPT)


@pytest.mark.parametrize("client", BEFORE)
def test_apply_twice_and_undo(person: Path, client: str) -> None:
    file = write(person, client)
    before = file.read_bytes()
    first = connect(person, client, "--yes")
    assert first.exit_code == 0, first.output
    after = file.read_text()
    token = (person / "turnwise/token").read_text().strip()
    assert token in after
    assert "http://127.0.0.1:9" in after
    assert [kept for kept in KEPT[client] if kept not in after] == []
    assert mode(file) == 0o600, "it holds the token now"
    assert token not in first.output
    again = connect(person, client, "--yes")
    assert "already" in again.output
    assert file.read_text() == after
    undone = connect(person, client, "--undo")
    assert undone.exit_code == 0, undone.output
    assert file.read_bytes() == before
    assert mode(file) == 0o644
    assert list((person / "turnwise/connect").glob("*.backup")) == []
    assert isinstance(connect(person, client, "--undo").exception, TurnwiseError)


@pytest.mark.parametrize("client", BEFORE)
def test_a_file_that_did_not_exist_is_removed_with_its_folder(person: Path, client: str) -> None:
    file = person / BEFORE[client][0]
    assert connect(person, client, "--yes").exit_code == 0
    assert mode(file) == 0o600
    assert connect(person, client, "--undo").exit_code == 0
    assert not file.exists()
    assert sorted(p.name for p in person.iterdir()) == ["turnwise"]


@pytest.mark.parametrize("client", BEFORE)
def test_another_address_later_still_undoes_to_the_first_state(person: Path, client: str) -> None:
    file = write(person, client)
    before = file.read_bytes()
    connect(person, client, "--yes")
    moved = connect(person, client, *elsewhere("http://127.0.0.1:10/v1"), "--model", "turnwise@base")
    assert moved.exit_code == 0, moved.output
    assert "127.0.0.1:10" in file.read_text()
    assert "127.0.0.1:9" not in file.read_text()
    connect(person, client, "--undo")
    assert file.read_bytes() == before


def test_undo_refuses_when_somebody_changed_the_file(person: Path) -> None:
    file = write(person, "codex")
    before = file.read_bytes()
    connect(person, "codex", "--yes")
    file.write_text(file.read_text() + "# my own line\n")
    refused = connect(person, "codex", "--undo")
    assert isinstance(refused.exception, TurnwiseError)
    assert "changed by hand" in str(refused.exception)
    assert "# my own line" in file.read_text()
    assert connect(person, "codex", "--undo", "--force").exit_code == 0
    assert file.read_bytes() == before


def test_a_change_by_hand_between_two_connects_is_not_lost(person: Path) -> None:
    file = write(person, "codex")
    before = file.read_bytes()
    connect(person, "codex", "--yes")
    mine = file.read_text() + "# my own line\n"
    file.write_text(mine)
    connect(person, "codex", *elsewhere("http://127.0.0.1:10"))
    connect(person, "codex", "--undo")
    assert file.read_text() == mine
    connect(person, "codex", "--undo", "--force")
    assert file.read_bytes() == before


@pytest.mark.parametrize("again", [False, True])
def test_a_crash_before_the_second_write_can_be_undone(
    person: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    file = write(person, "codex")
    before = file.read_bytes()
    connect(person, "codex", "--yes")
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", _stops_at(file))
        assert isinstance(connect(person, "codex", *elsewhere("http://127.0.0.1:10")).exception, PowerCut)
    if again:
        assert connect(person, "codex", *elsewhere("http://127.0.0.1:11")).exit_code == 0
    undone = connect(person, "codex", "--undo")
    assert undone.exit_code == 0, undone.exception
    assert file.read_bytes() == before
    assert isinstance(connect(person, "codex", "--undo").exception, TurnwiseError)


class PowerCut(Exception):
    pass


def _stops_at(file: Path) -> Callable[[Path, bytes, int], None]:
    def write_until(path: Path, content: bytes, mode: int) -> None:
        if path == file:
            raise PowerCut
        write_atomically(path, content, mode)

    return write_until


def test_undo_refuses_when_somebody_removed_the_file(person: Path) -> None:
    file = write(person, "codex")
    connect(person, "codex", "--yes")
    file.unlink()
    assert isinstance(connect(person, "codex", "--undo").exception, TurnwiseError)
    assert connect(person, "codex", "--undo", "--force").exit_code == 0


def test_it_asks_and_takes_no_for_an_answer(person: Path) -> None:
    file = write(person, "aider")
    before = file.read_bytes()
    said = connect(person, "aider", answer="n\n")
    assert said.exit_code == 0
    assert '+model: "openai/turnwise" # fast' in said.output
    assert file.read_bytes() == before
    assert connect(person, "aider", "--dry-run", "--yes").exit_code == 0
    assert file.read_bytes() == before
    assert connect(person, "aider", answer="y\n").exit_code == 0
    assert file.read_bytes() != before


def test_a_dry_run_leaves_nothing_behind(person: Path) -> None:
    said = connect(person, "opencode", "--dry-run")
    assert '"turnwise/turnwise"' in said.output
    assert list(person.iterdir()) == []


def test_secrets_of_others_are_masked_in_what_is_shown(person: Path) -> None:
    file = person / ".config/opencode/opencode.json"
    file.parent.mkdir(parents=True)
    file.write_text('{\n  "provider": {\n    "openai": {"options": {"apiKey": "sk-mine"}}\n  }\n}\n')
    said = connect(person, "opencode", "--dry-run")
    assert '"apiKey": "***"' in said.output
    assert "sk-mine" not in said.output


def test_lines_of_others_below_a_secret_name_are_masked_in_what_is_shown(person: Path) -> None:
    file = person / ".aider.conf.yml"
    file.write_text("api-key:\n  - openrouter=sk-mine\n  - sk-mine==\nmodel: sonnet\n")
    said = connect(person, "aider", "--dry-run")
    assert "   - openrouter=***\n   - ***\n-model: sonnet\n+model:" in said.output
    file = write(person, "claude-code")
    file.write_text('{"env": {\n  "AWS_SECRET_ACCESS_KEY": "sk-mine",\n  "GITHUB_PAT": "sk-mine",\n  "MY": "1"\n}}\n')
    said = connect(person, "claude-code", "--dry-run")
    assert '   "GITHUB_PAT": "***",' in said.output
    assert "sk-mine" not in said.output


def test_a_new_token_is_shown_as_a_difference(person: Path) -> None:
    connect(person, "codex", "--yes")
    (person / "turnwise/token").write_text("tw-another-token-of-a-length\n")
    assert 'experimental_bearer_token = "***"' in connect(person, "codex", "--dry-run").output


@pytest.mark.parametrize(
    ("client", "content"),
    [
        ("openclaw", b"{ models: "),
        ("opencode", b"[1, 2]"),
        ("codex", b"= nothing"),
        ("claude-code", b'{"env": {"ANTHROPIC_API_KEY": "sk-1"}}'),
        ("qwen-code", b'{"modelProviders": {"openai": {"id": "x"}}}'),
        ("aider", b"- a list\n"),
        ("mini-swe-agent", b"\xff\xfe"),
    ],
)
def test_what_cannot_be_understood_is_not_overwritten(person: Path, client: str, content: bytes) -> None:
    file = write(person, client)
    file.write_bytes(content)
    said = connect(person, client, "--yes")
    assert isinstance(said.exception, TurnwiseError)
    assert str(file) in str(said.exception)
    assert file.read_bytes() == content


def test_a_link_stays_a_link(person: Path) -> None:
    real = person / "dotfiles.yml"
    real.write_text("model: sonnet\n")
    (person / ".aider.conf.yml").symlink_to(real)
    connect(person, "aider", "--yes")
    assert (person / ".aider.conf.yml").is_symlink()
    assert "openai/turnwise" in real.read_text()
    connect(person, "aider", "--undo")
    assert real.read_text() == "model: sonnet\n"


def test_openclaw_keeps_a_plain_model_and_an_allow_list(person: Path) -> None:
    file = person / "my.json"
    file.write_text('{"agents": {"defaults": {"model": "a/b", "models": {"a/b": {}}}}}')
    assert connect(person, "openclaw", "--yes", "--client-config", str(file)).exit_code == 0
    defaults = json.loads(file.read_text())["agents"]["defaults"]
    assert defaults == {"model": "turnwise/turnwise", "models": {"a/b": {}, "turnwise/turnwise": {}}}
    assert connect(person, "openclaw", "--undo", "--client-config", str(file)).exit_code == 0


def test_openclaw_list_of_allowed_models_is_not_widened(person: Path) -> None:
    file = person / "my.json"
    file.write_text('{"agents": {"defaults": {"modelPolicy": {"allow": ["a/b"]}}}}')
    said = connect(person, "openclaw", "--yes", "--client-config", str(file))
    assert "turnwise/*" in str(said.exception)
    file.write_text('{"agents": {"defaults": {"modelPolicy": {"allow": ["a/b", "turnwise/*"]}}}}')
    assert connect(person, "openclaw", "--yes", "--client-config", str(file)).exit_code == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["emacs"], "knows openclaw"),
        (["aider", "--url", "ftp://x"], "http"),
        (["aider", "--set", "server.port=0"], "--url"),
        (["aider", "--client-config", "."], "is not a file"),
    ],
)
def test_mistakes_are_one_sentence(person: Path, args: list[str], words: str) -> None:
    said = connect(person, *args)
    assert isinstance(said.exception, TurnwiseError)
    assert words in str(said.exception)
