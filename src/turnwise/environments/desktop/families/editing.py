"""Tasks in the text editor."""

from __future__ import annotations

from random import Random

from turnwise.environments.desktop.families.base import (
    Deeds,
    DeskFamily,
    Drawing,
    clicks,
    opens,
    presses,
    saves_as,
    types,
)
from turnwise.environments.terminal.families.base import is_file, lines
from turnwise.environments.terminal.families.words import FOLDERS, NOUNS, some, text_of


def _write_note(rng: Random) -> Drawing:
    name, text = f"{rng.choice(NOUNS)}.txt", text_of(rng, rng.randint(1, 3))
    other = [*text[:-1], f"{text[-1]} {rng.choice(NOUNS)}"]

    def plan(right: bool) -> Deeds:
        return (*types("\n".join(text if right else other)), *saves_as(name))

    said = "\n".join(text)
    return Drawing(
        f"Write this into a new file of the editor and save it as {name} in the home folder:\n{said}\n",
        plan,
        checks=[is_file(name, said)],
        opens=[("editor", None)],
    )


def _replace_word(rng: Random) -> Drawing:
    name, (old, new, *others) = f"{rng.choice(FOLDERS)}.txt", some(rng, NOUNS, 6)
    text = [" ".join(some(rng, [old, *others[:3]], 3)) for _ in range(3)] + [f"{old} {others[3]}"]
    now = [line.replace(old, new) for line in text]

    def plan(right: bool) -> Deeds:
        return (*presses("ctrl+a"), *types(lines(*(now if right else [*now[:-1], text[-1]]))), *presses("ctrl+s"))

    return Drawing(
        f"In {name}, which is open in the editor, replace every {old} by {new}, and save it.",
        plan,
        {name: lines(*text)},
        [is_file(name, lines(*now))],
        opens=[("editor", name)],
    )


def _append_line(rng: Random) -> Drawing:
    name, text = f"{rng.choice(FOLDERS)}.txt", text_of(rng, 4)

    def plan(right: bool) -> Deeds:
        return (*presses("ctrl+End" if right else "ctrl+Home"), *types(f"{text[3]}\n"), *presses("ctrl+s"))

    return Drawing(
        f'{name} is open in the editor. Add the line "{text[3]}" at its end, and save it.',
        plan,
        {name: lines(*text[:3])},
        [is_file(name, lines(*text))],
        opens=[("editor", name)],
    )


def _delete_line(rng: Random) -> Drawing:
    name, text = f"{rng.choice(FOLDERS)}.txt", text_of(rng, 5)
    which = rng.randint(1, 3)

    def plan(right: bool) -> Deeds:
        down = " ".join(["ctrl+Home", *["Down"] * (which if right else which - 1)])
        return (*presses(down), *presses("shift+Down"), *presses("Delete"), *presses("ctrl+s"))

    return Drawing(
        f'{name} is open in the editor. Delete the line "{text[which]}", and save it.',
        plan,
        {name: lines(*text)},
        [is_file(name, lines(*(line for line in text if line != text[which])))],
        opens=[("editor", name)],
    )


def _save_copy(rng: Random) -> Drawing:
    (name, copy), text = (f"{word}.txt" for word in some(rng, FOLDERS, 2)), text_of(rng, 4)

    def plan(right: bool) -> Deeds:
        changed = () if right else types("x")
        saved = (*presses("ctrl+shift+s"), *presses("ctrl+a"), *types(copy), *clicks("Save"))
        return (*changed, *saved)

    return Drawing(
        f"{name} is open in the editor. Save it under the name {copy} as well.",
        plan,
        {name: lines(*text)},
        [is_file(copy, lines(*text))],
        opens=[("editor", name)],
    )


def _leave_open(rng: Random) -> Drawing:
    names = [f"{word}.txt" for word in some(rng, NOUNS, 4)]
    files = {name: lines(*text_of(rng, 2)) for name in names}

    def plan(right: bool) -> Deeds:
        return (*opens("files"), *clicks(names[0] if right else names[1], double=True), ("wait", {"seconds": 2}))

    return Drawing(
        f"Open {names[0]} in the editor, and leave it open in front.", plan, files, front=f"{names[0]} - Mousepad"
    )


FAMILIES = (
    DeskFamily("write-note", "editor", "a new file with given lines", _write_note),
    DeskFamily("replace-word", "editor", "a word by another in an open file", _replace_word),
    DeskFamily("append-line", "editor", "a line at the end of an open file", _append_line),
    DeskFamily("delete-line", "editor", "a line less in an open file", _delete_line),
    DeskFamily("save-copy", "editor", "an open file under a second name", _save_copy),
    DeskFamily("leave-open", "files, editor", "one of several files open and in front", _leave_open),
)
