"""Tasks at the wiki: what its pages say, pages that are written and changed, and tickets that are opened and closed."""

from __future__ import annotations

import random

from turnwise.environments.site_tasks.base import (
    Ask,
    SiteCase,
    SiteFamily,
    answer,
    choose,
    click,
    done,
    go,
    link,
    quoted,
    write,
)

_NOW = (
    "select name, text from wiki w where version = (select max(version) from wiki where name = w.name) "
    "and name like '%Room' order by name"
)
_TICKETS = "select id, summary, owner, component, milestone, priority, type from ticket order by id"
_OTHER_TICKETS = (
    "select id, summary, status, resolution, owner, component, priority from ticket where id <> {number} order by id"
)
FACTS = {
    "year": ("From which year is the oldest piece in the {} room? Answer with the year alone.", "is from ", "."),
    "town": (
        "From which town did the oldest piece in the {} room come? Answer with the town alone.",
        "came from ",
        ".",
    ),
    "pieces": ("How many pieces are on show in the {} room? Answer with the number alone.", "There are ", " pieces"),
    "hook": ("On which hook hangs the key of the {} room? Answer with the number alone.", "on hook ", "."),
}
PAGES = ("Cloakroom", "Workshop", "Courtyard", "Library", "Kitchen")
LINES = ("Closed on Mondays until further notice.", "The blinds stay down after noon.", "Ask at the desk for the key.")
LINES += ("The floor was waxed last week.", "Please use the side door.")
TROUBLES = ("The blinds do not close", "A chair is broken", "The tap drips", "The clock is ten minutes slow")


def _fact(kind: str) -> SiteFamily:
    prompt, before, after = FACTS[kind]

    def make(chance: random.Random, ask: Ask) -> SiteCase:
        name, text = chance.choice(ask(_NOW))
        room = name.removesuffix("Room")
        rest = f"substr(text, instr(text, {quoted(before)}) + {len(before)})"
        asked = (
            f"select substr({rest}, 1, instr({rest}, {quoted(after)}) - 1) from wiki w where name = {quoted(name)} "
            "and version = (select max(version) from wiki where name = w.name)"
        )
        value = text.split(before, 1)[1].split(after, 1)[0]
        return SiteCase(
            prompt.format(room.lower()),
            {"asked": asked},
            [link(f"{room} Room"), answer(value, f"{before}{value}{after}")],
        )

    return SiteFamily(f"wiki-{kind}", "wiki", prompt.split("?")[0].format("…").lower(), make)


def _latest(name: str) -> str:
    return f"select text, author from wiki where name = {quoted(name)} order by version desc limit 1"


def _others(name: str) -> dict[str, object]:
    return {
        "query": f"select name, version, text from wiki where name <> {quoted(name)} order by name, version",
        "same": True,
    }


def _rewrite(chance: random.Random, ask: Ask) -> SiteCase:
    name, _ = chance.choice(ask(_NOW))
    line, room = chance.choice(LINES), name.removesuffix("Room")
    return SiteCase(
        f"Edit the page of the {room.lower()} room so that its whole text is: {line}",
        {"checks": [{"query": _latest(name), "rows": [[line, "maria"]]}, _others(name)], "changes": ["pages"]},
        [
            link(f"{room} Room"),
            click("Edit this page", "input"),
            write("text", line),
            click("Submit changes", "input"),
            done(),
        ],
    )


def _create(chance: random.Random, ask: Ask) -> SiteCase:
    name, line = chance.choice(PAGES), chance.choice(LINES)
    return SiteCase(
        f"Create the wiki page {name} with this text: {line}",
        {"checks": [{"query": _latest(name), "rows": [[line, "maria"]]}, _others(name)], "changes": ["pages"]},
        [
            go(f"/wiki/{name}"),
            click("Create this page", "input"),
            write("text", line),
            click("Submit changes", "input"),
            done(),
        ],
    )


def _owner(chance: random.Random, ask: Ask) -> SiteCase:
    number, summary, owner, *_ = chance.choice(ask(_TICKETS))
    return SiteCase(
        f'Who owns the ticket {number}, "{summary}"? Answer with the name alone.',
        {"asked": f"select owner from ticket where id = {number}"},
        [write("Search", f"#{number}"), click("Search", "input"), answer(owner, f'"{owner}"')],
    )


def _component(chance: random.Random, ask: Ask) -> SiteCase:
    number, summary, *_ = chance.choice(ask(_TICKETS))
    asked = f"select component from ticket where id = {number}"
    component = ask(asked)[0][0]
    return SiteCase(
        f'Which component does the ticket {number}, "{summary}", belong to? Answer with its name alone.',
        {"asked": asked},
        [write("Search", f"#{number}"), click("Search", "input"), answer(component, f'"{component}"')],
    )


def _report(chance: random.Random, ask: Ask) -> SiteCase:
    summary, known = chance.choice(TROUBLES), ask("select max(id) from ticket")[0][0]
    component = chance.choice([row[0] for row in ask("select name from component order by name")])
    return SiteCase(
        f'Open a new ticket with the summary "{summary}" and the component {component}.',
        {
            "checks": [
                {
                    "query": f"select summary, component, reporter from ticket where id > {known}",
                    "rows": [[summary, component, "maria"]],
                },
                {"query": _OTHER_TICKETS.format(number=known + 1), "same": True},
            ],
            "changes": ["tickets"],
        },
        [
            link("New Ticket"),
            write("Summary", summary),
            choose("Component", component),
            click("Create ticket", "input"),
            done(),
        ],
    )


def _close(chance: random.Random, ask: Ask) -> SiteCase:
    number, summary, *_ = chance.choice(ask(_TICKETS))
    return SiteCase(
        f'Close the ticket {number}, "{summary}", as fixed.',
        {
            "checks": [
                {
                    "query": f"select status, resolution, summary from ticket where id = {number}",
                    "rows": [["closed", "fixed", summary]],
                },
                {"query": _OTHER_TICKETS.format(number=number), "same": True},
            ],
            "changes": ["tickets", "comments"],
        },
        [
            write("Search", f"#{number}"),
            click("Search", "input"),
            link("Modify Ticket"),
            click("resolve", "input"),
            click("Submit changes", "input"),
            done(),
        ],
    )


def _comment(chance: random.Random, ask: Ask) -> SiteCase:
    number, summary, *_ = chance.choice(ask(_TICKETS))
    line = chance.choice(LINES)
    return SiteCase(
        f'Comment on the ticket {number}, "{summary}", with this text: {line}',
        {
            "checks": [
                {
                    "query": "select ticket, author, newvalue from ticket_change "
                    "where field = 'comment' and author = 'maria'",
                    "rows": [[number, "maria", line]],
                }
            ],
            "changes": ["comments"],
        },
        [
            write("Search", f"#{number}"),
            click("Search", "input"),
            write("You may use WikiFormatting here.", line),
            click("Submit changes", "input"),
            done(),
        ],
    )


FAMILIES = (
    *map(_fact, FACTS),
    SiteFamily("wiki-rewrite", "wiki", "write a page anew", _rewrite),
    SiteFamily("wiki-create", "wiki", "create a page", _create),
    SiteFamily("wiki-owner", "wiki", "who owns a ticket", _owner),
    SiteFamily("wiki-component", "wiki", "which component a ticket belongs to", _component),
    SiteFamily("wiki-report", "wiki", "open a ticket", _report),
    SiteFamily("wiki-close", "wiki", "close a ticket", _close),
    SiteFamily("wiki-comment", "wiki", "comment on a ticket", _comment),
)
