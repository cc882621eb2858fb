"""Quotations between marks: a few quoted words stay, they name what is meant; more of them are somebody else's."""

from __future__ import annotations

import pytest

from turnwise.judges.sources.quotations import (
    MAX_APOSTROPHES,
    MAX_NESTED,
    MAX_SIGNS,
    hiding_phrases,
    shown,
    without_hidden,
    without_quotations,
)

KEPT = [
    "",
    "no marks at all",
    # A few words name what is meant.
    'Begin with "Dear Ann", not with "Hi".',
    'Write "Yours", please.',
    'Say "one two three" there.',
    "Say 'one two three' there.",
    "Schreib „Moin“ statt «Hallo».",
    'Use "v1.2" here, and "a,b" there.',
    'Call it "Stop!" and no more.',
    'It says "" here and "" there.',
    'Say "Grüß, Gott" there.',
    # On each line for itself.
    'Write "Dear Ann" first.\nA 5" disk is meant.\nThanks.',
    'First line.\nWrite "Dear Ann" first, and "Hi" next.',
    'Call it "x".',
    'Say "very good" there.',
    "Titel: 《一二三四》 und 「五六七八九十一二三四」",
    "He says “Dear Ann” and “Dear Bob”.",
    "Han säger ”Hej Ann” och ”Hej Bob”.",
    "Nimm ‚eins zwei drei‘ oder ‚vier fünf sechs‘.",
    "Take ‘one two three’ or ‘four five six’.",
    "Nimm 『一二』, 【三四】 oder 〝五六〞.",
    # A mark that measures, or stands for a letter, opens nothing.
    'A 5" disk is fine, and so is the 3" one that lies here.',
    "It's wrong and you don't see it.",
    "The users' names are missing in all of the lists.",
    "rock 'n roll is what I asked for, no more and no less",
    "It is ' alone that I asked you to put in there",
    "It is ’ alone that I asked you to put in there’ ",
    'It ends with "',
    "in the '90s everything was better than it is now",
    "l’heure d’été, c’est bien ce que je voulais",
    "Hawai‘i, Moloka‘i and the isles’ names are missing",
    "The café's closed and the tea is in the boys' room",
    "It is 6' long and no more than 5 wide.",
    # Between back-ticks a mark is a sign of code.
    "Put `'` around each of the words and not `'` alone",
    'Put `"` around each of the words and not `"` alone',
    "Laisse «un deux trois» et «quatre cinq».",
    "Lass »eins zwei drei« und »vier fünf«.",
]


@pytest.mark.parametrize("text", KEPT)
def test_a_few_words_between_marks_and_marks_that_quote_nothing_stay(text: str) -> None:
    assert without_quotations(text) == text


TAKEN = [
    ('She said "it is all far too long" to me.', 'She said "" to me.'),
    ('"It is all far too long", she said.', '"", she said.'),
    ('She said "it is all far too long"', 'She said ""'),
    ("She said 'it is all far too long' to me.", 'She said "" to me.'),
    ("She said “it is all far too long” to me.", 'She said "" to me.'),
    ("She said ”it is all far too long” to me.", 'She said "" to me.'),
    ('She said “it is all far too long" to me.', 'She said "" to me.'),
    ('She said "it is all far too long” to me.', 'She said "" to me.'),
    ('She said "it is all far too long“ to me.', 'She said "" to me.'),
    ("Sie sagt „es ist alles zu lang“ zu mir.", 'Sie sagt "" zu mir.'),
    ("Sie sagt „es ist alles zu lang” zu mir.", 'Sie sagt "" zu mir.'),
    ('Sie sagt „es ist alles zu lang" zu mir.', 'Sie sagt "" zu mir.'),
    ("Sie sagt ‚es ist alles zu lang‘ zu mir.", 'Sie sagt "" zu mir.'),
    ("Sie sagt ‚es ist alles zu lang’ zu mir.", 'Sie sagt "" zu mir.'),
    ("She said ‘it is all far too long’ to me.", 'She said "" to me.'),
    ("Hon sa ’det är allt för långt’ till mig.", 'Hon sa "" till mig.'),
    ("Elle dit «c'est beaucoup trop long» à moi.", 'Elle dit "" à moi.'),
    ("Sie sagt »es ist alles zu lang« zu mir.", 'Sie sagt "" zu mir.'),
    ("「これは 全部 とても 長い」と言った", '""と言った'),
    ("『これは 全部 とても 長い』と言った", '""と言った'),
    ("《这 个 太 长 了》他说", '""他说'),
    ("【这 个 太 长 了】他说", '""他说'),
    ("〝これは 全部 とても 長い〞と", '""と'),
    ("〝これは 全部 とても 長い〟と", '""と'),
    # Several in one text.
    ('"It is all far too long" and "please make it much shorter" again', '"" and "" again'),
    ('A "b" and "it is all far too long" c "d"', 'A "b" and "" c "d"'),
    ('"It is all far too long" and "...or so it seems to be" again', '"" and "" again'),
    ('"It is all far too long" ("I want it shorter") again', '"" ("") again'),
    ('"It is all far too long" ("please make it much shorter") again', '"" ("") again'),
    ("J'ai lu l'«homme qui ne voulait pas mourir» hier.", "J'ai lu l'\"\" hier."),
    ("'\"It is all far too long\", she said.", "'\"\", she said."),
    # What measures behind it does not belong to it, and a space before the end does.
    ('She said “it is all far too long” of a 7 " disk.', 'She said "" of a 7 " disk.'),
    ("Elle dit « c'est beaucoup trop long » à moi.", 'Elle dit "" à moi.'),
    # Apostrophes inside, and letters on both sides of one, end nothing.
    ("She said 'it isn't what I'd have liked' to me.", 'She said "" to me.'),
    ("She said ‘it isn’t what I’d have liked’ to me.", 'She said "" to me.'),
    ("She said ‘it is all far too long’, and she’s right.", 'She said "", and she’s right.'),
    # Nested marks balance.
    ("Er sagt „sie sagt „viel zu lang“ und „zu steif“ zu mir“ und geht.", 'Er sagt "" und geht.'),
    ("Elle dit «c'est „bien trop“ long» et part.", 'Elle dit "" et part.'),
    ("“a “b “c “d “e “f” e” d” c” b” a” is nested", '"" is nested'),
    ("Er sagt „sie sagt „viel zu lang“ zu mir“ und geht.", 'Er sagt "" und geht.'),
    ("Il dit «elle dit «bien trop long» à moi» et part.", 'Il dit "" et part.'),
    ('He says "she calls it "far too long" all day" and goes.', 'He says "" and goes.'),
    ("He says 'she calls it 'far too long' all day' and goes.", 'He says "" and goes.'),
    # A mark after a space, or before a letter, does not end a straight one.
    ('He says "it is 5 " long or even more" and goes.', 'He says "" and goes.'),
    ('He says "all of it, see"x and the rest" and goes.', 'He says "" and goes.'),
    # In a script without spaces words follow a straight mark at once.
    ('他说"这 个 太 长 了"很好', '他说""很好'),
    # Words that end a sentence, with two of them; three with a stop among them.
    ('She said "Too long." to me.', 'She said "" to me.'),
    ('She said "Too long!" to me.', 'She said "" to me.'),
    ('She said "Too long?" to me.', 'She said "" to me.'),
    ('She said "No, too long" to me.', 'She said "" to me.'),
    ("他说「很好。」", '他说""'),
    # Several lines are a quotation, however few the words.
    ('She said "too\nlong" to me.', 'She said "" to me.'),
    # A script without spaces: more signs than a name has.
    ("他说「这个东西实在太长了一点」。", '他说""。'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "left"), TAKEN)
def test_more_than_a_few_words_between_marks_are_taken_out(text: str, left: str) -> None:
    assert without_quotations(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # Without an end on its line it goes on to the last mark of its kind, over empty lines.
        ('She said "it is long\n\nand stiff" and left.', 'She said "" and left.'),
        ('She said "it is long\nand "stiff" and so on" and left.', 'She said "" and left.'),
        ("Sie sagt „es ist lang\nund steif“ und geht.", 'Sie sagt "" und geht.'),
        ("Elle dit «c'est long\net raide» et part.", 'Elle dit "" et part.'),
        ('"a\nb" c', '"" c'),
        # Without any mark behind the line it goes on to the end of the text.
        ("She said “it is long and stiff\nand left.", 'She said ""'),
        ('She said "it is long and stiff\nand left.', 'She said ""'),
        ("Er sagt „es ist alles zu lang", 'Er sagt ""'),
        ("Elle dit «c'est long et raide\net part.", 'Elle dit ""'),
        # The last closing mark on the line ends it, where marks that could close follow one another.
        ('He says "far too long for me", see" and goes.', 'He says "" and goes.'),
        # An apostrophe without an end on its line opens nothing.
        ("She said 'it is long\nand stiff' and left.", "She said 'it is long\nand stiff' and left."),
        ("She said ‘it is long and stiff\nand left.", "She said ‘it is long and stiff\nand left."),
    ],
)
def test_where_a_quotation_ends_that_has_no_end_on_its_line(text: str, left: str) -> None:
    assert without_quotations(text) == left


@pytest.mark.parametrize(("opens", "closes"), ["''", "’’", "‘’", "‚‘"])
def test_the_end_of_a_quotation_in_single_marks_is_looked_for_among_so_many_characters(opens: str, closes: str) -> None:
    longest = f"{opens}{'so it is ' * 60}"[: MAX_APOSTROPHES - 1] + closes
    assert without_quotations(f"He says {longest} again.") == 'He says "" again.'
    longer = f"{opens}x{longest[1:]}"
    assert without_quotations(f"He says {longer} again.") == f"He says {longer} again."


def test_single_marks_may_be_nested_so_deep() -> None:
    deep = "so 'many " * MAX_NESTED + "words" + "'" * MAX_NESTED
    assert without_quotations(deep + " b") == 'so "" b'
    deeper = "so 'many " * (MAX_NESTED + 1) + "words" + "'" * (MAX_NESTED + 1)
    assert without_quotations(deeper + " b") != 'so "" b'


@pytest.mark.parametrize("script", ["一", "あ", "한", "⺀"])
def test_where_no_spaces_part_the_words_so_many_signs_name_something(script: str) -> None:
    assert without_quotations(f'写"{script * MAX_SIGNS}"') == f'写"{script * MAX_SIGNS}"'
    assert without_quotations(f'写"{script * (MAX_SIGNS + 1)}"') == '写""'
    assert without_quotations('Write "Donaudampfschifffahrt".') == 'Write "Donaudampfschifffahrt".'


PHRASES = [
    ('Add "Why it matters:" to it, please.', "Why it matters:"),
    ("The part with 'A common mistake is' is not there.", "A common mistake is"),
    ("Schreib „Bis bald, mein Freund!“ darunter.", "Bis bald, mein Freund!"),
    ("Termine par « Bien à vous, l'équipe ! », merci.", "Bien à vous, l'équipe !"),
    ("Write 'that's all for now, folks!' under it.", "that's all for now, folks!"),
    ('Begin with "One two three four five six seven eight"', "One two three four five six seven eight"),
    ('Begin with "A common mistake is ..." again.', "A common mistake is ..."),
    ('Add "Stay curious, my dear old friend 🌱!" there', "Stay curious, my dear old friend 🌱!"),
    ("请用「" + "好" * 24 + "」结尾", "好" * 24),
    ("请用「好的，再见。」结尾", "好的，再见。"),
]


@pytest.mark.parametrize(("text", "phrase"), PHRASES)
def test_a_phrase_is_hidden_until_it_is_shown(text: str, phrase: str) -> None:
    hidden = hiding_phrases(text)
    assert not set(phrase) & set(hidden.split('"')[1])
    assert without_hidden(hidden) == without_quotations(text)
    found, phrases = shown(hidden)
    assert phrases == [phrase]
    assert found == without_quotations(text).replace('""', f'"{phrase}"')


def test_of_a_phrase_that_was_cut_nothing_is_shown() -> None:
    hidden = hiding_phrases('Add "Why it matters:" to it.')
    for end in range(5, len(hidden) - 7):
        assert shown(hidden[:end]) == ('Add "', [])


def test_signs_that_nobody_hid_hide_nothing() -> None:
    forged = hiding_phrases('"from now on, evil"')
    assert shown(hiding_phrases(f"say {forged} now")) == ('say "" now', [])


@pytest.mark.parametrize("text", [*KEPT, *(text for text, _ in TAKEN), *(text for text, _ in PHRASES)])
def test_but_for_what_is_hidden_the_text_is_the_same(text: str) -> None:
    assert without_hidden(hiding_phrases(text)) == without_quotations(text)


@pytest.mark.parametrize(
    "quotation",
    [
        '"one two three four five six seven eight nine"',
        '"That is all. Buy it now"',
        '"now… always buy it"',
        "\"he said 'buy our things now' twice\"",
        '"buy it\nnow then"',
        '"buy our things now',
        f'"{"x" * 78} it now ok"',
        "「" + "买" * 25 + "」",
        '"buy it。now then ok"',
        '"[INST] buy it now ok"',
        '"<b>buy it now ok</b>"',
        '"buy \U0001ffff it now ok"',
    ],
)
def test_a_quotation_that_is_more_than_a_phrase_goes(quotation: str) -> None:
    hidden = hiding_phrases(f"It says {quotation}")
    assert hidden == without_quotations(f"It says {quotation}")
    assert hidden.startswith('It says ""')
