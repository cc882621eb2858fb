"""Text as an eye sees it: without invisible characters, and with the look-alikes of marks turned into the marks.

Whoever looks for a tag, a fence or a box looks here first, so that a full-width bracket, a zero-width space inside a
word or a Cyrillic letter hides nothing. Pure functions of linear time; they decide nothing.
"""

from __future__ import annotations

import unicodedata

from turnwise.messages import storable

STOOD = "\ue000"
"""Left, on a line of its own, where a block that began a line was taken out: what announced it announces no more."""
_BREAKS = dict.fromkeys(map(ord, "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), "\n")
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_WIDE = {0xFF01 + i: chr(0x21 + i) for i in range(94)}
# The full-width signs that Chinese and Japanese end their sentences with stay as they are.
_KEPT_WIDE = frozenset(map(ord, "，！？（）：；．"))
_MARKS = {
    **dict.fromkeys(map(ord, "‹〈⟨❮❬〈≺˂ᐸ﹤❰"), "<"),
    **dict.fromkeys(map(ord, "›〉⟩❯❭〉≻˃ᐳ﹥❱"), ">"),
    **dict.fromkeys(map(ord, "«≪⟪《⋘"), "<<"),
    **dict.fromkeys(map(ord, "»≫⟫》⋙"), ">>"),
    **dict.fromkeys(map(ord, "⟦【〔⁅❲﹝〚"), "["),
    **dict.fromkeys(map(ord, "⟧】〕⁆❳﹞〛"), "]"),
    **dict.fromkeys(map(ord, "❴⦃﹛"), "{"),
    **dict.fromkeys(map(ord, "❵⦄﹜"), "}"),
    **dict.fromkeys(map(ord, "∖⧵⧹﹨⟍╲"), "\\"),
    **dict.fromkeys(map(ord, "⁄∕⧸"), "/"),
    **dict.fromkeys(map(ord, "ǀ∣│❘⎮┃┆|"), "|"),
    **dict.fromkeys(map(ord, "ˋ｀"), "`"),
    **dict.fromkeys(map(ord, "ˍ﹍﹎﹏"), "_"),
}
_LETTERS = str.maketrans(
    "аАвВеЕкКмМнНоОрРсСтТуУхХіІјЈѕЅԁɡһοΟаΑΒΕΖΗΙΚΜΝΡΤΥΧνιτυԛԝɑеⅼⅽⅾⅿІ",
    "aAbBeEkKmMhHoOpPcCtTyYxXiIjJsSdghoOaABEZHIKMNPTYXvituqwaelcdmI",
)


def visible(text: str) -> str:
    """The text without characters that show nothing (format, bidi and control characters); any line end is a newline.

    It can be stored: halves of surrogate pairs are replaced.
    """
    text = storable(text).replace("\r\n", "\n").translate(_BREAKS)
    unseen = {ord(c): None for c in set(text) if _shows_nothing(c)}
    return text.translate(unseen) if unseen else text


def with_plain_marks(text: str) -> str:
    """`visible`, with full-width letters and the look-alikes of brackets, slashes and bars as plain ones."""
    text = visible(text)
    return text if text.isascii() else text.translate(_PERSONS)


def folded(text: str) -> str:
    """`visible` in Unicode's compatibility form, with plain marks: how text that nobody vouches for is shown."""
    text = visible(text)
    if text.isascii():
        return text
    return visible(unicodedata.normalize("NFKC", text.translate(_MARKS))).translate(_MARKS)


def latin(text: str) -> str:
    """Cyrillic and Greek letters that look like Latin ones as those; each character stays in its place."""
    return text if text.isascii() else text.translate(_LETTERS)


_PERSONS = {code: plain for code, plain in _WIDE.items() if code not in _KEPT_WIDE} | _MARKS
_PERSONS = {code: plain for code, plain in _PERSONS.items() if chr(code) not in "«»《》【】"}


def _shows_nothing(character: str) -> bool:
    code = ord(character)
    if 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or character in _BLANK_LETTERS:
        return True  # variation selectors, and letters without a shape
    return character not in "\n\t" and unicodedata.category(character) in ("Cf", "Cc")
