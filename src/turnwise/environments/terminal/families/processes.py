"""Families over programs that run: how they end, what they say where, what they are given, and lists of them."""

from __future__ import annotations

import hashlib
from random import Random

from turnwise.environments.terminal.families.base import Drawn, Family, is_file, lines
from turnwise.environments.terminal.families.words import NAMES, NOUNS, some


def exit_status(rng: Random, level: int) -> Drawn:
    names = some(rng, NOUNS, 1 + level)
    codes = {f"{name}.sh": rng.randrange(1, 120) for name in names[:level]}
    files = {way: lines("echo working", f"exit $(( {code + 7} - 7 ))") for way, code in codes.items()}
    out = f"{names[-1]}.out"
    each = "" if level == 1 else ", one a line in this order"
    prompt = (
        f"Run {' and '.join(f'`sh {way}`' for way in codes)} and write the exit status to {out}{each} "
        "(the numbers alone)."
    )
    runs = "; ".join(f"sh {way} > /dev/null; echo $?" for way in codes)
    return Drawn(prompt, (f"({runs}) > {out}",), (is_file(out, lines(*codes.values())),), files)


def two_streams(rng: Random, level: int) -> Drawn:
    name, out, err = some(rng, NOUNS, 3)
    said = [(rng.randrange(2), rng.choice(NAMES)) for _ in range(4 + 2 * level)] + [(0, "begin"), (1, "end")]
    way = f"{name}.sh"
    script = lines(*(f"echo {word}{' >&2' if stream else ''}" for stream, word in said))
    plain, errors = ([word for stream, word in said if stream == which] for which in (0, 1))
    if level == 1:
        prompt, command = (
            f"Run `sh {way}` and write what it says on standard output to {out}.txt, without its errors.",
            f"sh {way} > {out}.txt 2> /dev/null",
        )
        checks = [is_file(f"{out}.txt", lines(*plain))]
    elif level == 2:
        prompt = f"Run `sh {way}`: its standard output goes to {out}.txt, its standard error to {err}.txt."
        command = f"sh {way} > {out}.txt 2> {err}.txt"
        checks = [is_file(f"{out}.txt", lines(*plain)), is_file(f"{err}.txt", lines(*errors))]
    else:
        prompt = (
            f"Run `sh {way}` and write everything that it says (standard output and standard error, "
            f"as it comes) to {out}.txt."
        )
        command, checks = f"sh {way} > {out}.txt 2>&1", [is_file(f"{out}.txt", lines(*(word for _, word in said)))]
    return Drawn(prompt, (command,), tuple(checks), {way: script})


def with_variable(rng: Random, level: int) -> Drawn:
    name, out, *values = some(rng, NOUNS, 2 + level)
    keys = some(rng, ["MODE", "COLOR", "TARGET", "LEVEL"], level)
    way = f"{name}.sh"
    script = lines(*(f'echo "{key.lower()} is ${{{key}:-unknown}}"' for key in keys))
    given = " ".join(f"{key}={value}" for key, value in zip(keys, values, strict=True))
    prompt = (
        f"Run `sh {way}` with the environment {'variable' if level == 1 else 'variables'} {given} "
        f"and write its output to {out}.txt."
    )
    answer = lines(*(f"{key.lower()} is {value}" for key, value in zip(keys, values, strict=True)))
    return Drawn(prompt, (f"{given} sh {way} > {out}.txt",), (is_file(f"{out}.txt", answer),), {way: script})


def time_limit(rng: Random, level: int) -> Drawn:
    names = some(rng, NOUNS, 1 + level)
    ways = [f"{name}.sh" for name in names[:level]]
    slow = rng.choice(ways)
    files = {way: lines("sleep 600" if way == slow else "true", "exit 5") for way in ways}
    out = f"{names[-1]}.out"
    if level == 1:
        prompt = f"Run `sh {slow}` for at most 1 second (with timeout) and write the exit status of timeout to {out}."
        command, answer = f"timeout 1 sh {slow}; echo $? > {out}", ["124"]
    else:
        prompt = f"One of {', '.join(ways)} never ends, the others end at once. Write the name of that one to {out}."
        command = f"for f in *.sh; do timeout 1 sh $f; [ $? = 124 ] && echo $f > {out}; done; true"
        answer = [slow]
    return Drawn(prompt, (command,), (is_file(out, lines(*answer)),), files)


def failing_jobs(rng: Random, level: int) -> Drawn:
    out, *names = some(rng, NOUNS, 4 + 2 * level)
    files, failed = {}, []
    for i, name in enumerate(names):
        status = rng.randrange(1, 50) if i < level else 0
        files[f"jobs/{name}.sh"] = lines(f"x={status + 3}", "exit $((x - 3))")
        if status:
            failed.append(f"{name}.sh" if level < 3 else f"{name}.sh {status}")
    what = (
        "the names (without the folder) of those that fail"
        if level < 3
        else "the name (without the folder) and exit status of those that fail, as `x.sh 3`"
    )
    prompt = f"Run every script in the folder jobs with sh. Write {what} to {out}.txt, sorted, one a line."
    give = "$(basename $f)" if level < 3 else "$(basename $f) $s"
    command = f'for f in jobs/*.sh; do sh $f; s=$?; [ $s = 0 ] || echo "{give}"; done | LC_ALL=C sort > ' + f"{out}.txt"
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*sorted(failed))),), dict(sorted(files.items())))


def send_signal(rng: Random, level: int) -> Drawn:
    name, out, word = some(rng, NOUNS, 3)
    kind = rng.choice(["USR1", "USR2", "HUP"][: 1 + level])
    way = f"{name}.sh"
    script = lines(
        f"trap 'echo {word} > {out}.txt; exit 0' {kind}",
        "echo $$ > pid",
        "i=0",
        "while [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done",
    )
    prompt = (
        f"Start `sh {way}` in the background; it writes its process id to the file pid. Send it the signal {kind} once "
        f"that file is there, and wait for its end, in one command. Then {out}.txt is there."
    )
    command = f"sh {way} & while [ ! -s pid ]; do sleep 0.05; done; kill -{kind} $(cat pid); wait"
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(word)),), {way: script})


def process_list(rng: Random, level: int) -> Drawn:
    out, *names = some(rng, NOUNS, 5 + 2 * level)
    sizes = rng.sample(range(100, 9000), len(names))
    rows = [
        (rng.randrange(100, 9999) * 10 + i, rng.choice(NAMES[:4]), size, name)
        for i, (size, name) in enumerate(zip(sizes, names, strict=True))
    ]
    table = lines(
        f"{'PID':>6} {'USER':<8} {'RSS':>6} COMMAND",
        *(f"{pid:>6} {who:<8} {size:>6} {name}" for pid, who, size, name in rows),
    )
    who = rows[0][1]
    if level == 1:
        said, answer = "the COMMAND with the largest RSS", max(rows, key=lambda row: row[2])[3]
        command = "tail -n +2 ps.txt | sort -k3 -nr | head -1 | awk '{print $4}'"
    elif level == 2:
        said, answer = (
            f"the PID of the process of {who} with the largest RSS",
            max((r for r in rows if r[1] == who), key=lambda row: row[2])[0],
        )
        command = f"awk '$2==\"{who}\"' ps.txt | sort -k3 -nr | head -1 | awk '{{print $1}}'"
    else:
        said, answer = f"the sum of RSS of all processes of {who}", sum(row[2] for row in rows if row[1] == who)
        command = f"awk '$2==\"{who}\" {{s+=$3}} END {{print s}}' ps.txt"
    return Drawn(
        f"ps.txt is a list of processes. Write {said} to {out}.txt.",
        (f"{command} > {out}.txt",),
        (is_file(f"{out}.txt", lines(answer)),),
        {"ps.txt": table},
    )


def feed_input(rng: Random, level: int) -> Drawn:
    name, out, *words = some(rng, NOUNS, 2 + level)
    way = f"{name}.sh"
    script = lines(*(f"read -r a{i}" for i in range(level)), *(f'echo "got $a{i}"' for i in reversed(range(level))))
    prompt = (
        f"`sh {way}` reads {'a line' if level == 1 else f'{level} lines'} from standard input. "
        f"Run it with {', '.join(map(repr, words))} and write its output to {out}.txt."
    )
    command = f"printf '%s\\n' {' '.join(words)} | sh {way} > {out}.txt"
    return Drawn(
        prompt, (command,), (is_file(f"{out}.txt", lines(*(f"got {word}" for word in reversed(words)))),), {way: script}
    )


def checksums(rng: Random, level: int) -> Drawn:
    out, *names = some(rng, NOUNS, 3 + level)
    files = {f"{name}.bin": lines(name, rng.randrange(10**6)) for name in names}
    order = sorted(files)
    if level == 1:
        prompt = f"Write the SHA-256 checksum of {order[0]} (the 64 digits alone) to {out}.txt."
        command, answer = f"sha256sum {order[0]} | cut -d' ' -f1 > {out}.txt", _sha(files[order[0]])
        return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(answer)),), files)
    broken = rng.choice(order)
    table = lines(*(f"{_sha(files[way] + ('x' if way == broken else ''))}  {way}" for way in order))
    prompt = (
        f"sums.txt has the SHA-256 checksums of the .bin files. Which file does not match? Write its name to {out}.txt."
    )
    command = f"sha256sum -c sums.txt 2>/dev/null | grep -v ': OK' | cut -d: -f1 > {out}.txt"
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(broken)),), files | {"sums.txt": table})


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


FAMILIES = (
    Family("exit-status", "processes", "how programs end", exit_status),
    Family("two-streams", "processes", "standard output and standard error apart", two_streams),
    Family("with-variable", "processes", "run a program with environment variables", with_variable),
    Family("time-limit", "processes", "run a program for a limited time", time_limit),
    Family("failing-jobs", "processes", "find the jobs that fail", failing_jobs),
    Family("send-signal", "processes", "start a program and send it a signal", send_signal),
    Family("process-list", "processes", "read a list of processes", process_list),
    Family("feed-input", "processes", "give a program its input", feed_input),
    Family("checksums", "processes", "make and check checksums", checksums),
)
