"""TOML, YAML and dotenv: values change, comments and everything else stay."""

from __future__ import annotations

import tomllib

import pytest

from turnwise.agents.texts import set_dotenv, set_toml, set_yaml
from turnwise.errors import ConfigError


def test_toml_keeps_comments_and_tables() -> None:
    text = '# mine\nmodel = "gpt-5"  # good\napproval_policy = "never"\n\n[sandbox]\nmode = "strict"\n'
    values = {("model",): "turnwise", ("model_provider",): "tw", ("model_providers", "tw", "base_url"): "http://x"}
    changed = set_toml(text, values)
    assert changed == (
        '# mine\nmodel = "turnwise"  # good\napproval_policy = "never"\nmodel_provider = "tw"\n\n'
        '[sandbox]\nmode = "strict"\n\n[model_providers.tw]\nbase_url = "http://x"\n'
    )
    assert set_toml(changed, values) == changed
    assert set_toml("", values).startswith('model = "turnwise"\n')


CODEX = {
    ("model",): "turnwise",
    ("model_provider",): "tw",
    ("model_providers", "tw", "name"): "turnwise",
    ("model_providers", "tw", "base_url"): "http://x",
}
"""What is set in Codex CLI's file: keys of its own beside those of a table."""


@pytest.mark.parametrize(
    "text",
    [
        "model_providers.a.name = 'x'\n",
        "model_providers.a = {name = 'x'}\n",
        "model_providers = {a = {name = 'x'}}\n",
        "model = 'y'\nmodel_providers.a.name = 'x'\n\n[tools]\nweb = true\n",
        "model_providers.tw.name = 'old'\nmodel_providers.tw.mine = 1\n[tools]\nweb = true\n",
        "model_providers.tw = {name = 'old'}\n",
        "[model_providers]\na = {name = 'x'}\n[tools]\nweb = true\n",
        "[model_providers.a]\nname = 'x'\n[tools]\nweb = true\n[model_providers.b]\nname = 'y'\n",
        "[model_providers]\n[tools]\nweb = true\n",
        "[[tools]]\nweb = true\n[profiles.a]\nmodel = 'z'",
    ],
)
def test_toml_is_changed_as_wanted_and_nothing_else(text: str) -> None:
    wanted = tomllib.loads(text)
    wanted |= {"model": "turnwise", "model_provider": "tw"}
    ours = wanted.setdefault("model_providers", {}).setdefault("tw", {})
    ours |= {"name": "turnwise", "base_url": "http://x"}
    changed = set_toml(text, CODEX)
    assert tomllib.loads(changed) == wanted
    assert set_toml(changed, CODEX) == changed


def test_toml_stays_in_the_manner_of_the_file() -> None:
    assert set_toml("# mine\nmodel_providers.a.name = 'x'\n\n[tools]\nweb = true\n", CODEX) == (
        "# mine\nmodel_providers.a.name = 'x'\n"
        'model_providers.tw = {name = "turnwise", base_url = "http://x"}\n'
        'model = "turnwise"\nmodel_provider = "tw"\n\n[tools]\nweb = true\n'
    )


def test_toml_that_comes_out_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.agents.texts.tomlkit.dumps", lambda document: "model = 'another'\n")
    with pytest.raises(ConfigError, match="safely"):
        set_toml("", CODEX)


def test_yaml_keeps_comments() -> None:
    text = "# mine\nmodel: sonnet # fast\nread: [a.md,\n  b.md]\nopenai-api-base:\nauto-commits: false\n"
    changed = set_yaml(text, {"model": "openai/turnwise", "openai-api-base": "http://x/v1", "openai-api-key": "k"})
    assert changed == (
        '# mine\nmodel: "openai/turnwise" # fast\nread: [a.md,\n  b.md]\nopenai-api-base: "http://x/v1"\n'
        'auto-commits: false\nopenai-api-key: "k"\n'
    )
    assert set_yaml("", {"model": "x"}) == 'model: "x"\n'


def test_dotenv_keeps_comments() -> None:
    text = "# mine\n\nA=1 # one\nexport B=\"two\"\n  C = three\nA='last' # it\n"
    changed = set_dotenv(text, {"A": "x", "B": "y", "C": "z", "D": "w"})
    assert changed == "# mine\n\nA=1 # one\nexport B='y'\n  C = 'z'\nA='x' # it\nD='w'\n"
    assert set_dotenv(changed, {"A": "x", "D": "w"}) == changed


@pytest.mark.parametrize("text", ["a = ", "[a\n", "model_providers = 3\n"])
def test_broken_toml_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        set_toml(text, {("model_providers", "tw", "name"): "x"})


@pytest.mark.parametrize("text", ["- a\n", "a: [", "a: 1\n---\nb: 2\n", "{a: 1}\n", "just words\n", "a: &x v\nb: *x\n"])
def test_yaml_that_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        set_yaml(text, {"a": "new", "c": "d"})


def test_broken_dotenv_is_refused() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        set_dotenv("A=1\nnot an assignment\n", {"B": "2"})
    with pytest.raises(ConfigError, match="quote"):
        set_dotenv("", {"B": "it's"})
