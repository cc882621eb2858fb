"""People from a file: who wants to see whether their own wishes are learned writes them down, in TOML.

    [[person]]
    name = "captain"
    praise = ["aye, that's it", "good, thanks"]
    change_after = 24                       # conversations, after which the wishes are those of [[person.later]]

    [[person.wish]]
    name = "aye"
    about = "form"                          # or "content"
    told = 'Begin every answer with "Aye aye".'
    asks = ['start with "Aye aye", please', 'say "Aye aye" first']
    grumbles = ["not like that"]            # what is said without saying what is wanted; this may be left out
    met = { begins = ["aye aye"] }          # all that is given must hold

The file is a reader's own: it says words and numbers, and no patterns.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from turnwise.bench.personalization import persons
from turnwise.bench.personalization.persons import Person, Wish
from turnwise.demo.questions import KEPT_ASIDE
from turnwise.errors import ConfigError

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=400)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=1000)]
Count = Annotated[int, Field(ge=1, le=1000)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Met(_Table):
    """How an answer is seen to meet a wish. Letter case never counts, and at the edges no punctuation."""

    begins: Texts | None = None
    ends: Texts | None = None
    has: Texts | None = None
    lacks: Texts | None = None
    line_begins: Texts | None = None
    words_at_most: Count | None = None
    words_at_least: Count | None = None
    sentences_at_most: Count | None = None
    sentences_at_least: Count | None = None
    lines_at_least: Count | None = None
    letters: Literal["lower", "upper"] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Met:
        if not self.model_fields_set:
            raise ValueError('say how it is met, such as begins = ["aye aye"]')
        if bare := [text for text in (*(self.begins or ()), *(self.ends or ())) if persons.edges_off(text) != text]:
            raise ValueError(f"punctuation at the edges does not count: leave it out of {bare[0]!r}")
        return self

    def looks(self) -> list[Callable[[str], bool]]:
        """What looks at an answer for each of the keys that are given."""
        any_of = {
            "begins": persons.begins_with,
            "ends": persons.ends_with,
            "has": persons.has,
            "line_begins": persons.line_begins_with,
        }
        looks = [
            _any([look(text.lower()) for text in texts])
            for key, look in any_of.items()
            if (texts := getattr(self, key))
        ]
        if self.lacks:
            there = persons.has(*(text.lower() for text in self.lacks))
            looks.append(lambda answer: bool(answer.strip()) and not there(answer))
        counted = {"words": persons.word_count, "sentences": persons.sentence_count, "lines": persons.line_count}
        for what, count in counted.items():
            most, least = (getattr(self, f"{what}_at_{end}", None) for end in ("most", "least"))
            looks += [_between(count, least or 1, most)] if most or least else []
        if self.letters:
            looks.append(persons.lower_case if self.letters == "lower" else persons.capitals)
        return looks


class _Wish(_Table):
    name: Name
    about: Literal["form", "content"]
    told: Text
    asks: Texts
    met: Met
    grumbles: Texts | None = None

    def made(self) -> Wish:
        looks = self.met.looks()
        wish = Wish(self.name, self.about, self.told, lambda text: all(look(text) for look in looks), tuple(self.asks))
        return replace(wish, grumbles=tuple(self.grumbles)) if self.grumbles else wish


class _Later(_Table):
    wish: Annotated[list[_Wish], Field(min_length=1, max_length=3)]


class _Person(_Table):
    name: Name
    wish: Annotated[list[_Wish], Field(min_length=1, max_length=3)]
    praise: Texts | None = None
    later: list[_Later] = []
    change_after: Count | None = None

    @model_validator(mode="after")
    def _changes(self) -> _Person:
        if bool(self.later) != bool(self.change_after):
            raise ValueError("change_after and [[person.later]] go together")
        every = [self.wish, *(one.wish for one in self.later)]
        names = [wish.name for wishes in every for wish in wishes]
        if len(set(names)) < len(names):
            raise ValueError("two wishes have one name")
        return self

    def made(self) -> Person:
        person = Person(
            self.name,
            tuple(wish.made() for wish in self.wish),
            later=tuple(tuple(wish.made() for wish in one.wish) for one in self.later),
            change_after=self.change_after or 0,
            examination=KEPT_ASIDE,
        )
        return replace(person, praise=tuple(self.praise)) if self.praise else person


class _File(_Table):
    person: Annotated[list[_Person], Field(min_length=1, max_length=1000)]


def people_of(file: Path) -> list[Person]:
    """The people of a TOML file. Raises ConfigError, which says where it is wrong."""
    try:
        said: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        people = [person.made() for person in _File.model_validate(said).person]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise ConfigError(f"{file}: {e}") from e
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{file}: {place}: {first['msg']}") from e
    if len({person.name for person in people}) < len(people):
        raise ConfigError(f"{file}: two people have one name")
    return people


def _any(looks: list[Callable[[str], bool]]) -> Callable[[str], bool]:
    return lambda text: any(look(text) for look in looks)


def _between(count: Callable[[str], int], least: int, most: int | None) -> Callable[[str], bool]:
    return lambda text: least <= count(text) and (most is None or count(text) <= most)
