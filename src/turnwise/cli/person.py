"""`turnwise feedback` and `turnwise token`: what a person does with the tokens of their home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import httpx
import typer

from turnwise.access_tokens import Scope, load_or_make_token, token_path
from turnwise.cli.options import ConfigFile, Home, Set, out, read_config, read_journal
from turnwise.errors import TurnwiseError

if TYPE_CHECKING:
    from turnwise.journal import Journal


def feedback(
    turn: Annotated[
        str | None, typer.Argument(help="The turn's id, or as much of its beginning as no other has.")
    ] = None,
    score: Annotated[int | None, typer.Option(min=-1, max=1, help="-1, 0 or 1.")] = None,
    text: Annotated[str | None, typer.Option(help="What should have been done, in your words.")] = None,
    last: Annotated[bool, typer.Option("--last", help="The newest answer, in place of a turn's id.")] = False,
    session: Annotated[str | None, typer.Option(help="The newest answer of this session, named like TURN.")] = None,
    config: ConfigFile = None,
    home: Home = None,
    sets: Set = None,
) -> None:
    """Say what you think of an answer; it outranks the judge. The server of this home must be running."""
    from turnwise.home import running_url

    settings = read_config(config, home, sets)
    if (turn is not None) + (last or session is not None) != 1:
        raise TurnwiseError("name one answer: TURN, --last, or --session ID")
    if score is None and text is None:
        raise TurnwiseError("say something: --score N, --text WORDS, or both")
    if turn is None:
        turn = read_journal(settings, lambda journal: _newest_answer(journal, session))
        if turn is None:
            where = "" if session is None else f" in the session {session}"
            raise TurnwiseError(f"there is no answer{where} yet; see `turnwise sessions list`")
    url = running_url(settings)
    if url is None:
        raise TurnwiseError(f"no server runs for the home {settings.home}; start `turnwise serve`, or see --home")
    key = load_or_make_token(token_path(settings, Scope.PERSON))
    said = {"score": score, "text": text}
    try:
        response = httpx.post(
            f"{url}/v1/turns/{quote(turn, safe='')}/feedback",
            headers={"Authorization": f"Bearer {key}"},
            json={name: value for name, value in said.items() if value is not None},
            timeout=30.0,
            trust_env=False,
        )
        told = response.json()
    except (httpx.HTTPError, ValueError) as e:
        raise TurnwiseError(f"the server at {url} did not take the feedback: {type(e).__name__}; try again") from e
    if response.status_code != 200:
        raise TurnwiseError(told["error"]["message"])
    out.print(f"turn {told['turn']}: {told['result']}", highlight=False, markup=False)


def _newest_answer(journal: Journal, session: str | None) -> str | None:
    return journal.turns.newest_answered(None if session is None else journal.sessions.find(session))


def token(
    scope: Annotated[
        Scope, typer.Argument(help="agent: for agents; person: feedback; admin: everything, also /metrics.")
    ] = Scope.AGENT,
    config: ConfigFile = None,
    home: Home = None,
) -> None:
    """Print a token of this home, for a script: $(turnwise token person)."""
    print(load_or_make_token(token_path(read_config(config, home, None), scope)))
