"""What the person said: a user message without all that agents, programs and quotations put into it.

A message of the role "user" is not the person's word as a whole. Agents wrap notices, files and results of tools into
it; people paste logs and quote mails. Only what is left may praise, reproach or give a hint. Where it is unclear whose
a line is, it is not the person's. Pure functions of linear time.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

from functools import lru_cache

from turnwise.judges.sources.layout import first_kind, last_lines, layout_end, share_a_head, without_frames
from turnwise.judges.sources.pasted import (
    announces_a_quote,
    as_typed,
    begins_headers,
    current_message,
    first_line,
    head_end,
    listing_end,
    names_a_program,
)
from turnwise.judges.sources.quotations import hiding_phrases, without_hidden
from turnwise.judges.sources.visible import STOOD, with_plain_marks
from turnwise.judges.sources.wrappers import without_blocks
from turnwise.messages import parts_of, text_of, text_of_part
from turnwise.patterns import anchored, pattern
from turnwise.types import Message

LABELS = frozenset(
    "tool tools function observation output stdout stderr result results system assistant user human developer "
    "environment context terminal console shell log logs browser webpage snippet heartbeat response attachment "
    "hook returned document file from subject forwarded ausgabe beobachtung werkzeug sortie observación "
    "salida résultat resultado risultato uitvoer вывод результат 工具 输出 结果 观察 出力 結果 観察".split()
)
"""Words of a label ("Observation:", "[tool]") after which somebody else speaks."""
OWN = frozenset("your you my the this that its his her our".split())
"""With such a word it is no label: "your output: far too long"."""
_TELLS = frozenset("is was isn't should must needs has comes and or".split())
"""Words behind a name in capitals that make a sentence of it: "START_DATE is wrong"."""
LEVELS = frozenset("ERROR WARN WARNING INFO DEBUG FATAL TRACE CRITICAL NOTICE SEVERE PANIC".split())
ALONE = frozenset("from subject file document result results response context user human forwarded".split())
"""Words that people also use in a sentence before a colon: a label only when little else stands in it."""
NAMED = frozenset("result results file document log logs response subject context environment".split())
"""Words that people also put before what they have to say ("Logs: too verbose"): labels only when nothing follows."""
SHOUTED = frozenset(
    "pps note edit fyi btw imo imho important attention wrong bug todo update again also stop never always remember"
    " rule please fix careful nope tldr".split()
)
"""Words that people write in capitals before a colon; any other is a field of a form ("TEXT: …")."""
MAX_LABEL = 48
MAX_READ = 50_000
"""Characters of a message that is read at all: a longer one holds something pasted, and is nobody's word."""
LONG_WORD = 48
"""Characters of a word that is data: base64, hashes, addresses."""

_CLOCK = anchored(r"[\[(]?\d{1,2}:\d\d(?::\d\d)?[\])] ")
_TIMED = anchored(
    r"[\[(]?(?:[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d|\d{1,2}:\d\d:\d\d|\d{1,2}/\w{3}/\d{4})[^a-z]"
)
_FAULT = anchored(r"(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,40}(?:Error|Exception|Warning|Interrupt)\b ?:")
_FRAME = anchored(r"(?:File \"|at \S{1,200} ?\(|at \S{1,200}:\d|--> |goroutine \d|panic: |thread ')")
_PROMPT = anchored(
    r"(?:[\w.@~/:-]{0,40}\$ |[\w.:-]{0,40}[@~/][\w.@~/:-]{0,40}[#%] |(?:[A-Za-z][\w.:-]{2,40})?[#%] [a-z]"
    r"|PS [A-Z]:|>>> |C:\\)"
)
_COMMIT = anchored(r"commit [0-9a-f]{7,64}\b")
_OPENS_DATA = anchored(r"[\[{]\s{0,20}(?:[\[{\"']|$)")
_EMPTY_LINE = pattern(r"\n[ \t]*(?=\n)")
_DIFF = ("diff --git ", "@@ ", "+++ ", "--- ", "Index: ")


def person_words(message: Message) -> str:
    """The words of the person in a user message, "" where none are left."""
    return without_hidden(hiding_words(message))


def hiding_words(message: Message) -> str:
    """The same with the phrases that the person quotes, hidden.

    Each part of its content stands for itself, but for parts that hand over the next ones or begin alike, as rows do.
    """
    content = parts_of(message)
    if len(content) <= 1:
        return own_words(text_of(message))
    parts = [with_plain_marks(text_of_part(part)) for part in content]
    rows = share_a_head(parts)
    own: list[str] = []
    for text in parts:
        if first_kind(text) not in rows:
            own.append(own_words(text))
        if _hands_over(text):
            break
    return "\n".join(text for text in own if text)


def _hands_over(text: str) -> bool:
    """Whether a part ends by announcing the next: ``Content of a.txt:``, ``--- Files ---``."""
    bare = text.rstrip("*_ \n\t").rpartition("\n")[2].strip()
    ends = bare.strip("-=*#<>[]~_ ").upper().startswith("END")
    return bare.endswith((":", "：")) or (_is_marker(bare) and not ends)


def own_words(text: str) -> str:
    """The person's own words in a text of theirs, with the phrases that they quote, hidden."""
    # What a block was taken out of is looked at once more: a label may have stood behind it.
    if len(text) > MAX_READ:
        return ""  # a part of it would not do: what a block is shows only at its end
    text = as_typed(as_typed(current_message(text))).replace(STOOD, " ")
    for _ in range(2):
        text = _without_blocks(with_plain_marks(text))
    lines = [line for line in text.split("\n") if line != STOOD]
    kept: list[str] = []
    at = 0
    while at < len(lines):
        end = _table(lines, at)
        if end == at:
            kept.append(_without_data(lines[at].strip()))
            end += 1
        at = end
    return hiding_phrases(without_frames("\n".join(kept))).strip()


def _without_blocks(text: str) -> str:
    last = last_lines(text)

    def skip(text: str, at: int) -> int:
        return max(_skipped(text, at), layout_end(text, at, last))

    return without_blocks(text, skip, head_end)


def _skipped(text: str, at: int) -> int:
    """Where that ends what this line begins, when it is not the person's; else where the line begins."""
    end = text.find("\n", at)
    line = text[at:] if end < 0 else text[at:end]
    after = len(text) if end < 0 else end + 1
    bare = line.strip()
    if not bare:
        return at
    if bare.startswith((">", "|")):
        return after
    if _is_marker(bare):
        return _after_marked(text, after, _marked(bare))
    if (
        _is_label(bare)
        or _introduces_a_quote(bare)
        or names_a_program(bare)
        or begins_headers(bare, first_line(text, after))
    ):
        return len(text)  # somebody else speaks from here on
    if _begins_paste(bare):
        empty = _EMPTY_LINE.search(text, at)
        return empty.end() if empty else len(text)
    if _is_foreign(line, bare):
        return after
    return listing_end(text, at, bare, after)


def _is_foreign(line: str, bare: str) -> bool:
    """A line that stands for itself and is not the person's: of code, of a log."""
    if bare and line.startswith(("    ", "\t")):
        return True
    clock = _CLOCK.match(bare)
    rest = bare[clock.end() :] if clock else bare
    first = rest.split(maxsplit=1)[0].strip("[]():|-*<>") if rest else ""
    return first in LEVELS or bool(_TIMED.match(bare) or _FAULT.match(bare) or _FRAME.match(bare))


def _begins_paste(bare: str) -> bool:
    """The first line of something pasted, which goes on to the next empty line."""
    if bare.startswith((*_DIFF, "Traceback (most recent")):
        return True
    return bool(_OPENS_DATA.match(bare) or _PROMPT.match(bare) or _COMMIT.match(bare))


def _is_label(bare: str) -> bool:
    """Whether the line begins by saying who speaks: ``Observation:``, ``[tool result]``, ``### Human:``."""
    if bare.startswith(("【", "HEARTBEAT", "Read HEARTBEAT")):
        return True
    heading = bare.strip("#* ").lower().split() if bare.startswith("#") else []
    if heading and LABELS.issuperset(heading):
        return True
    core = bare.lstrip("#*-_=>([{<|/ \t")
    in_brackets = bare[: len(bare) - len(core)].endswith(("[", "(", "{"))
    head = core[:MAX_LABEL]
    ends = [p for p in (head.find(c) for c in (":：])}" if in_brackets else ":：")) if p >= 0]
    if not ends:
        return False
    end = min(ends)
    if head[end + 1 : end + 2].isdigit():
        return False  # a time of day
    words = "".join(c if c.isalnum() else " " for c in head[:end].lower()).split()
    if len(words) == 1 and len(words[0]) > 2 and head[:end].isupper() and words[0] not in SHOUTED:
        return True
    if len(words) == 1 and words[0] in NAMED and core == bare and bare[end + 1 : end + 3].strip().islower():
        return False  # a plain word with the person's opinion of it behind
    if _names_a_source(words):
        return True
    behind = core[end + 1 : end + 1 + MAX_LABEL]
    return in_brackets and ":" in behind and _names_a_source(behind.partition(":")[0].lower().split())


def _names_a_source(words: list[str]) -> bool:
    words = [word for word in words if not word.isdigit()]
    named = LABELS & set(words)
    of = len(words) > 1 and words[0] in named and words[1] in ("of", "for", "from")
    return bool(named) and len(words) <= (2 if named <= ALONE and not of else 5) and not OWN & set(words)


def _introduces_a_quote(bare: str) -> bool:
    """The line over a quoted mail: "On Tuesday Ann wrote:"."""
    return announces_a_quote(bare) or bare.endswith(
        (" wrote:", " schrieb:", " a écrit :", " escribió:", " ha scritto:")
    )


def _is_marker(bare: str) -> bool:
    """``=== BEGIN WEB PAGE ===``, ``BEGIN_OPENCLAW_INTERNAL_CONTEXT``, ``-----Original Message-----``."""
    core = bare.strip("-=*#<>[]~_ ")
    decorated = len(core) < len(bare) and not bare[:1].isalnum()
    if core.startswith(("BEGIN ", "BEGIN_", "BEGIN:", "START OF ", "START_")):
        first, _, behind = core.partition(" ")
        if decorated or core.startswith("BEGIN:") or ("_" in first and behind.partition(" ")[0] not in _TELLS):
            return True
    if bare.startswith("***") and bare[3:4].isalpha() and core.endswith((".", "!")) and not core.isupper():
        return bool(LABELS & set(core.lower().split()))  # else a sentence that is set in bold
    return bare.startswith(("---", "===", "***", "###")) and bare.endswith(("---", "===", "***")) and bool(core)


def _marked(bare: str) -> str:
    """What a marker is about: ``=== BEGIN WEB PAGE ===`` is about a web page; "" for one that has no end."""
    core = bare.strip("-=*#<>[]~_ ")
    opens = next((word for word in ("BEGIN", "START OF", "START") if core.startswith(word)), None)
    return core.removeprefix(opens).strip(" _:") if opens else ""


def _after_marked(text: str, at: int, about: str) -> int:
    """The beginning of the line after the last one that ends the marked block; the end of the text where none does."""
    end = _marked_ends(text).get(about, -1) if about else -1
    return end if end > at else len(text)


@lru_cache(maxsize=4)
def _marked_ends(text: str) -> dict[str, int]:
    """By the name of a marked block: the beginning of the line after the last one that ends it."""
    ends, at = {}, 0
    for line in text.split("\n"):
        at += len(line) + 1
        core = line.strip().strip("-=*#<>[]~_ ")
        if core.startswith("END"):
            ends[core.removeprefix("END").strip(" _:")] = min(at, len(text))
    return ends


def _table(lines: list[str], at: int) -> int:
    """The line after three or more with the same number of commas or tabs, at least two each; else ``at``."""
    for mark in (",", "\t", ";"):
        n, end = lines[at].count(mark), at
        if n >= 2:
            while end < len(lines) and lines[end].count(mark) == n:
                end += 1
            if end - at >= 3:
                return end
    return at


def _without_data(bare: str) -> str:
    """The line without addresses and words too long to be words."""
    if len(bare) < LONG_WORD and ":" not in bare:
        return bare
    foreign = ("data:", "http://", "https://", "blob:", "file:")
    # "This file: too long" names no address.
    return " ".join(
        w for w in bare.split() if (w.lower() in foreign or not w.lower().startswith(foreign)) and not _is_data(w)
    )


def _is_data(word: str) -> bool:
    return len(word) >= LONG_WORD and word.isascii()
