"""The session that an agent names in what it says of its user, whatever else stands there."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.agents.known import session_in_user


@pytest.mark.parametrize(
    ("user", "session"),
    [
        ('{"device_id": "d", "session_id": "0199-claude"}', "0199-claude"),
        ("user_1_account__session_2", "2"),
        ('{"device_id": "d"}', None),
        ("{not json", None),
        ("{" * 100_000, None),
        ("u", None),
        (None, None),
        (["_session_3"], None),
    ],
)
def test_it_is_a_key_of_json_or_stands_behind_a_mark(user: Any, session: str | None) -> None:
    assert session_in_user(user) == session
