"""Text that a person hands over without a fence around it: lists of rows, listings, chats, mails, quoted sentences.

It goes by form: how a line is built, and what the line over it announces. Where nothing but the words could tell a
pasted text from the person's own, what comes after the announcement is not the person's. Pure functions of linear time.
"""

from __future__ import annotations

import html

from turnwise.patterns import IGNORECASE, anchored, pattern

_WORK = (
    "translate summari[sz]e proofread check review rewrite rephrase paraphrase explain analy[sz]e answer correct read"
    " classify shorten extract parse convert look übersetze? prüfe? fass\\w* korrigiere? lies schau erkläre?"
    " traduis traduire traduisez résume[zr]? corrige[zr]? vérifie[zr]? lis traduce traduzca resume revisa"
    " traduci riassumi correggi controlla traduz\\w* resum\\w+ revise vertaal controleer переведи\\w* проверь\\w*"
)
_MATERIAL = (
    "text mail email e-mail message file page log logs output chat transcript article letter thread document paragraph"
    " sentence following below snippet command error response nachricht datei seite ausgabe satz folgende[nrs]?"
    " texte fichier phrase sortie suivante? texto archivo mensaje siguiente testo messaggio seguente tekst bericht"
)
_ASKED = pattern(rf"(?:^|[.!?,] |\b(?:you|please|bitte|and|to) )(?:{'|'.join(_WORK.split())})\b", IGNORECASE)
_ANNOUNCED = pattern(
    rf"\b(?:this|these|the|that|here(?:'s| is| are)?|got|get|getting|says?|said|my|den|die|das|diese[nrs]?"
    rf"|folgende[nrs]?|la|le|el|il|ce|cette|este|esta|questo|questa)(?: \w+){{0,2}} (?:{'|'.join(_MATERIAL.split())})\b"
    rf"|\b(?:below|the following):$",
    IGNORECASE,
)
_PLAINLY = anchored(
    r"(?: (?:it|that))? (?:again|once more|me|us|carefully|twice|yourself|nochmal|noch einmal|encore|de nuevo)"
)
_COLON = pattern(r"[:：](?=\s|$)")
_NOT_BLANK = pattern(r"\S")
MAX_HEAD = 160

_DATE = pattern(r"\b\d{1,4}[./-]\d{1,2}[./-]\d{2,4}\b|\b\d{4}年|\S@\S|\b(?:19|20)\d\d\b.{0,20}\d\d:\d\d")
_FILE = anchored(r"[\w./@-]{1,120}[./][\w-]{1,20}:")
_FIELD = anchored(r"-? ?[a-z_][\w.-]{0,40}:(?: |$)")
_SPEAKER = anchored(r"[^\W\d_a-z][\w.'-]{0,24}(?: [^\W\d_a-z][\w.'-]{0,24})?(?: ?\([^)\n]{1,24}\))?: ")
_CLOCK = anchored(r"[\[(]?\d{1,2}[:.]\d\d(?:[:.]\d\d)?[\])]? (?:- )?")
_PROGRAM = anchored(r"[A-Za-z]+[a-z][A-Z]\w{0,40}:\w")
_BULLET = anchored(r"(?:[-*+•–]|\d{1,3}[.)])\s")
_LABELLED = anchored(r"\[[^\[\]\n]{2,60}? ?[:：](?:\s|$)")
_TYPED = anchored(r"\[[A-Za-z][\w-]{1,30}:[^\s\d]")
_MARGIN = ("  ", "\t")
_QUOTATION = pattern(
    r"\"([^\"\n]{4,280})\"|“([^”\n]{4,280})”|„([^“”\n]{4,280})[“”]|«([^»\n]{4,280})»|»([^«\n]{4,280})«"
    r"|「([^」\n]{2,280})」|『([^』\n]{2,280})』|(?<!\w)'([^'\n]{6,280})'(?!\w)|(?<!\w)‘([^’\n]{6,280})’"
)
_ENDS = frozenset(".!?。！？")
_STOPS = frozenset(".,;:!?。，；：！？、")


def as_typed(text: str) -> str:
    """The text with the brackets that HTML escapes as brackets."""
    return html.unescape(text) if "&" in text else text


def head_end(text: str, at: int) -> int:
    """Where the person's words end, when the line that begins here hands a text over; else -1.

    What stands between marks of its own (a fence, a quote, a tag, an indent) ends with them and is not meant here.
    """
    end = text.find("\n", at)
    line = text[at:] if end < 0 else text[at:end]
    colon = _COLON.search(line[:MAX_HEAD])
    if colon is None:
        return -1
    head, rest = line[: colon.start()], line[colon.end() :].strip()
    verb = _ASKED.search(head)
    # "Check again: the date is wrong" asks for no text to be looked at; "check this: …" and "translate: …" do.
    asked = verb is not None and not (rest and _PLAINLY.fullmatch(head[verb.end() :]))
    if rest:
        return at + colon.end() if asked and not rest.startswith(("`", "<")) else -1
    if not asked and not _ANNOUNCED.search(head + ":") and not _FILE.fullmatch(head.strip() + ":"):
        return -1
    after = _NOT_BLANK.search(text, at + len(line))
    if after is None:
        return -1
    begins = max(text.rfind("\n", at, after.start()) + 1, at)
    follows = text[begins : begins + MAX_HEAD]
    marked = follows.startswith(("```", "~~~", "'''", '"""', ">", "<", "|", "    ", "\t", "Traceback "))
    return -1 if marked else at + colon.end()


def announces_a_quote(bare: str) -> bool:
    """A line that ends with a colon and names a date or an address: the head of a quoted mail, in any language."""
    return bare.endswith((":", "：")) and bool(_DATE.search(bare[:MAX_HEAD]))


def names_a_program(bare: str) -> bool:
    """``PreToolUse:Bash hook …``: a line that a program heads."""
    return bool(_PROGRAM.match(bare))


def listing_end(text: str, at: int, bare: str, after: int) -> int:
    """Where a listing ends that the line begins (rows, fields, speakers, TeX, a directive); ``at`` where none does."""
    if bare.startswith(("\\begin{", "\\documentclass")):
        last = text.rfind("\\end{", after)
        ends = text.find("\n", last) if last >= 0 else -1
        return len(text) if ends < 0 else ends + 1
    directive = bare.startswith(".. ") and bare.partition(":")[2].startswith(":")
    if directive or bare.endswith((": |", ": >", ": |-", ": >-")):
        return _indented_end(text, after)
    if bare.startswith("[^") and "]:" in bare[:MAX_HEAD]:
        return _paragraph_end(text, after)
    following = _first_line(text, after)
    if "\t" in bare or any(" " not in bare and min(bare.count(c), following.count(c)) >= 2 for c in ",;"):
        return _paragraph_end(text, after)
    if (_FIELD.match(bare) and _FIELD.match(following)) or (_speaks(bare) and _speaks(following)):
        end = _paragraph_end(text, after)
        return at if _two_points(text[at:end]) else end
    return at


def bracket_end(text: str, at: int, begins_line: bool) -> int:
    """Where that ends which a square bracket holds or heads, when it is a notice of a program; ``at`` when it is none.

    ``[Image: …]`` holds its text, and whatever it quotes may hold brackets; ``[cron:daily]`` and ``[Summary so far]``
    head what follows. ``[Image #1]`` and ``[Mon 10:00]`` are marks beside the person's words.
    """
    if begins_line and (_TYPED.match(text, at) or text.startswith("[{", at)):
        return len(text)
    if _LABELLED.match(text, at):
        end = len(text) if begins_line else text.find("\n", at)
        last = text.rfind("]", at, end if end >= 0 else len(text))
        return last + 1 if last >= 0 else len(text)
    if not begins_line:
        return at
    line = text[at : at + MAX_HEAD].partition("\n")[0].strip()
    inside = line[1:-1]
    alone = line.endswith("]") and "[" not in inside and len(inside.split()) >= 2
    return len(text) if alone and not any(c.isdigit() for c in inside) else at


def current_message(text: str) -> str:
    """The part of a group chat's message that is to be answered now; "" where what stands before may forge it."""
    if not text.startswith("[Chat messages since"):
        return text
    parts = text.split("[Current message")
    return parts[1].partition("]")[2] if len(parts) == 2 else ""


def without_quotations(text: str) -> str:
    """The text with ``""`` for each quoted sentence; quoted words ("Dear Ann") stay, they name what is meant."""
    return _QUOTATION.sub(lambda m: '""' if _is_sentence(m[m.lastindex or 0]) else m[0], text)


def _is_sentence(quoted: str) -> bool:
    words = len(quoted.split())
    ended = quoted.strip()[-1:] in _ENDS
    stopped = any(c in _STOPS for c in quoted)
    return (stopped and (words >= 3 or (words == 1 and not quoted.isascii()))) or (ended and words >= 2)


def _two_points(paragraph: str) -> bool:
    """Two short lines with a lower-case remark each ("Tone: too formal"), and no third: no chat and no fields."""
    heads = [line.strip().partition(": ") for line in paragraph.split("\n") if _speaks(line.strip())]
    if len(heads) != 2 or heads[0][0] == heads[1][0]:
        return False
    return all(" " not in head and remark[:1].islower() and len(remark.split()) <= 4 for head, _, remark in heads)


def _speaks(bare: str) -> bool:
    clock = _CLOCK.match(bare)
    return bool(_SPEAKER.match(bare, clock.end() if clock else 0))


def _first_line(text: str, at: int) -> str:
    end = text.find("\n", at, at + MAX_HEAD)
    return text[at : end if end >= 0 else at + MAX_HEAD].strip()


def _paragraph_end(text: str, at: int) -> int:
    end = text.find("\n\n", max(at - 1, 0))
    return len(text) if end < 0 else end + 1


def _indented_end(text: str, at: int) -> int:
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if line.strip() and not line.startswith(_MARGIN):
            return at
        at = end + 1
    return len(text)
