"""TOML, YAML and dotenv: values change, comments and everything else stay."""

from __future__ import annotations

import pytest

from turnwise.connect.texts import set_dotenv, set_toml, set_yaml
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
