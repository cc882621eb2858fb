"""The desktop without a display: what a tree says, what a call means, and what the families promise."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest

from turnwise.environments.base import Action, Call, Observation
from turnwise.environments.desktop.actions import Deed, NoCall, NotThere, deed
from turnwise.environments.desktop.desktop_task import desktop_task
from turnwise.environments.desktop.families.table import FAMILIES, named, tasks_of
from turnwise.environments.desktop.kind import KIND
from turnwise.environments.desktop.screen import png
from turnwise.environments.desktop.tree import (
    MOST_ELEMENTS,
    MOST_OF_A_CHANGE,
    MOST_OF_A_TREE,
    Numbers,
    Tree,
    changed,
    read_tree,
    written,
)
from turnwise.environments.tasks import read_tasks
from turnwise.environments.tasks import written as as_line
from turnwise.environments.transcript import RolloutTranscript
from turnwise.errors import DataError

EVERY = [family.task(seed) for family in FAMILIES.values() for seed in range(5)]


def element(number: int, **said: object) -> dict[str, object]:
    plain = {"id": f":1 /{number}", "kind": "push button", "name": f"b{number}", "states": ["showing"]}
    return plain | {"place": [10, 20, 30, 40]} | said


def window(number: int, name: str, active: bool = False) -> dict[str, object]:
    states = ["showing", "active"] if active else ["showing"]
    return {"id": f":1 /w{number}", "kind": "frame", "name": name, "program": "p", "states": states}


def tree(*elements: dict[str, object], windows: tuple[dict[str, object], ...] = ()) -> Tree:
    return read_tree({"windows": list(windows), "elements": list(elements)}, 1024, 768)


def test_a_tree_is_told_with_numbers_that_stay() -> None:
    numbers = Numbers()
    first = tree(element(1), element(2, states=["focused"], text="a\nb", kind="text"), windows=(window(1, "T", True),))
    assert written(first, numbers).splitlines() == [
        'Windows: [1] "T" (in front)',
        '[2] push button "b1" at 25,40',
        '[3] text "b2": "a\\nb" (focused) at 25,40',
    ]
    then = tree(element(2, text="a", kind="text"), element(3), windows=(window(1, "T2", True), window(2, "U")))
    assert changed(first, then, numbers).splitlines() == [
        'A window opened: "U".',
        'The window "T" is called "T2" now.',
        'now: [3] text "b2": "a" at 25,40',
        'new: [4] push button "b3" at 25,40',
        'gone: [2] push button "b1"',
    ]
    assert changed(then, then, numbers) == ""


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"windows": 1, "elements": {"a": 1}, "silent": "x"},
        {"windows": [None, {}, {"id": 1}, {"id": "a", "states": None}], "elements": [[], {"id": "a"}, 7]},
        {"elements": [element(1, place=["a", 0, 1, 1]), element(2, place=[5000, 0, 9, 9]), element(3, place=None)]},
        {
            "elements": [
                element(1, place=[0, 0, True, 1]),
                element(2, place=[0, 0, -5, 1]),
                element(3, kind=None, name=0),
            ]
        },
        {"elements": [element(1, name={"a": []}, size="many", text=7)], "cut": "yes", "silent": [1, None]},
    ],
)
def test_what_is_no_tree_is_none(raw: dict[str, object]) -> None:
    found = read_tree(raw, 1024, 768)
    assert all(each.place[0] < 1024 and each.says.isprintable() for each in found.elements)
    assert written(found, Numbers()).startswith("No window is open.")


def test_a_hostile_tree_is_cut() -> None:
    flood = [element(n, name="\x00\x1b[2J\u202e" + "x" * 100_000, text="y" * 100_000) for n in range(3000)]
    windows = tuple(window(n, "w" * 10_000) for n in range(1000))
    numbers = Numbers()
    found = tree(*flood, windows=windows)
    said = written(found, numbers)
    assert len(found.elements) == MOST_ELEMENTS and len(said) < MOST_OF_A_TREE + 4000
    assert "\x1b" not in said and "\x00" not in said and "\u202e" not in said
    assert len(changed(Tree(), found, numbers)) < MOST_OF_A_CHANGE + 1000


SCREEN = tree(element(1, name="Save"), element(2, name="Save"), element(3, name="File"), windows=(window(1, "a.b*c"),))
NUMBERS = Numbers()
written(SCREEN, NUMBERS)


FILE = ("mousemove", "25", "40")
KEYS = ("key", "--clearmodifiers", "--delay", "30")
TYPES = ("type", "--clearmodifiers", "--delay", "8", "--")


@pytest.mark.parametrize(
    ("name", "arguments", "hand"),
    [
        ("click", {"element": 4}, [FILE, ("click", "1")]),
        ("click", {"element": "File"}, [FILE, ("click", "1")]),
        ("click", {"element": "[4]", "button": "right"}, [FILE, ("click", "3")]),
        ("click", {"element": 4, "double": True}, [FILE, ("click", "--repeat", "2", "--delay", "60", "1")]),
        ("click", {"x": 5, "y": 7.0}, [("mousemove", "5", "7"), ("click", "1")]),
        ("click", {"element": 1}, [("search", "--onlyvisible", "--name", r"^a\.b\*c", "windowactivate", "%1")]),
        ("key", {"keys": "ctrl+shift+s enter f5"}, [(*KEYS, "ctrl+shift+s", "Return", "F5")]),
        ("type", {"text": "a b\n"}, [(*TYPES, "a b"), ("key", "Return")]),
        ("type", {"text": "ü"}, [("key", "ctrl+shift+u"), (*TYPES, "fc"), ("key", "space")]),
        ("type", {"text": "--file"}, [(*TYPES, "--file")]),
        ("scroll", {"element": 4, "direction": "down"}, [FILE, ("click", "--repeat", "3", "--delay", "20", "5")]),
    ],
)
def test_a_call_is_what_a_hand_does(name: str, arguments: dict[str, object], hand: list[tuple[str, ...]]) -> None:
    assert deed(Call(name, arguments), SCREEN, NUMBERS) == Deed(tuple(hand))


@pytest.mark.parametrize(
    ("name", "arguments", "fault", "said"),
    [
        ("click", {"element": 99}, NotThere, "no element 99"),
        ("click", {"element": "Save"}, NotThere, "2 elements are called 'Save'"),
        ("click", {"element": "Quit"}, NotThere, "No elements"),
        ("click", {}, NoCall, "Give `element`"),
        ("click", {"element": [1]}, NoCall, "number of an element"),
        ("click", {"x": 5000, "y": 1}, NoCall, "`x` is a number from 0 to 1023"),
        ("click", {"x": True, "y": 1}, NoCall, "`x` is a number"),
        ("click", {"x": 1, "y": float("nan")}, NoCall, "`y` is a number"),
        ("click", {"x": 1, "y": 1, "button": "; rm -rf /"}, NoCall, "`button` is one of left"),
        ("click", {"x": 1, "y": 1, "double": "yes"}, NoCall, "true or false"),
        ("type", {"text": "x" * 5000}, NoCall, "1 to 2000"),
        ("type", {"text": "a\x1bb"}, NoCall, "no key writes"),
        ("type", {"text": None}, NoCall, "`text` is a text"),
        ("key", {"keys": "ctrl+s;reboot"}, NoCall, "no combination"),
        ("key", {"keys": "--window 1"}, NoCall, "no combination"),
        ("key", {"keys": " "}, NoCall, "1 to 30 combinations"),
        ("scroll", {"x": 1, "y": 1, "direction": "down", "times": 1e9}, NoCall, "`times` is a number from 1 to 20"),
        ("wait", {"seconds": 1e6}, NoCall, "`seconds` is a number from 0 to 10"),
        ("open", {"program": "/bin/sh"}, NoCall, "`program` is one of editor"),
        ("shell", {}, NoCall, "There is no tool 'shell'"),
    ],
)
def test_what_cannot_be_done_is_told_why(
    name: str, arguments: dict[str, object], fault: type[Exception], said: str
) -> None:
    with pytest.raises(fault, match=said):
        deed(Call(name, arguments), SCREEN, NUMBERS)


def test_the_same_seed_gives_the_same_task_and_another_seed_another() -> None:
    assert len(FAMILIES) >= 12
    assert [family.task(seed) for family in FAMILIES.values() for seed in range(5)] == EVERY
    assert len({task.prompt for task in EVERY}) > len(EVERY) * 0.9
    assert [task.id for task in tasks_of(named(["unlock", "unlock"]), [3])] == ["unlock-3"]
    with pytest.raises(DataError, match="--list"):
        named(["nothing"])


def test_tasks_survive_their_file(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("".join(f"{as_line(task)}\n" for task in EVERY))
    read = read_tasks(tmp_path / "tasks.jsonl")
    assert [(task.id, task.prompt) for task in read] == [(task.id, task.prompt) for task in EVERY]
    assert [KIND.oracle(task) for task in read] == [KIND.oracle(task) for task in EVERY]


def test_nothing_done_is_never_enough(tmp_path: Path) -> None:
    for task in EVERY:
        made = desktop_task(task.data)
        folder = tmp_path / task.id
        folder.mkdir()
        made.set_up(folder)
        assert not made.check(folder, "box").passed, task.id


def test_a_link_is_not_followed_and_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "task"
    folder.mkdir()
    made = desktop_task({"made": ["a/b"]})
    (folder / "a").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "b").mkdir()
    assert not made.check(folder, "").passed
    (folder / "a").unlink()
    (folder / "a").mkdir()
    (folder / "a" / "b").touch()
    assert not made.check(folder, "").passed
    (folder / "a" / "b").unlink()
    (folder / "a" / "b").mkdir()
    assert made.check(folder, "").passed


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "says what must be"),
        ({"files": {"a": "b"}, "front": "x"}, "must become of them"),
        ({"front": ""}, "title of a window"),
        ({"made": "a"}, "list of folders"),
        ({"made": ["a"], "reward": 1}, "no 'reward'"),
        ({"made": ["a"], "opens": [["browser", None]]}, "a program"),
        ({"made": ["a"], "opens": [["editor", "a\nreboot"]]}, "a program"),
        ({"made": ["a"], "oracle": [["click"]]}, "pairs of a tool"),
    ],
)
def test_a_task_that_is_none_is_refused(data: dict[str, object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        KIND.check_task(data)


def test_a_call_is_read_from_a_block_and_written_as_one() -> None:
    action = Action((Call("click", {"element": "Grün"}),), "I click.")
    assert KIND.read(KIND.in_block(action)).calls == action.calls
    assert KIND.read('{"name": "submit"}').calls == (Call("submit", {}),), "small models leave the fence away"
    for text in (
        "click",
        "```json\n[1]\n```",
        '```json\n{"name": 1}\n```',
        '```json\n{"name": "a", "arguments": 1}\n```',
    ):
        assert KIND.read(text) == Action((), text)


def test_a_screenshot_goes_to_the_model_beside_the_text() -> None:
    heard = RolloutTranscript(KIND.instructions(EVERY[0]), keep_pictures=2)
    heard.hear(Observation("first", (), (b"\x89PNG",)))
    heard.say("", [{"id": "c", "type": "function", "function": {"name": "wait", "arguments": "{}"}}])
    heard.hear(Observation("then", ("then",), (b"\x89PNG",)))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    assert heard.messages[1] == {"role": "user", "content": [{"type": "text", "text": "first"}, picture]}
    assert heard.messages[3:] == [
        {"role": "tool", "tool_call_id": "c", "content": "then"},
        {"role": "user", "content": [picture]},
    ]


def test_a_picture_of_the_server_is_a_png() -> None:
    fields = [100, 7, 2, 24, 2, 1, 0, 0, 32, 0, 32, 32, 8, *[0] * 6, 1, 0, 0, 0, 0, 0]
    blue, red = b"\xff\x00\x00\x00", b"\x00\x00\xff\x00"
    made = png(struct.pack(">25I", *fields) + b"\0" * 12 + blue + red)
    assert made.startswith(b"\x89PNG\r\n\x1a\n") and struct.unpack(">2I", made[16:24]) == (2, 1)
    start = made.index(b"IDAT") + 4
    assert zlib.decompress(made[start : made.index(b"IEND") - 8]) == b"\0" + b"\x00\x00\xff" + b"\xff\x00\x00"


def test_tasks_say_no_place_of_this_machine() -> None:
    assert all("/" not in way for task in EVERY for way in json.loads(as_line(task)).get("files", {}))
