"""Families over data: tables as CSV, JSON with jq, databases with sqlite3."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from turnwise.environments.terminal.families.base import Drawn, Family, is_file, lines
from turnwise.environments.terminal.families.words import CITIES, NAMES, NOUNS, some

HEADER = ("name", "city", "age", "score")
Row = tuple[str, str, int, int]


def _rows(rng: Random, number: int) -> list[Row]:
    people = some(rng, NAMES, number)
    cities = some(rng, CITIES, 3)
    return [(who, rng.choice(cities), rng.randrange(18, 80), rng.randrange(1, 100)) for who in people]


def _csv(rows: list[Row]) -> str:
    return lines(",".join(HEADER), *(",".join(map(str, row)) for row in rows))


def _json(rows: list[Row]) -> str:
    return json.dumps([dict(zip(HEADER, row, strict=True)) for row in rows], indent=1) + "\n"


def csv_column(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    rows, at = _rows(rng, 4 + 2 * level), rng.randrange(4)
    if level < 3:
        prompt = f"Write the column {HEADER[at]} of {name}.csv to {out}.txt, without the header."
        command, answer = f"tail -n +2 {name}.csv | cut -d, -f{at + 1} > {out}.txt", [row[at] for row in rows]
    else:
        one, two = sorted(some(rng, [str(i) for i in range(4)], 2), reverse=True)
        prompt = (
            f"Write the columns {HEADER[int(one)]} and {HEADER[int(two)]} of {name}.csv, in this "
            f"order and with a comma between them, to {out}.txt, with the header."
        )
        command = f"awk -F, '{{print ${int(one) + 1}\",\"${int(two) + 1}}}' {name}.csv > {out}.txt"
        answer = [f"{row[int(one)]},{row[int(two)]}" for row in [HEADER, *rows]]
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*answer)),), {f"{name}.csv": _csv(rows)})


def csv_filter(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    rows = _rows(rng, 6 + 2 * level)
    city, age = rows[0][1], sorted(row[2] for row in rows)[len(rows) // 2]
    kept, test, said = [
        ([r for r in rows if r[1] == city], f'$2=="{city}"', f"whose city is {city}"),
        ([r for r in rows if r[2] > age], f"$3>{age}", f"whose age is above {age}"),
        (
            [r for r in rows if r[1] == city and r[2] <= max(age, rows[0][2])],
            f'$2=="{city}" && $3<={max(age, rows[0][2])}',
            f"whose city is {city} and whose age is at most {max(age, rows[0][2])}",
        ),
    ][level - 1]
    prompt = f"Write the rows of {name}.csv {said} to {out}.csv, with the header first."
    return Drawn(
        prompt,
        (f"awk -F, 'NR==1 || ({test})' {name}.csv > {out}.csv",),
        (is_file(f"{out}.csv", _csv(kept)),),
        {f"{name}.csv": _csv(rows)},
    )


def csv_groups(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    rows = _rows(rng, 6 + 2 * level)
    cities = sorted({row[1] for row in rows})
    if level == 1:
        said, value = "how many rows there are of each city", {c: sum(r[1] == c for r in rows) for c in cities}
        add = "n[$2]++"
    elif level == 2:
        said, value = "the sum of score of each city", {c: sum(r[3] for r in rows if r[1] == c) for c in cities}
        add = "n[$2]+=$4"
    else:
        said, value = "the largest age of each city", {c: max(r[2] for r in rows if r[1] == c) for c in cities}
        add = "if ($3>n[$2]) n[$2]=$3"
    prompt = f"Write {said} in {name}.csv to {out}.txt: one line a city, as `paris 12`, sorted by city."
    command = f"awk -F, 'NR>1 {{{add}}} END {{for (c in n) print c, n[c]}}' {name}.csv | LC_ALL=C sort > {out}.txt"
    return Drawn(
        prompt,
        (command,),
        (is_file(f"{out}.txt", lines(*(f"{c} {n}" for c, n in value.items()))),),
        {f"{name}.csv": _csv(rows)},
    )


def json_read(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    rows, key = _rows(rng, 3 + level), rng.choice(HEADER)
    at = HEADER.index(key)
    if level == 1:
        prompt = (
            f"{name}.json is a list of objects. Write the {key!r} of each to {out}.txt, one a line, without quotes."
        )
        command, answer = f"jq -r '.[].{key}' {name}.json > {out}.txt", [row[at] for row in rows]
    elif level == 2:
        who = rng.choice(rows)
        prompt = (
            f"{name}.json is a list of objects. Write the {key!r} of the one whose name is {who[0]!r} "
            f"to {out}.txt, without quotes."
        )
        command, answer = f"jq -r '.[] | select(.name==\"{who[0]}\") | .{key}' {name}.json > {out}.txt", [who[at]]
    else:
        prompt = f"{name}.json is a list of objects. Write the sum of all 'score' to {out}.txt."
        command, answer = f"jq 'map(.score) | add' {name}.json > {out}.txt", [sum(row[3] for row in rows)]
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*answer)),), {f"{name}.json": _json(rows)})


def json_edit(rng: Random, level: int) -> Drawn:
    name, key, new = some(rng, NOUNS, 3)
    way = f"{name}.json"
    before: dict[str, Any] = {
        key: rng.choice(NAMES),
        "port": rng.randrange(1000, 9000),
        "options": {"debug": False, "retries": 3},
    }
    if level == 1:
        after, said, do = before | {"port": 80}, "'port' to 80", ".port=80"
    elif level == 2:
        after, said, do = before | {key: new}, f"{key!r} to the text {new!r}", f'.{key}="{new}"'
    else:
        after = {k: v for k, v in before.items() if k != key} | {"options": {"debug": True, "retries": 3}}
        said, do = f"'debug' in 'options' to true and delete {key!r}", f"del(.{key}) | .options.debug=true"
    command = f"jq '{do}' {way} > {way}.new && mv {way}.new {way}"
    return Drawn(
        f"In {way} set {said}.",
        (command,),
        ({"kind": "json", "way": way, "is": after},),
        {way: json.dumps(before, indent=2) + "\n"},
    )


def json_lines(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    rows = _rows(rng, 3 + 2 * level)
    objects = [dict(zip(HEADER, row, strict=True)) for row in rows]
    if level == 1:
        prompt, do, kept = f"Write {name}.jsonl (one object a line) as one JSON list to {out}.json.", "jq -s .", objects
    elif level == 2:
        prompt, do = (
            (
                f"Write the objects of {name}.jsonl (one a line) as one JSON list to {out}.json, sorted "
                "by 'age' and then 'name'."
            ),
            "jq -s 'sort_by(.age, .name)'",
        )
        kept = sorted(objects, key=lambda each: (each["age"], each["name"]))
    else:
        age = sorted(row[2] for row in rows)[1]
        prompt = (
            f"Write the 'name' of each object of {name}.jsonl (one a line) with an 'age' of at "
            f"least {age} as one JSON list of texts to {out}.json."
        )
        do, kept = (
            f"jq -s '[.[] | select(.age >= {age}) | .name]'",
            [each["name"] for each in objects if int(each["age"]) >= age],
        )
    return Drawn(
        prompt,
        (f"{do} {name}.jsonl > {out}.json",),
        ({"kind": "json", "way": f"{out}.json", "is": kept},),
        {f"{name}.jsonl": lines(*map(json.dumps, objects))},
    )


def _database(way: str, rows: list[Row]) -> str:
    values = ", ".join(f"('{who}', '{city}', {age}, {score})" for who, city, age, score in rows)
    make = "CREATE TABLE people (name TEXT, city TEXT, age INTEGER, score INTEGER)"
    return f'sqlite3 {way} "{make}; INSERT INTO people VALUES {values};"'


def sqlite_read(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    rows, way = _rows(rng, 5 + 2 * level), f"{name}.db"
    city = rows[0][1]
    said, ask, answer = [
        (
            f"how many people live in {city}",
            f"SELECT count(*) FROM people WHERE city='{city}'",
            [sum(r[1] == city for r in rows)],
        ),
        (
            "the name of the oldest (of several, the first by name)",
            "SELECT name FROM people ORDER BY age DESC, name LIMIT 1",
            [min(rows, key=lambda r: (-r[2], r[0]))[0]],
        ),
        (
            "each city and the sum of its scores, as `paris|12`, sorted by city",
            "SELECT city, sum(score) FROM people GROUP BY city ORDER BY city",
            [f"{c}|{sum(r[3] for r in rows if r[1] == c)}" for c in sorted({r[1] for r in rows})],
        ),
    ][level - 1]
    prompt = f"{way} is an SQLite database with the table people ({', '.join(HEADER)}). Write {said} to {out}.txt."
    kept = {"kind": "sqlite", "way": way, "asks": "SELECT * FROM people", "is": [list(row) for row in rows]}
    return Drawn(
        prompt,
        (f'sqlite3 {way} "{ask}" > {out}.txt',),
        (is_file(f"{out}.txt", lines(*answer)), kept),
        {},
        (_database(way, rows),),
    )


def sqlite_change(rng: Random, level: int) -> Drawn:
    name, rows = rng.choice(NOUNS), _rows(rng, 5 + 2 * level)
    way, who, age = f"{name}.db", rng.choice(rows), rng.randrange(18, 80)
    if level == 1:
        said, do = (
            f"Add the person zoe from {who[1]} with age {age} and score 5 to",
            f"INSERT INTO people VALUES ('zoe', '{who[1]}', {age}, 5)",
        )
        after = [*rows, ("zoe", who[1], age, 5)]
    elif level == 2:
        said, do = (
            f"Add 10 to the score of everybody from {who[1]} in",
            f"UPDATE people SET score = score + 10 WHERE city = '{who[1]}'",
        )
        after = [(n, c, a, s + 10 if c == who[1] else s) for n, c, a, s in rows]
    else:
        said, do = f"Delete everybody older than {who[2] - 1} from", f"DELETE FROM people WHERE age > {who[2] - 1}"
        after = [row for row in rows if row[2] <= who[2] - 1]
    prompt = f"{said} the table people ({', '.join(HEADER)}) of the SQLite database {way}."
    asks = "SELECT name, city, age, score FROM people ORDER BY name"
    check = {"kind": "sqlite", "way": way, "asks": asks, "is": [list(row) for row in sorted(after)]}
    return Drawn(prompt, (f'sqlite3 {way} "{do}"',), (check,), {}, (_database(way, rows),))


def sqlite_import(rng: Random, level: int) -> Drawn:
    name, table = some(rng, NOUNS, 2)
    rows = _rows(rng, 4 + 2 * level)
    way = f"{name}.db"
    asks = f"SELECT name, CAST(age AS INTEGER) FROM {table} ORDER BY name"
    answer = [[row[0], row[2]] for row in sorted(rows)]
    if level < 3:
        prompt = f"Make the SQLite database {way} with a table {table} that has the columns and rows of {name}.csv."
        command = f"sqlite3 {way} '.mode csv' '.import {name}.csv {table}'"
        return Drawn(
            prompt,
            (command,),
            ({"kind": "sqlite", "way": way, "asks": asks, "is": answer},),
            {f"{name}.csv": _csv(rows)},
        )
    prompt = f"Write the table people of the SQLite database {way} as CSV with a header to {table}.csv, sorted by name."
    command = f'sqlite3 -header -csv {way} "SELECT * FROM people ORDER BY name" > {table}.csv'
    check = {
        "kind": "csv",
        "way": f"{table}.csv",
        "is": [list(HEADER), *([str(part) for part in row] for row in sorted(rows))],
    }
    return Drawn(prompt, (command,), (check,), {}, (_database(way, rows),))


FAMILIES = (
    Family("csv-column", "data", "columns of a CSV file", csv_column),
    Family("csv-filter", "data", "rows of a CSV file", csv_filter),
    Family("csv-groups", "data", "count, add up or compare by group", csv_groups),
    Family("json-read", "data", "read values from JSON", json_read, ("jq",)),
    Family("json-edit", "data", "change a JSON file", json_edit, ("jq",)),
    Family("json-lines", "data", "JSON lines to a list", json_lines, ("jq",)),
    Family("sqlite-read", "data", "ask an SQLite database", sqlite_read, ("sqlite3",)),
    Family("sqlite-change", "data", "change rows of an SQLite database", sqlite_change, ("sqlite3",)),
    Family("sqlite-import", "data", "CSV into SQLite, and back", sqlite_import, ("sqlite3",)),
)
