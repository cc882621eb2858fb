"""The address of a database: what is taken for one, and how it is shown, without its password."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, PlainSerializer


def without_password(url: str) -> str:
    """A database's address as it may be shown."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}{':***' if ':' in user else ''}{at}{host}"
    query = "&".join("password=***" if one.startswith("password=") else one for one in parts.query.split("&"))
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _checked(url: str) -> str:
    if url and not url.startswith(("postgresql://", "postgresql+psycopg://")):
        raise ValueError("must be empty, for a file in the home, or begin with postgresql://")
    return url


DatabaseUrl = Annotated[str, AfterValidator(_checked), PlainSerializer(without_password)]
"""Empty, or the address of a PostgreSQL database. What is made of a configuration to be shown has no password in it."""
DATABASE_URL = (
    "A PostgreSQL database in place of the file journal.db in the home (see postgres.md), such as "
    "`postgresql://user@host/database`; its password is better left to `PGPASSWORD` or `~/.pgpass`."
)
"""What the setting says of itself."""
