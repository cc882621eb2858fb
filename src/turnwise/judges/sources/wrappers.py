"""Taking out of a message what an agent, a program or a quotation put into it: tags, fences, brackets, markers.

It goes by form and not by names: every tagged block is foreign, but for short emphasis. What a block holds may forge
the block's end, so a block goes on to the last end of its kind, and one without an end to the end of the text. Each
text is read once from left to right; nothing here knows what was said.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

from collections.abc import Callable

from turnwise.judges.sources.pasted import bracket_end
from turnwise.judges.sources.visible import STOOD
from turnwise.patterns import anchored, pattern

EMPHASIS = frozenset("b i em strong u s del ins mark sub sup small kbd code q".split())
"""Tags in which a person sets a few words of their own."""
ELEMENTS = frozenset("div p span table ul ol li h1 h2 h3 h4 h5 h6 a td tr th section nav form button label".split())
"""Elements that a person names in a sentence: "use <p> tags"."""
VOID = frozenset("br hr img input meta link wbr".split())
"""Tags that hold no text."""
TEMPLATE_MARKS = frozenset(
    "s bos eos pad unk think im_start im_end start_of_turn end_of_turn tool_call tool_calls function_call inst "
    "system_prompt sys next_state".split()
)
"""Marks of a chat template: alone they hold nothing and are dropped; before a role, somebody else speaks."""
ROLES = ("user", "assistant", "system", "tool", "model", "developer", "human", "function", "observation")
_NAMED = anchored(r"[,.!?;)]{1,2}(?:\s|$)| (?:tags?|elements?|instead|for|and|or|not|here|please)\b")
"""What stands behind a tag that is named in a sentence."""
MAX_EMPHASIS = 80
MAX_NESTED = 3
"""Marks of a chat template within one another."""
MAX_TAG = 2000
FENCES = ("```", "~~~", "'''", '"""')
PERSONS = frozenset(["user_query", "user_message", "userrequest", "feedback"])
"""Tags in which agents set the person's own words. Whatever else is put in has its own block, label or place."""
_ALONE = anchored(r"<<[A-Za-z][^<>\n]{0,80}>>[ \t]*(?:\n|$)")
"""A mark that has its line for itself."""
_MARK = pattern(r"[<\[`\n]|~~~|'''|\"\"\"")


def without_blocks(text: str, skip: Callable[[str, int], int], head_end: Callable[[str, int], int]) -> str:
    """The text (visible, with plain marks) without fenced, tagged, bracketed and marked blocks.

    ``skip`` is asked at the beginning of each line outside of a block: it returns where what the line begins ends, or
    the line's own beginning. ``head_end`` is asked next: it returns where a text is handed over, which goes on to the
    end, or -1.
    """
    return _Scan(text, skip, head_end).run()


class _Scan:
    """One pass over one text. Whatever begins first holds all that follows, to its end."""

    def __init__(self, text: str, skip: Callable[[str, int], int], head_end: Callable[[str, int], int]) -> None:
        self.text = text
        self.skip = skip
        self.head_end = head_end
        self.at = 0
        self.kept: list[str] = []
        self.system_closed = text.rfind("<</SYS>>")
        self.closed_at = _last_closings(text, "</", ">") | _last_closings(text, "[/", "]")

    def run(self) -> str:
        text = self.text
        readers = {"<": self._angle, "[": self._bracket, **dict.fromkeys("`~'\"", self._code)}
        while self.at < len(text):
            at = self.at
            if (not at or text[at - 1] == "\n") and not self._opens_block(at):
                end = self.skip(text, at)
                if end > at:
                    self.kept.append("\n")
                    self.at = end
                    continue
                if (end := self.head_end(text, at)) >= 0:
                    self.text = text = text[:end]
            mark = _MARK.search(text, at)
            here = mark.start() if mark else len(text)
            self._keep(here)
            if here < len(text):
                if text[here] == "\n":
                    self._keep(here + 1)
                else:
                    readers[text[here]]()
        return "".join(self.kept)

    def _opens_block(self, at: int) -> bool:
        """Whether the line begins with a block, which is then read as one."""
        text = self.text
        while text[at : at + 1] in (" ", "\t"):
            at += 1
        if text[at : at + 1] == "[":
            return f"[{_name(text, at + 1)[0]}" in self.closed_at or bracket_end(text, at, True) > at
        if text[at : at + 1] == "<":
            return text[at + 1 : at + 2].isalpha() or text[at + 1 : at + 2] in tuple("<|!?/")  # "< " begins none
        return text.startswith(FENCES, at)

    def _keep(self, end: int) -> None:
        self.kept.append(self.text[self.at : end])
        self.at = end

    def _drop(self, end: int) -> None:
        self.kept.append(f"\n{STOOD}\n" if self._begins_line() else " ")
        self.at = max(end, self.at + 1)

    def _begins_line(self) -> bool:
        before = self.text[max(self.at - 8, 0) : self.at].rpartition("\n")
        return not before[2].strip() and bool(before[1] or self.at < 8)

    def _drop_to(self, mark: str) -> None:
        """Drop up to and with the last such mark, or all that is left."""
        last = self.text.rfind(mark, self.at + len(mark))
        self._drop(last + len(mark) if last >= 0 else len(self.text))

    def _code(self) -> None:
        """A fenced block goes. A span of code on one line is the person's; what stands in it is no tag."""
        fence = self.text[self.at : self.at + 3]
        if fence in FENCES:
            self._drop_to(fence)
            return
        end = self.text.find("`", self.at + 1, self.at + 200)
        whole = end >= 0 and "\n" not in self.text[self.at : end]
        self._keep(end + 1 if whole else self.at + 1)

    def _angle(self) -> None:
        text, at = self.text, self.at
        if text.startswith("<|", at):
            self._special()
        elif text.startswith("<<SYS>>", at):
            self._drop(self.system_closed + 8 if self.system_closed > at else at + 7)
        elif text.startswith("<</SYS>>", at):
            self._drop(at + 8)
        elif text.startswith("<<<", at) and text[at + 3 : at + 4].isalpha() and text.find("<<<", at + 3) < 0:
            self._drop(len(text))  # opened and never closed
        elif _ALONE.match(text, at) and self._begins_line() and text.find("<<", at + 2) < 0:
            self._drop(len(text))  # the same
        elif text.startswith("<<<", at) or (text.startswith("<<", at) and text[at + 2 : at + 3].isalpha()):
            self._drop_to(">>")
        elif text.startswith("<!--", at):
            self._drop_to("-->")
        elif text.startswith("<![", at):
            self._drop_to("]]>")
        elif text[at + 1 : at + 2] in ("!", "?"):
            self._drop_to(">")
        elif text.startswith("</", at) and text[at + 2 : at + 3].isalpha():
            self._stray_closing()
        else:
            self._tag()

    def _special(self) -> None:
        """``<|im_end|>``: dropped with what is nested in it."""
        text, at, depth = self.text, self.at, 0
        while at < min(len(text), self.at + 200) and depth <= MAX_NESTED:
            if text.startswith("<|", at):
                depth, at = depth + 1, at + 2
            elif text.startswith("|>", at):
                depth, at = depth - 1, at + 2
                if not depth:
                    name = text[self.at + 2 : at - 2].strip("_- ").lower()
                    self._drop_mark(at, opens=name in ROLES)
                    return
            else:
                at += 1
        self._keep(self.at + 1)

    def _drop_mark(self, end: int, opens: bool = False) -> None:
        """Drop a mark of a chat template, and all after it where a role stands behind it."""
        behind = self.text[end : end + 40].lstrip(" \n*_#").lower()
        role = next((r for r in ROLES if behind.startswith(r)), None)
        speaks = role is not None and not behind[len(role) : len(role) + 1].isalnum()
        self._drop(len(self.text) if speaks or opens else end)

    def _stray_closing(self) -> None:
        """The end of a block whose beginning we did not see: whose words stand before it and after it is not known."""
        name, after = _name(self.text, self.at + 2)
        end = self.text.find(">", after, after + MAX_TAG)
        if name in EMPHASIS | VOID | TEMPLATE_MARKS | PERSONS:
            self._drop(end + 1 if end >= 0 else len(self.text))
        else:
            self._nothing()

    def _nothing(self) -> None:
        self.kept.clear()
        self.at = len(self.text)

    def _tag(self) -> None:
        text, at = self.text, self.at
        name, after = _name(text, at + 1)
        follows = text[after : after + 1]
        address = name.endswith(":") and follows == "/"
        if not name or address or (follows and follows not in "/>" and not follows.isspace()):
            end = text.find(">", at, at + 300)  # an address in angle brackets, or a sign of comparison
            quoted = end >= 0 and "\n" not in text[at:end] and not text[at - 1 : at].isalnum()
            link = name and end >= 0 and (len(text[at:end].split()) == 1 or quoted)
            self._drop(end + 1) if link else self._keep(at + 1)
            return
        end = text.find(">", after, after + MAX_TAG)
        if end < 0:
            # Cut off inside of the tag; "a <b" is a comparison.
            self._drop(len(text)) if name in self.closed_at or set("-_:") & set(name) else self._keep(at + 1)
            return
        closed = self.closed_at.get(name, -1)
        if name in VOID or text[end - 1] == "/" or name in PERSONS:
            self._drop(end + 1)
        elif name in EMPHASIS:
            self._emphasis(name, end + 1, closed)
        elif closed > end:
            self._drop(closed)
        elif name in TEMPLATE_MARKS:
            self._drop_mark(end + 1)
        elif at and text[at - 1].isalnum() and follows == ">" and not set("-_:") & set(name):
            self._keep(end + 1)  # a type with a parameter: List<String>
        elif name in ELEMENTS and self._is_named(end):
            self._keep(end + 1)
        else:
            self._drop(len(text))

    def _is_named(self, end: int) -> bool:
        """Whether a tag without attributes stands as a word within a line, with more of the line on both sides."""
        text, at = self.text, self.at
        within = text[max(at - 80, 0) : at].rpartition("\n")[2]
        begins = within.strip() != "" and within.endswith((" ", "("))
        return begins and text[at + 1 : end].isalnum() and bool(_NAMED.match(text, end + 1))

    def _emphasis(self, name: str, begins: int, closed: int) -> None:
        closing = f"</{name}>"
        end = self.text.find(closing, begins, begins + MAX_EMPHASIS + len(closing))
        if closed < begins:
            self._keep(begins)  # "use <b> for it"
        elif end >= 0 and "\n" not in self.text[begins:end] and "<" not in self.text[begins:end]:
            self.kept.append(self.text[begins:end])
            self.at = end + len(closing)
        else:
            self._drop(closed)

    def _bracket(self) -> None:
        text, at = self.text, self.at
        if (end := bracket_end(text, at, self._begins_line())) > at and text[at - 1 : at] != "!":
            self._drop(end)
            return
        name, after = _name(text, at + 1)
        closed = self.closed_at.get(f"[{name}", -1)
        if name and closed > after:
            self._drop(closed)
            return
        if text.startswith("[/", at) and text[at + 2 : at + 3].isalpha():
            if _name(text, at + 2)[0] in TEMPLATE_MARKS:
                self._drop(text.find("]", at) + 1 or len(text))
            else:
                self._nothing()
            return
        if name in TEMPLATE_MARKS and text[after : after + 1] == "]":
            self._drop_mark(after + 1)
            return
        if not self._link():
            self._keep(at + 1)

    def _link(self) -> bool:
        """Drop a link or an image, whose words are of the page; its text may hold brackets, an image's also lines."""
        text, at = self.text, self.at
        line_end = text.find("\n", at, at + MAX_TAG)
        image = bool(at) and text[at - 1] == "!"
        label = text.rfind("](", at, line_end if line_end >= 0 else at + MAX_TAG)
        if label < 0 and image:
            label = text.find("](", at, at + MAX_TAG)
        if label < 0 and not image:
            return False
        end = text.find(")", label, label + MAX_TAG) if label >= 0 else -1
        if self.kept and self.kept[-1].endswith("!"):
            self.kept[-1] = self.kept[-1][:-1]
        self._drop(end + 1 if end >= 0 else len(text))
        return True


def _name(text: str, at: int) -> tuple[str, int]:
    """The name of a tag that begins here, in lower case, and where it ends; "" where none does."""
    end = at
    if text[at : at + 1].isalpha():
        while end < len(text) and (text[end].isalnum() or text[end] in "-_:."):
            end += 1
    return text[at:end].lower(), end


def _last_closings(text: str, opens: str, closes: str) -> dict[str, int]:
    """Where the last closing tag of each name ends; names in square brackets are given with their bracket."""
    found: dict[str, int] = {}
    at = text.find(opens)
    while at >= 0:
        name, after = _name(text, at + 2)
        end = text.find(closes, after, after + MAX_TAG)
        if name:
            found[name if opens == "</" else f"[{name}"] = end + 1 if end >= 0 else len(text)
        at = text.find(opens, max(after, at + 1))
    return found
