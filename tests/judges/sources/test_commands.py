"""Which command lines of an agent are diagnostic: every part on the list, nothing in it that could forge a report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwise.judges.sources.commands import MAX_COMMAND, Diagnostic, diagnostic, read_command, shell_command

KINDS = {
    "test": [
        "pytest -q tests/unit", "py.test", "jest", "vitest run", "mocha", "ava", "rspec", "phpunit", "ctest", "bats t",
        "nose2", "unittest", "tox", "nox", "playwright test", "python -m pytest -q", "python3 -m unittest", "py -m tox",
        "python -m nose2", "python -m nox", "cargo test", "cargo nextest run", "go test ./...", "npm test", "npm t",
        "pnpm test", "yarn test", "bun test", "deno test", "dotnet test", "swift test", "mvn test", "mvn verify",
        "mvnw verify", "mvnw test", "gradle test", "gradle check", "gradlew test", "gradlew check",
        "node --test", "npm run test", "npm run test:unit", "pnpm run test:e2e", "yarn run test", "bun run test",
        "yarn test --coverage", "pnpm test -r", "cargo -q test", "mvn -B -q test", "go test -run TestSum ./...",
    ],
    "check": [
        "gcc -c a.c", "g++ a.cc", "cc a.c", "c++ a.cc", "clang a.c", "clang++ a.cc", "rustc a.rs", "javac A.java",
        "kotlinc a.kt", "tsc --noEmit", "mypy src", "pyright", "ruff check .", "flake8", "pylint a", "eslint .",
        "shellcheck a.sh", "hadolint Dockerfile", "yamllint .", "pyflakes a.py", "black --check .", "isort -c .",
        "golangci-lint run", "clippy", "ninja", "swiftc a.swift", "vulture src", "bandit -r src", "cargo build",
        "cargo check", "cargo clippy", "go build ./...", "go vet ./...", "deno check a.ts", "deno lint",
        "dotnet build", "swift build", "mvn compile", "mvn package", "mvnw compile", "mvnw package", "gradle build",
        "gradlew build", "node --check a.js", "cmake --build out", "nginx -t", "terraform validate", "npm run lint",
        "npm run build", "pnpm run typecheck", "yarn run type-check", "bun run check", "npm run lint:css",
        "yarn lint", "pnpm build", "yarn typecheck", "pnpm type-check", "yarn check", "python -m mypy src",
        "python3 -m pyright", "python -m ruff check", "python -m flake8", "python -m pylint a", "python -m pyflakes a",
        "python -m black --check .", "python -m isort .", "python -m py_compile a.py", "python -m compileall src",
        "cargo --locked check",
    ],
    "recipe": ["make", "make -j4 all", "make test"],
    "effect": [
        "mkdir -p a/b", "rmdir a", "rm -rf out", "cp a b", "mv a b", "ln -s a b", "touch a", "chmod +x a",
        "chown me a", "kill 12", "install a b", "cargo add serde", "npm ci", "npm install", "npm i left-pad",
        "pnpm install", "pnpm i", "yarn install", "yarn add x", "bun install", "pip install x", "pip uninstall x",
        "pip3 install x", "pip3 uninstall -y x", "apt-get install x", "apt-get -y remove x", "apt install x",
        "apt remove x", "systemctl start x", "systemctl stop x", "systemctl restart x", "systemctl reload x",
        "systemctl enable x", "git add .", "git commit -m 'a; b'", "git switch main", "git checkout main",
        "git merge dev", "git push", "python -m pip install x",
        # Tests and checks with an option under which they run no test and check nothing.
        "pytest --help", "pytest --version", "mypy -h", "ruff -V", "pytest --co", "pytest --collect-only -q",
        "tsc --showConfig", "ruff check --show-settings", "ruff check --show-files", "pytest --fixtures",
        "pytest --markers", "cargo test --no-run", "ctest --list", "jest --listTests", "mocha --list-tests",
        "go test -list .", "tsc --init", "npm test --if-present", "vitest run --passWithNoTests",
        "cargo build --help",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "command"), [(kind, command) for kind, many in KINDS.items() for command in many])
def test_a_program_on_the_list_is_of_its_kind(kind: str, command: str) -> None:
    read = read_command(command)
    assert read is not None
    assert read.kinds == (kind,)
    assert not read.status_lost
    assert not read.echoes


@pytest.mark.parametrize(
    "command",
    [
        # Readers, fetchers, scripts, and programs that we do not know.
        "cat report.txt", "curl https://example.org", "grep -r passed .", "python run.py", "python -c 'print(1)'",
        "python -m http.server", "python -m", "python -q -m pytest", "python run.py pytest", "node app.js", "node",
        "bash test.sh", "./run.sh",
        "head -3 a", "git log", "git", "git diff", "git show HEAD", "cargo run", "cargo", "cargo --list", "go run .",
        "npm run dev", "npm run", "npm", "npm start", "npm lint", "bun lint", "yarn dev", "yarn run dev", "pip list",
        "yarn dev test", "npm exec test", "go generate test", "bun run", "pnpm exec vitest", "tests", "dotnet run",
        "systemctl status x", "cmake .", "nginx", "terraform plan", "apt-get update", "mvn site", "gradle run",
        # Quiet ones alone report nothing.
        "cd src", "true", "sleep 3", "cd a && cd b", ":",
        # They show files, or take in what another command prints.
        "ruff rule F401", "ruff config", "ruff linter", "black --diff a.py", "black -c 'x=1'", "gcc -E a.c",
        "clang -E a.c", "cc -E a.c", "eslint --print-config a.js", "xargs pytest",
        # A part that is not on the list spoils the whole.
        "pytest && cat log", "cat log && pytest", "cat log; pytest", "pytest || cat log", "pytest & cat log",
        "cat log | pytest", "pytest | tee log", "pytest | grep passed", "pytest\ncat log", "cat a.sh\npytest",
        # What prints more, or writes, or hides what it runs.
        "pytest > log", "pytest < in", "pytest >> log", "pytest 2> log", "pytest &> log", "pytest &", "(pytest)",
        "( cd a && pytest )", "pytest `echo a`", "pytest $(echo a)", "pytest ${ARGS}", "pytest <<EOF", "pytest |& cat",
        'pytest "$(cat a)"', 'pytest "`cat a`"', 'pytest "${ARGS}"', "pytest ();<>|&", "pytest X; cat log",
        # Not a command line at all.
        "", "   ", "pytest 'a", 'pytest "a', "&& pytest", "pytest &&", "pytest ||", "pytest |", "; pytest",
        "pytest ;; mypy", "| tail -3", "pytest && ; mypy", "pytest ; ; mypy",
    ],
)  # fmt: skip
def test_a_command_line_with_a_part_that_is_not_on_the_list_is_content(command: str) -> None:
    assert read_command(command) is None


@pytest.mark.parametrize(
    ("command", "kinds", "programs", "lost", "echoes"),
    [
        ("pytest && mypy src", ("test", "check"), ("pytest", "mypy"), False, False),
        ("mypy src; pytest", ("check", "test"), ("mypy", "pytest"), True, False),
        ("mypy src\npytest", ("check", "test"), ("mypy", "pytest"), True, False),
        ("pytest || mypy", ("test", "check"), ("pytest", "mypy"), True, False),
        ("pytest || true", ("test",), ("pytest", "true"), True, False),
        ("pytest && true", ("test",), ("pytest", "true"), False, False),
        ("pytest; true", ("test",), ("pytest", "true"), True, False),
        ("cd src && pytest", ("test",), ("cd", "pytest"), False, False),
        ("cd src; pytest", ("test",), ("cd", "pytest"), False, False),
        ("cd src\npytest\n", ("test",), ("cd", "pytest"), False, False),
        ("cd src; cd a; pytest && mypy", ("test", "check"), ("cd", "cd", "pytest", "mypy"), False, False),
        ("mkdir a && pytest", ("effect", "test"), ("mkdir", "pytest"), False, False),
        ("pytest;", ("test",), ("pytest",), False, False),
        ("pytest 2>&1", ("test",), ("pytest",), False, False),
        ("pytest 2>&1 | tail -20", ("test",), ("pytest",), True, False),
        ("pytest | tail -n 5", ("test",), ("pytest",), True, False),
        ("pytest | tail", ("test",), ("pytest",), True, False),
        ("pytest|tail -3", ("test",), ("pytest",), True, False),
        ("pytest | tail -3 2>&1", ("test",), ("pytest",), True, False),
        ("pytest -k X", ("test",), ("pytest",), False, False),
        ("mypy | tail -3 && pytest", ("check", "test"), ("mypy", "pytest"), True, False),
        ("pytest; echo $?", ("test",), ("pytest",), False, True),
        ("pytest; echo exit code: $?", ("test",), ("pytest",), False, True),
        ('pytest; echo "EXIT CODE=$?"', ("test",), ("pytest",), False, True),
        ("pytest\necho status $?", ("test",), ("pytest",), False, True),
        ("mypy; pytest; echo $?", ("check", "test"), ("mypy", "pytest"), True, True),
        ("pytest -k 'a && b; c | d'", ("test",), ("pytest",), False, False),
        ('pytest -k "not (slow > 3)"', ("test",), ("pytest",), False, False),
        ("'pytest' -q", ("test",), ("pytest",), False, False),
        ('git commit -m "fix: a || b" && git push', ("effect", "effect"), ("git", "git"), False, False),
        ("  pytest  ", ("test",), ("pytest",), False, False),
        ("pytest # of all", ("test",), ("pytest",), False, False),
    ],
)
def test_the_parts_of_a_command_line_and_whose_status_the_shell_gives(
    command: str, kinds: tuple[str, ...], programs: tuple[str, ...], lost: bool, echoes: bool
) -> None:
    assert read_command(command) == Diagnostic(kinds, programs, lost, echoes)


@pytest.mark.parametrize(
    "command",
    [
        "echo $?", "cd a; echo $?", "echo $?; pytest", "pytest && echo $?", "pytest || echo $?", "pytest | echo $?",
        "pytest; echo $?; mypy", "pytest; echo 0", "pytest; echo", "pytest; echo 3 passed in 0.1s",
        "pytest; echo $? ok", "pytest; echo done $?", "pytest; echo $PATH",
        # Only the end of the report may be taken, by nothing but tail, and from no file.
        "pytest | head -3", "pytest | tail -3 log", "pytest | tail -n +1 /etc/passwd", "pytest | tail x",
    ],
)  # fmt: skip
def test_nothing_is_printed_after_a_report_but_its_status_alone(command: str) -> None:
    assert read_command(command) is None


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("sudo pytest", "pytest"), ("time pytest", "pytest"), ("nice pytest", "pytest"), ("nohup pytest", "pytest"),
        ("env pytest", "pytest"), ("npx jest", "jest"), ("bunx vitest run", "vitest"), ("timeout 60 pytest", "pytest"),
        ("sudo env CI=1 timeout 5m pytest -q", "pytest"), ("CI=1 DEBUG= pytest", "pytest"),
        ("MAX=1 pytest", "pytest"), ("FLAGS=--a=b pytest", "pytest"),
        ("uv run pytest", "pytest"), ("poetry run pytest", "pytest"), ("pipenv run pytest", "pytest"),
        ("hatch run pytest", "pytest"), ("pdm run pytest", "pytest"), ("bundle exec rspec", "rspec"),
        ("uv run python -m pytest", "python"), ("time uv run pytest", "pytest"),
        ("/usr/bin/pytest", "pytest"), ("/usr/local/bin/pytest", "pytest"), ("/bin/pytest", "pytest"),
        (".venv/bin/pytest", "pytest"), ("./.venv/bin/pytest", "pytest"), ("venv/bin/pytest", "pytest"),
        ("node_modules/.bin/jest", "jest"), ("vendor/bin/phpunit", "phpunit"), ("./vendor/bin/phpunit", "phpunit"),
        ("/home/me/app/.venv/bin/pytest", "pytest"), ("/srv/app/node_modules/.bin/jest", "jest"),
        (".venv/bin/python -m pytest", "python"), ("/usr/bin/env pytest", "pytest"),
    ],
)  # fmt: skip
def test_what_only_starts_a_program_is_passed_over(command: str, program: str) -> None:
    read = read_command(command)
    assert read is not None
    assert read.programs == (program,)
    assert read.kinds == ("test",)


@pytest.mark.parametrize(
    "command",
    [
        # An option of a program that starts another: its value may be any word.
        "sudo -u pytest cat a", "nice -n 5 pytest", "env -i pytest", "npx -y jest", "timeout -k 5 60 pytest",
        "timeout -s pytest cat a", "sudo -g pytest",
        # A runner with another word, or with nothing to run.
        "uv pip pytest", "uv run", "poetry exec pytest", "bundle run rspec", "sudo", "timeout 60", "CI=1", "npx",
        # A program of a place where anybody puts anything.
        "./pytest", "/tmp/pytest", "bin/pytest", "../.venv/bin/pytest", "/tmp/x/.venv/bin/pytest",
        "/var/tmp/x/venv/bin/pytest", "/dev/shm/.venv/bin/pytest", "/home/me/../you/.venv/bin/pytest",
        "/home/me/bin/pytest", "app/.venv/bin/pytest", "~/pytest", "my.venv/bin/pytest", "/home/my.venv/bin/pytest",
        # A variable that puts other code into a program's place.
        "PATH=/tmp pytest", "PATH+=:/tmp pytest", "PYTHONPATH=x pytest", "LD_PRELOAD=a.so pytest",
        "DYLD_INSERT_LIBRARIES=a pytest", "NODE_OPTIONS=-ra jest", "PYTEST_ADDOPTS=-pfake pytest",
        "CI=1 RUSTC_WRAPPER=x cargo test", "export PATH=/tmp:$PATH; pytest", "export CI=1 BASH_ENV=x && pytest",
        "export PYTHONSTARTUP && pytest", "export PATH+=:/tmp; pytest", "RUBYOPT=-rx rspec",
        "JAVA_TOOL_OPTIONS=x mvn test", "NODE_PATH=x jest",
        "PYTHONHOME=x pytest", "PYTEST_PLUGINS=x pytest", "env LD_AUDIT=x pytest",
        # A script that is read in, and is no environment of the project.
        "source setup.sh && pytest", ". ./setup.sh && pytest", "source /tmp/.venv/bin/activate; pytest",
        "source && pytest", "A-B=1 pytest", "=1 pytest",
    ],
)  # fmt: skip
def test_where_it_is_not_sure_what_is_started_the_line_is_content(command: str) -> None:
    assert read_command(command) is None


@pytest.mark.parametrize(
    "command",
    [
        "source .venv/bin/activate && pytest", ". venv/bin/activate; pytest", "source ./.venv/bin/activate && pytest",
        ". ./venv/bin/activate && pytest", "export CI=1 && pytest", "export MY_PATH=/x; pytest",
        "unset PYTHONPATH; pytest",
        "pushd a && pytest && popd", "set -e; pytest", "sleep 1; pytest", ": && pytest", "OLD_LD_PATH=x pytest",
    ],
)  # fmt: skip
def test_what_sets_up_a_run_harmlessly_is_quiet(command: str) -> None:
    read = read_command(command)
    assert read is not None
    assert read.kinds == ("test",)


def test_a_command_line_is_read_up_to_a_length() -> None:
    longest = "pytest ".ljust(MAX_COMMAND, "a")
    assert read_command(longest) is not None
    assert read_command(longest + "a") is None
    assert MAX_COMMAND == 4000


@pytest.mark.parametrize(
    ("tool", "arguments", "command"),
    [
        ("bash", {"command": "ls"}, "ls"),
        ("Bash", {"command": "ls"}, "ls"),
        ("exec_command", {"cmd": "ls"}, "ls"),
        ("run", {"script": "ls"}, "ls"),
        ("container.exec", '{"cmd": "ls"}', "ls"),
        ("bash", {"command": "", "cmd": "ls"}, "ls"),
        ("bash", {"command": "a", "cmd": "b", "script": "c"}, "a"),
        ("shell", {"command": ["bash", "-lc", "cd a && pytest"]}, "cd a && pytest"),
        ("shell", {"command": ["/bin/sh", "-c", "ls | wc"]}, "ls | wc"),
        ("shell", {"command": ["zsh", "-c", "ls"]}, "ls"),
        ("shell", {"command": ["git", "commit", "-m", "a b"]}, "git commit -m 'a b'"),
        ("shell", {"command": ["bash", "-x", "a.sh"]}, "bash -x a.sh"),
        ("shell", {"command": ["python", "-c", "print(1)"]}, "python -c 'print(1)'"),
        ("shell", {"command": ["bash", "-c", "ls", "x"]}, "bash -c ls x"),
        ("shell", {"command": ["bash", "-c"]}, "bash -c"),
        ("shell", {"command": ["pytest", 3]}, None),
        ("shell", {"command": {"a": "b"}}, None),
        ("shell", {"command": []}, None),
        ("shell", {"path": "a"}, None),
        ("shell", "pytest", None),
        ("shell", "{", None),
        ("shell", '["pytest"]', None),
        ("shell", None, None),
        ("shell", "[" * 100_000, None),
        ("read_file", {"command": "ls"}, None),
        ("", {"command": "ls"}, None),
    ],
)  # fmt: skip
def test_the_command_line_of_a_call_to_a_shell(tool: str, arguments: Any, command: str | None) -> None:
    assert shell_command(tool, arguments) == command


@pytest.mark.parametrize(
    "tool",
    [
        "bash", "shell", "exec", "exec_command", "run_shell_command", "run_command", "run_terminal_cmd",
        "run_in_terminal", "execute_command", "terminal", "run", "sh", "shell_command", "local_shell", "execute_bash",
        "container.exec",
    ],
)  # fmt: skip
def test_each_name_of_a_shell_is_known(tool: str) -> None:
    ran = Diagnostic(("test",), ("pytest",), False, False)
    assert diagnostic(tool, {"command": "pytest"}) == ran
    assert diagnostic(tool.upper(), json.dumps({"command": "pytest"})) == ran


def test_a_call_to_another_tool_and_a_call_of_another_command_are_content() -> None:
    assert diagnostic("fetch", {"command": "pytest"}) is None
    assert diagnostic("bash", {"command": "cat a"}) is None
    assert diagnostic("bash", {}) is None
