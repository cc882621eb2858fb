"""The access tokens of a home: made at first start, readable by their owner alone, compared in constant time.

A rollout whose agent is a program has a token of its own, which follows from the person's and the rollout's session:
nobody keeps it, and it opens that one session.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from turnwise.config import Config
from turnwise.errors import ConfigError

OF_A_ROLLOUT = "tw-rollout-"
"""How such a token begins."""


class Scope(StrEnum):
    """Whose a token is."""

    AGENT = "agent"
    PERSON = "person"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a home, which never show in a log."""

    agent: str = field(repr=False)
    person: str = field(repr=False)
    admin: str = field(repr=False)

    def scope_of(self, given: str) -> Scope | None:
        """Whose token it is. All are compared, whichever it is, so that the time taken says nothing."""
        held = None
        sent = given.encode()
        for scope, token in ((Scope.AGENT, self.agent), (Scope.PERSON, self.person), (Scope.ADMIN, self.admin)):
            held = scope if hmac.compare_digest(sent, token.encode()) else held
        return held

    def opens(self, given: str, session: str) -> bool:
        """Whether it is the rollout's own token of this session."""
        return hmac.compare_digest(given.encode(), rollout_token(self.person, session).encode())


def rollout_token(person: str, session: str) -> str:
    """The token of one rollout, for whoever holds the person's, who may announce it as well."""
    digest = hmac.new(person.encode(), f"rollout\n{session}".encode(), "sha256").digest()
    return OF_A_ROLLOUT + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def token_path(config: Config, scope: Scope) -> Path:
    """The agents' token has the plain name: it is the one that `connect` writes into their configurations."""
    return config.token_path if scope is Scope.AGENT else config.home / f"token.{scope}"


def load_tokens(config: Config) -> Tokens:
    """All tokens of this home, made where they do not exist. Raises ConfigError."""
    made = {str(scope): load_or_make_token(token_path(config, scope)) for scope in Scope}
    if len(set(made.values())) < len(made):
        raise ConfigError(
            f"two of the files token, token.person and token.admin in {config.home} hold the same token, so an agent "
            "would be taken for another; delete one of the two to have a new one made"
        )
    return Tokens(**made)


def load_or_make_token(path: Path) -> str:
    """The token in `path` (mode 0600), made when the file does not exist. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            token = path.read_text(encoding="ascii").strip()
            if len(token) < 16:
                raise ConfigError(f"the token in {path} is too short; delete the file to have a new one made") from None
            path.chmod(0o600)
            return token
        token = f"tw-{secrets.token_urlsafe(32)}"
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        return token
    except OSError as e:
        raise ConfigError(f"cannot keep the access token at {path}: {e.strerror or e}; see --home") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"the token file {path} is not text; delete it to have a new one made") from e
