"""The address of a database: what is taken for one, and how it is shown, without its password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, PlainSerializer

if TYPE_CHECKING:
    from sqlalchemy import URL

HIDDEN = "hidden"
"""What stands in place of a password among the options of an address."""


def parsed(url: str) -> URL:
    """The address in its parts, as the driver will read it. Raises ValueError with a text that has none of it."""
    from sqlalchemy import make_url  # only who has such an address waits for this import
    from sqlalchemy.exc import ArgumentError

    try:
        if url.startswith(("postgresql://", "postgresql+psycopg://")):
            return make_url(url)
    except (ValueError, ArgumentError):
        text = "is no address like postgresql://user@host/database; in a password write %40 for @, %3A for :, %2F for /"
        raise ValueError(text) from None
    raise ValueError("must be empty, for a file in the home, or begin with postgresql://")


def without_password(url: str) -> str:
    """A database's address as it may be shown. Raises ValueError."""
    if not url:
        return url
    parts = parsed(url)
    secret = {name: HIDDEN for name in parts.query if "password" in name.lower()}
    return parts.update_query_dict(secret).render_as_string(hide_password=True)


def _checked(url: str) -> str:
    if url:
        parsed(url)
    return url


DatabaseUrl = Annotated[str, AfterValidator(_checked), PlainSerializer(without_password)]
"""Empty, or the address of a PostgreSQL database. What is made of a configuration to be shown has no password in it."""
DATABASE_URL = (
    "A PostgreSQL database in place of the file journal.db in the home (see postgres.md), such as "
    "`postgresql://user@host/database`; its password is better left to `PGPASSWORD` or `~/.pgpass`."
)
"""What the setting says of itself."""
