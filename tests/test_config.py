"""The typed tree: what a person may write, and what each mistake is answered with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from turnwise.config import Config, load_config
from turnwise.config.reference import as_toml
from turnwise.errors import ConfigError


def test_defaults_are_valid_and_run_on_loopback() -> None:
    config = load_config()
    assert config.server.host == "127.0.0.1"
    assert config.server.auth


def test_a_file_is_read_and_overrides_win(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[server]\nport = 9000\n[train]\nmethod = "opd"\n')
    config = load_config(file, {"server.port": "9001", "train.lr": "2e-4"})
    assert (config.server.port, config.train.method, config.train.lr) == (9001, "opd", 2e-4)


def test_the_home_folder_has_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[judge]\nvotes = 3\n")
    assert load_config(overrides={"home": tmp_path}).judge.votes == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nprt = 1", "server.prt: no such key"),
        ("[nothing]\nx = 1", "nothing: no such key"),
        ("[server]\nport = 70000", "server.port"),
        ("[server]\nport = 'x'", "server.port"),
        ("[train]\nlr = 0", "train.lr"),
        ("[train]\nmin_batch = 64", "max_batch"),
        ("[train]\nmin_batch = 1\nmax_batch = 1", "train.max_batch = 1 .*set train.max_batch to 2 or more"),
        ("[train]\nmethod = 'sft'", "train.method: .*there is no method 'sft', only combined, binary, opd"),
        ("[train]\nmethod = 'opd'\nw_opd = 0", "train.w_opd = 0 with"),
        ("[train]\nmethod = 'binary'\nw_binary = 0", "train.w_binary = 0 with"),
        ("[train]\nw_binary = 0\nw_opd = 0", "train.w_binary = 0 and train.w_opd = 0 with"),
        ("[server]\nhost = '0.0.0.0'\nauth = false", "loopback"),
        ("[judge]\nkind = 'oracle'", "judge.kind"),
        ("server = 1", "server"),
        ("[server\n", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_config(file)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nmethod = 'sft'", "train.method: there is no method 'sft'"),
        ("[train]\nmin_batch = 64", "config: train.max_batch must be at least"),
        ("[environments]\nhosts = ['https://example.org/x']", "environments.hosts: 'https://example.org/x' is no host"),
        ("[environments]\nhosts = ['example.org/x']", "environments.hosts: 'example.org/x' is no host"),
        ("[environments]\nhosts = ['a.b']\nsandbox = 'podman'", "environments: environments.hosts needs bubblewrap"),
        ("[journal]\nurl = 'mysql://u:secret@h/d'", "journal.url: "),
        (
            "[judge]\nkind = 'cascade'",
            "judge.kind: this kind is called 'signals-then-model'; write that (got 'cascade')",
        ),
    ],
)
def test_a_mistake_is_said_in_our_words_alone(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert f"  {words}" in str(caught.value)
    assert "Value error" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gate]\nunmeasured = 'hold'\nprobe_share = 0", "gate.probe_share = 0 .*set gate.probe_share above 0"),
        ("[gate]\nunmeasured = 'hold'\nanswers = 0", "gate.answers = 0 .*set gate.answers to 2 or more"),
        ("[gate]\nunmeasured = 'hold'\nanswers = 1", "gate.answers = 1 .*set gate.answers to 2 or more"),
    ],
)
def test_a_gate_that_holds_and_can_never_let_go_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_config(file)
    for harmless in ("enabled = false", "unmeasured = 'pass'"):
        file.write_text(text.replace("unmeasured = 'hold'", harmless))
        load_config(file)
    file.write_text(f"{text}\n[train]\nwhen = 'off'")
    assert not load_config(file).trains


def test_a_gate_that_holds_needs_no_share_where_praise_alone_is_never_trained_on(tmp_path: Path) -> None:
    """There well-judged turns without a hint are what it looks at."""
    file = tmp_path / "c.toml"
    file.write_text("[gate]\nunmeasured = 'hold'\nprobe_share = 0\n[train]\nmethod = 'opd'")
    assert load_config(file).trains


@pytest.mark.parametrize("weights", ["method = 'opd'\nw_binary = 0", "method = 'binary'\nw_opd = 0", "w_opd = 0"])
def test_a_weight_that_the_method_does_not_need_may_be_zero(tmp_path: Path, weights: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"[train]\n{weights}\n")
    assert 0 in (load_config(file).train.w_opd, load_config(file).train.w_binary)


def test_an_unreadable_file_is_an_error_not_a_default(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load_config(tmp_path / "missing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "bytes.toml")


def test_what_is_printed_can_be_read_back(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path, "train.lr": 3e-5, "judge.url": "http://127.0.0.1:1/v1"})
    assert Config.model_validate(tomllib.loads(as_toml(config))) == config
