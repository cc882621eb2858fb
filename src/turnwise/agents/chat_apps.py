"""Chat apps, and agents that do not say who they are: the words in which most of them ask for titles and suggestions.

Nothing here is of one agent alone, and none of them is connected by `turnwise connect`.
"""

from __future__ import annotations

from turnwise.agents.shape import Habits, SideKind
from turnwise.patterns import DOTALL, IGNORECASE, pattern

# "this conversation", and not a chat app, a session at a fair, or the session table.
_THIS_TALK = (
    r"\b((the|this|our|following) (conversation|chat|thread)|(this|following) (chat )?session)\b"
    r"(?! (app|application|room|bot|protocol|window|page|server|client|program|feature|table|[a-z]+ (in|of|from))\b)"
)

HABITS = Habits(
    asks=(
        (
            SideKind.TITLE,
            pattern(
                r"\b(generate|write|create|suggest)\b[^\n]{0,60}\btitle\b.{0,60}" + _THIS_TALK,
                IGNORECASE | DOTALL,
            ),
        ),
        (
            SideKind.TITLE,
            pattern(r"\b(summari[sz]e|name) " + _THIS_TALK + r".{0,60}\b(words?|title)\b", IGNORECASE | DOTALL),
        ),
        (
            SideKind.SUGGESTIONS,
            pattern(r"\bsuggest\b.{0,40}\bfollow[- ]?up (questions|prompts)\b.{0,80}\bthe user\b", IGNORECASE | DOTALL),
        ),
    )
)
