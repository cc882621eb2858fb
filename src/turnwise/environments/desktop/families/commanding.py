"""Tasks in the terminal, and between it and the editor."""

from __future__ import annotations

from random import Random

from turnwise.environments.desktop.families.base import Deeds, DeskFamily, Drawing, opens, types
from turnwise.environments.terminal.families.base import is_file, lines
from turnwise.environments.terminal.families.words import NOUNS, some, text_of

OPEN = [("terminal", None)]
_WAITS: Deeds = (("wait", {"seconds": 1}),)


def _sort_file(rng: Random) -> Drawing:
    name, out = (f"{word}.txt" for word in some(rng, NOUNS, 2))
    text = text_of(rng, 6, 1)

    def plan(right: bool) -> Deeds:
        return (*types(f"sort {'' if right else '-r '}{name} > {out}\n"), *_WAITS)

    said = f"Write the lines of {name}, sorted, into {out} with a command in the terminal."
    return Drawing(said, plan, {name: lines(*text)}, [is_file(out, lines(*sorted(text)))], opens=OPEN)


def _count_word(rng: Random) -> Drawing:
    name, word = f"{rng.choice(NOUNS)}.log", rng.choice(["ERROR", "WARN"])
    text = [f"{rng.choice(['ERROR', 'WARN', 'INFO'])} {line}" for line in text_of(rng, 12)]
    count = sum(line.startswith(word) for line in text)

    def plan(right: bool) -> Deeds:
        return (*types(f"grep -c {word if right else 'O'} {name} > count.txt\n"), *_WAITS)

    said = f"Write the number of lines with {word} in {name}, and nothing else, into count.txt with the terminal."
    return Drawing(said, plan, {name: lines(*text)}, [is_file("count.txt", str(count))], opens=OPEN)


def _unlock(rng: Random) -> Drawing:
    code, wrong = (str(number) for number in rng.sample(range(1000, 9999), 2))
    script = lines('echo "the box was opened with $1" > box.txt')
    files = {"unlock.sh": script, "code.txt": lines(*text_of(rng, 2), f"The code is {code}.")}

    def plan(right: bool) -> Deeds:
        return (*opens("terminal"), *types(f"sh unlock.sh {code if right else wrong}\n"), *_WAITS)

    return Drawing(
        "code.txt is open in the editor. Run the command sh unlock.sh in a terminal, with the code that stands there "
        "as its only argument.",
        plan,
        files,
        [is_file("box.txt", f"the box was opened with {code}")],
        opens=[("editor", "code.txt")],
    )


FAMILIES = (
    DeskFamily("sort-file", "terminal", "a command that sorts into a file", _sort_file),
    DeskFamily("count-word", "terminal", "a command that counts", _count_word),
    DeskFamily("unlock", "editor, terminal", "a code from one program into the other", _unlock),
)
