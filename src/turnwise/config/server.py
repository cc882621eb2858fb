"""The section `[server]`: where the gateway listens, and whom it lets in."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from turnwise.config.sections import LOOPBACK, Seconds, Section
from turnwise.patterns import anchored

_HOST_NAME = anchored(r"[A-Za-z0-9_.-]+")
FILE_ORIGINS = frozenset({"null", "file://"})
"""What a browser engine sends for pages from files. Any page can have itself sent as 'null', so a token is needed."""
_ORIGIN = anchored(r"[a-z][a-z0-9+.-]*://[^/\s*]+")


class ServerConfig(Section):
    """Where the gateway listens and how it treats requests."""

    host: str = Field(default="127.0.0.1", description="Address to listen on. Anything but loopback needs a token.")
    port: int = Field(default=8377, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    auth: bool = Field(default=True, description="Require the bearer token. Only a loopback address may switch it off.")
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="Names beside its own that a request may ask for, as behind a reverse proxy."
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description="Web pages that may ask, such as 'https://chat.example.com'; no others may."
    )
    max_body_mb: float = Field(default=8.0, gt=0, description="Largest request body, in megabytes.")
    max_header_kb: int = Field(default=64, ge=4, le=1024, description="Largest request line and headers, in KB.")
    header_timeout_s: Seconds = Field(default=10.0, description="Longest time a client may take to send its headers.")
    max_connections: int = Field(default=512, ge=8, description="Most connections at once; more get a 503.")
    max_connections_per_address: int = Field(
        default=256, ge=4, description="Most of them from one address. All programs of this machine share one."
    )
    request_timeout_s: Seconds = Field(default=600.0, description="Longest time one answer may take.")
    engine_stall_s: Seconds = Field(default=60.0, description="Longest wait for the engine's next token.")
    engine_return_s: Seconds = Field(
        default=60.0, description="How long a request without a token yet waits for an engine that is restarted."
    )
    strict: bool = Field(
        default=False, description="Refuse what an engine cannot honour, rather than name it in `x-turnwise-ignored`."
    )

    @field_validator("allowed_hosts", "cors_origins", mode="before")
    @classmethod
    def _from_the_command_line(cls, given: object) -> object:
        return [part.strip() for part in given.split(",")] if isinstance(given, str) else given

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _HOST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no host name; write it without scheme, port and wildcards")
        return names

    @field_validator("cors_origins")
    @classmethod
    def _origins_alone(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin) and origin not in FILE_ORIGINS:
                raise ValueError(
                    f"{origin!r} is no origin; write it as 'https://chat.example.com', without a path, or as 'null' or "
                    "'file://' for a page that a program loads from its files"
                )
        return origins

    @model_validator(mode="after")
    def _open_bind_needs_token(self) -> ServerConfig:
        if not self.auth and self.host not in LOOPBACK:
            raise ValueError(f"server.auth = false is only allowed on loopback, not on {self.host}")
        if not self.auth and FILE_ORIGINS.intersection(self.cors_origins):
            raise ValueError("server.cors_origins may hold 'null' and 'file://' only with server.auth = true")
        return self
