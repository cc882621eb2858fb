"""What tool outputs look like when they succeed, fail, wait or are broken by the world outside: data, no logic.

Patterns name a kind of outcome; ``signals_tool.py`` decides in which order they are asked.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

import re

IGNORE_CASE = re.IGNORECASE
IGNORE_CASE_LINES = re.IGNORECASE | re.MULTILINE

# The world's faults: network, quota, other people's locks, machines going away.
INFRASTRUCTURE = re.compile(
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
    r"|shutting down)\b|shutdown signal|infrastructure (?:error|failure|problem)|retrying on another|memory exhausted"
    r"|temporary error|unexpected EOF from server|read timed out|request timed out|deadline exceeded"
    r"|operation timed out|\btimed out\b|time-?out (?:after|of|while)|session (?:was )?(?:terminated|expired) by",
    IGNORE_CASE,
)
# Nothing to judge yet, or stopped by someone else.
UNFINISHED = re.compile(
    r"\b(?:queued|pending|in[ _-]progress|still processing|being processed|awaiting|waiting (?:for|on) (?:an? "
    r"|the )?(?:runner|approval|review\w*|worker|queue|confirmation|preview|deploy\w*|human|resources|slot"
    r"|capacity|moderation)|submitted batch|job submitted|interrupted by (?:user|operator)|still loading"
    r"|loading spinner|\bqueue\b|waiting room|captcha|will retry|greylisted|needs?[_ ]approval"
    r"|requires? approval|pending review|scheduled for|still running|not (?:yet )?(?:finished|started"
    r"|available yet)|in the background)\b"
    r"|\bcancel+ed\b[^\n]{0,40}(?:supersed|by|newer)|\bsuperseded\b|\baborted by (?:user|operator)"
    r"|\b(?:progress|uploaded|downloading|building|epoch)\W{1,3}\d{1,2} ?%(?!.*100 ?%)|\bETA\b"
    r"|\bstarted\. (?:check|poll)",
    IGNORE_CASE,
)
SKIPPED = re.compile(
    r"\bno tests? (?:ran|found|collected|were|to run|match)|\bcollected 0 items|\[no test files\]"
    r"|\bno test files|\b0 (?:tests|passing|scenarios|specs)\b|\ball tests? (?:were )?skipped"
    r"|\btests? (?:were )?not run",
    IGNORE_CASE,
)
FAIL_COUNT = re.compile(
    r"(?<![\w.])(\d+) (?:tests? |specs? |examples? |checks? |assertions? |suites? |scenarios? )?(?<!x)(?:failed"
    r"|failures?|failing)\b|\b(?:failures?|failed|errors?)\s*[:=]\s*(\d+)"
    r"|(?<![\w.])(\d+) (?:type |lint |syntax )?errors?\b(?! fixed)|FAILED:? (\d+) of",
    IGNORE_CASE,
)
PASS_COUNT = re.compile(
    r"(?<![\w.])(\d+) (?:tests? |specs? |checks? |suites? |scenarios? )?(?:passed|passing|succeeded|ok\b)"
    r"|\bpass(?:ed)?\s*[:=]\s*(\d+)|\bOK \((\d+)|\bRan (\d+) tests?[^\n]*\n+OK\b|\b(\d+) examples?, 0 failures"
    r"|(100)% tests passed",
    IGNORE_CASE,
)
FAIL_WORD = re.compile(
    r"^\s*(?:---\s*)?FAIL\b|\bFAILED\b|\bFAILURES!|^not ok\b|\bBUILD (?:FAILED|FAILURE)|\bbuild (?:stopped"
    r"|failed)|\bsubcommand failed|^\s*[✗✘✖×]\s|\bTests? failed\b|\bPipeline\b[^\n]{0,20}\bfailed"
    r"|could not compile|\bregression:",
    re.MULTILINE,
)
PASS_WORD = re.compile(
    r"^(?:PASS|ok)\b|\bBUILD SUCCESS(?:FUL)?\b|\b[Bb]uild succeeded|\b[Aa]ll (?:\w+ ){0,3}(?:passed|pass|ok"
    r"|green|clean|succeeded)\b|\b0 (?:errors|problems|issues|warnings|failures|failed)\b|\b[Nn]o (?:issues"
    r"|problems|errors|lint errors|warnings|vulnerabilities) (?:were )?(?:found|detected)?"
    r"|\balready formatted|\bSuccess: no issues|\bcompiled successfully|\bFinished `?\w+`? "
    r"|\bwould be left unchanged",
    re.MULTILINE,
)
TRACEBACK = re.compile(
    r"Traceback \(most recent|^\s*at [\w.$<>]+ ?\(.*:\d+|^panic:|\bthread '.*' panicked"
    r"|^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b(?:[: ]|$)|\bUnhandled|\bsegmentation fault"
    r"|core dumped|\bUncaught\b|stack trace|^goroutine \d",
    re.MULTILINE,
)
ERROR = re.compile(
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
    IGNORE_CASE_LINES,
)
HTTP = re.compile(r"(?:HTTP/[\d.]+\s+|\bstatus(?:[_ ]?code)?\W{1,4}|\bHTTP )(\d{3})\b", IGNORE_CASE)
EXIT = re.compile(
    r"\b(?:exit(?:ed)?(?:[ _](?:code|status|with))?(?:[ _](?:code|status))?|returncode|return code"
    r"|rc)\s*[:=]?\s*(-?\d+)\b",
    IGNORE_CASE,
)
EMPTY = re.compile(
    r"^\W*(?:no output|no (?:results?|matches|entries|records|rows|items|hits|files|data|events?|messages"
    r"|\w+) (?:found|match(?:ed|ing)?|returned|available)\b.*|0 (?:results|matches|rows|hits|records|items)\b.*"
    r"|nothing found.*|\[\]|\{\}|null|none|)\W*$",
    IGNORE_CASE,
)
SUCCESS = re.compile(
    r"\b(?:success(?:ful|fully)?|succeeded|done|completed?|created|saved|installed|updated|deleted|removed"
    r"|added|copied|moved|enabled|switched|uploaded|deployed|merged|sent|confirmed|verified|restored|accepted"
    r"|applied|renamed|published|booked|submitted|started|restarted|stopped|finished|written|valid|healthy"
    r"|synced|imported|exported|converted|scheduled|resolved|up to date|active \(running\)|fast-forward"
    r"|delivered|signed in|logged in|subscribed|listening|running on|is ok|100 ?%|\bok\b)\b|✓|✔|✅",
    IGNORE_CASE,
)
CHANGED = re.compile(
    r"->|→|=>|\b(?:changed|now (?:shows?|visible|checked|selected|open|on|displays?|reads?|lists?|contains?"
    r"|active|at|in)|appeared|is gone|disappeared|new text|expanded|collapsed|navigated|url (?:is|now|changed)"
    r"|opened|closed|toast|highlighted|loaded|page title|redirected|dialog|modal|selected|row (?:added|removed)"
    r"|scrolled|notified|went from)\b",
    IGNORE_CASE,
)
NO_CHANGE = re.compile(
    r"\bno visible (?:navigation|change|effect)|\bnothing (?:changed|happened)|\b(?:page|screen(?:shot)?|dom"
    r"|view|state|url)(?: is| was)? (?:unchanged|identical|the same)|\bno (?:change|effect|navigation"
    r"|difference)\b|\bunchanged\b",
    IGNORE_CASE,
)
SCREEN = re.compile(
    r"\b(?:click|type|drag|scroll|upload|select\w*|hover|press|tap|swipe|fill|key|goto|navigate|check|drop"
    r"|open)\w*\s+(?:executed|performed|done|failed|sent|rejected|started)|\baria-|\belement\b|\bcheckbox"
    r"|\bscreen(?:shot)?\b|\bpage shows\b",
    IGNORE_CASE,
)

# The task asks for something to be absent, refused, stopped or to fail.
EXPECTS_NEGATIVE = re.compile(
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
    IGNORE_CASE,
)
# Actions whose output is somebody else's text: words such as "error" in it are no verdict on the action.
READS = re.compile(
    r"(?:^|\$ ?|&& |\| |; |sudo )(?:cat|head|tail|less|sed -n|grep|rg|awk|journalctl|dmesg|git (?:log|show|diff"
    r"|blame|status)|ls|tree|find|stat|file|wc|ps|env|history)\s"
    r"|\b(?:read_file|view|open_file|get_page|fetch_page|read|fetch|get_text|inbox\w*|mail\.\w*(?:get|read"
    r"|list)\w*|logs?\.\w+|read_\w+|get_\w*(?:log|file|page|text)\w*)\(",
    re.MULTILINE,
)
OWN_FAILURE = re.compile(
    r"\A\s*(?:error\b|fatal\b|E: |Err:|Traceback|usage|permission denied|no such"
    r"|not found|\(?no output|timed? ?out|ssh\b|failed|HTTP/)|\bcommand not found|: No such file"
    r"|: Permission denied|unexpected EOF|\bkilled\b|terminated\b",
    IGNORE_CASE,
)
WARNING_LINE = re.compile(
    r"^.{0,40}\b(?:warn(?:ing)?|deprecated|notice|info)\b(?![^\n]{0,30}\berror).*$\n?", IGNORE_CASE_LINES
)
UNREADABLE = re.compile(
    r"\b(?:could not be|cannot be|can't be|not) (?:captured|read|readable|determined|rendered|observed|verified"
    r"|loaded)\b"
    r"|\bnot accessible\b|\bblank (?:page|screenshot)|\bno screenshot",
    IGNORE_CASE,
)
STOPS = re.compile(r"\b(?:stop|kill|disable|shut ?down|terminate|deactivate|quit)\w*\b", IGNORE_CASE)
STOPPED = re.compile(
    r"^\s*(?:inactive|dead|stopped|disabled|exited|not running|off)\b|\bActive: inactive|no process|not running",
    IGNORE_CASE_LINES,
)
KNOWN_FAILURES = re.compile(
    r"\b(?:pre-?existing|known|unrelated|same as (?:on )?(?:main|master|before)|also fails? on (?:main|master)"
    r"|xfail)\b",
    IGNORE_CASE,
)
LOOKS_FOR = re.compile(
    r"\b(?:find|search|look|grep|list|locate|check (?:for|whether|if)|any|which|where|investigat\w+|discover"
    r"|query)\b",
    IGNORE_CASE,
)
NETWORK_PROBE = re.compile(
    r"\b(?:port|reach\w*|ping|nc|telnet|firewall|dns|blocked|latency|timeout|rate limit\w*|load test|retry"
    r"|retries|resilien\w+|outage|down)\b",
    IGNORE_CASE,
)

GOOD_STATUS = frozenset(
    (
        "ok success successful succeeded confirmed active done completed complete created delivered sent saved "
        "published accepted approved paid booked restored updated deleted removed resolved merged ready healthy "
        "enabled valid granted connected online passed open closed finished installed applied shipped scheduled "
        "subscribed"
    ).split()
)
OPEN_STATUS = frozenset(
    (
        "pending queued processing in_progress running needs_approval awaiting_approval awaiting waiting "
        "submitted unknown draft review in_review requires_action on_hold held partial deferred backordered"
    ).split()
)
BAD_STATUS = frozenset(
    (
        "error failed failure rejected denied invalid declined not_found notfound expired conflict forbidden "
        "unauthorized bad_request unprocessable bounced blocked aborted refused invalid_request missing"
    ).split()
)
SUCCESS_KEYS = frozenset(
    ("ok success sent created valid updated deleted saved accepted done removed booked added published moved").split()
)
ERROR_KEYS = frozenset(
    "error errors exception fault error_message error_code problems violations validation_errors".split()
)
VALUE_KEYS = frozenset("value price result data quote reading answer output amount rate temperature".split())
LIST_KEYS = frozenset(
    ("items results rows hits matches data records events messages entries files users list documents orders").split()
)

CLASSES: tuple[frozenset[str], ...] = (
    frozenset("monday tuesday wednesday thursday friday saturday sunday".split()),
    frozenset("january february march april june july august september october november december".split()),
    frozenset("red green blue yellow black white orange purple grey".split()),
    frozenset("small medium large".split()),
    frozenset("staging production testing".split()),
    frozenset(
        (
            "germany austria switzerland france spain italy norway sweden denmark netherlands belgium portugal "
            "poland canada australia japan"
        ).split()
    ),
    frozenset("english german french spanish italian dutch portuguese polish japanese".split()),
    frozenset("eur usd gbp chf jpy".split()),
)
"""Groups of which a task names one: another one in the result means that the action hit the wrong target."""
