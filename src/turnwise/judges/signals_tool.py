"""Reading tool output: exit codes, tracebacks, test verdicts, compiler errors, HTTP and JSON status, screen changes.

Pure functions. They name what kind of outcome the output shows; what a kind is worth stands in ``weights.json``. A
failure that the task asked for is an expected outcome, and a fault of the world outside is nobody's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from turnwise.judges.tool_patterns import (
    BAD_STATUS,
    CHANGED,
    CLASSES,
    EMPTY,
    ERROR,
    ERROR_KEYS,
    EXIT,
    EXPECTS_NEGATIVE,
    FAIL_COUNT,
    FAIL_WORD,
    GOOD_STATUS,
    HTTP,
    IGNORE_CASE,
    INFRASTRUCTURE,
    KNOWN_FAILURES,
    LIST_KEYS,
    LOOKS_FOR,
    NETWORK_PROBE,
    NO_CHANGE,
    OPEN_STATUS,
    OWN_FAILURE,
    PASS_COUNT,
    PASS_WORD,
    READS,
    SCREEN,
    SKIPPED,
    STOPPED,
    STOPS,
    SUCCESS,
    SUCCESS_KEYS,
    TRACEBACK,
    UNFINISHED,
    UNREADABLE,
    VALUE_KEYS,
    WARNING_LINE,
)

MAX_JSON_STARTS = 64
"""Brackets tried as the start of a JSON value; a text with more that are none is not JSON."""
_JSON_START = re.compile(r"[{\[]")


def tool_features(task: str, answer: str, outputs: list[str]) -> dict[str, float]:
    """Kinds of outcome shown by the tool outputs of one turn → strength (1.0 = present). Empty when there are none."""
    if not outputs:
        return {}
    text = "\n".join(outputs).strip()
    found = _outcome(task, answer, text)
    if _wrong_target(task, text):
        found["tool.wrong_target"] = 1.0
    if len(outputs) > 1:
        found["tool.several"] = 1.0
    return found


def _outcome(task: str, answer: str, text: str) -> dict[str, float]:
    purpose = f"{task}\n{answer}"
    negative_wanted = bool(EXPECTS_NEGATIVE.search(purpose))
    payloads = list(json_values(text))
    json_kinds = {kind for value in payloads for kind in _json_kinds(value)}
    code = _exit_code(text, answer)
    status = [int(m) for m in HTTP.findall(text)]
    if READS.search(answer) and not _own_failure(answer, text) and not negative_wanted and not payloads:
        body = _body(text, code)
        return {"tool.content": 1.0} if body and not EMPTY.match(body) else {"tool.empty": 1.0}
    # What stands inside a data record (a review, a mail, a file) is not the tool's own verdict.
    prose = "" if payloads and _mostly_json(text) else WARNING_LINE.sub("", text)

    infra = bool(prose and INFRASTRUCTURE.search(text)) or any(s >= 500 or s == 429 for s in status)
    infra = infra or bool(json_kinds & {"infra"})
    failed, passed = test_verdict(prose)
    trouble = bool(ERROR.search(prose) or TRACEBACK.search(prose)) or "bad" in json_kinds
    trouble = trouble or any(400 <= s < 500 for s in status)
    negative = failed or trouble or (code not in (None, 0)) or bool(STOPPED.search(prose))

    if negative_wanted or (STOPS.search(task) and STOPPED.search(prose)):
        if negative or (infra and NETWORK_PROBE.search(task)) or EMPTY.match(_body(prose, code) or prose):
            return {"tool.expected_negative": 1.0}
        if passed or code == 0 or "good" in json_kinds:
            return {"tool.unexpected_positive": 1.0}
    if infra and not (failed and not re.search(r"network|connect|resolve", prose, IGNORE_CASE)):
        return {"tool.infrastructure": 1.0}
    if SKIPPED.search(prose) or (re.search(r"\b\d+ skipped", prose) and not passed and not failed):
        return {"tool.nothing_ran": 1.0}
    if failed:
        return {"tool.known_failures": 1.0} if KNOWN_FAILURES.search(text) else {"tool.tests_failed": 1.0}
    if passed and not TRACEBACK.search(prose):
        return {"tool.tests_passed": 1.0}
    if "bad" in json_kinds:
        return {"tool.json_error": 1.0}
    if any(400 <= s < 500 for s in status):
        return {"tool.http_client_error": 1.0}
    if "open" in json_kinds or (UNFINISHED.search(prose) and not TRACEBACK.search(prose)):
        return {"tool.unfinished": 1.0}
    if SCREEN.search(prose) and not TRACEBACK.search(prose):
        return _screen_outcome(prose)
    if TRACEBACK.search(prose):
        return {"tool.traceback": 1.0}
    body = _body(prose, code)
    if prose and (EMPTY.match(body) or re.match(r"\W*no output\W*\n+\W*(?:note|hint|tip|warning)", prose, IGNORE_CASE)):
        if code == 0 and not LOOKS_FOR.search(task):
            return {"tool.exit_zero": 1.0}
        # A search ends with status 1 when it found nothing; other commands end so when they fail.
        searched = code in (None, 0) or (code == 1 and bool(LOOKS_FOR.search(purpose)))
        return {"tool.empty": 1.0} if searched else {"tool.exit_nonzero": 1.0}
    if ERROR.search(prose):
        return {"tool.error_text": 1.0}
    if code not in (None, 0):
        return {"tool.exit_nonzero": 1.0}
    if "null" in json_kinds:
        return {"tool.null_value": 1.0}
    if "good" in json_kinds or any(200 <= s < 300 for s in status):
        return {"tool.json_success": 1.0}
    if "empty" in json_kinds:
        return {"tool.empty": 1.0}
    if code == 0:
        return {"tool.exit_zero": 1.0}
    if payloads:
        return {"tool.data": 1.0}
    if SUCCESS.search(prose):
        return {"tool.success_text": 1.0}
    return {"tool.plain_output": 1.0}


def _own_failure(command: str, text: str) -> bool:
    """Whether a reading command itself failed, as opposed to showing text about failures."""
    name = re.match(r"\s*([\w./-]{1,30}): ", text)
    spoken = name is not None and re.search(rf"(?<![\w-]){re.escape(name[1].rsplit('/', 1)[-1])}(?![\w-])", command)
    return bool(spoken or re.match(r"\s*(?:ba|z|da)?sh: ", text) or OWN_FAILURE.search(text))


def _screen_outcome(text: str) -> dict[str, float]:
    if re.search(r"\b(?:click|type|drag|upload|select\w*|fill|press|tap)\w* (?:failed|rejected)", text, IGNORE_CASE):
        return {"tool.screen_error": 1.0}
    rest = NO_CHANGE.sub("", text)
    if re.search(r"\b(?:0|no) (?:results|matches|items|hits|entries)\b", rest, IGNORE_CASE):
        return {"tool.empty": 1.0}
    if UNREADABLE.search(rest):
        return {"tool.no_change": 1.0}
    if CHANGED.search(rest):
        bad = re.search(
            r"\berror|\binvalid|\brequired\b|\bnot (?:allowed|found|valid)|\bfailed|\bwrong|\bdenied|\bmust\b",
            rest,
            IGNORE_CASE,
        )
        return {"tool.screen_error": 0.7} if bad else {"tool.screen_changed": 1.0}
    if ERROR.search(rest):
        return {"tool.screen_error": 1.0}
    if NO_CHANGE.search(text):
        return {"tool.no_change": 1.0}
    return {"tool.screen_changed": 0.5}


def test_verdict(text: str) -> tuple[bool, bool]:
    """(failed, passed) as test runners, linters and compilers report them; both False when none did."""
    numbers = [int(next(g for g in m if g)) for m in FAIL_COUNT.findall(text)]
    failed = any(n > 0 for n in numbers)
    if (not numbers and FAIL_WORD.search(text)) or re.search(
        r"^\s*(?:--- )?FAIL\b|\bBUILD FAILED|could not compile|^not ok\b", text, re.MULTILINE
    ):
        failed = True
    passed = any(int(next(g for g in m if g)) > 0 for m in PASS_COUNT.findall(text)) or bool(PASS_WORD.search(text))
    return failed, passed and not failed


def json_values(text: str) -> Iterator[Any]:
    """The JSON objects and arrays that stand in the text, outermost only."""
    decoder, at = json.JSONDecoder(), 0
    for _ in range(MAX_JSON_STARTS):
        match = _JSON_START.search(text, at)
        if match is None:
            return
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            at = match.end()
            continue
        if isinstance(value, dict) or (isinstance(value, list) and (not value or isinstance(value[0], dict | list))):
            yield value
        at = max(end, match.end())


def _mostly_json(text: str) -> bool:
    return text.lstrip()[:1] in "{[" and text.rstrip()[-1:] in "}]"


def _json_kinds(value: Any, depth: int = 1) -> set[str]:
    """Verdicts that a JSON answer gives about itself, from its two outer levels."""
    if isinstance(value, list):
        return {"empty"} if not value else {"data"}
    kinds: set[str] = set()
    for key, item in value.items():
        name = str(key).lower()
        if name in ERROR_KEYS and item:
            server_side = isinstance(item, dict) and str(item.get("code", item.get("status", "")))[:1] == "5"
            kinds.add("infra" if server_side or INFRASTRUCTURE.search(json.dumps(item)) else "bad")
        if name in SUCCESS_KEYS and isinstance(item, bool):
            kinds.add("good" if item else "bad")
        if item is False and depth and re.fullmatch(r"\w{3,}(?:ed|sent|paid|done|ok|successful)", name):
            kinds.add("bad")
        if name in {"status", "state", "outcome", "delivery", "result"} and isinstance(item, str):
            word = item.lower().replace(" ", "_").replace("-", "_")
            if re.match(r"(?:await|wait|search|pend|need|requir|process|sched)\w*_|\w+ing\Z", word):
                kinds.add("open")
            kinds |= {k for k, s in (("good", GOOD_STATUS), ("open", OPEN_STATUS), ("bad", BAD_STATUS)) if word in s}
        if name in {"status", "code", "statuscode", "status_code", "http_status"} and isinstance(item, int):
            if item == 429 or 500 <= item < 600:
                kinds.add("infra")
            elif 400 <= item < 500:
                kinds.add("bad")
            elif 200 <= item < 300:
                kinds.add("good")
        if (
            name in {"detail", "details", "messages"}
            and isinstance(item, list)
            and re.search(r"\b(?:should|must|invalid|required|unable|unknown|not)\b", json.dumps(item))
        ):
            kinds.add("bad")
        if name in VALUE_KEYS and item is None:
            kinds.add("null")
        if name in LIST_KEYS and isinstance(item, list):
            kinds.add("data" if item else "empty")
        if name in {"count", "total", "total_results", "matches", "hits", "num_results"} and item == 0:
            kinds.add("empty")
        if isinstance(item, dict):
            kinds |= _json_kinds(item, depth - 1) & {"infra", "open", "bad", "null"} if depth else set()
        if name in {"message", "reason", "detail", "note", "title"} and isinstance(item, str):
            if INFRASTRUCTURE.search(item):
                kinds.add("infra")
            elif UNFINISHED.search(item):
                kinds.add("open")
    if "open" in kinds:
        kinds -= {"good"}
    if "bad" in kinds:
        kinds -= {"good", "open"}
    if "infra" in kinds:
        kinds -= {"bad", "good"}
    return kinds


def _exit_code(text: str, answer: str) -> int | None:
    codes = EXIT.findall(text)
    if codes:
        return int(codes[-1])
    # `command; echo $?` prints the bare status as its last line.
    last = text.strip().rsplit("\n", 1)[-1].strip()
    return int(last) if "$?" in answer and re.fullmatch(r"-?\d{1,3}", last) else None


def _body(text: str, code: int | None) -> str:
    """The output without the lines that only report the exit status."""
    lines = [line for line in text.splitlines() if line.strip()]
    if code is not None:
        lines = [line for line in lines if not EXIT.fullmatch(line.strip(" ()[].")) and line.strip() != str(code)]
    return "\n".join(line for line in lines if not re.fullmatch(r"\W*no output\W*", line.strip(), IGNORE_CASE))


def _wrong_target(task: str, text: str) -> bool:
    if not re.search(r"\bnow\b|\bset to\b|\bselected\b|->|→|\"\w+\"\s*:", text, IGNORE_CASE):
        return False
    asked, got = (
        set(re.findall(r"[a-z]+", task.lower())),
        set(re.findall(r"[a-z]+", re.sub(r"\([^)]*\)", "", text.lower()))),
    )
    return any(len(group & asked) == 1 and len(group & got) == 1 and group & asked != group & got for group in CLASSES)
