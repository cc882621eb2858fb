"""Families over git repositories: begun, committed to, looked into, put back."""

from __future__ import annotations

from random import Random
from typing import Any

from turnwise.environments.terminal.families.base import Drawn, Family, is_file, lines
from turnwise.environments.terminal.families.words import NAMES, NOUNS, some, text_of

BEGIN = "git init -q -b main . && git config user.name box && git config user.email box@example.org"


def says(asks: str, *answer: object) -> dict[str, Any]:
    """The check that git says this of the repository, which is copied first."""
    return {"kind": "git", "way": ".git", "asks": asks, "is": lines(*answer)}


def commit(message: str, day: int, who: str = "box") -> str:
    """A command that commits everything on a day of January 2024."""
    at = f"2024-01-{day:02d}T12:00:00Z"
    return (
        f"git add -A && GIT_AUTHOR_DATE={at} GIT_COMMITTER_DATE={at} "
        f"git commit -q --author='{who} <{who}@example.org>' -m '{message}'"
    )


def _history(rng: Random, number: int) -> tuple[str, list[tuple[str, str, str]]]:
    """Commands that make a history of one file, and its commits: who, message, content."""
    found, commands = [], [BEGIN]
    for day, (said, text) in enumerate(zip(text_of(rng, number, 2), text_of(rng, number), strict=True), 1):
        who = rng.choice(NAMES[:4])
        commands += [f"echo '{text}' > story.txt", commit(said, day, who)]
        found.append((who, said, lines(text)))
    return " && ".join(commands), found


def git_begin(rng: Random, level: int) -> Drawn:
    message, *names = some(rng, NOUNS, 2 + level)
    files = {f"{name}.txt": lines(*text_of(rng, 2)) for name in names}
    branch = "main" if level < 3 else "trunk"
    who = rng.choice(NAMES)
    prompt = (
        f"Begin a git repository here with the branch {branch} and commit {' and '.join(sorted(files))} "
        f"with the message {message!r}, as {who} <{who}@example.org>."
    )
    as_who = f"git -c user.name={who} -c user.email={who}@example.org"
    command = f"git init -q -b {branch} . && git add *.txt && {as_who} commit -q -m {message}"
    checks = (
        says(f"log --format=%an:%s {branch}", f"{who}:{message}"),
        says(f"ls-tree -r --name-only {branch}", *sorted(files)),
    )
    return Drawn(prompt, (command,), checks, files)


def git_commit(rng: Random, level: int) -> Drawn:
    message, one, two = some(rng, NOUNS, 3)
    files = {f"{one}.txt": "one\n", f"{two}.txt": "two\n"}
    setup = [BEGIN, commit("begin", 1), f"echo more >> {one}.txt"] + ([f"echo more >> {two}.txt"] if level > 1 else [])
    prompt = f"Commit the change of {one}.txt with the message {message!r}" + (
        ", but not that of the other file." if level > 1 else "."
    )
    command = f"git commit -q -m {message} {one}.txt"
    if level == 3:
        prompt = (
            f"Make a branch {message}, and commit on it the change of {one}.txt with the message "
            f"{message!r}, but not that of the other file. main stays as it is."
        )
        command = f"git checkout -q -b {message} && {command}"
    branch = message if level == 3 else "main"
    checks = [
        says(f"log --format=%s {branch}", message, "begin"),
        says(f"show --format= --name-only {branch}", f"{one}.txt"),
    ]
    checks += [says("log --format=%s main", "begin")] if level == 3 else []
    checks += [says(f"show {branch}:{one}.txt", "one", "more")]
    return Drawn(prompt, (command,), tuple(checks), files, (" && ".join(setup),), tuple(files))


def git_branch(rng: Random, level: int) -> Drawn:
    name = rng.choice(NOUNS)
    files = {"readme.md": lines(name)}
    setup, history = _history(rng, 1 + level)
    newest = history[-1][1]
    if level == 1:
        prompt, command, at = (
            f"Make the git branch {name} at the newest commit, and stay on main.",
            f"git branch {name}",
            newest,
        )
    else:
        at = history[-2][1]
        prompt = f"Make the git branch {name} at the commit before the newest one of main" + (
            " and switch to it." if level == 3 else ", and stay on main."
        )
        command = f"git checkout -q -b {name} HEAD~1" if level == 3 else f"git branch {name} HEAD~1"
    on = name if level == 3 else "main"
    checks = (
        says(f"log -1 --format=%s {name}", at),
        says("log -1 --format=%s main", newest),
        says("symbolic-ref --short HEAD", on),
    )
    return Drawn(prompt, (command,), checks, files, (setup,))


def git_tag(rng: Random, level: int) -> Drawn:
    setup, history = _history(rng, 2 + level)
    name = f"v{rng.randrange(1, 9)}.{rng.randrange(10)}"
    at = history[-1] if level == 1 else rng.choice(history[:-1])
    where = "the newest commit" if level == 1 else f"the commit with the message {at[1]!r}"
    find = "" if level == 1 else f" $(git log --format=%H --grep='^{at[1]}$')"
    annotated = level == 3
    prompt = f"Tag {where} with {name}" + (" (an annotated tag with the message 'release')." if annotated else ".")
    command = f"git tag {'-a -m release ' if annotated else ''}{name}{find}"
    checks = [says(f"log -1 --format=%s {name}", at[1])] + ([says(f"cat-file -t {name}", "tag")] if annotated else [])
    return Drawn(prompt, (command,), tuple(checks), {}, (setup,))


def git_restore(rng: Random, level: int) -> Drawn:
    one, two = some(rng, NOUNS, 2)
    files = {f"{one}.txt": lines(*text_of(rng, 2)), f"{two}.txt": lines(*text_of(rng, 2))}
    spoil = (
        [f"rm {one}.txt"]
        if level == 1
        else [f"echo wrong > {one}.txt"] + ([f"git add {one}.txt"] if level == 3 else [])
    )
    done = {1: "was deleted", 2: "was changed by mistake", 3: "was changed by mistake, and the change is staged"}[level]
    prompt = f"{one}.txt {done}. Bring it back as it was committed" + (", also in the index." if level == 3 else ".")
    checks = [is_file(f"{one}.txt", files[f"{one}.txt"])] + (
        [says("diff --cached --name-only HEAD")] if level == 3 else []
    )
    return Drawn(
        prompt,
        (f"git checkout -q HEAD -- {one}.txt",),
        tuple(checks),
        files,
        (" && ".join([BEGIN, commit("all", 1), *spoil]),),
    )


def git_old_version(rng: Random, level: int) -> Drawn:
    setup, history = _history(rng, 3 + level)
    out = f"{rng.choice(NOUNS)}.out"
    if level == 1:
        at, where, name = history[-2], "in the commit before the newest one", "HEAD~1"
    else:
        at = rng.choice(history[:-1])
        where, name = f"in the commit with the message {at[1]!r}", f"$(git log --format=%H --grep='^{at[1]}$')"
    prompt = f"Write the content that story.txt had {where} to {out}."
    return Drawn(
        prompt,
        (f"git show {name}:story.txt > {out}",),
        (is_file(out, at[2]), is_file("story.txt", history[-1][2])),
        {},
        (setup,),
    )


def git_count(rng: Random, level: int) -> Drawn:
    setup, history = _history(rng, 3 + 2 * level)
    who, out = history[-1][0], f"{rng.choice(NOUNS)}.out"
    if level == 1:
        prompt, command, answer = (
            "How many commits has this git repository?",
            "git rev-list --count HEAD",
            [len(history)],
        )
    elif level == 2:
        prompt, command = f"How many commits are by {who}?", f"git rev-list --count --author={who} HEAD"
        answer = [sum(each == who for each, _, _ in history)]
    else:
        prompt = f"What are the messages of the commits by {who}, the newest first, one a line?"
        command, answer = (
            f"git log --author={who} --format=%s",
            [said for each, said, _ in reversed(history) if each == who],
        )
    ask = "Write the number" if level < 3 else "Write them"
    return Drawn(f"{prompt} {ask} to {out}.", (f"{command} > {out}",), (is_file(out, lines(*answer)),), {}, (setup,))


def git_merge(rng: Random, level: int) -> Drawn:
    branch, one, two = some(rng, NOUNS, 3)
    steps = [
        BEGIN,
        f"echo base > {one}.txt",
        commit("base", 1),
        f"git checkout -q -b {branch}",
        f"echo {two} > {two}.txt",
        commit(f"add {two}", 2),
    ]
    steps += ["git checkout -q main"] + ([f"echo more >> {one}.txt", commit("more", 3)] if level > 1 else [])
    prompt = f"Merge the git branch {branch} into main" + (f" and delete the branch {branch}." if level == 3 else ".")
    command = f"git merge -q --no-edit {branch}" + (f" && git branch -q -d {branch}" if level == 3 else "")
    checks = [
        says("ls-tree -r --name-only main", *sorted([f"{one}.txt", f"{two}.txt"])),
        is_file(f"{two}.txt", lines(two)),
    ]
    checks += (
        [says("show main:" + f"{one}.txt", "base", "more"), says("rev-list --count --merges main", 1)]
        if level > 1
        else []
    )
    checks += [says("for-each-ref --format=%(refname:short) refs/heads", "main")] if level == 3 else []
    return Drawn(prompt, (command,), tuple(checks), {}, (" && ".join(steps),))


def git_undo(rng: Random, level: int) -> Drawn:
    setup, history = _history(rng, 2 + level)
    last, before = history[-1], history[-2]
    if level < 3:
        prompt = f"Undo the newest commit ({last[1]!r}) by a new commit that takes its change back (git revert)."
        command = "git revert --no-edit HEAD"
        checks = [
            says("rev-list --count main", len(history) + 1),
            says("show main:story.txt", before[2].rstrip()),
            is_file("story.txt", before[2]),
        ]
    else:
        prompt = (
            f"Take the newest commit ({last[1]!r}) off main, but keep what it changed in the file "
            "as an uncommitted change."
        )
        command = "git reset -q --mixed HEAD~1"
        checks = [says("log -1 --format=%s main", before[1]), is_file("story.txt", last[2])]
    return Drawn(prompt, (command,), tuple(checks), {}, (setup,))


GIT = ("git",)
FAMILIES = (
    Family("git-begin", "git", "begin a repository and commit files", git_begin, GIT),
    Family("git-commit", "git", "commit one change, not the other", git_commit, GIT),
    Family("git-branch", "git", "make a branch at a commit", git_branch, GIT),
    Family("git-tag", "git", "tag a commit", git_tag, GIT),
    Family("git-restore", "git", "bring a file back as it was committed", git_restore, GIT),
    Family("git-old-version", "git", "what a file was in an older commit", git_old_version, GIT),
    Family("git-count", "git", "count or list commits", git_count, GIT),
    Family("git-merge", "git", "merge a branch", git_merge, GIT),
    Family("git-undo", "git", "take a commit back", git_undo, GIT),
)
