"""Skills for tests."""

from __future__ import annotations

BODY = """# Dates in reports

1. Write every date as year-month-day.
2. Say the time zone where there is a time.
3. Never leave the year out.

Example: 2026-11-22
Not: 22/11"""


def text(name: str = "tidy-dates", description: str = "How to write dates in reports", body: str = BODY) -> bytes:
    return f"---\nname: {name}\ndescription: {description}\ncategory: writing\n---\n\n{body}\n".encode()
