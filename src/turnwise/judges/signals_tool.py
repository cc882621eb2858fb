"""Reading tool output: exit codes, tracebacks, test verdicts, compiler errors, HTTP and JSON status, screen changes.

Pure functions. They name what kind of outcome the output shows; what a kind is worth stands in ``weights.json``. A
failure that the task asked for is an expected outcome, and a fault of the world outside is nobody's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_I = re.IGNORECASE
_IM = re.IGNORECASE | re.MULTILINE

# The world's faults: network, quota, other people's locks, machines going away.
_INFRASTRUCTURE = re.compile(
    r"temporary failure|internal server error|not reachable|unreachable|could ?n[o']t resolve|name resolution"
    r"|getaddrinfo|\bE(?:AI_AGAIN"
    r"|TIMEDOUT|CONNRESET|NOTFOUND|HOSTUNREACH|PIPE)\b|no route to host"
    r"|network (?:is )?(?:unreachable|error|request .{0,80}failed)|connection (?:lost|reset|refused|closed"
    r"|timed out|aborted)|connect\w* timeout|\boffline\b"
    r"|\b50[0-4] (?:internal|bad gateway|service|gateway|not implemented|server)|HTTP/[\d.]+ 5\d\d"
    r"|status(?:_?code)?\W{1,4}5\d\d\b|bad gateway|gateway time-?out|service (?:is )?(?:temporarily )?unavailable"
    r"|temporarily unavailable|too many requests|HTTP/[\d.]+ 429|status\W{1,4}429\b|rate[- ]?limit"
    r"|quota (?:exceeded|exhausted)|(?:minutes|credits|seats|quota)[^.\n]{0,40}exhausted|checked out\b.*try again"
    r"|try again (?:later|in \d+)|scheduled (?:maintenance|reboot)|under maintenance|maintenance (?:window"
    r"|mode)|going down for|host (?:is )?down|server (?:is )?(?:busy|overloaded|shutting down)|licen[sc]e server"
    r"|(?:job|sandbox|runner|worker|instance|container|pod|node|spot|vm)\b[^.\n]{0,50}(?:exceeded|evicted"
    r"|preempted|reclaimed|lost|terminated|disappeared|killed|unavailable|offline)"
    r"|wall(?:[- ]clock)? (?:time )?limit|lost communication"
    r"|could not get lock|unable to (?:acquire|lock)|resource temporarily|database is locked|another (?:process"
    r"|instance) (?:is )?(?:running|holds|using)|lock(?:ed)? (?:is )?held|\bno space left on device|disk quota"
    r"|out of memory|\bOOM[- ]?kill|cannot allocate memory|killed by (?:the )?(?:kernel|system|scheduler|oom)"
    r"|SSL (?:handshake|connection)|TLS handshake|certificate has expired|upstream (?:connect|timed|request)"
    r"|provider (?:error|outage)|backend (?:error|unavailable)|overloaded|\b(?:is )?(?:starting up"
    r"|shutting down)\b|infrastructure (?:error|failure|problem)|retrying on another|memory exhausted"
    r"|temporary error|unexpected EOF from server|read timed out|request timed out|deadline exceeded"
    r"|operation timed out|\btimed out\b|time-?out (?:after|of|while)|session (?:was )?(?:terminated|expired) by",
    _I,
)
# Nothing to judge yet, or stopped by someone else.
_UNFINISHED = re.compile(
    r"\b(?:queued|pending|in[ _-]progress|still processing|being processed|awaiting|waiting (?:for|on) (?:an? "
    r"|the )?(?:runner|approval|review\w*|worker|queue|confirmation|preview|deploy\w*|human|resources|slot"
    r"|capacity|moderation)|submitted batch|job submitted|interrupted by (?:user|operator)|still loading"
    r"|loading spinner|\bqueue\b|waiting room|captcha|will retry|greylisted|needs?[_ ]approval"
    r"|requires? approval|pending review|scheduled for|still running|not (?:yet )?(?:finished|started"
    r"|available yet)|in the background)\b"
    r"|\bcancel+ed\b[^\n]{0,40}(?:supersed|by|newer)|\bsuperseded\b|\baborted by (?:user|operator)"
    r"|\b(?:progress|uploaded|downloading|building|epoch)\W{1,3}\d{1,2} ?%(?!.*100 ?%)|\bETA\b"
    r"|\bstarted\. (?:check|poll)",
    _I,
)
_SKIPPED = re.compile(
    r"\bno tests? (?:ran|found|collected|were|to run|match)|\bcollected 0 items|\[no test files\]"
    r"|\bno test files|\b0 (?:tests|passing|scenarios|specs)\b|\ball tests? (?:were )?skipped"
    r"|\btests? (?:were )?not run",
    _I,
)
_FAIL_COUNT = re.compile(
    r"(?<![\w.])(\d+) (?:tests? |specs? |examples? |checks? |assertions? |suites? |scenarios? )?(?<!x)(?:failed"
    r"|failures?|failing)\b|\b(?:failures?|failed|errors?)\s*[:=]\s*(\d+)"
    r"|(?<![\w.])(\d+) (?:type |lint |syntax )?errors?\b(?! fixed)|FAILED:? (\d+) of",
    _I,
)
_PASS_COUNT = re.compile(
    r"(?<![\w.])(\d+) (?:tests? |specs? |checks? |suites? |scenarios? )?(?:passed|passing|succeeded|ok\b)"
    r"|\bpass(?:ed)?\s*[:=]\s*(\d+)|\bOK \((\d+)|\bRan (\d+) tests?[^\n]*\n+OK\b|\b(\d+) examples?, 0 failures"
    r"|(100)% tests passed",
    _I,
)
_FAIL_WORD = re.compile(
    r"^\s*(?:---\s*)?FAIL\b|\bFAILED\b|\bFAILURES!|^not ok\b|\bBUILD (?:FAILED|FAILURE)|\bbuild (?:stopped"
    r"|failed)|\bsubcommand failed|^\s*[✗✘✖×]\s|\bTests? failed\b|\bPipeline\b[^\n]{0,20}\bfailed"
    r"|could not compile|\bregression:",
    re.MULTILINE,
)
_PASS_WORD = re.compile(
    r"^(?:PASS|ok)\b|\bBUILD SUCCESS(?:FUL)?\b|\b[Bb]uild succeeded|\b[Aa]ll (?:\w+ ){0,3}(?:passed|pass|ok"
    r"|green|clean|succeeded)\b|\b0 (?:errors|problems|issues|warnings|failures|failed)\b|\b[Nn]o (?:issues"
    r"|problems|errors|lint errors|warnings|vulnerabilities) (?:were )?(?:found|detected)?"
    r"|\balready formatted|\bSuccess: no issues|\bcompiled successfully|\bFinished `?\w+`? "
    r"|\bwould be left unchanged",
    re.MULTILINE,
)
_TRACEBACK = re.compile(
    r"Traceback \(most recent|^\s*at [\w.$<>]+ ?\(.*:\d+|^panic:|\bthread '.*' panicked"
    r"|^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b(?:[: ]|$)|\bUnhandled|\bsegmentation fault"
    r"|core dumped|\bUncaught\b|stack trace|^goroutine \d",
    re.MULTILINE,
)
_ERROR = re.compile(
    r"^\S+\.\w{1,5}:\d+(?::\d+)?: (?!warning|note|info)|\(\d+,\d+\): error|\*\*\* \[|\bhangs\b"
    r"|^validation (?:error|message)|\bplease (?:use|enter|provide|choose|upload|select|fill)\b"
    r"|\bsays? that\b.*\bfail|\blooks like an?\b.*\btry\b|\bis not an? \w+ command|\boutside\b.*\bhours"
    r"|\bonly \w+[^.\n]{0,30} (?:are|is) allowed|(?:^|\n)CONFLICT"
    r"|^\s*(?:\S{1,40}: )?(?:fatal|error|err|E)\b ?(?:\[\w+\])?:|\berror(?: code)?:|\berror\b \w+\d+"
    r"|\berror TS\d+|: command not found|\bnot recognized as|\b(?:invalid|unknown|unrecognized|illegal"
    r"|unsupported|unexpected|bad|ambiguous) (?:option|argument|arguments|flag|command|expression|value|token|"
    r"parameter|request|syntax|field|column|key|character|type|format|input|identifier|operand|EOF|date|path"
    r"|number|selector|keyword)|\bunexpected (?:EOF|end|token|indent)|\bsyntax error|^usage:|\bUsage:"
    r"|no such (?:file|option|command|column|table|service|key|user|host|container|element|module|image)|"
    r"\bnot found\b|does not exist|doesn't exist|\bpermission denied|\baccess (?:is )?denied|\bforbidden"
    r"|\bunauthori[sz]ed|\bcannot\b|\bcan't\b|\bcould not\b|\bunable to\b|\bfailed\b|\brefus(?:ed|ing)\b"
    r"|\brejected|\baborting|\bconflict(?:s)?\b|\bexception\b|\bmissing (?:required|argument|operand|"
    r"field|parameter)|\bis required\b|\bmust (?:be|have|not|contain|match)\b|\bnot (?:supported|allowed"
    r"|permitted|a valid|clickable|interactable|enabled|a git|in gzip)|\bdenied\b|\bdisallowed"
    r"|\bdoes not (?:accept|support|match|have|contain|fit|compile)|\bintercept(?:ed|s)|\bobscured|\bdisabled\b"
    r"|\bout of (?:range|bounds)"
    r"|\balready exists|\bnothing (?:to commit|was)|\bno matching|\bviolat|\bexceeds|\btoo (?:long|large|many"
    r"|short|small|few)\b|\boverlaps?\b|\bincorrect|\bmismatch|\bwrong\b|\bexpired\b|\bE\d{3,4}\b|did you mean",
    _IM,
)
_HTTP = re.compile(r"(?:HTTP/[\d.]+\s+|\bstatus(?:[_ ]?code)?\W{1,4}|\bHTTP )(\d{3})\b", _I)
_EXIT = re.compile(
    r"\b(?:exit(?:ed)?(?:[ _](?:code|status|with))?(?:[ _](?:code|status))?|returncode|return code"
    r"|rc)\s*[:=]?\s*(-?\d+)\b",
    _I,
)
_EMPTY = re.compile(
    r"^\W*(?:no output|no (?:results?|matches|entries|records|rows|items|hits|files|data|events?|messages"
    r"|\w+) (?:found|match(?:ed|ing)?|returned|available)\b.*|0 (?:results|matches|rows|hits|records|items)\b.*"
    r"|nothing found.*|\[\]|\{\}|null|none|)\W*$",
    _I,
)
_SUCCESS = re.compile(
    r"\b(?:success(?:ful|fully)?|succeeded|done|completed?|created|saved|installed|updated|deleted|removed"
    r"|added|copied|moved|enabled|switched|uploaded|deployed|merged|sent|confirmed|verified|restored|accepted"
    r"|applied|renamed|published|booked|submitted|started|restarted|stopped|finished|written|valid|healthy"
    r"|synced|imported|exported|converted|scheduled|resolved|up to date|active \(running\)|fast-forward"
    r"|delivered|signed in|logged in|subscribed|listening|running on|is ok|100 ?%|\bok\b)\b|✓|✔|✅",
    _I,
)
_CHANGED = re.compile(
    r"->|→|=>|\b(?:changed|now (?:shows?|visible|checked|selected|open|on|displays?|reads?|lists?|contains?"
    r"|active|at|in)|appeared|is gone|disappeared|new text|expanded|collapsed|navigated|url (?:is|now|changed)"
    r"|opened|closed|toast|highlighted|loaded|page title|redirected|dialog|modal|selected|row (?:added|removed)"
    r"|scrolled|notified|went from)\b",
    _I,
)
_NO_CHANGE = re.compile(
    r"\bno visible (?:navigation|change|effect)|\bnothing (?:changed|happened)|\b(?:page|screen(?:shot)?|dom"
    r"|view|state|url)(?: is| was)? (?:unchanged|identical|the same)|\bno (?:change|effect|navigation"
    r"|difference)\b|\bunchanged\b",
    _I,
)
_SCREEN = re.compile(
    r"\b(?:click|type|drag|scroll|upload|select\w*|hover|press|tap|swipe|fill|key|goto|navigate|check|drop"
    r"|open)\w*\s+(?:executed|performed|done|failed|sent|rejected|started)|\baria-|\belement\b|\bcheckbox"
    r"|\bscreen(?:shot)?\b|\bpage shows\b",
    _I,
)

# The task asks for something to be absent, refused, stopped or to fail.
_EXPECTS_NEGATIVE = re.compile(
    r"\bmust(?: now)? fail\b|\btests? (?:that|which) (?:shows?|reproduces?|demonstrates?|exposes?|proves?"
    r"|fails?|captures?)\b|\b(?:make sure|ensure|verify|check|confirm|prove|see"
    r"|show)\b[^.\n]{0,60}\b(?:can ?not|can't|rejects?|(?:gives?|returns?|raises?|throws?) an? (?:error"
    r"|exception)|fails?|locked|off|reproducible)\b|"
    r"\bexpect(?:ed|ing|s)?\b[^.\n]{0,40}\b(?:4\d\d|fail\w*|errors?|den\w+|refus\w+|reject\w*|red|nothing|empty"
    r"|no |exception|raise)"
    r"|\bshould(?: now)? (?:fail|be (?:denied|refused|rejected|blocked|gone|empty|red|inactive|stopped"
    r"|unreachable)|not |no longer|raise|return (?:4\d\d|an error|nothing)|error|time out|refuse|crash)"
    r"|\b(?:must|may|can)(?: ?not|n't) (?:be |read|access|reach|write|log|see|connect|open|delete|push)"
    r"|\b(?:cannot|can no longer|is not allowed to|is unable to|without (?:rights|permission|a token))\b"
    r"|\b(?:make sure|ensure|verify|check|confirm|see|prove|show|test)\b[^.\n]{0,60}\b(?:den(?:y|ies|ied)"
    r"|deleted|removed|gone|blocked|closed|disabled|rejects?|rejected|refus\w+|no longer|any ?more|is down"
    r"|unreachable|stopped|"
    r"retired|revoked|expired|locked out|unused|uninstalled|no (?:file|one|user|references?|traces?|process"
    r"|leftover)|never|not )"
    r"|\b(?:with|add|write|adding|wrote|added|commit)\b[^.\n]{0,25}\bfailing test"
    r"|\bfailing test\b[^.\n]{0,40}\b(?:first|before)|\breproduc(?:e|es|ing|tion)\b|\bbefore fixing"
    r"|\bred (?:first|phase|test)|\btest[- ]first|\bwhether\b[^.\n]{0,50}\b(?:blocked|closed|down|gone|denied"
    r"|filtered)",
    _I,
)
# Actions whose output is somebody else's text: words such as "error" in it are no verdict on the action.
_READS = re.compile(
    r"(?:^|\$ ?|&& |\| |; |sudo )(?:cat|head|tail|less|sed -n|grep|rg|awk|journalctl|dmesg|git (?:log|show|diff"
    r"|blame|status)|ls|tree|find|stat|file|wc|ps|env|history)\s"
    r"|\b(?:read_file|view|open_file|get_page|fetch_page|read|fetch|get_text|inbox\w*|mail\.\w*(?:get|read"
    r"|list)\w*|logs?\.\w+|read_\w+|get_\w*(?:log|file|page|text)\w*)\(",
    re.MULTILINE,
)
_OWN_FAILURE = re.compile(
    r"\A\s*(?:(?:\w+/)*[\w.-]{1,20}: |error\b|fatal\b|E: |Err:|Traceback|usage|permission denied|no such"
    r"|not found|\(?no output|timed? ?out|ssh\b|failed|HTTP/)|\bcommand not found|: No such file"
    r"|: Permission denied|unexpected EOF|\bkilled\b|terminated\b",
    _I,
)
_WARNING_LINE = re.compile(r"^.{0,40}\b(?:warn(?:ing)?|deprecated|notice|info)\b(?![^\n]{0,30}\berror).*$\n?", _IM)
_UNREADABLE = re.compile(
    r"\b(?:could not be|cannot be|can't be|not) (?:captured|read|readable|determined|rendered|observed|verified"
    r"|loaded)\b"
    r"|\bnot accessible\b|\bblank (?:page|screenshot)|\bno screenshot",
    _I,
)
_STOPS = re.compile(r"\b(?:stop|kill|disable|shut ?down|terminate|deactivate|quit)\w*\b", _I)
_STOPPED = re.compile(
    r"^\s*(?:inactive|dead|stopped|disabled|exited|not running|off)\b|\bActive: inactive|no process|not running", _IM
)
_KNOWN_FAILURES = re.compile(
    r"\b(?:pre-?existing|known|unrelated|same as (?:on )?(?:main|master|before)|also fails? on (?:main|master)"
    r"|xfail)\b",
    _I,
)
_LOOKS_FOR = re.compile(
    r"\b(?:find|search|look|grep|list|locate|check (?:for|whether|if)|any|which|where|investigat\w+|discover"
    r"|query)\b",
    _I,
)
_NETWORK_PROBE = re.compile(
    r"\b(?:port|reach\w*|ping|nc|telnet|firewall|dns|blocked|latency|timeout|rate limit\w*|load test|retry"
    r"|retries|resilien\w+|outage|down)\b",
    _I,
)

_GOOD_STATUS = frozenset(
    "ok success successful succeeded confirmed active done completed complete created delivered sent saved published accepted approved paid booked restored updated deleted removed resolved merged ready healthy enabled "
    "valid granted cancelled_by_user connected online passed open closed finished installed applied shipped scheduled subscribed".split()
)
_OPEN_STATUS = frozenset(
    "pending queued processing in_progress running needs_approval awaiting_approval awaiting waiting submitted unknown draft review in_review requires_action on_hold held partial deferred backordered".split()
)
_BAD_STATUS = frozenset(
    "error failed failure rejected denied invalid declined not_found notfound expired conflict forbidden unauthorized bad_request unprocessable bounced blocked aborted refused invalid_request missing".split()
)
_SUCCESS_KEYS = frozenset(
    "ok success sent created valid updated deleted saved accepted done removed booked added published moved".split()
)
_ERROR_KEYS = frozenset(
    "error errors exception fault error_message error_code problems violations validation_errors".split()
)
_VALUE_KEYS = frozenset("value price result data quote reading answer output amount rate temperature".split())
_LIST_KEYS = frozenset(
    "items results rows hits matches data records events messages entries files users list documents orders".split()
)

_CLASSES: tuple[frozenset[str], ...] = (
    frozenset("monday tuesday wednesday thursday friday saturday sunday".split()),
    frozenset("january february march april june july august september october november december".split()),
    frozenset("red green blue yellow black white orange purple grey".split()),
    frozenset("small medium large".split()),
    frozenset("staging production testing".split()),
    frozenset(
        "germany austria switzerland france spain italy norway sweden denmark netherlands belgium portugal poland canada australia japan".split()
    ),
    frozenset("english german french spanish italian dutch portuguese polish japanese".split()),
    frozenset("eur usd gbp chf jpy".split()),
)
"""Groups of which a task names one: another one in the result means that the action hit the wrong target."""


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
    negative_wanted = bool(_EXPECTS_NEGATIVE.search(purpose))
    payloads = list(json_values(text))
    json_kinds = {kind for value in payloads for kind in _json_kinds(value)}
    code = _exit_code(text, answer)
    status = [int(m) for m in _HTTP.findall(text)]
    if _READS.search(answer) and not _OWN_FAILURE.search(text) and not negative_wanted and not payloads:
        body = _body(text, code)
        return {"tool.content": 1.0} if body and not _EMPTY.match(body) else {"tool.empty": 1.0}
    # What stands inside a data record (a review, a mail, a file) is not the tool's own verdict.
    prose = "" if payloads and _mostly_json(text) else _WARNING_LINE.sub("", text)

    infra = bool(prose and _INFRASTRUCTURE.search(text)) or any(s >= 500 or s == 429 for s in status)
    infra = infra or bool(json_kinds & {"infra"})
    failed, passed = test_verdict(prose)
    trouble = bool(_ERROR.search(prose) or _TRACEBACK.search(prose)) or "bad" in json_kinds
    trouble = trouble or any(400 <= s < 500 for s in status)
    negative = failed or trouble or (code not in (None, 0)) or bool(_STOPPED.search(prose))

    if negative_wanted or (_STOPS.search(task) and _STOPPED.search(prose)):
        if negative or (infra and _NETWORK_PROBE.search(task)) or _EMPTY.match(_body(prose, code) or prose):
            return {"tool.expected_negative": 1.0}
        if passed or code == 0 or "good" in json_kinds:
            return {"tool.unexpected_positive": 1.0}
    if infra and not (failed and not re.search(r"network|connect|resolve", prose, _I)):
        return {"tool.infrastructure": 1.0}
    if _SKIPPED.search(prose) or (re.search(r"\b\d+ skipped", prose) and not passed and not failed):
        return {"tool.nothing_ran": 1.0}
    if failed:
        return {"tool.known_failures": 1.0} if _KNOWN_FAILURES.search(text) else {"tool.tests_failed": 1.0}
    if passed and not _TRACEBACK.search(prose):
        return {"tool.tests_passed": 1.0}
    if "bad" in json_kinds:
        return {"tool.json_error": 1.0}
    if any(400 <= s < 500 for s in status):
        return {"tool.http_client_error": 1.0}
    if "open" in json_kinds or (_UNFINISHED.search(prose) and not _TRACEBACK.search(prose)):
        return {"tool.unfinished": 1.0}
    if _SCREEN.search(prose) and not _TRACEBACK.search(prose):
        return _screen_outcome(prose)
    if _TRACEBACK.search(prose):
        return {"tool.traceback": 1.0}
    body = _body(prose, code)
    if prose and (_EMPTY.match(body) or re.match(r"\W*no output\W*\n+\W*(?:note|hint|tip|warning)", prose, _I)):
        if code == 0 and not _LOOKS_FOR.search(task):
            return {"tool.exit_zero": 1.0}
        return {"tool.empty": 1.0}
    if _ERROR.search(prose):
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
    if _SUCCESS.search(prose):
        return {"tool.success_text": 1.0}
    return {"tool.plain_output": 1.0}


def _screen_outcome(text: str) -> dict[str, float]:
    if re.search(r"\b(?:click|type|drag|upload|select\w*|fill|press|tap)\w* (?:failed|rejected)", text, _I):
        return {"tool.screen_error": 1.0}
    rest = _NO_CHANGE.sub("", text)
    if re.search(r"\b(?:0|no) (?:results|matches|items|hits|entries)\b", rest, _I):
        return {"tool.empty": 1.0}
    if _UNREADABLE.search(rest):
        return {"tool.no_change": 1.0}
    if _CHANGED.search(rest):
        bad = re.search(
            r"\berror|\binvalid|\brequired\b|\bnot (?:allowed|found|valid)|\bfailed|\bwrong|\bdenied|\bmust\b", rest, _I
        )
        return {"tool.screen_error": 0.7} if bad else {"tool.screen_changed": 1.0}
    if _ERROR.search(rest):
        return {"tool.screen_error": 1.0}
    if _NO_CHANGE.search(text):
        return {"tool.no_change": 1.0}
    return {"tool.screen_changed": 0.5}


def test_verdict(text: str) -> tuple[bool, bool]:
    """(failed, passed) as test runners, linters and compilers report them; both False when none did."""
    numbers = [int(next(g for g in m if g)) for m in _FAIL_COUNT.findall(text)]
    failed = any(n > 0 for n in numbers)
    if not numbers and _FAIL_WORD.search(text):
        failed = True
    elif re.search(r"^\s*(?:--- )?FAIL\b|\bBUILD FAILED|could not compile|^not ok\b", text, re.MULTILINE):
        failed = True
    passed = any(int(next(g for g in m if g)) > 0 for m in _PASS_COUNT.findall(text)) or bool(_PASS_WORD.search(text))
    return failed, passed and not failed


def json_values(text: str) -> Iterator[Any]:
    """The JSON objects and arrays that stand in the text, outermost only."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        match = re.compile(r"[{\[]").search(text, at)
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
        if name in _ERROR_KEYS and item:
            server_side = isinstance(item, dict) and str(item.get("code", item.get("status", "")))[:1] == "5"
            kinds.add("infra" if server_side or _INFRASTRUCTURE.search(json.dumps(item)) else "bad")
        if name in _SUCCESS_KEYS and isinstance(item, bool):
            kinds.add("good" if item else "bad")
        if item is False and depth and re.fullmatch(r"\w{3,}(?:ed|sent|paid|done|ok|successful)", name):
            kinds.add("bad")
        if name in {"status", "state", "outcome", "delivery", "result"} and isinstance(item, str):
            word = item.lower().replace(" ", "_").replace("-", "_")
            if re.match(r"(?:await|wait|search|pend|need|requir|process|sched)\w*_|\w+ing\Z", word):
                kinds.add("open")
            kinds |= {k for k, s in (("good", _GOOD_STATUS), ("open", _OPEN_STATUS), ("bad", _BAD_STATUS)) if word in s}
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
        if name in _VALUE_KEYS and item is None:
            kinds.add("null")
        if name in _LIST_KEYS and isinstance(item, list):
            kinds.add("data" if item else "empty")
        if name in {"count", "total", "total_results", "matches", "hits", "num_results"} and item == 0:
            kinds.add("empty")
        if isinstance(item, dict):
            kinds |= _json_kinds(item, depth - 1) & {"infra", "open", "bad", "null"} if depth else set()
        if name in {"message", "reason", "detail", "note", "title"} and isinstance(item, str):
            if _INFRASTRUCTURE.search(item):
                kinds.add("infra")
            elif _UNFINISHED.search(item):
                kinds.add("open")
    if "open" in kinds:
        kinds -= {"good"}
    if "bad" in kinds:
        kinds -= {"good", "open"}
    if "infra" in kinds:
        kinds -= {"bad", "good"}
    return kinds


def _exit_code(text: str, answer: str) -> int | None:
    codes = _EXIT.findall(text)
    if codes:
        return int(codes[-1])
    # `command; echo $?` prints the bare status as its last line.
    last = text.strip().rsplit("\n", 1)[-1].strip()
    return int(last) if "$?" in answer and re.fullmatch(r"-?\d{1,3}", last) else None


def _body(text: str, code: int | None) -> str:
    """The output without the lines that only report the exit status."""
    lines = [line for line in text.splitlines() if line.strip()]
    if code is not None:
        lines = [line for line in lines if not _EXIT.fullmatch(line.strip(" ()[].")) and line.strip() != str(code)]
    return "\n".join(line for line in lines if not re.fullmatch(r"\W*no output\W*", line.strip(), _I))


def _wrong_target(task: str, text: str) -> bool:
    if not re.search(r"\bnow\b|\bset to\b|\bselected\b|->|→|\"\w+\"\s*:", text, _I):
        return False
    asked, got = (
        set(re.findall(r"[a-z]+", task.lower())),
        set(re.findall(r"[a-z]+", re.sub(r"\([^)]*\)", "", text.lower()))),
    )
    return any(len(group & asked) == 1 and len(group & got) == 1 and group & asked != group & got for group in _CLASSES)
