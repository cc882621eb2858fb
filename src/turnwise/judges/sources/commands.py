"""Which commands of an agent are diagnostic, by an explicit list: what they report about themselves may be believed.

A call is read from its arguments, never from what came back. A command line counts only when each of its parts is on
the list; everything else (readers, fetchers, scripts, tools that we do not know) returns content. Pure functions.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from turnwise.patterns import anchored

SHELLS = frozenset(
    "bash shell exec exec_command run_shell_command run_command run_terminal_cmd run_in_terminal execute_command "
    "terminal run sh shell_command local_shell execute_bash container.exec".split()
)
"""Names, in lower case, under which agents offer a shell."""
COMMAND_KEYS = ("command", "cmd", "script")
MAX_COMMAND = 4000
STATUS_ECHO = anchored(r"(?:exit ?)?(?:code|status)? ?[:=]? ?\$\?")

TEST = "test"
"""Runs tests, and says in its last lines how many passed."""
CHECK = "check"
"""Compiles, lints or checks types, and says what it found."""
RECIPE = "recipe"
"""Runs what a file says and prints whatever that prints: only a status that no output can forge counts."""
EFFECT = "effect"
"""Changes something and shows no foreign text: only its exit status counts."""
QUIET = "quiet"
"""Says nothing of its own."""

# Program, or program and its first word, to its kind. Each prints its own report and no file as a whole.
_PROGRAMS: dict[str, str] = {
    **dict.fromkeys(
        "pytest py.test jest vitest mocha ava rspec phpunit ctest bats nose2 unittest tox nox playwright".split(), TEST
    ),
    **dict.fromkeys(
        "gcc g++ cc c++ clang clang++ rustc javac kotlinc tsc mypy pyright ruff flake8 pylint eslint shellcheck "
        "hadolint yamllint pyflakes black isort gofmt golangci-lint clippy ninja swiftc vulture bandit".split(),
        CHECK,
    ),
    "make": RECIPE,
    **dict.fromkeys("mkdir rmdir rm cp mv ln touch chmod chown kill install".split(), EFFECT),
    **dict.fromkeys("cd pushd popd export set unset true : sleep source .".split(), QUIET),
}
_WITH_WORD: dict[str, dict[str, str]] = {
    "cargo": {"test": TEST, "nextest": TEST, "build": CHECK, "check": CHECK, "clippy": CHECK, "add": EFFECT},
    "go": {"test": TEST, "build": CHECK, "vet": CHECK},
    "npm": {"test": TEST, "t": TEST, "ci": EFFECT, "install": EFFECT, "i": EFFECT},
    "pnpm": {"test": TEST, "install": EFFECT, "i": EFFECT},
    "yarn": {"test": TEST, "install": EFFECT, "add": EFFECT},
    "bun": {"test": TEST, "install": EFFECT},
    "deno": {"test": TEST, "check": CHECK, "lint": CHECK},
    "dotnet": {"test": TEST, "build": CHECK},
    "swift": {"test": TEST, "build": CHECK},
    "mvn": {"test": TEST, "verify": TEST, "compile": CHECK, "package": CHECK},
    "mvnw": {"test": TEST, "verify": TEST, "compile": CHECK, "package": CHECK},
    "gradle": {"test": TEST, "check": TEST, "build": CHECK},
    "gradlew": {"test": TEST, "check": TEST, "build": CHECK},
    "node": {"--test": TEST, "--check": CHECK},
    "cmake": {"--build": CHECK},
    "nginx": {"-t": CHECK},
    "terraform": {"validate": CHECK},
    "pip": {"install": EFFECT, "uninstall": EFFECT},
    "pip3": {"install": EFFECT, "uninstall": EFFECT},
    "apt-get": {"install": EFFECT, "remove": EFFECT},
    "apt": {"install": EFFECT, "remove": EFFECT},
    "systemctl": {"start": EFFECT, "stop": EFFECT, "restart": EFFECT, "reload": EFFECT, "enable": EFFECT},
    "git": {"add": EFFECT, "commit": EFFECT, "switch": EFFECT, "checkout": EFFECT, "merge": EFFECT, "push": EFFECT},
}  # fmt: skip
_RUN = {"npm", "pnpm", "yarn", "bun"}
_SCRIPTS = {"test": TEST, "lint": CHECK, "build": CHECK, "typecheck": CHECK, "type-check": CHECK, "check": CHECK}
_MODULES = {
    **dict.fromkeys("pytest unittest nose2 tox nox".split(), TEST),
    **dict.fromkeys("mypy pyright ruff flake8 pylint pyflakes black isort py_compile compileall".split(), CHECK),
    "pip": EFFECT,
}
_PREFIXES = frozenset("sudo time nice nohup env npx bunx".split())
"""Programs that start another; with an option of theirs, whose value may be any word, nothing is sure."""
_PLACES = tuple(f"{place}/" for place in "node_modules/.bin .venv/bin venv/bin vendor/bin".split())
"""Folders of a project in which programs are what their names say."""
_SYSTEM = frozenset(["/usr/bin/", "/usr/local/bin/", "/bin/"])
_ACTIVATES = frozenset([".venv/bin/activate", "venv/bin/activate"])
_REPLACES = frozenset(
    "PATH PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTEST_ADDOPTS PYTEST_PLUGINS NODE_OPTIONS NODE_PATH RUBYOPT BASH_ENV"
    " JAVA_TOOL_OPTIONS RUSTC_WRAPPER".split()
)
"""Variables, beside LD_ and DYLD_ ones, that put another program or other code into a program's place."""
_IDLE = frozenset(
    "--if-present --passWithNoTests --help --version -h -V"
    " --co --collect-only --showConfig --show-settings --show-files --fixtures"
    " --markers --no-run --list --listTests --list-tests -list --init".split()
)
"""With these a test or check program runs no test and checks nothing."""
_RUNNERS = {"uv": "run", "poetry": "run", "pipenv": "run", "hatch": "run", "bundle": "exec", "pdm": "run"}
_PYTHONS = frozenset("python python3 py".split())
# Not by these alone: they show files, or take in what another command prints.
_SHOWS = {
    "ruff": frozenset(["rule", "linter", "config"]),
    "black": frozenset(["--diff", "-c"]),
    "gofmt": frozenset(),
    "gcc": frozenset(["-E"]),
    "clang": frozenset(["-E"]),
    "cc": frozenset(["-E"]),
    "eslint": frozenset(["--print-config"]),
}


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A command line of which every part is on the list.

    ``kinds`` in their order, without QUIET ones. ``status_lost``: the shell's status is not that of the command.
    ``echoes``: the status is printed as the last line. ``programs``: what was run.
    """

    kinds: tuple[str, ...]
    programs: tuple[str, ...]
    status_lost: bool
    echoes: bool


def diagnostic(name: str, arguments: Any) -> Diagnostic | None:
    """The call as a diagnostic command line, or None: what it returns is content."""
    command = shell_command(name, arguments)
    return read_command(command) if command is not None else None


def shell_command(name: str, arguments: Any) -> str | None:
    """The command line of a call to a shell; None for any other call."""
    if name.lower() not in SHELLS:
        return None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(arguments, dict):
        return None
    given = next((arguments[key] for key in COMMAND_KEYS if arguments.get(key)), None)
    if isinstance(given, list) and all(isinstance(word, str) for word in given):
        within = len(given) == 3 and given[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh") and given[1] in ("-c", "-lc")
        return given[2] if within else shlex.join(given)
    return given if isinstance(given, str) else None


def read_command(command: str) -> Diagnostic | None:
    """A command line as a diagnostic one, or None."""
    command = command.strip().replace("2>&1", " ")
    if not command or len(command) > MAX_COMMAND or "`" in command or "$(" in command or "${" in command:
        return None
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&")
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return None
    parts: list[tuple[str, list[str]]] = [("", [])]
    for word in words:
        if word in ("&&", ";", "||", "|"):
            parts.append((word, []))
        elif set(word) <= set("();<>|&"):
            return None  # a redirection, a subshell, something in the background
        else:
            parts[-1][1].append(word)
    return _whole(parts)


def _whole(parts: list[tuple[str, list[str]]]) -> Diagnostic | None:
    kinds: list[str] = []
    programs: list[str] = []
    lost = echoes = False
    last = len(parts) - 1
    for i, (operator, words) in enumerate(parts):
        if not words:
            if i == last and operator == ";":
                continue
            return None
        if words[0] == "echo":
            if i != last or operator != ";" or not kinds or not _echoes_status(words):
                return None
            echoes = True
            continue
        if operator == "|":
            if words[0] != "tail" or any(not w.startswith("-") and not w.isdigit() for w in words[1:]):
                return None
            lost = True
            continue
        lost = lost or operator == "||" or (operator == ";" and bool(kinds))
        program, kind = _kind(words)
        if kind is None:
            return None
        programs.append(program)
        if kind != QUIET:
            kinds.append(kind)
    return Diagnostic(tuple(kinds), tuple(programs), lost, echoes) if kinds else None


def _echoes_status(words: list[str]) -> bool:
    """``echo $?`` and ``echo "exit code: $?"``: nothing else may be printed after the report."""
    said = " ".join(words[1:]).lower()
    return STATUS_ECHO.fullmatch(said) is not None


def _kind(words: list[str]) -> tuple[str, str | None]:
    """The program and its kind, or None for one that is not on the list."""
    bare = _bare(words)
    if not bare:
        return "", None
    program, kind = _listed(bare)
    return program, EFFECT if kind in (TEST, CHECK) and _IDLE & set(bare[1:]) else kind


def _listed(words: list[str]) -> tuple[str, str | None]:
    program = _name(words[0])
    first = words[1] if len(words) > 1 else ""
    if _SHOWS.get(program, frozenset()) & set(words[1:]):
        return program, None
    if program in ("source", ".") and first.removeprefix("./") not in _ACTIVATES:
        return program, None
    if program == "export" and any(_replaces(word) for word in words[1:]):
        return program, None
    if program in _PYTHONS:
        return program, _MODULES.get(words[2]) if first == "-m" and len(words) > 2 else None
    if program in _RUN and first == "run" and len(words) > 2:
        return program, _SCRIPTS.get(words[2].split(":")[0])
    if program in _RUN and first in _SCRIPTS and program in ("yarn", "pnpm"):
        return program, _SCRIPTS[first]
    if program in _WITH_WORD:
        plain = [w for w in words[1:] if w in _WITH_WORD[program] or not w.startswith("-")]
        return program, _WITH_WORD[program].get(plain[0]) if plain else None
    return program, _PROGRAMS.get(program)


def _name(word: str) -> str:
    """The program that a word names: of one with a path only where the path is a place of programs, else ""."""
    folder, slash, name = word.rpartition("/")
    folder = (folder + slash).removeprefix("./")
    if not slash or folder in _SYSTEM or folder in _PLACES:
        return name
    within = folder.startswith("/") and not folder.startswith(("/tmp/", "/var/tmp/", "/dev/"))
    known = within and ".." not in folder and folder.endswith(tuple(f"/{place}" for place in _PLACES))
    return name if known else ""


def _replaces(word: str) -> bool:
    """Whether a variable is set, or named, that decides which code a program runs."""
    variable = word.partition("=")[0].removesuffix("+")
    return variable in _REPLACES or variable.startswith(("LD_", "DYLD_"))


def _bare(words: list[str]) -> list[str] | None:
    """The command without variables set for it and programs that only start it; None where that is not sure."""
    while words:
        name = _name(words[0])
        variable, sets, _ = words[0].partition("=")
        if sets and variable.isidentifier():
            if _replaces(words[0]):
                return None
            words = words[1:]
        elif name == "timeout" or name in _PREFIXES:
            if words[1:2] and words[1].startswith("-"):
                return None
            words = words[2:] if name == "timeout" else words[1:]
        elif name in _RUNNERS and len(words) > 2 and words[1] == _RUNNERS[name]:
            words = words[2:]
        else:
            return words
    return words
