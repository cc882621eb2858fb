"""Words that tasks are made of: names of files, people and things, and texts of them."""

from __future__ import annotations

from random import Random

NOUNS = [
    "apple",
    "bridge",
    "candle",
    "desert",
    "engine",
    "forest",
    "garden",
    "harbor",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "meadow",
    "needle",
    "orange",
    "pepper",
    "quartz",
    "river",
    "saddle",
    "temple",
    "umbrella",
    "valley",
    "window",
    "yellow",
    "zebra",
    "anchor",
    "basket",
    "copper",
    "dragon",
    "ember",
    "falcon",
    "granite",
]
NAMES = [
    "ada",
    "ben",
    "carla",
    "dmitri",
    "elena",
    "farid",
    "greta",
    "hugo",
    "ines",
    "jonas",
    "kira",
    "luca",
    "mona",
    "nils",
    "olga",
    "pavel",
    "rosa",
    "sven",
    "tara",
    "yusuf",
]
CITIES = ["berlin", "cairo", "delhi", "lagos", "lima", "madrid", "oslo", "paris", "quito", "rome", "seoul", "tokyo"]
FOLDERS = ["archive", "backup", "data", "docs", "inbox", "logs", "notes", "old", "reports", "src", "store", "work"]
LEVELS = ["DEBUG", "ERROR", "INFO", "WARN"]


def some(rng: Random, words: list[str] | tuple[str, ...], number: int) -> list[str]:
    """Different words in any order."""
    return rng.sample(list(words), number)


def text_of(rng: Random, number: int, words: int = 3) -> list[str]:
    """Lines of some words each; none is there twice."""
    found: dict[str, None] = {}
    while len(found) < number:
        found[" ".join(rng.choice(NOUNS) for _ in range(words))] = None
    return list(found)


def log_of(rng: Random, number: int) -> list[str]:
    """Lines as a program's log has them."""
    return [
        f"{8 + i // 60:02d}:{i % 60:02d} {rng.choice(LEVELS)} {rng.choice(NAMES)} {rng.choice(NOUNS)}"
        for i in range(number)
    ]
