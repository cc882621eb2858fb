"""Families over archives: packed, unpacked, looked into."""

from __future__ import annotations

from random import Random

from turnwise.environments.terminal.families.base import Drawn, Family, is_file, is_gone, lines
from turnwise.environments.terminal.families.words import FOLDERS, NOUNS, some, text_of


def _some_files(rng: Random, folder: str, number: int) -> dict[str, str]:
    return {f"{folder}/{name}.txt": lines(*text_of(rng, 3)) for name in some(rng, NOUNS, number)}


def pack_tar(rng: Random, level: int) -> Drawn:
    folder, other = some(rng, FOLDERS, 2)
    name = rng.choice(NOUNS)
    files = _some_files(rng, folder, 1 + level)
    way, flag, kind = [(f"{name}.tar", "", "tar"), (f"{name}.tar.gz", "z", "gzip"), (f"{name}.tar.xz", "J", "xz")][
        level - 1
    ]
    how = "" if level == 1 else f", compressed with {kind}"
    prompt = f"Pack the folder {folder} into the archive {way} (tar{how})."
    more = {f"{other}/x.txt": "x\n"}
    return Drawn(prompt, (f"tar c{flag}f {way} {folder}",), ({"kind": "tar", "way": way, "is": files},), files | more)


def unpack_tar(rng: Random, level: int) -> Drawn:
    folder, target = some(rng, FOLDERS, 2)
    name, files = rng.choice(NOUNS), _some_files(rng, folder, 1 + level)
    way, flag = (f"{name}.tar", "") if level == 1 else (f"{name}.tar.gz", "z")
    setup = (f"tar c{flag}f {way} {folder} && rm -r {folder}",)
    if level < 3:
        prompt, command, at = f"Unpack {way} here.", f"tar xf {way}", ""
    else:
        prompt, command, at = (
            f"Make the folder {target}/new and unpack {way} into it.",
            f"mkdir -p {target}/new && tar xf {way} -C {target}/new",
            f"{target}/new/",
        )
    return Drawn(
        prompt, (command,), tuple(is_file(f"{at}{w}", t) for w, t in files.items()), files, setup, tuple(files)
    )


def one_from_tar(rng: Random, level: int) -> Drawn:
    folder = rng.choice(FOLDERS)
    name, files = rng.choice(NOUNS), _some_files(rng, folder, 2 + level)
    wanted, *others = files
    out = wanted if level == 1 else f"{rng.choice(NOUNS)}.out"
    setup = (f"tar czf {name}.tar.gz {folder} && rm -r {folder}",)
    if level == 1:
        prompt, command = f"Unpack only {wanted} from {name}.tar.gz.", f"tar xzf {name}.tar.gz {wanted}"
    else:
        prompt = f"Write the content of {wanted}, which is in {name}.tar.gz, to {out}. Unpack nothing else."
        command = f"tar xzf {name}.tar.gz -O {wanted} > {out}"
    checks = (is_file(out, files[wanted]), *(is_gone(way) for way in others))
    return Drawn(prompt, (command,), checks, files, setup, tuple(files))


def list_tar(rng: Random, level: int) -> Drawn:
    folder = rng.choice(FOLDERS)
    name, out = some(rng, NOUNS, 2)
    files = _some_files(rng, folder, 2 + 2 * level)
    setup = (f"tar czf {name}.tar.gz {folder}/*.txt && rm -r {folder}",)
    if level < 3:
        prompt, answer = f"How many files are in {name}.tar.gz? Write the number to {out}.out.", [len(files)]
        command = f"tar tzf {name}.tar.gz | wc -l > {out}.out"
    else:
        prompt = f"Write the paths of the files in {name}.tar.gz to {out}.out, sorted, one a line."
        command, answer = f"tar tzf {name}.tar.gz | LC_ALL=C sort > {out}.out", sorted(files)
    return Drawn(prompt, (command,), (is_file(f"{out}.out", lines(*answer)),), files, setup, tuple(files))


def pack_zip(rng: Random, level: int) -> Drawn:
    name, *more = some(rng, NOUNS, 2 + level)
    files = {f"{each}.txt": lines(*text_of(rng, 2)) for each in more}
    packed = dict(list(files.items())[: 1 + level // 2]) if level < 3 else files
    said = " and ".join(packed) if level < 3 else "all .txt files"
    command = f"zip -q {name}.zip {' '.join(packed) if level < 3 else '*.txt'}"
    return Drawn(
        f"Pack {said} into {name}.zip.",
        (command,),
        ({"kind": "zip", "way": f"{name}.zip", "is": packed},),
        files | {"readme.md": "x\n"},
    )


def unpack_zip(rng: Random, level: int) -> Drawn:
    folder = rng.choice(FOLDERS)
    name, *more = some(rng, NOUNS, 2 + level)
    files = {f"{each}.txt": lines(*text_of(rng, 2)) for each in more}
    setup = (f"zip -q {name}.zip {' '.join(files)} && rm {' '.join(files)}",)
    at, command = ("", f"unzip -q {name}.zip") if level == 1 else (f"{folder}/", f"unzip -q {name}.zip -d {folder}")
    prompt = f"Unpack {name}.zip here." if level == 1 else f"Unpack {name}.zip into the folder {folder}."
    return Drawn(
        prompt, (command,), tuple(is_file(f"{at}{w}", t) for w, t in files.items()), files, setup, tuple(files)
    )


def gzip_file(rng: Random, level: int) -> Drawn:
    name, *others = some(rng, NOUNS, 1 + level)
    ways = [f"{each}.log" for each in [name, *others][:level]]
    files = {way: lines(*text_of(rng, 5)) for way in ways}
    said = " and ".join(ways)
    if level == 1:
        prompt, command = f"Compress {said} with gzip to {said}.gz, so that {said} is gone.", f"gzip {said}"
        checks = [*({"kind": "gzip", "way": f"{w}.gz", "is": t} for w, t in files.items()), *map(is_gone, ways)]
    else:
        prompt, command = (
            f"Compress {said} with gzip to files that end in .log.gz, and keep them as they are.",
            f"gzip -k {' '.join(ways)}",
        )
        checks = [{"kind": "gzip", "way": f"{w}.gz", "is": t} for w, t in files.items()]
    return Drawn(prompt, (command,), tuple(checks), files)


def gunzip_search(rng: Random, level: int) -> Drawn:
    name, out, word = some(rng, NOUNS, 3)
    way = f"{name}.log"
    body = text_of(rng, 10 * level)
    body += [f"{word} {rng.choice(NOUNS)}" for _ in range(rng.randrange(1, 4))]
    rng.shuffle(body)
    found = [text for text in body if word in text]
    setup = (f"gzip {way}",)
    if level == 1:
        prompt, command, answer = (
            f"Write the text that is compressed in {way}.gz to {out}.txt.",
            f"zcat {way}.gz > {out}.txt",
            body,
        )
    elif level == 2:
        prompt, command = (
            f"Write the lines of {way}.gz that have {word!r} in them to {out}.txt.",
            f"zcat {way}.gz | grep {word} > {out}.txt",
        )
        answer = found
    else:
        prompt = f"How many lines of {way}.gz have {word!r} in them? Write the number to {out}.txt."
        command, answer = f"zcat {way}.gz | grep -c {word} > {out}.txt", [len(found)]
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*answer)),), {way: lines(*body)}, setup, (way,))


FAMILIES = (
    Family("pack-tar", "archives", "pack a folder with tar", pack_tar, ("tar", "gzip", "xz")),
    Family("unpack-tar", "archives", "unpack a tar archive", unpack_tar, ("tar", "gzip")),
    Family("one-from-tar", "archives", "take one file out of a tar archive", one_from_tar, ("tar", "gzip")),
    Family("list-tar", "archives", "say what is in a tar archive", list_tar, ("tar", "gzip")),
    Family("pack-zip", "archives", "pack files with zip", pack_zip, ("zip",)),
    Family("unpack-zip", "archives", "unpack a zip archive", unpack_zip, ("zip", "unzip")),
    Family("gzip-file", "archives", "compress files with gzip", gzip_file, ("gzip",)),
    Family("search-gzip", "archives", "read and search a compressed file", gunzip_search, ("gzip",)),
)
