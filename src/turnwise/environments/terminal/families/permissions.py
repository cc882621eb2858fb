"""Families over permissions: set, taken away, found."""

from __future__ import annotations

from random import Random

from turnwise.environments.terminal.families.base import Drawn, Family, has_mode, is_file, lines
from turnwise.environments.terminal.families.words import FOLDERS, NOUNS, some

SCRIPT = "#!/bin/sh\necho {}\n"


def make_executable(rng: Random, level: int) -> Drawn:
    names = some(rng, NOUNS, 4)
    ways = [f"{name}.sh" for name in names[:level]]
    files = {f"{name}.sh": SCRIPT.format(name) for name in names}
    prompt = f"Make {' and '.join(ways)} executable for everyone (and readable as before)."
    setup = (f"chmod 644 {' '.join(files)}",)
    checks = [has_mode(way, "755") for way in ways] + [has_mode(way, "644") for way in files if way not in ways]
    return Drawn(
        prompt,
        (f"chmod a+x {' '.join(ways)}",),
        (*checks, *(is_file(w, t) for w, t in files.items())),
        files,
        setup,
    )


def set_mode(rng: Random, level: int) -> Drawn:
    names = some(rng, NOUNS, level)
    modes = some(rng, ["400", "440", "600", "640", "660", "700", "750"], level)
    ways = {f"{name}.key": mode for name, mode in zip(names, modes, strict=True)}
    said = ", ".join(f"{way} the permissions {mode}" for way, mode in ways.items())
    command = " && ".join(f"chmod {mode} {way}" for way, mode in ways.items())
    files = {way: lines("secret", way) for way in ways}
    setup = (f"chmod 644 {' '.join(ways)}",)
    return Drawn(f"Give {said} (octal).", (command,), tuple(has_mode(w, m) for w, m in ways.items()), files, setup)


def one_right(rng: Random, level: int) -> Drawn:
    name = f"{rng.choice(NOUNS)}.cfg"
    who, letter, shift = rng.choice(
        [("the group", "g", 3), ("others", "o", 0), ("the owner", "u", 6)][: 3 - level // 3]
    )
    word, right, bit = rng.choice([("write", "w", 2), ("execute", "x", 1), ("read", "r", 4)][: 1 + level])
    before = 0o700 if level == 3 else 0o777
    if level < 3:
        after, sign = before & ~(bit << shift), "-"
        prompt = f"Take the right to {word} {name} away from {who} and leave all other rights as they are."
    else:
        after, sign = before | (bit << shift), "+"
        prompt = f"Give {who} the right to {word} {name} and leave all other rights as they are."
    setup = (f"chmod {before:o} {name}",)
    check = has_mode(name, f"{after:o}")
    return Drawn(prompt, (f"chmod {letter}{sign}{right} {name}",), (check,), {name: lines("a = 1")}, setup)


def private_folder(rng: Random, level: int) -> Drawn:
    folder, *below = some(rng, FOLDERS, 1 + level)
    names = some(rng, NOUNS, 2 + level)
    places = [folder, *(f"{folder}/{each}" for each in below[: level - 1])]
    ways = [f"{places[i % len(places)]}/{name}.txt" for i, name in enumerate(names)]
    files = {way: lines(way) for way in ways}
    setup = (f"find {folder} -type d -exec chmod 755 {{}} + && find {folder} -type f -exec chmod 644 {{}} +",)
    prompt = (
        f"Nobody but the owner may read, write or enter anything in the folder {folder}, nor "
        "the folder: take these rights away. The owner keeps theirs."
    )
    checks = [has_mode(way, "600") for way in ways] + [has_mode(place, "700") for place in places]
    return Drawn(prompt, (f"chmod -R go-rwx {folder}",), tuple(checks), files, setup)


def list_executable(rng: Random, level: int) -> Drawn:
    names = some(rng, NOUNS, 3 + 2 * level)
    folder = f"{rng.choice(FOLDERS)}/" if level > 1 else ""
    ways = [f"{folder if i % 2 else ''}{name}" for i, name in enumerate(names)]
    able = sorted(ways[: 1 + level])
    files = {way: SCRIPT.format(way) for way in ways}
    setup = (f"chmod 644 {' '.join(ways)} && chmod 755 {' '.join(able)}",)
    where = " here and in folders below" if level > 1 else " here"
    prompt = (
        f"Write the paths of all executable files{where} (as {able[0]}, without ./) to able.list, sorted, one a line."
    )
    command = "find . -type f -perm -u+x | sed 's|^./||' | LC_ALL=C sort > able.list"
    return Drawn(prompt, (command,), (is_file("able.list", lines(*able)),), files, setup)


FAMILIES = (
    Family("make-executable", "permissions", "make scripts executable", make_executable),
    Family("set-mode", "permissions", "give files permissions in octal", set_mode),
    Family("one-right", "permissions", "give or take one right and leave the others", one_right),
    Family("private-folder", "permissions", "take everybody else's rights away in a folder", private_folder),
    Family("list-executable", "permissions", "list the executable files", list_executable),
)
