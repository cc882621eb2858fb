"""Families over lines of text: counted, sorted, cut, replaced, added up."""

from __future__ import annotations

from collections import Counter
from random import Random

from turnwise.environments.terminal.families.base import Drawn, Family, is_file, lines
from turnwise.environments.terminal.families.words import LEVELS, NAMES, NOUNS, log_of, some, text_of


def count_lines(rng: Random, level: int) -> Drawn:
    one, out, *others = some(rng, NOUNS, 5)
    ways = [f"{name}.txt" for name in [one, *others][:level]]
    files = {way: lines(*text_of(rng, rng.randrange(5, 40))) for way in ways}
    total = sum(text.count("\n") for text in files.values())
    what = (
        f"the number of lines of {ways[0]}" if level == 1 else f"the number of lines of {' and '.join(ways)} together"
    )
    command = f"wc -l < {ways[0]} > {out}.out" if level == 1 else f"cat {' '.join(ways)} | wc -l > {out}.out"
    return Drawn(f"Write {what} to {out}.out.", (command,), (is_file(f"{out}.out", lines(total)),), files)


def count_matching(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way, log = f"{name}.log", log_of(rng, 10 + 20 * level)
    kind, who = rng.choice(LEVELS), rng.choice(NAMES)
    if level == 1:
        prompt, command = f"How many lines of {way} have {kind} in them?", f"grep -c {kind} {way} > {out}.out"
        number = sum(kind in line for line in log)
    elif level == 2:
        prompt, command = f"How many lines of {way} do not have {kind} in them?", f"grep -vc {kind} {way} > {out}.out"
        number = sum(kind not in line for line in log)
    else:
        prompt = f"How many lines of {way} have both {kind} and the name {who} in them?"
        command, number = f"grep {kind} {way} | grep -c {who} > {out}.out", sum(kind in x and who in x for x in log)
        command = command if number else f"echo 0 > {out}.out"
    return Drawn(
        f"{prompt} Write the number to {out}.out.",
        (command,),
        (is_file(f"{out}.out", lines(number)),),
        {way: lines(*log)},
    )


def keep_matching(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way, log = f"{name}.log", log_of(rng, 10 + 10 * level)
    log += [f"20:0{i} {kind} {rng.choice(NAMES)} {rng.choice(NOUNS)}" for i, kind in enumerate(LEVELS)]
    kind, other = some(rng, LEVELS, 2)
    if level == 1:
        said, command, kept = f"have {kind} in them", f"grep {kind} {way}", [x for x in log if kind in x]
    elif level == 2:
        said, command, kept = f"do not have {kind} in them", f"grep -v {kind} {way}", [x for x in log if kind not in x]
    else:
        said, command = f"have {kind} or {other} in them", f"grep -E '{kind}|{other}' {way}"
        kept = [x for x in log if kind in x or other in x]
    return Drawn(
        f"Write the lines of {way} that {said} to {out}.log.",
        (f"{command} > {out}.log",),
        (is_file(f"{out}.log", lines(*kept)),),
        {way: lines(*log)},
    )


def sort_lines(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way = f"{name}.txt"
    if level == 1:
        words = some(rng, NOUNS, 6)
        said, flag, ordered = "alphabetically", "", sorted(words)
    else:
        words = [str(n) for n in rng.sample(range(1, 2000), 6 * level)]
        said, flag = ("as numbers", "-n ") if level == 2 else ("as numbers, the largest first", "-nr ")
        ordered = sorted(words, key=int, reverse=level == 3)
    command = f"sort {flag}{way} > {out}.txt"
    return Drawn(
        f"Sort the lines of {way} {said} and write them to {out}.txt.",
        (command,),
        (is_file(f"{out}.txt", lines(*ordered)),),
        {way: lines(*words)},
    )


def without_repeats(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way, words = f"{name}.txt", some(rng, NOUNS, 3 + level)
    body = rng.choices(words, k=6 * level) + words
    rng.shuffle(body)
    if level < 3:
        said, command, kept = "each once, sorted", f"sort -u {way} > {out}.txt", sorted(words)
    else:
        said, kept = "each once, in the order of their first appearance", list(dict.fromkeys(body))
        command = f"awk '!seen[$0]++' {way} > {out}.txt"
    return Drawn(
        f"Write the different lines of {way} to {out}.txt, {said}.",
        (command,),
        (is_file(f"{out}.txt", lines(*kept)),),
        {way: lines(*body)},
    )


def most_frequent(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way, words = f"{name}.txt", some(rng, NOUNS, 3 + level)
    counts = rng.sample(range(1, 12), len(words))
    body = [word for word, count in zip(words, counts, strict=True) for _ in range(count)]
    rng.shuffle(body)
    order = [word for word, _ in Counter(body).most_common()]
    if level < 3:
        said, top, kept = "the line that stands most often in", 1, order[:1]
    else:
        said, top, kept = "the two lines that stand most often in", 2, order[:2]
    prompt = f"Write {said} {way} to {out}.txt" + (", the most frequent first." if level == 3 else ".")
    command = f"sort {way} | uniq -c | sort -rn | head -{top} | awk '{{print $2}}' > {out}.txt"
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*kept)),), {way: lines(*body)})


def replace_word(rng: Random, level: int) -> Drawn:
    name, old, new, *others = some(rng, NOUNS, 6)
    ways = [f"{each}.txt" for each in [name, *others][:level]]
    files = {
        way: lines(*(f"{rng.choice(NAMES)} {old} {rng.choice(NAMES)} {old}" for _ in range(3)), "end") for way in ways
    }
    checks = tuple(is_file(way, text.replace(old, new)) for way, text in files.items())
    prompt = f"Replace every {old!r} by {new!r} in {' and '.join(ways)}."
    return Drawn(prompt, (f"sed -i 's/{old}/{new}/g' {' '.join(ways)}",), checks, files)


def change_case(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way, body = f"{name}.txt", text_of(rng, 2 + level)
    if level == 2:
        body = [text.upper() for text in body]
    said, signs = ("small", "A-Z a-z") if level == 2 else ("capital", "a-z A-Z")
    done = [text.lower() if level == 2 else text.upper() for text in body]
    if level == 3:
        prompt = f"Write the text of {way} in capital letters and with _ for every space to {out}.txt."
        command, done = f"tr 'a-z ' 'A-Z_' < {way} > {out}.txt", [text.replace(" ", "_") for text in done]
    else:
        prompt, command = f"Write the text of {way} in {said} letters to {out}.txt.", f"tr {signs} < {way} > {out}.txt"
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*done)),), {way: lines(*body)})


def first_or_last(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way, number = f"{name}.txt", rng.randrange(2, 7)
    body = text_of(rng, 12 + 4 * level, 2)
    if level < 3:
        which, program = rng.choice([("first", "head"), ("last", "tail")])
        prompt, command = (
            f"Write the {which} {number} lines of {way} to {out}.txt.",
            f"{program} -n {number} {way} > {out}.txt",
        )
        kept = body[:number] if which == "first" else body[-number:]
    else:
        last = number + rng.randrange(2, 6)
        prompt = f"Write lines {number} to {last} of {way} to {out}.txt."
        command, kept = f"sed -n '{number},{last}p' {way} > {out}.txt", body[number - 1 : last]
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*kept)),), {way: lines(*body)})


def one_field(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    sign = rng.choice([":", ";", "|"]) if level < 3 else " "
    number = rng.randrange(1, 4)
    rows = [[rng.choice(NAMES), str(rng.randrange(10, 99)), rng.choice(NOUNS)] for _ in range(3 + 2 * level)]
    if level == 3:
        body = ["".join(f"{part:<12}" for part in row).rstrip() for row in rows]
        prompt = f"Write column {number} of {name}.txt (columns are set apart by spaces) to {out}.txt."
        command = f"awk '{{print ${number}}}' {name}.txt > {out}.txt"
    else:
        body = [sign.join(row) for row in rows]
        prompt = f"Write field {number} of each line of {name}.txt to {out}.txt. Fields are set apart by {sign!r}."
        command = f"cut -d'{sign}' -f{number} {name}.txt > {out}.txt"
    return Drawn(
        prompt,
        (command,),
        (is_file(f"{out}.txt", lines(*(row[number - 1] for row in rows))),),
        {f"{name}.txt": lines(*body)},
    )


def sum_column(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    rows = [(rng.choice(NAMES[:5]), rng.randrange(1, 200)) for _ in range(4 + 4 * level)]
    who = rows[0][0]
    if level == 1:
        body, prompt = [n for _, n in rows], f"Add up the numbers in {name}.txt (one a line)"
        total, command = sum(n for _, n in rows), f"awk '{{s+=$1}} END {{print s}}' {name}.txt"
    elif level == 2:
        body, prompt = [f"{who} {n}" for who, n in rows], f"Add up the second column of {name}.txt"
        total, command = sum(n for _, n in rows), f"awk '{{s+=$2}} END {{print s}}' {name}.txt"
    else:
        body, prompt = [f"{who} {n}" for who, n in rows], f"Add up the numbers of {who} in {name}.txt"
        total = sum(n for each, n in rows if each == who)
        command = f"awk '$1==\"{who}\" {{s+=$2}} END {{print s}}' {name}.txt"
    return Drawn(
        f"{prompt} and write the sum to {out}.txt.",
        (f"{command} > {out}.txt",),
        (is_file(f"{out}.txt", lines(total)),),
        {f"{name}.txt": lines(*body)},
    )


def reverse_order(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    way, body = f"{name}.txt", text_of(rng, 3 + 2 * level, 2)
    if level == 1:
        prompt, command, done = (
            f"Write the lines of {way} in reverse order to {out}.txt.",
            f"tac {way} > {out}.txt",
            body[::-1],
        )
    elif level == 2:
        prompt = f"Write each line of {way} with its letters in reverse order to {out}.txt."
        command, done = f"rev {way} > {out}.txt", [text[::-1] for text in body]
    else:
        prompt = (
            f"Write the lines of {way} in reverse order to {out}.txt, each with its number there "
            "and a space in front (1, 2, …)."
        )
        command = f"tac {way} | awk '{{print NR\" \"$0}}' > {out}.txt"
        done = [f"{i} {text}" for i, text in enumerate(body[::-1], 1)]
    return Drawn(prompt, (command,), (is_file(f"{out}.txt", lines(*done)),), {way: lines(*body)})


def longest_line(rng: Random, level: int) -> Drawn:
    name, out = some(rng, NOUNS, 2)
    sizes = rng.sample(range(1, 12), 2 + 2 * level)
    body = ["-".join(rng.choices(NOUNS, k=size)) + "-" * size * 3 for size in sizes]
    most = max(body, key=len)
    number = body.index(most) + 1
    answer, what = (
        (most, "the longest line") if level < 3 else (number, "the number of the longest line (the first is 1)")
    )
    give = "$0" if level < 3 else "NR"
    command = f"awk 'length($0)>n {{n=length($0); x={give}}} END {{print x}}' {name}.txt > {out}.txt"
    return Drawn(
        f"Write {what} of {name}.txt to {out}.txt.",
        (command,),
        (is_file(f"{out}.txt", lines(answer)),),
        {f"{name}.txt": lines(*body)},
    )


FAMILIES = (
    Family("count-lines", "text", "count the lines of files", count_lines),
    Family("count-matching", "text", "count the lines of a log that match", count_matching),
    Family("keep-matching", "text", "keep the lines of a log that match", keep_matching),
    Family("sort-lines", "text", "sort lines, as words or as numbers", sort_lines),
    Family("without-repeats", "text", "each different line once", without_repeats),
    Family("most-frequent", "text", "the line that stands most often", most_frequent),
    Family("replace-word", "text", "replace a word in files", replace_word),
    Family("change-case", "text", "capital or small letters", change_case),
    Family("first-or-last", "text", "some lines of a file by their place", first_or_last),
    Family("one-field", "text", "one field of each line", one_field),
    Family("sum-column", "text", "add up numbers", sum_column),
    Family("reverse-order", "text", "lines or letters in reverse order", reverse_order),
    Family("longest-line", "text", "the longest line or its number", longest_line),
)
