"""Tasks at the tracker: who has which issue, and issues that are opened, commented on, given away and closed."""

from __future__ import annotations

import random

from turnwise.environments.site_tasks.base import (
    Ask,
    Move,
    SiteCase,
    SiteFamily,
    answer,
    choose,
    click,
    done,
    link,
    quoted,
    write,
)

_ISSUES = (
    "select i.id, i._title, p._name, s._name, u._username from _issue i join _priority p on p.id = i._priority "
    "join _status s on s.id = i._status left join _user u on u.id = i._assignedto order by i.id"
)
_OTHERS = "select id, _title, _priority, _status, _assignedto from _issue where id <> {number} order by id"
NOTES = (
    "I see this as well, since this morning.",
    "It went away after a restart.",
    "Please try it with the new version.",
)
NOTES += ("A customer has asked about this.", "I cannot repeat it here.")
NEW = (
    "The price list has no title",
    "The logo is blurred on paper",
    "The help page leads nowhere",
    "Names are sorted wrongly",
)
NEW += ("The footer covers the last line",)
STATES = ("deferred", "need-eg", "in-progress", "testing")
PRIORITIES = ("critical", "urgent", "bug", "feature", "wish")
NAMES = ("archive", "colours", "drafts", "keyboard", "maps", "sound")


def _open(title: str) -> list[Move]:
    """To the page of an issue, by the search box."""
    return [write("@search_text", title), click("Search", "input"), link(title)]


def _assigned(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, _, _, person = chance.choice([row for row in ask(_ISSUES) if row[4]])
    return SiteCase(
        f'Who is the issue "{title}" assigned to? Answer with the user name.',
        {"asked": f"select u._username from _issue i join _user u on u.id = i._assignedto where i.id = {number}"},
        [write("@search_text", title), click("Search", "input"), answer(person, f'"{person}"')],
    )


def _state(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, priority, _, _ = chance.choice(ask(_ISSUES))
    return SiteCase(
        f'Which priority does the issue "{title}" have? Answer with its name alone.',
        {"asked": f"select p._name from _issue i join _priority p on p.id = i._priority where i.id = {number}"},
        [*_open(title), answer(priority, f'value "{priority}"')],
    )


def _version(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, *_ = chance.choice(ask(_ISSUES))
    query = (
        "select trim(substr(m._summary, instr(m._summary, 'version ') + 8), '.') from _msg m "
        f"join issue_messages i on i.linkid = m.id where i.nodeid = {number}"
    )
    version = ask(query)[0][0]
    return SiteCase(
        f'In which version was the fault of the issue "{title}" seen? Answer with the number of the version alone.',
        {"asked": query},
        [*_open(title), answer(version, f"version {version}")],
    )


def _phone(chance: random.Random, ask: Ask) -> SiteCase:
    name, real, phone = chance.choice(
        ask("select _username, _realname, _phone from _user where _phone <> '' and _username <> 'maria'")
    )
    return SiteCase(
        f"What is the phone number of {real}? Answer with the number alone.",
        {"asked": f"select _phone from _user where _username = {quoted(name)}"},
        [link("User List"), answer(phone)],
    )


def _new(chance: random.Random, ask: Ask) -> SiteCase:
    title, priority = chance.choice(NEW), chance.choice(PRIORITIES)
    known = ask("select max(id) from _issue")[0][0]
    return SiteCase(
        f'Open a new issue with the title "{title}" and the priority {priority}.',
        {
            "checks": [
                {
                    "query": "select i._title, p._name, u._username from _issue i "
                    "join _priority p on p.id = i._priority "
                    f"join _user u on u.id = i._creator where i.id > {known}",
                    "rows": [[title, priority, "maria"]],
                },
                {"query": _OTHERS.format(number=known + 1), "same": True},
            ],
            "changes": ["issues"],
        },
        [
            link("Create New", below="Issues"),
            write("title", title),
            choose("priority", priority),
            click("Submit New Entry", "input"),
            done(),
        ],
    )


def _change(number: int, field: str, table: str, value: str) -> dict[str, object]:
    """The goal that one link of an issue leads to a row by its name, and nothing else is different."""
    name = "_username" if table == "_user" else "_name"
    others = [each for each in ("_title", "_priority", "_status", "_assignedto") if each != field]
    return {
        "checks": [
            {
                "query": f"select t.{name} from _issue i join {table} t on t.id = i.{field} where i.id = {number}",
                "rows": [[value]],
            },
            {"query": f"select {', '.join(others)} from _issue where id = {number}", "same": True},
            {"query": _OTHERS.format(number=number), "same": True},
        ],
        "changes": ["issues"],
    }


def _resolve(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, *_ = chance.choice([row for row in ask(_ISSUES) if row[3] != "resolved"])
    return SiteCase(
        f'Close the issue "{title}": give it the status resolved.',
        _change(number, "_status", "_status", "resolved"),
        [*_open(title), choose("status", "resolved"), click("Submit Changes", "input"), done()],
    )


def _move_on(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, _, state, _ = chance.choice(ask(_ISSUES))
    value = chance.choice([each for each in STATES if each != state])
    return SiteCase(
        f'Set the status of the issue "{title}" to {value}.',
        _change(number, "_status", "_status", value),
        [*_open(title), choose("status", value), click("Submit Changes", "input"), done()],
    )


def _prioritise(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, priority, _, _ = chance.choice(ask(_ISSUES))
    value = chance.choice([each for each in PRIORITIES if each != priority])
    return SiteCase(
        f'Set the priority of the issue "{title}" to {value}.',
        _change(number, "_priority", "_priority", value),
        [*_open(title), choose("priority", value), click("Submit Changes", "input"), done()],
    )


def _assign(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, _, _, person = chance.choice(ask(_ISSUES))
    value = chance.choice([each for each in ("ada", "tom", "ines", "joel") if each != person])
    return SiteCase(
        f'Assign the issue "{title}" to {value}.',
        _change(number, "_assignedto", "_user", value),
        [*_open(title), choose("assignedto", value), click("Submit Changes", "input"), done()],
    )


def _comment(chance: random.Random, ask: Ask) -> SiteCase:
    number, title, *_ = chance.choice(ask(_ISSUES))
    note, known = chance.choice(NOTES), ask("select max(id) from _msg")[0][0]
    return SiteCase(
        f'Add the change note "{note}" to the issue "{title}".',
        {
            "checks": [
                {
                    "query": "select i.nodeid, m._summary, u._username from _msg m "
                    "join issue_messages i on i.linkid = m.id join _user u on u.id = m._author "
                    f"where m.id > {known}",
                    "rows": [[number, note, "maria"]],
                },
                {"query": f"select id, _summary from _msg where id <= {known} order by id", "same": True},
                {"query": f"select _title, _priority, _assignedto from _issue where id = {number}", "same": True},
                {"query": _OTHERS.format(number=number), "same": True},
            ],
            "changes": ["messages", "issues"],
        },
        [*_open(title), write("@note", note), click("Submit Changes", "input"), done()],
    )


def _keyword(chance: random.Random, ask: Ask) -> SiteCase:
    name, known = chance.choice(NAMES), ask("select max(id) from _keyword")[0][0]
    return SiteCase(
        f'Create a new keyword with the name "{name}".',
        {
            "checks": [
                {"query": f"select _name from _keyword where id > {known}", "rows": [[name]]},
                {"query": f"select id, _name, __retired__ from _keyword where id <= {known} order by id", "same": True},
            ],
            "changes": ["keywords"],
        },
        [link("Create New", below="Keywords"), write("name", name), click("Submit New Entry", "input"), done()],
    )


def _details(chance: random.Random, ask: Ask) -> SiteCase:
    phone = f"0113 496 0{chance.randrange(100, 999)}"
    return SiteCase(
        f"My phone number is now {phone}. Change it in my details.",
        {
            "checks": [
                {
                    "query": "select _phone, _realname, _address from _user where _username = 'maria'",
                    "rows": [[phone, "Maria Lopez", "maria@tracker.invalid"]],
                },
                {
                    "query": "select id, _phone, _realname, _address from _user where _username <> 'maria' order by id",
                    "same": True,
                },
            ],
            "changes": ["people"],
        },
        [link("Your Details"), write("phone", phone), click("Submit Changes", "input"), done()],
    )


FAMILIES = (
    SiteFamily("tracker-assigned", "tracker", "who an issue is assigned to", _assigned),
    SiteFamily("tracker-state", "tracker", "the priority of an issue", _state),
    SiteFamily("tracker-version", "tracker", "what a message of an issue says", _version),
    SiteFamily("tracker-phone", "tracker", "the phone number of a user", _phone),
    SiteFamily("tracker-new", "tracker", "open an issue", _new),
    SiteFamily("tracker-resolve", "tracker", "close an issue", _resolve),
    SiteFamily("tracker-status", "tracker", "change the status of an issue", _move_on),
    SiteFamily("tracker-priority", "tracker", "change the priority of an issue", _prioritise),
    SiteFamily("tracker-assign", "tracker", "assign an issue to somebody", _assign),
    SiteFamily("tracker-comment", "tracker", "comment on an issue", _comment),
    SiteFamily("tracker-keyword", "tracker", "create a keyword", _keyword),
    SiteFamily("tracker-details", "tracker", "change one's own phone number", _details),
)
