"""What is shown of a client's file holds no secret of its owner's, and has the file's shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.connect.masking import mask

KEPT = [
    '{"env": {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096", "theme": "dark"}}',
    '  "maxTokens": 4096,\n  "compat": {"supportsPromptCacheKey": true}\n',
    '"path": "/usr/bin", "pattern": "a*"',
    'model = "turnwise"\nbase_url = "http://127.0.0.1:9/v1"\n',
    'model: "openai/turnwise" # fast\nopenai-api-base: http://127.0.0.1:9/v1\n',
    '"security": {"auth": {"selectedType": "openai"}}',
]

HIDDEN = [
    ('{"env": {"AWS_SECRET_ACCESS_KEY": "SEC", "A": "b"}}', '{"env": {"AWS_SECRET_ACCESS_KEY": "***", "A": "b"}}'),
    ('  "Authorization": "Bearer SEC",\n', '  "Authorization": "***",\n'),
    ('  "ANTHROPIC_CUSTOM_HEADERS": "X-A: SEC\\nX-B: SEC",\n', '  "ANTHROPIC_CUSTOM_HEADERS": "***",\n'),
    ("GITHUB_PAT=SEC\nOPENAI_KEY=SEC # mine\n", "GITHUB_PAT=***\nOPENAI_KEY=***\n"),
    ("export MY_PASSWORD='it SEC'\nA=b\n", "export MY_PASSWORD='***'\nA=b\n"),
    ("# OPENAI_KEY=SEC\r\nA=b\r\n", "# OPENAI_KEY=***\r\nA=b\r\n"),
    (
        "api-key:\n  - openrouter=SEC\n  - SEC==\n  # x\nmodel: a\n",
        "api-key:\n  - openrouter=***\n  - ***\n  ***\nmodel: a\n",
    ),
    ("api-key:\n- openrouter=SEC\nmodel: a\n", "api-key:\n- openrouter=***\nmodel: a\n"),
    ("api-key: [a=SEC, 'SEC', SEC==]\nmodel: a\n", "api-key: [a=***, '***', ***==]\nmodel: a\n"),
    ("set-env:\n  - OPENAI_API_KEY=SEC\n", "set-env:\n  - OPENAI_API_KEY=***\n"),
    ("password: |\n  SEC\n  SEC\nmodel: a\n", "password: |\n  ***\n  ***\nmodel: a\n"),
    ('headers: {\n  "X-Org": "SEC", // SEC\n  x: ["SEC"]\n},\nb: "c"', None),
    ('http_headers = { "X-Org" = "SEC" }\nmodel = "a"\n', 'http_headers = { "X-Org" = "***" }\nmodel = "a"\n'),
    (
        '[mcp.x.http_headers]\nX-Org = "SEC"\n\n[next]\na = "b"\n',
        '[mcp.x.http_headers]\nX-Org = "***"\n\n[next]\na = "b"\n',
    ),
    ('bearer_token = """\nSEC\nSEC"""\na = "b"\n', 'bearer_token = """***\n***\n***"""\na = "b"\n'),
    ('PRIVATE_KEY="-----BEGIN\nSEC\n-----END"\nA=b\n', 'PRIVATE_KEY="***\n***\n***"\nA=b\n'),
    ('"args": ["--api-key", "SEC", "--port", "9"]', '"args": ["--api-key", "***", "--port", "9"]'),
    ('"args": ["-H", "Authorization: Bearer SEC"],\n', '"args": ["-H", "Authorization: ***"],\n'),
    ('"HTTPS_PROXY": "http://me:SEC@proxy:8080"', '"HTTPS_PROXY": "http://***@proxy:8080"'),
    ("PASS=#SEC\nPASS=!SEC\nPASS=|SEC\nA=b\n", "PASS=***\nPASS=***\nPASS=***\nA=b\n"),
    ('"pin": 1, "pass": 1234, "b": 2', '"pin": 1, "pass": ***, "b": 2'),
]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize(("text", "shown"), HIDDEN)
def test_the_value_of_a_secret_name_is_hidden_and_the_shape_stays(text: str, shown: str | None) -> None:
    masked = mask(text)
    assert "SEC" not in masked.replace("AWS_SECRET", "")
    assert masked.count("\n") == text.count("\n")
    if shown is not None:
        assert masked == shown


@given(st.text(alphabet=" \n\t\"'{}[]:=,#-|\\abkey", max_size=80))
def test_any_text_keeps_its_lines(text: str) -> None:
    assert mask(text).count("\n") == text.count("\n")
