"""OpenClaw: one provider in `openclaw.json` (JSON5), made the default model. Tools and sandbox stay as they are.

Its own gateway wakes the agent with heartbeats, has it write its memory down, asks for titles, and compacts.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.agents.endpoint import PROVIDER, Endpoint, home_of
from turnwise.agents.json_text import read, set_value
from turnwise.agents.shape import Agent, Habits, SideKind
from turnwise.errors import ConfigError
from turnwise.patterns import IGNORECASE, MULTILINE, pattern


def file(environment: dict[str, str]) -> Path:
    if environment.get("OPENCLAW_CONFIG_PATH"):
        return Path(environment["OPENCLAW_CONFIG_PATH"])
    folder = environment.get("OPENCLAW_STATE_DIR")
    return (Path(folder) if folder else home_of(environment) / ".openclaw") / "openclaw.json"


def _check_policy(text: str, name: str) -> None:
    """A person's list of allowed models is theirs to change."""
    allow = read(text, ("agents", "defaults", "modelPolicy", "allow"))
    if allow and name not in allow and f"{PROVIDER}/*" not in allow:
        raise ConfigError(f"agents.defaults.modelPolicy.allow leaves out {name}; add {PROVIDER}/* to it first")


def edit(text: str, endpoint: Endpoint) -> str:
    name = f"{PROVIDER}/{endpoint.model}"
    context = {} if endpoint.context is None else {"contextWindow": endpoint.context}
    provider = {
        "baseUrl": endpoint.v1,
        "apiKey": endpoint.token,
        "api": "openai-completions",
        "models": [
            {
                "id": endpoint.model,
                "name": endpoint.model,
                "reasoning": False,
                "input": ["text"],
                **context,
                "maxTokens": endpoint.longest_answer,
                "compat": {"supportsPromptCacheKey": True},  # each request then names its conversation
            }
        ],
    }
    text = set_value(text, ("models", "providers", PROVIDER), provider)
    defaults = ("agents", "defaults")
    if isinstance(read(text, (*defaults, "model")), str):
        text = set_value(text, (*defaults, "model"), name)
    else:
        text = set_value(text, (*defaults, "model", "primary"), name)
    _check_policy(text, name)
    allowed = read(text, (*defaults, "models"))
    if isinstance(allowed, dict) and allowed and name not in allowed:  # where it stands, it lists what may be used
        text = set_value(text, (*defaults, "models", name), {})
    return text


HABITS = Habits(
    asks=(
        (
            SideKind.HEARTBEAT,
            pattern(r"^\W*HEARTBEAT\W*(:|$)|\b([Rr]eply|[Rr]espond|[Aa]nswer)\b.{0,40}\bHEARTBEAT_OK\b"),
        ),
        (SideKind.HEARTBEAT, pattern(r"\bHEARTBEAT_OK\b.{0,5} if\b|^\W*HEARTBEAT_OK\b\W*$")),
        (
            SideKind.HEARTBEAT,
            pattern(
                r"^\W*follow the heartbeat monitor\b|^(\[[^\]\n]{1,40}\] )?\[OpenClaw heartbeat poll\]", IGNORECASE
            ),
        ),
        (
            SideKind.MEMORY,
            pattern(r"^\W*(pre-compaction )?memory flush\b|\bstore durable memories\b", IGNORECASE),
        ),
    ),
    instructs=(
        (
            SideKind.TITLE,
            pattern(
                r"^\W*(generate|write|create)\b[^\n]{0,40}\b(session|conversation|chat|thread) title\b"
                r"[^\n]{0,80}\b(first message|the conversation|user's message)\b",
                IGNORECASE,
            ),
        ),
        (SideKind.COMPACTION, pattern(r"^\W*you are a context summari[sz]ation assistant\b", IGNORECASE)),
    ),
    internal=pattern(r"^\W*BEGIN_OPENCLAW_INTERNAL_CONTEXT\b"),
    envelopes=(
        pattern(
            r"^(\[(Telegram|WhatsApp|Discord|Slack|Signal|iMessage|WebChat|Matrix|Teams)\b[^\]\n]{0,160}\]"
            r"|\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d[^\]\n]{0,40}\]) ?",
            MULTILINE,
        ),
        pattern(r"^\[message_id: [^\]\n]{1,80}\]$", MULTILINE),
        pattern(r"^[A-Z][A-Za-z ]{2,40} \(untrusted metadata\):\n```json\n[^`]{0,1500}```", MULTILINE),
    ),
)

AGENT = Agent(
    file,
    edit,
    'openclaw agent exec "Say hello"',
    first_prompt={"small": 4638, "minimal": 9967, "default": 15162},
    habits=HABITS,
)
