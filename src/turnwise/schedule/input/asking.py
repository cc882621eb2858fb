"""Asks a program of the desktop one question, within a limit. What it answers is text from outside."""

from __future__ import annotations

import os
import subprocess

from turnwise.errors import SensorFault

LIMIT_S = 3.0
"""Longest wait for an answer. All of these programs answer within milliseconds, or hang."""
MOST_SAID = 200
"""Characters of a program's complaint that are shown."""


def ask(*command: str, limit_s: float = LIMIT_S) -> str:
    """What the command prints. Raises SensorFault with the reason where it gives no answer."""
    name = command[0].rsplit("/", 1)[-1]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            env=os.environ | {"LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError:
        raise SensorFault(f"the program {name} is not installed") from None
    except subprocess.TimeoutExpired:
        raise SensorFault(f"{name} did not answer within {limit_s:g} seconds") from None
    except OSError as e:
        raise SensorFault(f"{name} could not be started: {e.strerror}") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())[:MOST_SAID]
        raise SensorFault(f"{name} failed: {said or f'exit code {done.returncode}'}")
    return done.stdout.decode(errors="replace")
