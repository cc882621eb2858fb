"""A `SKILL.md`, read and written: YAML front-matter with `name`, `description` and perhaps `category`, then the body.

The file may be anybody's. Only scalars of the front-matter are taken, as the text they are, and nothing that YAML can
build: no anchors, no tags, no deep nesting. Keys that we do not know stay in the file and mean nothing here. The name
is the folder's, in lower-case letters, digits and hyphens, so that no name leads out of the library.
"""

from __future__ import annotations

import unicodedata

import yaml

from turnwise.errors import SkillError
from turnwise.patterns import anchored
from turnwise.types import Skill

FILE = "SKILL.md"
MOST_BYTES = 16 * 1024
"""Of a file. What stands in a prompt is far shorter (`skills.max_tokens`)."""
MOST_OF_NAME = 64
MOST_OF_DESCRIPTION = 1024
DEEPEST = 6
"""Levels of a front-matter."""
FENCE = "---"

_NAME = anchored(r"[a-z0-9](-?[a-z0-9]){0,63}")
_OF_WINDOWS = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{device}{number}" for device in ("com", "lpt") for number in range(10)}
)
_OPENS = (yaml.BlockMappingStartToken, yaml.BlockSequenceStartToken, yaml.FlowMappingStartToken,
          yaml.FlowSequenceStartToken)  # fmt: skip
_CLOSES = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
_REFUSED = {
    yaml.AnchorToken: "an anchor (&)",
    yaml.AliasToken: "an alias (*)",
    yaml.TagToken: "a tag (!)",
    yaml.DirectiveToken: "a directive (%)",
}
_INVISIBLE = frozenset(map(chr, (0x200B, 0xFEFF, *range(0x202A, 0x202F), *range(0x2060, 0x2070))))
"""Characters that hide text or turn it around."""


def check_name(name: str) -> str:
    """The name, where it may be a skill's and so a folder's. Raises SkillError."""
    if len(name) > MOST_OF_NAME or not _NAME.fullmatch(name):
        raise SkillError(
            f"{name[: MOST_OF_NAME + 1]!r} cannot be a skill's name; take lower-case letters, digits and single "
            f"hyphens between them, at most {MOST_OF_NAME}"
        )
    if name in _OF_WINDOWS:
        raise SkillError(f"{name!r} cannot be a skill's name: it is a device on Windows; take another")
    return name


def parse(content: bytes, where: str) -> Skill:
    """The skill that a file says. `where` is named in errors, with the line. Raises SkillError."""
    text = _text(content, where)
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != FENCE:
        raise SkillError(
            f"{where}, line 1: a skill begins with a line '{FENCE}', then name and description, then '{FENCE}'"
        )
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise SkillError(f"{where}, line {len(lines)}: the front-matter does not end; put a line '{FENCE}' behind it")
    fields = _scalars("\n".join(lines[1:end]), where)
    name, at = _wanted(fields, "name", where)
    try:
        check_name(name)
    except SkillError as e:
        raise SkillError(f"{where}, line {at}: {e}") from None
    description, at = _wanted(fields, "description", where)
    description = " ".join(description.split())
    if len(description) > MOST_OF_DESCRIPTION:
        raise SkillError(f"{where}, line {at}: the description is longer than {MOST_OF_DESCRIPTION} characters")
    category = fields.get("category", ("", 0))[0].strip() or None
    if category is not None and not _NAME.fullmatch(category):
        at = fields["category"][1]
        raise SkillError(
            f"{where}, line {at}: a category has lower-case letters, digits and hyphens, as 'git' or 'e-mail'"
        )
    body = "\n".join(lines[end + 1 :]).strip()
    if not body:
        raise SkillError(f"{where}, line {len(lines)}: there is nothing behind the front-matter; write what to do")
    return Skill(name, description, category, body, content)


def write(name: str, description: str, body: str, category: str | None = None) -> Skill:
    """A skill made of its parts, which come back from its file as they were. Raises SkillError."""
    fields = {"name": name, "description": " ".join(description.split())} | ({"category": category} if category else {})
    front = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1_000_000)
    return parse(f"{FENCE}\n{front}{FENCE}\n\n{body.strip()}\n".encode(), f"the skill {name[: MOST_OF_NAME + 1]!r}")


def _text(content: bytes, where: str) -> str:
    if len(content) > MOST_BYTES:
        raise SkillError(f"{where} is larger than {MOST_BYTES // 1024} KB; a skill is a page of instructions at most")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = content[: e.start].count(b"\n") + 1
        raise SkillError(f"{where}, line {line}: this is not UTF-8; save the file as UTF-8") from None
    for at, character in enumerate(text):
        if _is_hidden(character):
            line = text.count("\n", 0, at) + 1
            raise SkillError(f"{where}, line {line}: the character U+{ord(character):04X} cannot be seen; take it out")
    return text


def _is_hidden(character: str) -> bool:
    if character in "\n\t\r" or " " <= character <= "~":
        return False
    hidden = character in _INVISIBLE or 0xE0000 <= ord(character) <= 0xE0FFF
    return hidden or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def _scalars(front: str, where: str) -> dict[str, tuple[str, int]]:
    """The plain values of a front-matter with their lines in the file. Raises SkillError."""
    try:
        _check_tokens(front, where)
        node = yaml.compose(front, Loader=yaml.SafeLoader)
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None) or getattr(e, "context_mark", None)
        said = getattr(e, "problem", None) or "it cannot be read"
        line = mark.line + 2 if mark is not None else 2
        raise SkillError(f"{where}, line {line}: the front-matter is not valid YAML: {said}") from None
    if not isinstance(node, yaml.MappingNode):
        raise SkillError(f"{where}, line 2: the front-matter must be lines like 'name: tidy-dates'")
    found: dict[str, tuple[str, int]] = {}
    for key, value in node.value:
        line = key.start_mark.line + 2
        if not isinstance(key, yaml.ScalarNode):
            raise SkillError(f"{where}, line {line}: a key of the front-matter must be a word")
        if key.value in found:
            raise SkillError(f"{where}, line {line}: '{key.value}' stands there twice")
        if isinstance(value, yaml.ScalarNode):
            found[key.value] = (value.value, line)
        elif key.value in ("name", "description", "category"):
            raise SkillError(f"{where}, line {line}: '{key.value}' must be text")
    return found


def _check_tokens(front: str, where: str) -> None:
    depth = 0
    for token in yaml.scan(front, Loader=yaml.SafeLoader):
        line = token.start_mark.line + 2
        if refused := _REFUSED.get(type(token)):
            raise SkillError(f"{where}, line {line}: the front-matter has {refused}; put such text in quotes")
        if isinstance(token, yaml.DocumentStartToken | yaml.DocumentEndToken):
            raise SkillError(f"{where}, line {line}: a second YAML document begins here; take that line out")
        depth += isinstance(token, _OPENS) - isinstance(token, _CLOSES)
        if depth > DEEPEST:
            raise SkillError(f"{where}, line {line}: the front-matter is nested more than {DEEPEST} deep")


def _wanted(fields: dict[str, tuple[str, int]], key: str, where: str) -> tuple[str, int]:
    value, line = fields.get(key, ("", 2))
    if not value.strip():
        raise SkillError(f"{where}, line {line}: the front-matter has no '{key}'; add a line '{key}: …'")
    return value, line
