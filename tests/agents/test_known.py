"""What the agents' files say is what the gateway applies, in a set order, and what the documents tell."""

from __future__ import annotations

from pathlib import Path

from turnwise.agents.known import ASKS, INSTRUCTS, SESSION_HEADERS, SUB_AGENT_HEADERS
from turnwise.agents.shape import HOUSEKEEPING, SideKind
from turnwise.gateway.lineage.history import side_rule
from turnwise.messages import saying

DOCS = Path(__file__).parents[2] / "docs"


def test_the_more_telling_header_comes_first() -> None:
    """Codex CLI's sub-agents have a thread of their own in a session that they share."""
    assert SESSION_HEADERS == (
        "thread-id",
        "session-id",
        "session_id",
        "x-claude-code-session-id",
        "x-opencode-session",
    )


def test_the_page_on_sessions_names_every_header_and_kind() -> None:
    page = (DOCS / "sessions.md").read_text(encoding="utf-8").lower()
    assert [name for name in (*SESSION_HEADERS, *SUB_AGENT_HEADERS) if f"`{name}`" not in page] == []
    assert [kind for kind in SideKind if kind not in page] == []


def test_of_words_that_fit_two_kinds_the_first_kind_counts() -> None:
    for words in (ASKS, INSTRUCTS):
        order = [list(SideKind).index(kind) for kind, _ in words]
        assert order == sorted(order)
    both = "Generate a title for this conversation. Reply HEARTBEAT_OK if nothing needs attention"
    assert side_rule([saying("user", both)], None) == SideKind.TITLE
    assert SideKind.TITLE not in HOUSEKEEPING
