"""Families over files and folders: made, copied, moved, renamed, deleted, compared, found."""

from __future__ import annotations

from random import Random

from turnwise.environments.terminal.families.base import Drawn, Family, is_file, is_gone, lines
from turnwise.environments.terminal.families.words import FOLDERS, NOUNS, some, text_of

ENDINGS = ("bak", "csv", "log", "md", "tmp", "txt")


def write_note(rng: Random, level: int) -> Drawn:
    name, *said = some(rng, NOUNS, 3)
    way = f"{name}.txt" if level < 3 else f"{rng.choice(FOLDERS)}/{name}.txt"
    texts = [" ".join(said)] if level == 1 else text_of(rng, level)
    prompt = f"Write the {'line' if len(texts) == 1 else 'lines'} {', '.join(map(repr, texts))} to {way}."
    make = f"mkdir -p {way.split('/')[0]} && " if "/" in way else ""
    quoted = " ".join(f"'{text}'" for text in texts)
    command = f"echo {quoted} > {way}" if level == 1 else f"{make}printf '%s\\n' {quoted} > {way}"
    return Drawn(prompt, (command,), (is_file(way, lines(*texts)),), {})


def append_line(rng: Random, level: int) -> Drawn:
    name, said, *more = some(rng, NOUNS, 3 + level)
    way, before = f"{name}.txt", text_of(rng, 2 + level)
    if level == 3:
        prompt = f"Put the line {said!r} in front of the first line of {way}."
        return Drawn(
            prompt, (f"sed -i '1i {said}' {way}",), (is_file(way, lines(said, *before)),), {way: lines(*before)}
        )
    added = [said, *more[: level - 1]]
    prompt = f"Add the {'line' if level == 1 else 'lines'} {' and '.join(map(repr, added))} to the end of {way}."
    command = f"echo {said} >> {way}" if level == 1 else f"printf '%s\\n' {' '.join(added)} >> {way}"
    return Drawn(prompt, (command,), (is_file(way, lines(*before, *added)),), {way: lines(*before)})


def copy_file(rng: Random, level: int) -> Drawn:
    one, two, *others = some(rng, NOUNS, 5)
    text, folder = lines(*text_of(rng, 3)), rng.choice(FOLDERS)
    source = f"{one}.txt"
    files = {source: text} | {f"{each}.txt": lines(each) for each in others[: level - 1]}
    if level == 1:
        prompt, command, way = f"Copy {source} to {two}.txt.", f"cp {source} {two}.txt", f"{two}.txt"
    else:
        way = f"{folder}/{two}.txt"
        prompt = f"Make the folder {folder} and copy {source} to {way}."
        command = f"mkdir {folder} && cp {source} {way}"
    return Drawn(prompt, (command,), (is_file(way, text),), files)


def move_kind(rng: Random, level: int) -> Drawn:
    ending, other = some(rng, ENDINGS, 2)
    folder, names = rng.choice(FOLDERS), some(rng, NOUNS, 3 + 2 * level)
    moved, stay = names[: 1 + level], names[1 + level :]
    inside = f"{rng.choice(['a', 'b'])}/" if level == 3 else ""
    files = {f"{name}.{ending}": lines(name) for name in moved} | {f"{inside}{n}.{other}": lines(n) for n in stay}
    prompt = f"Make the folder {folder} and move every .{ending} file into it."
    checks = [is_file(f"{folder}/{name}.{ending}", lines(name)) for name in moved]
    checks += [is_gone(f"{name}.{ending}") for name in moved]
    return Drawn(prompt, (f"mkdir -p {folder} && mv *.{ending} {folder}/",), tuple(checks), files)


def rename_ending(rng: Random, level: int) -> Drawn:
    old, new = some(rng, ENDINGS, 2)
    names = some(rng, NOUNS, 1 + 2 * level)
    folder = f"{rng.choice(FOLDERS)}/" if level > 1 else ""
    renamed = names[: max(1, 2 * level - 1)]
    files = {f"{folder}{n}.{old}": lines(n) for n in renamed} | {
        f"{n}.sh": lines("exit 0") for n in names[len(renamed) :]
    }
    where = f" in the folder {folder.strip('/')}" if folder else ""
    prompt = f"Rename every .{old} file{where} so that it ends in .{new} instead."
    command = f'for f in {folder}*.{old}; do mv "$f" "${{f%.{old}}}.{new}"; done'
    checks = [is_file(f"{folder}{n}.{new}", lines(n)) for n in renamed] + [
        is_gone(f"{folder}{n}.{old}") for n in renamed
    ]
    return Drawn(prompt, (command,), tuple(checks), files)


def make_folders(rng: Random, level: int) -> Drawn:
    top, *below = some(rng, FOLDERS, 2 + level)
    name = rng.choice(NOUNS)
    ways = [f"{top}/{each}" for each in below] if level < 3 else ["/".join([top, *below[: i + 1]]) for i in range(3)]
    prompt = f"Make the folders {', '.join(ways)} with an empty file {name}.txt in each."
    command = f"mkdir -p {' '.join(ways)} && touch {' '.join(f'{way}/{name}.txt' for way in ways)}"
    return Drawn(prompt, (command,), tuple(is_file(f"{way}/{name}.txt", "") for way in ways), {})


def delete_kind(rng: Random, level: int) -> Drawn:
    ending, other = some(rng, ENDINGS, 2)
    names = some(rng, NOUNS, 3 + 2 * level)
    folders = ["", f"{rng.choice(FOLDERS)}/", "a/b/"][:level]
    ways = [f"{folders[i % level]}{name}.{ending if i <= level else other}" for i, name in enumerate(names)]
    deep = " in this folder and all folders below it" if level > 1 else ""
    prompt = f"Delete all files that end in .{ending}{deep}."
    command = f"rm *.{ending}" if level == 1 else f"find . -name '*.{ending}' -delete"
    gone = tuple(is_gone(way) for way in ways if way.endswith(f".{ending}"))
    return Drawn(prompt, (command,), gone, {way: lines(way) for way in ways})


def largest_file(rng: Random, level: int) -> Drawn:
    names = some(rng, NOUNS, 2 + 2 * level)
    folder = f"{rng.choice(FOLDERS)}/" if level > 1 else ""
    sizes = rng.sample(range(2, 40), len(names))
    files = {f"{folder}{name}.txt": lines(*text_of(rng, size, 2)) for name, size in zip(names, sizes, strict=True)}
    most = max(files, key=lambda way: len(files[way])).removeprefix(folder)
    where = f"in the folder {folder.strip('/')}" if folder else "here"
    which, order = ("largest", "-S") if level < 3 else ("smallest", "-Sr")
    if level == 3:
        most = min(files, key=lambda way: len(files[way])).removeprefix(folder)
    prompt = f"Write the name of the {which} .txt file {where} to result.out (the name alone)."
    go = f"cd {folder} && " if folder else ""
    command = f"{go}ls {order} *.txt | head -1 > {'../' if folder else ''}result.out"
    return Drawn(prompt, (command,), (is_file("result.out", lines(most)),), files)


def find_word(rng: Random, level: int) -> Drawn:
    word, *names = some(rng, NOUNS, 4 + 2 * level)
    folders = ["", f"{rng.choice(FOLDERS)}/", "deep/er/"][:level]
    files, found = {}, []
    for i, name in enumerate(names):
        way = f"{folders[i % level]}{name}.txt"
        body = [text for text in text_of(rng, 6) if word not in text]
        if i < level + 1:
            body.insert(rng.randrange(len(body) + 1), f"{rng.choice(names)} {word}")
            found.append(way)
        files[way] = lines(*body)
    where = " (also in folders below)" if level > 1 else ""
    prompt = (
        f"Which .txt files{where} have the word {word!r} in them? Write their paths to found.list, sorted, one a line."
    )
    command = (
        f"grep -l{'r' if level > 1 else ''} {word} {'*.txt' if level == 1 else '--include=*.txt *'} "
        "| LC_ALL=C sort > found.list"
    )
    return Drawn(prompt, (command,), (is_file("found.list", lines(*sorted(found))),), files)


def same_content(rng: Random, level: int) -> Drawn:
    names = some(rng, NOUNS, 4 + level)
    first, *others = [f"{name}.dat" for name in names]
    text = lines(*text_of(rng, 4))
    copies = others[:level]
    files = {first: text} | dict.fromkeys(copies, text) | dict.fromkeys(others[level:], text[:-2] + "x\n")
    prompt = f"Delete every .dat file that has the same content as {first}, but keep {first}."
    command = f'for f in *.dat; do [ "$f" = {first} ] || ! cmp -s "$f" {first} || rm "$f"; done'
    return Drawn(prompt, (command,), tuple(is_gone(way) for way in copies), dict(sorted(files.items())))


def join_files(rng: Random, level: int) -> Drawn:
    stem, out = some(rng, NOUNS, 2)
    files = {f"{stem}{i}.txt": lines(*text_of(rng, 2)) for i in range(1, 2 + level)}
    order = sorted(files, reverse=level == 3)
    said = "in the order of their numbers" if level < 3 else "the one with the highest number first"
    prompt = f"Join {', '.join(sorted(files))} ({said}) into {out}.all."
    return Drawn(
        prompt,
        (f"cat {' '.join(order)} > {out}.all",),
        (is_file(f"{out}.all", "".join(files[w] for w in order)),),
        files,
    )


def make_link(rng: Random, level: int) -> Drawn:
    one, two = some(rng, NOUNS, 2)
    folder = rng.choice(FOLDERS)
    target = f"{one}.conf" if level == 1 else f"{folder}/{one}.conf"
    link, to = (f"{two}.conf", target) if level < 3 else (f"links/{two}.conf", f"../{target}")
    prompt = f"Make {link} a symbolic link to {target}" + (
        " (relative, so that it works from its folder)." if level == 3 else "."
    )
    command = f"ln -s {to} {link}" if level < 3 else f"mkdir -p links && ln -s {to} {link}"
    return Drawn(
        prompt,
        (command,),
        ({"kind": "link", "way": link, "is": to},),
        {target: lines(f"port = {rng.randrange(1000, 9999)}")},
    )


FAMILIES = (
    Family("write-note", "files", "write given lines to a file", write_note),
    Family("append-line", "files", "add lines to a file, at its end or in front", append_line),
    Family("copy-file", "files", "copy a file, also into a new folder", copy_file),
    Family("move-kind", "files", "move all files of one ending into a folder", move_kind),
    Family("rename-ending", "files", "give files another ending", rename_ending),
    Family("make-folders", "files", "make folders in each other with empty files in them", make_folders),
    Family("delete-kind", "files", "delete all files of one ending", delete_kind),
    Family("largest-file", "files", "find the largest or smallest file", largest_file),
    Family("find-word", "files", "list the files in which a word stands", find_word),
    Family("same-content", "files", "delete the copies of a file", same_content),
    Family("join-files", "files", "join files in an order", join_files),
    Family("make-link", "files", "make a symbolic link", make_link),
)
