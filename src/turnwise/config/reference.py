"""The configuration reference, made from the typed tree: docs/configuration.md and `turnwise config`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from turnwise.config.tree import Config

HEAD = """# Configuration

Every key, its default and its meaning. This page is made from the typed tree in `src/turnwise/config/` by
`make docs`; a test fails when the two differ. The file is `config.toml` in the home folder, or the one that `--config`
names. `--set KEY=VALUE` overrides one key for one run. An unknown key, a value out of range or a file that cannot be
read is an error, never a silent default.
"""


def as_markdown() -> str:
    """The whole reference as Markdown."""
    parts = [HEAD, "## At the top\n", _table({n: f for n, f in Config.model_fields.items() if not _section(f)})]
    for name, field in Config.model_fields.items():
        section = _section(field)
        if section is not None:
            inner = {n: kind for n, f in section.model_fields.items() if (kind := _section(f))}
            own = {n: f for n, f in section.model_fields.items() if n not in inner}
            parts += [f"## `[{name}]`\n", _said(section), *([_table(own)] if own else [])]
            parts += _inner(name, section, inner) if inner else []
    return "\n".join(parts)


def as_toml(config: Config) -> str:
    """The configuration in force as TOML, each key with its value; keys without a value are left out."""
    lines: list[str] = []
    sections: list[str] = []
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            sections += _sections(name, value)
        else:
            lines.append(f"{name} = {_literal(value)}")
    return "\n".join([*lines, *sections])


def _sections(name: str, value: BaseModel) -> list[str]:
    """A section as TOML, and behind it those that it holds."""
    inner = value.model_dump(exclude_none=True)
    held = {key: getattr(value, key) for key in inner if isinstance(getattr(value, key), BaseModel)}
    own = [f"{key} = {_literal(v)}" for key, v in inner.items() if key not in held]
    lines = ["", f"[{name}]", *own] if own or not held else []
    return lines + [line for key, section in held.items() for line in _sections(f"{name}.{key}", section)]


def _inner(name: str, outer: type[BaseModel], inner: dict[str, type[BaseModel]]) -> list[str]:
    """Sections of one kind that a section holds, as one table with the defaults of each that differ."""
    kind = next(iter(inner.values()))
    held = {n: outer.model_fields[n].default for n in inner}
    rows = ["| table | of | defaults that differ from those below |", "| --- | --- | --- |"]
    for n, section in held.items():
        differ = [f"`{k} = {_literal(getattr(section, k))}`" for k, f in kind.model_fields.items()
                  if getattr(section, k) != f.default]  # fmt: skip
        rows.append(f"| `[{name}.{n}]` | {outer.model_fields[n].description} | {', '.join(differ) or '-'} |")
    return ["\n".join(rows) + "\n", _table(kind.model_fields)]


def _said(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").strip() + "\n"


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for name, field in fields.items():
        made = "`[]`" if field.default_factory is list else "the user's data folder"
        default = made if field.default_factory else _shown(field.default)
        rows.append(f"| `{name}` | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def _shown(value: Any) -> str:
    return "unset" if value is None else f"`{_literal(value)}`"


def _literal(value: Any) -> str:
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value) if isinstance(value, (str, bool)) else str(value)


if __name__ == "__main__":
    print(as_markdown(), end="")
