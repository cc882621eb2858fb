"""Tasks in the file manager."""

from __future__ import annotations

from random import Random

from turnwise.environments.desktop.families.base import Deeds, DeskFamily, Drawing, clicks, presses, types
from turnwise.environments.terminal.families.base import is_file, is_gone, lines
from turnwise.environments.terminal.families.words import FOLDERS, NOUNS, some, text_of

OPEN = [("files", None)]


def _files(rng: Random, number: int) -> dict[str, str]:
    return {f"{word}.txt": lines(*text_of(rng, 2)) for word in some(rng, NOUNS, number)}


def _rename(rng: Random) -> Drawing:
    files = _files(rng, 4)
    (old, *_), new = files, f"{rng.choice(FOLDERS)}.txt"

    def plan(right: bool) -> Deeds:
        return (*clicks(old), *presses("F2"), *presses("ctrl+a"), *types(new if right else f"a-{new}"), *clicks("OK"))

    checks = [is_file(new, files[old]), is_gone(old)]
    return Drawing(f"Rename {old} to {new} in the file manager.", plan, files, checks, opens=OPEN)


def _move(rng: Random) -> Drawing:
    files, (folder, other) = _files(rng, 3), some(rng, FOLDERS, 2)
    name = next(iter(files))

    def plan(right: bool) -> Deeds:
        into = clicks(folder if right else other, double=True)
        return (*clicks(name), *presses("ctrl+x"), *into, *presses("ctrl+v"), ("wait", {"seconds": 1}))

    checks = [is_file(f"{folder}/{name}", files[name]), is_gone(name)]
    said = f"Move {name} into the folder {folder} with the file manager."
    return Drawing(said, plan, files, checks, [folder, other], opens=OPEN)


def _copy(rng: Random) -> Drawing:
    files, (folder, other) = _files(rng, 3), some(rng, FOLDERS, 2)
    name, wrong, *_ = files

    def plan(right: bool) -> Deeds:
        picked = clicks(name if right else wrong)
        into = clicks(folder, double=True)
        return (*picked, *presses("ctrl+c"), *into, *presses("ctrl+v"), ("wait", {"seconds": 1}))

    checks = [is_file(f"{folder}/{name}", files[name])]
    said = f"Copy {name} into the folder {folder} with the file manager, so that it is in both places."
    return Drawing(said, plan, files, checks, [folder, other], opens=OPEN)


def _delete(rng: Random) -> Drawing:
    files = _files(rng, 4)
    name, wrong, *_ = files

    def plan(right: bool) -> Deeds:
        return (*clicks(name if right else wrong), *presses("shift+Delete"), *presses("Return"))

    return Drawing(f"Delete {name} with the file manager.", plan, files, [is_gone(name)], opens=OPEN)


def _make_folder(rng: Random) -> Drawing:
    files, (first, second) = _files(rng, 2), some(rng, FOLDERS, 2)

    def plan(right: bool) -> Deeds:
        made = (*presses("ctrl+shift+n"), *presses("ctrl+a"), *types(second if right else f"{second}s"), *clicks("OK"))
        return (*clicks(first, double=True), *made)

    said = f"Make a new folder {second} inside of the folder {first} with the file manager."
    return Drawing(said, plan, files, folders=[first], made=[f"{first}/{second}"], opens=OPEN)


FAMILIES = (
    DeskFamily("rename-file", "files", "another name for a file", _rename),
    DeskFamily("move-file", "files", "a file into one of two folders", _move),
    DeskFamily("copy-file", "files", "a copy in one of two folders", _copy),
    DeskFamily("delete-file", "files", "one of several files gone", _delete),
    DeskFamily("make-folder", "files", "a folder in a folder", _make_folder),
)
