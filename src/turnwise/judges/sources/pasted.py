"""Text that a person hands over without a fence around it: lists of rows, listings, chats, mails.

It goes by form: how a line is built, and what the line over it announces. Where nothing but the words could tell a
pasted text from the person's own, what comes after the announcement is not the person's. Pure functions of linear time.
"""

from __future__ import annotations

import html

from turnwise.judges.sources.visible import STOOD
from turnwise.judges.text import plain
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
_COUNTED = (
    "one two three four five some several many my more \\d a few|a couple of ein paar|einige|meine zwei drei deux trois"
    " quelques mes dos tres algunas? mis due tre alcune mie twee drie enkele"
)
_POINTS = (
    "things? points? problems? issues? changes? nits? mistakes? corrections? remarks? wish(?:es)? requests? reasons?"
    " rules? feedback dinge sachen punkte? probleme änderungen choses problèmes cosas puntos problemas cose punti"
    " problemi dingen punten problemen"
)
_OWN_POINTS = pattern(
    rf"(?:^|[.!?,;] |\b(?:but|and|so) )(?:(?:just|only|also|here are|there are|i have) )?(?:"
    rf"(?:{'|'.join(_COUNTED.split())}) (?:\w+ )?(?:{'|'.join(_POINTS.split())})"
    r"(?: here| though| please| (?:is|are) (?:still )?\w+| to \w+| (?:with|about) (?:it|this|that)| (?:that )?i \w+)?"
    r"|(?:what )?(?:you|it|this|that|i|we)(?:'d| would)? (?:should|must|need|needs? to|want|wanted|prefer|like|meant"
    r"|expect|expected|asked for)(?: (?:have|be|see|is|was|you to|it to|to see|to have|instead))?"
    r"|(?:please )?(?:note|remember|mind|keep in mind|next time|from now on|in (?:the )?future|again|instead"
    r"|(?:still )?(?:wrong|missing)))$",
    IGNORECASE,
)
"""What the person's own points follow, and no text of others: "Two things are wrong:", "You should have:"."""
_LIST_HEAD = pattern(
    r"(?:^|[.!?,;] )(?:(?:please|pls|bitte|just|also|and) )?(?:(?:change|fix|add|remove|drop|use|avoid|keep|improve"
    r"|make sure|don't|ändern?|ändere|entferne|verwende|changez?|ajoutez?|cambia|añade|usa|aggiungi)(?: \w+)?"
    r"|i (?:don't|do not|didn't|really) (?:like|want|need)|(?:here's )?what(?:'s| is| i)(?: [\w']+){1,2}"
    r"|(?:problem|issue|mistake)s?|(?:changes|corrections|points|wishes) i \w+)$",
    IGNORECASE,
)
"""The same where points with bullets or numbers follow at once."""
_POINTS_DOWN = frozenset(":：↓⬇▼👇")
MAX_HEAD = 160

_DATE = pattern(r"\b\d{1,4}[./-]\d{1,2}[./-]\d{2,4}\b|\b\d{4}年|\S@\S|\b(?:19|20)\d\d\b.{0,20}\d\d:\d\d")
_FIELD = anchored(r"-? ?[a-z_][\w.-]{0,40}:(?: |$)")
_SPEAKER = anchored(r"[^\W\d_a-z][\w.'-]{0,24}(?: [^\W\d_a-z][\w.'-]{0,24})?(?: ?\([^)\n]{1,24}\))?: ")
_CLOCK = anchored(r"[\[(]?\d{1,2}[:.]\d\d(?:[:.]\d\d)?[\])]? (?:- )?")
_PROGRAM = anchored(r"[A-Za-z]+[a-z][A-Z]\w{0,40}:\w")
_BULLET = anchored(r"(?:[-*+•–]|\d{1,3}[.)])\s")
_LABELLED = anchored(r"\[[^\[\]\n]{2,60}? ?[:：](?:\s|$)")
_TYPED = anchored(r"\[[A-Za-z][\w-]{1,30}:(?!\d{1,3}\])[^\s:]")
_HEADER = anchored(r"[A-Z][A-Za-z]+(?:-[A-Z][A-Za-z]*)+: ?\S")
_FIELDS = anchored(r"[A-Za-z][\w-]{1,40}: |--|$")
_NAMES_FILE = anchored(r"#{1,6} {1,3}[`*]{0,2}[\w./-]{1,80}\.[A-Za-z]\w{0,7}[`*]{0,2} ?(?:[(:]|$)")
_MARGIN = ("  ", "\t")
_SET_UP = (
    ("[Chat messages since", "[Current message", "]"),
    ("# Context from my IDE setup:", "## My request for ", "\n"),
)
"""How such a message begins, the mark before the person's words, and what ends the mark."""


def as_typed(text: str) -> str:
    """The text with the brackets that HTML escapes as brackets."""
    return html.unescape(text) if "&" in text else text


def head_end(text: str, at: int) -> int:
    """Where the person's words end, when the line that begins here hands a text over; else -1.

    A line that ends with a colon does, unless it says that the person's own points follow. What stands between marks
    of its own (a fence, a quote, a tag, an indent) ends with them and is not meant here.
    """
    end = text.find("\n", at)
    line = text[at:] if end < 0 else text[at:end]
    colon = _COLON.search(line[:MAX_HEAD])
    last = len(line.rstrip(" \t*_"))
    if last and line[last - 1] in _POINTS_DOWN:
        head, ends, rest = line[: last - 1][-MAX_HEAD:], last, ""
    elif colon is not None:
        head, ends, rest = line[: colon.start()], colon.end(), line[colon.end() :].strip()
    else:
        return -1
    verb = _ASKED.search(head)
    # "Check again: the date is wrong" asks for no text to be looked at; "check this: …" and "translate: …" do.
    asked = verb is not None and not (rest and _PLAINLY.fullmatch(head[verb.end() :]))
    if rest:
        return at + ends if asked and not rest.startswith(("`", "<")) else -1
    if not asked and not _ANNOUNCED.search(head + ":") and _points_follow(head.strip(" *_#"), text, at + len(line)):
        return -1
    after = _NOT_BLANK.search(text, at + len(line))
    if after is None:
        return -1
    begins = max(text.rfind("\n", at, after.start()) + 1, at)
    follows = text[begins : begins + MAX_HEAD]
    marked = follows.startswith(("```", "~~~", "'''", '"""', ">", "<", "|", STOOD, "    ", "\t", "Traceback "))
    return -1 if marked else at + ends


def _points_follow(head: str, text: str, at: int) -> bool:
    head = plain(head)
    return bool(_OWN_POINTS.search(head) or (_BULLET.match(text, at + 1) and _LIST_HEAD.search(head)))


def announces_a_quote(bare: str) -> bool:
    """A line that ends with a colon and names a date or an address: the head of a quoted mail, in any language."""
    return bare.endswith((":", "：")) and bool(_DATE.search(bare[:MAX_HEAD]))


def names_a_program(bare: str) -> bool:
    """``PreToolUse:Bash hook …``: a line that a program heads; ``# MEMORY.md (loaded)``: one that heads a file."""
    return bool(_PROGRAM.match(bare) or _NAMES_FILE.match(bare))


def begins_headers(bare: str, following: str) -> bool:
    """``Content-Type: …`` among fields of its kind: what comes after the headers' empty line is theirs as well."""
    return bool(_HEADER.match(bare) and _FIELDS.match(following))


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
    following = first_line(text, after)
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
    """What is to be answered now of a message that an agent set up; "" where what stands before forges it."""
    for opens, marks, ends in _SET_UP:
        if text.startswith(opens):
            parts = text.split(marks)
            return parts[1].partition(ends)[2] if len(parts) == 2 else ""
    return text


def _two_points(paragraph: str) -> bool:
    """Two short lines with a lower-case remark each ("Tone: too formal"), and no third: no chat and no fields."""
    heads = [line.strip().partition(": ") for line in paragraph.split("\n") if _speaks(line.strip())]
    if len(heads) != 2 or heads[0][0] == heads[1][0]:
        return False
    return all(" " not in head and remark[:1].islower() and len(remark.split()) <= 4 for head, _, remark in heads)


def _speaks(bare: str) -> bool:
    clock = _CLOCK.match(bare)
    return bool(_SPEAKER.match(bare, clock.end() if clock else 0))


def first_line(text: str, at: int) -> str:
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
