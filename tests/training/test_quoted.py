"""Words that a wish quotes: which they are, whether it wants them said, and how often an answer says them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from turnwise.training.lessons.opening import place_said
from turnwise.training.lessons.quoted import (
    Reaction,
    end_of,
    labels_said,
    misses_words,
    named_at,
    no_frames,
    praised_words,
    quoted_words,
    rank,
    said_again,
    said_by_wish,
    same_wish,
    shown,
    since_said,
    with_marks,
    words_praised,
)
from turnwise.training.lessons.wishes import standing


def test_quotations_are_taken_as_they_stand_and_once() -> None:
    wishes = ['always put "in short:" first', 'Start with "In short:", always', "say “over  and out” at the end"]
    assert quoted_words(wishes) == ["In short:", "over and out"]


def test_dots_at_the_end_stand_for_what_follows_and_marks_make_no_other_words() -> None:
    assert quoted_words(['write "A common mistake is ..." there', "say 'Because…' first"]) == [
        "A common mistake is",
        "Because",
    ]
    assert quoted_words(['add "Why it matters:"', 'where is "why it matters"?']) == ["Why it matters:"]
    assert quoted_words(['begin with "-"', 'say "..."']) == ["-"]
    assert quoted_words(['say "e.g. ..." first', 'then "Dear Mr. …"', 'and "Yes."']) == ["e.g.", "Dear Mr.", "Yes."]


BARE = "It is Rome."


@pytest.mark.parametrize(
    ("wish", "answer", "said_of", "misses"),
    [
        ('end with "Good night, Grandma"', "It is Rome. Good night!", [BARE], True),
        ('end with "Good night, Grandma"', "It is Rome. GOOD NIGHT GRANDMA", [BARE], False),  # in whatever marks
        ('end with "Good night, Grandma"', "It is Rome. Good night, Grandmas", [BARE], True),
        ('end with "Good night, Grandma"', BARE, ["Good night, Grandma"], False),  # it is not about these words
        ('end with "Good night, Grandma"', BARE, [BARE, "Good night, grandma!"], False),
        ('end with "Good night, Grandma"', BARE, [], False),
        ('"Ahoy" first and "Bye" last', "Bye, it is Rome.", [BARE], False),
        ('"Ahoy" first and "Bye" last', BARE, [BARE], True),
        ('begin with "-"', BARE, [BARE], False),  # there is no word
        ('write dates as "YYYY-MM-DD"', "2026-11-30", ["30 Nov"], False),  # nobody says these
        ('don\'t begin with "Great question"', BARE, [BARE], False),
        ("end with Good night, Grandma", BARE, [BARE], False),
    ],
)
def test_an_answer_misses_the_words_that_a_wish_wants_said(
    wish: str, answer: str, said_of: list[str], misses: bool
) -> None:
    assert misses_words(wish, answer, said_of, ["Ahoy, Paris. Good night, Grandma!"]) == misses
    assert not misses_words(wish, answer, said_of, ["It is Paris.", "–"]), "words nobody praised may not be wanted"
    forbids = any(word in wish for word in ("drop", "n't"))
    again = "your ahoy there or good night, grandma is missing"
    assert misses_words(wish, answer, said_of, [], again) == (misses and not forbids and "Grandma" in wish)
    assert not misses_words(wish, answer, said_of, [], "be brief"), "it says nothing of these words"


@pytest.mark.parametrize(
    ("wishes", "place"),
    [
        (['Begin every answer with "Ahoy".'], 1),
        (['start each answer with "ahoy!", please'], 1),
        (['End every answer with "Ahoy".'], -1),
        (['Close all answers with "Ahoy".'], -1),
        (['Include "Ahoy" in every answer.'], 0),
        (['do not end every answer with "Ahoy"'], 0),  # that is not said of a place
        (['Begin every answer with "Bye".'], 0),
        (['Begin every answer with "Ahoy".', 'End every answer with "Ahoy".'], -1),
        (['End every answer with "Ahoy".', 'Begin every answer with "Bye".'], -1),
        (['as we shout here, so open your answers with "Ahoy"'], 1),
        (['argh, every answer starts with "Ahoy", how often do i say it'], 1),
        (['finish your answers with the words "Ahoy", please'], -1),
        (['a sentence in every answer that starts with "Ahoy"'], 0),
        (['could you open with "Ahoy" and some cheer, every time?'], 1),
        (['open with "Ahoy", mate'], 1),
        (['Mate, please finish with "Ahoy", so that I know'], -1),
        (['a question behind each, please begin with "Ahoy"'], 0),
        (["could you not open with 'Ahoy'", 'you may end it, or open, with "Ahoy"'], 0),
        (['never begin an answer, do not open your answers with "Ahoy"'], 0),
        (['Begin every answer with "Bye" and end it with "Ahoy".'], 0),
        (['Begin every answer with "Ahoy" and end it with "Bye".'], 1),
        (['please begin every single answer with the exact words "Ahoy …"'], 1),
        (['put a note at the end and begin it with "Ahoy"'], 0),
        (['when you list steps, start them with "Ahoy"'], 0),
        (['the last line of your answer should begin with "Ahoy"'], 0),
        (['the second paragraph of each answer starts with "Ahoy"'], 0),
        (['Begin every answer with the date and close with "Ahoy"'], 0),
        (['end it with a joke and put "Ahoy" first'], 0),
        (['dont begin your answers with "Ahoy"'], 0),
        (['why do you start every answer with "Ahoy"'], 0),
        (['start off each reply with "Ahoy"'], 1),
        (['finish up all messages by saying "Ahoy"'], -1),
        (['each response should end with the phrase "Ahoy"'], -1),
        (['avoid starting any message with "Ahoy"'], 0),
        (["I don't want you to begin your answers with 'Ahoy'"], 0),
        (['instead of opening the answer with "Ahoy" I would like'], 0),
        (['begin every answer with a joke, then "Ahoy"'], 0),
        (['without closing your reply with "Ahoy", so rather end the reply with "Ahoy"'], 0),
        (['I hate to open all messages with "Ahoy"'], 0),
        (['quit ending the responses with "Ahoy"'], 0),
        (['stop. always begin with "Ahoy"'], 1),
        (['That was no answer. Open your messages by saying "Ahoy"'], 1),
        (['never, ever begin your answers with "Ahoy"'], 0),
        ([], 0),
    ],
)
def test_a_plain_instruction_says_where_its_words_belong(wishes: list[str], place: int) -> None:
    assert place_said("Ahoy", wishes) == place


@pytest.mark.parametrize(
    ("wish", "marked"),
    [
        ("start with here is what the books say, please", 'start with "here is what the books say", please'),
        ("Here is What  the Books say first", '"Here is What the Books say" first'),
        (
            "here is what the books say: once, here is what the books say",
            '"here is what the books say": once, here is what the books say',
        ),
        ('say "Ahoy" and here is what the books say', None),  # it quotes something
        ('no "so to speak, here is what the books say, as we all know by now"', None),  # however long that is
        ("there is what the books say", None),
        ('the 27" screen, and here is what the books say', None),  # whose mark that is nobody knows
        ("be brief", None),
        ("İ here is what the books say", None),  # its letters are counted differently when they are small
    ],
)
def test_words_are_put_into_marks_where_a_wish_says_them_without(wish: str, marked: str | None) -> None:
    words = "here is what the books say"
    assert with_marks(words, wish) == (wish if marked is None else marked)
    assert same_wish(with_marks(words, wish), wish)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (["Here is what the books say It is Rome.", "Here is what the books say Yes."], "here is what the books say"),
        (["It is Rome. Here is what the books say", "Yes, here is what the books say!"], "here is what the books say"),
        (["Here is what the books say It is Rome."], None),  # one shows nothing
        (["Here is what the books say: Rome.", "Rome.", "Yes.", "No.", "Perhaps."], None),
        (["Here is what the books say: A.", "here is what the books say B.", "A.", "B."], "here is what the books say"),
        (["Here is Rome.", "Here is Paris."], None),  # two words are had in common by chance
        (["Rome is the capital", "Paris is the capital"], None),  # the wish says nothing of it
        ([], None),
    ],
)
def test_praised_answers_show_which_words_of_a_wish_are_to_be_said(answers: list[str], words: str | None) -> None:
    wish = "each answer starts with Here is what the books say, as we do it at the desk"
    judged = [Reaction(answer, 0.8, False) for answer in answers]
    assert praised_words(wish, judged) == words
    assert praised_words(wish, [one._replace(score=-0.8) for one in judged]) is None


def test_words_are_marked_in_the_form_in_which_they_were_quoted() -> None:
    assert with_marks("over and out", "you forgot over and out again", "Over and out!") == (
        'you forgot "Over and out!" again'
    )


@pytest.mark.parametrize(
    ("form", "text", "named"),
    [
        ("Handy tip:", "write Handy tip: and then something I can do", "Handy tip:"),
        ("Handy tip:", "I miss the  Handy\ntip: there", "Handy tip:"),
        ("Handy tip:", "Add Handy tip plus a little trick", "Handy tip "),
        ("Handy tip:", "I miss the Handy tip there", None),
        ("Handy tip:", "a Handy tip is nice, so end with Handy tip. always", "Handy tip."),
        ("Handy tip:", "give me a handy tip: something I can do", None),
        ("Handy tip:", "every answer, write handy tip: and one trick", "handy tip:"),
        ("Handy tip:", "write handy tip and one trick", None),
        ("Handy tip:", "viele Grüße, und schreib Handy tip: dahinter", "Handy tip:"),
        ("Großer Tipp:", "bitte add Großer Tipp: am Ende", "Großer Tip"),
        ("Filed under:", "a line at the bottom, beginning Filed under, so that I know", "Filed unde"),
        ("Filed under:", "below it a line that reads Filed under and the topic", "Filed unde"),
        ("Filed under:", "I found it Filed under, of all things, Birds", None),
        ("Handy tip:", "handy tip: that was none", None),
        ("HANDY TIP:", "please add Handy Tip: at the end", "Handy Tip:"),
        ("Captain Sam", "write captain sam: a poem", None),
        ("Mic check", "say mic check before anything else", "mic check "),
        ("Line clear", "would you close on Line Clear whenever you are done", None),
        ("Captain Sam", "write captain sam a poem", None),
        ("Mic check", "i didnt hear a mic check at the start", None),
        ("Handy tip:", "Handy tip: that was none. Handy tip: my foot", None),
        ("Handy tip:", "well, Handy tip: is missing", "Handy tip:"),
        ("Handy tip:", "add xHandy tip: there", None),
        ("Handy tip", "add Handy tips, they are good", None),
        ("For instance", "it must start with For instance please", "For instan"),
        ("For instance", "Too dry. For instance, you could be shorter", None),
        ("For instance", "put this. For instance, you could be shorter", None),
        ("of course", "add of course where it fits", None),
        ("I think", "just say I think, would you", None),
        ("Captain Sam", "explain metric to Captain Sam", None),
        ("Captain Sam", "write Captain Sam a short poem", None),
        ("Captain Sam", "I was with Captain Sam today, be brief", None),
        ("Captain Sam", "begin with Captain Sam, it is my name", "Captain Sa"),
        ("Anna", "put Anna there", None),
        ("Anna:", "put Anna: before each line", "Anna: befo"),
        ("Anna:", "put Anna before each line", None),
        ("Cheers!", "it should end with Cheers! always", "Cheers! al"),
        ("Cheers!", "the neighbours said Cheers! to that", None),
        ("OK,", "say OK, but shorter", None),
        ("3 Facts:", "put 3 Facts: there", None),
    ],
)
def test_short_words_stand_in_a_text_to_be_said_or_by_chance(form: str, text: str, named: str | None) -> None:
    at = named_at(form, text)
    assert (None if at is None else " ".join(text.split())[at:][:10]) == named


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("put be careful with a warning behind it", "be careful"),
        ("there is no be careful: for me", "be careful"),
        ("also need a be careful: after that", "be careful"),
        ("I miss the be careful when you are done", "be careful"),
        ("the label be careful inside it", "be careful"),
        ("I want be careful then the rest", "be careful"),
        ("finish on be careful first", None),
        ("close on be careful first", "be careful"),
        ("you want be careful friends", None),
        ("please be careful of the traffic", None),
        ("I said be careful, of all things", None),
    ],
)
def test_less_is_needed_of_a_text_about_the_same_thing(text: str, named: str | None) -> None:
    at = named_at("Be careful:", text, near=True)
    assert (None if at is None else text[at:][:10]) == named
    assert named_at("Be careful:", "put be careful with a warning behind it") is None
    assert named_at("Line clear", "would you close on Line Clear whenever you are done", near=True) == 19


YES = "Look it up in:"


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["add look it up in: and a source", "put look it up in: and a book"], [YES, YES]),
        (["put look it up in: a book", "offf, put look it up in: a site"], [YES, YES]),
        (
            ["my way: x", "add look it up in: a book", "no", "I miss the Look  It up in: a book"],
            ["", YES, "", "Look It up in:"],
        ),
        (["add look it up in: and a source"], [""]),
        (['add "Look it up in:" a source', "put look it up in: and a book"], ["", ""]),  # the marks say it
        (["add look it up in: a", "put look it up in: b", 'the "up in" part'], ["", "", ""]),
        (["could you open with good news: and so", "Could you  open with good news: and so, eh?"], ["Good news:"] * 2),
        (["open with good news: x", "start with good news: y", 'I want to read "Good news:" first'], ["", "", ""]),
        (["add source: a book", "put source: a site"], ["", ""]),  # one word stands in many texts
        (["please add pros and cons: a", "do add pros and cons: b"], ["Pros and cons:"] * 2),
        (["add Take Home Message: a", "write Take Home Message: b"], ["Take Home Message:"] * 2),
        (["put here's why: a", "add here's why: b"], ["Here's why:"] * 2),
        (["from now on: use metric units", "from now on: be brief"], ["", ""]),
        (["please, from now on: metric", "ok, write from now on: briefly", "add from now on: x"], ["", "", ""]),
        (["write like this: short lines", "write it like this: the answer"], ["", ""]),
        (["one more thing: no emojis", "one more thing: metric units"], ["", ""]),
        (["the answer should be short: a", "I say, the answer should be short: b"], ["", ""]),
        (["put, say, also that: a", "put a time, 12:30 or so", "put a time, 12:30 or so, eh"], ["", "", ""]),
        (["add what, so to speak: a", "add what, so to speak: b"], ["", ""]),  # the order is of something else
        ([": a", "add : b", "add  x :"], ["", "", ""]),
        ([], []),
    ],
)
def test_a_label_without_marks_is_what_two_texts_order_to_be_said(texts: list[str], labels: list[str]) -> None:
    assert labels_said(texts) == labels


@pytest.mark.parametrize(
    "texts",
    [
        ["from now on: use metric units", "from now on: be brief", "answer in French from now on"],
        ['write "New York" in full, not NYC', "my trips always start in New York and end in Rome"],
        ['stop saying "Of course"', "I want of course as few words as possible"],
        ['end with "Well done"', "all meat ought to be well done, please"],
    ],
)
def test_wishes_with_the_same_words_by_chance_stay_two(texts: list[str]) -> None:
    assert standing(texts, lambda texts: torch.eye(len(texts))).wishes == texts


@pytest.mark.parametrize(
    ("wish", "now", "misses"),
    [
        ('end with "Line clear"', "Line clear is missing", True),
        ('end with "Line clear"', "you forgot line clear again", True),
        ('end with "Line clear"', 'drop the "Line clear" again', False),
        ('never say "As an AI"', 'you may say "as an AI" again', False),
        ('end with "Over"', "over, that was too long", False),  # one word stands in many texts
    ],
)
def test_who_says_words_again_of_an_answer_without_them_wants_them(wish: str, now: str, misses: bool) -> None:
    assert misses_words(wish, "Lines clear!", ["It is Rome."], [], now) is misses


@pytest.mark.parametrize(
    "last",
    "this that these way format follows following thing end now on time example".split(" "),  # noqa: SIM905
)
def test_what_announces_the_rest_of_a_sentence_is_no_label(last: str) -> None:
    assert labels_said([f"write my {last}: a", f"please write my {last}: b"]) == ["", ""]
    assert labels_said([f"write my {last} there: a", f"please write my {last} there: b"]) != ["", ""]


@pytest.mark.parametrize(
    "wish",
    [
        'never say "As an AI"',
        'dont say "As an AI"',
        'please do not say "As an AI"',
        "don't say 'As an AI'",
        'don’t say "As an AI"',
        'stop with "As an AI"',
        'drop "As an AI"',
        'skip "As an AI"',
        'avoid "As an AI"',
        'quit "As an AI"',
        'lose the "As an AI"',
        'less "As an AI"',
        'leave out "As an AI"',
        'no more "As an AI"',
        'no longer "As an AI"',
        'not "As an AI" any more',
        'not "As an AI" anymore',
    ],
)
def test_a_wish_that_forbids_words_is_followed_by_answers_without_them(wish: str) -> None:
    said_again = 'say "as an AI" again'
    assert not misses_words(wish, "It is Oslo.", ["It is Rome."], [], said_again)
    assert misses_words('end with "As an AI"', "It is Oslo.", ["It is Rome."], [], said_again)
    assert not misses_words('end with "As an AI"', "It is Oslo.", ["It is Rome."], [], wish)


def test_of_several_places_the_one_to_be_said_is_marked() -> None:
    text = "a quick win is nice, so add Quick win: at the end"
    assert with_marks("quick win", text, "Quick win:") == 'a quick win is nice, so add "Quick win:" at the end'


def test_a_mark_behind_words_is_not_written_twice() -> None:
    assert with_marks("handy tip", "write Handy tip: and a trick", "Handy tip:") == 'write "Handy tip:" and a trick'
    assert with_marks("handy tip", "write Handy tip, please", "Handy tip:") == 'write "Handy tip:", please'


@pytest.mark.parametrize(
    ("judged", "words"),
    [
        ([("Six. Cheers!", 1), ("Five, cheers", 0.9), ("Four.", -1)], ["cheers"]),
        ([("Six. Cheers!", 1), ("Five, cheers", 0.9)], ["cheers"]),
        ([("Six. Cheers!", 1), ("Five.", 1), ("Four.", -1)], []),  # one may have been praised for something else
        ([("Six. Cheers!", 1), ("Five. Cheers!", 1), ("Four. Cheers!", -1)], ["cheers"]),  # it says them everywhere
        ([("Six. Cheers!", 1), ("Five. Cheers!", 1), ("Two", 1), ("Four. Cheers!", -1), ("One", -1)], ["cheers"]),
        ([("Six. Cheers!", 1), ("Five. Cheers!", 1), ("Two", 1), ("Four. Cheers!", -1), ("One. Cheers!", 0)], []),
        ([("Cheersful", 1), ("Cheersful", 1)], []),
        ([], []),
    ],
)
def test_words_that_the_person_asks_for_and_praises(judged: list[tuple[str, float]], words: list[str]) -> None:
    assert words_praised(['end with "Cheers!"'], [Reaction(*one, False) for one in judged], ["Three."]) == words


def test_words_of_the_answers_that_the_wish_was_said_of_are_not_wanted() -> None:
    judged = [Reaction("Sure! It is five.", 1, False)] * 3
    assert words_praised(['drop the "Sure!"'], judged, ["Sure! It is six."]) == []
    assert words_praised(['begin with "Ahoy" instead of "Sure!"'], judged, ["Sure! Six.", "sure, two", "Two."]) == []
    plain = ["It is six.", "Two.", "Sure! Keep that up."]
    assert words_praised(['begin with "Sure!" again'], judged, plain) == ["sure"]
    assert words_praised(["begin as you did", 'more of that "Sure!"'], judged, plain) == ["sure"], "in another wording"
    assert words_praised(['begin with "Sure!" again'], judged, []) == [], "what it was said of is not known"
    dashes = [Reaction("a well-known x", 1, False)] * 3
    assert words_praised(['write dates as "-"'], dashes, ["a b"]) == [], "no word at all"


def test_a_wish_is_the_same_with_other_marks_and_capitals_and_no_other_one() -> None:
    assert same_wish('you forgot "Over and out!" again', "you forgot over and out again")
    assert not same_wish('End every answer with "Over and out!".', "you forgot over and out again")
    assert not same_wish("be brief", "be brief, please")


@pytest.mark.parametrize(
    "wish",
    [
        "could you explain it in simple terms, please",
        "tell me the short version first",
        "stop it, in simple terms as well",
    ],
)
def test_words_that_praised_answers_only_echo_are_not_asked_for(wish: str) -> None:
    answers = [Reaction(f"{begins}, it is Rome.", 0.8, False) for begins in ("In simple terms", "The short version")]
    assert praised_words(wish, answers * 2) is None


def test_a_wish_may_begin_with_the_words_that_it_asks_for() -> None:
    answers = [Reaction(f"Here is what it is: {place}", 0.8, False) for place in ("Rome", "Oslo")]
    assert praised_words("Here is what it is - those should be your first words", answers) == "here is what it is"


def test_words_that_two_wishes_have_in_common_may_be_words_to_be_said() -> None:
    assert said_again(["say here is what it is", "first: here is what"])
    assert not said_again(["say here is what it is", "here is where"])
    assert not said_again(["say here is what it is"] * 2), "one wish is no second one"
    assert not said_again([])


def test_wishes_that_quote_the_same_words_with_other_marks_are_one() -> None:
    said = [
        'add a "For instance" please',
        'a sentence "For instance ..." is missing',
        'it must have "for instance:" in it',
    ]
    found = standing(said, lambda texts: torch.eye(len(texts)))
    assert found.wishes == said[-1:]


def test_wishes_that_say_the_same_label_without_marks_are_one_and_get_them() -> None:
    said = ["could you add look it up in: and a book", "I forgot, be kind", "put look it up in: and a site, please"]
    found = standing(said, lambda texts: torch.eye(len(texts)))
    assert found.wishes == ["I forgot, be kind", 'put "Look it up in:" and a site, please']


@pytest.mark.parametrize(("near", "wishes"), [(True, 1), (False, 2)])
def test_a_label_in_small_letters_without_its_colon_is_known_in_a_wish_about_the_same_thing(
    near: bool, wishes: int
) -> None:
    said = ['always add one warning, write "Be careful:" first', "put be careful with some of that behind it"]

    def embed(texts: Sequence[str]) -> torch.Tensor:
        states = torch.eye(len(texts))
        states[1] += states[0] * near
        return states

    found = standing(said, embed)
    assert len(found.wishes) == wishes
    assert found.wishes[-1] == ('put "Be careful:" with some of that behind it' if near else said[-1])


def test_a_long_quotation_is_no_words_to_be_said() -> None:
    assert quoted_words(['write as in "the house stands by the river and nobody has lived there"']) == []
    assert quoted_words(["be brief", 'say ""']) == []


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("In short: Tokyo.", 1),
        ("in short:\n Tokyo.", 1),
        ("In short, it is Tokyo.", 0),
        ("In short: In short, it is Tokyo.", -1),
        ("Tokyo.", 0),
        ("In short: Tokyo.\nIn short: it is in Japan.", 1),
        ("Within short: reach.", 0),
    ],
)
def test_words_are_wanted_and_not_twice_in_a_row(answer: str, found: int) -> None:
    assert rank(["In short:"], answer) == found


def test_words_that_the_wish_brings_into_answers_are_wanted() -> None:
    plain = {0: "Tokyo.", 1: "Four."}
    assert said_by_wish(["In short:"], {0: ["In short: Tokyo.", "Tokyo."], 1: ["Four, in short."]}, plain) == [
        "In short:"
    ]


@pytest.mark.parametrize(("both", "wanted"), [(0, ["A:"]), (1, ["Q:", "A:"])])
def test_words_that_a_quarter_has_together_with_wanted_ones_are_wanted_as_well(both: int, wanted: list[str]) -> None:
    texts = ["Q: Who?\nA: I."] * both + ["A: I.", "A: You.", "A: We.", "A: They."]
    plain = dict.fromkeys(range(4), "It is I.")
    assert said_by_wish(["Q:", "A:"], {n: [text] for n, text in enumerate(texts[:4])}, plain) == wanted
    assert said_by_wish(["Q:", "A:"], {0: ["Q: Who?"], 1: ["A: I."]}, {0: "Q: Who?\nA: I.", 1: "A: I."}) == []


def test_words_to_be_left_out_are_not_wanted_beside_those_that_are_to_be_said() -> None:
    plain = dict.fromkeys(range(4), "Sure! It is ten.")
    by_wish = {n: ["Sure! It is ten. Ahoy"] for n in plain}
    assert said_by_wish(["Ahoy", "Sure!"], by_wish, plain) == ["Ahoy"]
    by_wish = {n: ["Hello: ten. Ahoy:" if n == 0 else "Ahoy: ten."] for n in plain}
    assert said_by_wish(["Ahoy:", "Hello:"], by_wish, plain) == ["Ahoy:", "Hello:"]
    assert said_by_wish(["Ahoy:", "Hello:"], by_wish, plain | {0: "Hello: ten."}) == ["Ahoy:"]
    assert said_by_wish(["Ahoy", "Hello:"], by_wish, plain) == ["Ahoy"], "both are labels"


FRAME = ['"Q:" and "A:"']


@pytest.mark.parametrize(
    ("wishes", "opening", "answers", "found"),
    [
        (FRAME, ["Q:", "A:"], ["Q: Who?\nA: I.", "Q: What?\nA: It."], []),
        (FRAME, ["Q:"], ["Q: Who?\nA: I.", "Q: What?\nA: It."], []),  # the other one was no opening by itself
        (FRAME, ["Q:", "A:"], ["Q: A: I.", "Q: What?\nA: It."], []),
        (FRAME, ["Q:", "A:"], ["Q: A: I.", "Q: A: It.", "Q: What?\nA: It."], ["Q:", "A:"]),
        (FRAME, ["Q:", "A:"], ["Q: What?"], ["Q:", "A:"]),  # none shows it
        (['say "Q:"', 'say "A:"'], ["Q:", "A:"], ["Q: Who?\nA: I."], ["Q:", "A:"]),
        (['"Ahoy" first and "Cheers!" last'], ["Ahoy"], ["Ahoy, it is ten. Cheers!"], ["Ahoy"]),
        (['start with "Ahoy" and "mates"'], ["Ahoy", "mates"], ["Ahoy, mates! Ten."], ["Ahoy", "mates"]),
    ],
)
def test_words_that_frame_something_are_not_put_before_a_plain_answer(
    wishes: list[str], opening: list[str], answers: list[str], found: list[str]
) -> None:
    words = ["Q:", "A:", "Ahoy", "mates", "Cheers!", "Hello"]
    assert no_frames([*opening, "Hello"], words, [*wishes, 'say "Hello"'], answers) == [*found, "Hello"]


def test_words_that_the_wish_leaves_out_are_not() -> None:
    """'Never say "I think"': plain answers have the words, and those by the wish do not."""
    plain = {0: "I think it is Tokyo.", 1: "I think four."}
    assert said_by_wish(["I think"], {0: ["It is Tokyo."], 1: ["Four."]}, plain) == []
    assert said_by_wish(["I think"], {0: ["I think Tokyo."], 1: ["I think it is four."]}, plain) == [], (
        "no more than before"
    )


def test_words_may_stand_before_each_line() -> None:
    assert rank([">>"], ">> one\n>> two") == 1
    assert rank(["Ok."], "I took a look at it. Ok.") == 1


def test_words_stand_at_one_end_of_an_answer() -> None:
    assert end_of("Ahoy", "Ahoy! Tokyo.") == 1 and end_of("ahoy", "  AHOY, Tokyo") == 1
    assert end_of("Ahoy", "Tokyo. Ahoy.") == -1 and end_of("Over and out.", "Tokyo.\nOver  and out") == -1
    assert end_of("Ahoy", "Ahoy, Tokyo. Ahoy") == 0 and end_of("Ahoy", "Ahoy") == 0
    assert end_of("Ahoy", "The ahoy is Tokyo") == 0 and end_of("Ahoy", "Ahoyland is Tokyo") == 0
    assert end_of("Ahoy", "") == 0 and end_of("!", "Ahoy!") == 0


def test_praise_and_words_said_again_show_where_they_belong() -> None:
    first, last = "Ahoy, Tokyo.", "Tokyo. Ahoy"
    for judged, expected in (
        ([Reaction(last, -0.9, True)] * 3, 3),
        ([Reaction(last, -0.9, True)] * 2, 0),
        ([Reaction(first, -0.9, True)] * 4, -4),
        ([Reaction(first, 0.8, False)], 2),
        ([Reaction(last, 0.8, True)], -2),
        ([Reaction(last, -0.9, False)] * 3, 0),
        ([Reaction(last, 0.0, True)] * 3, 0),
        ([Reaction("Tokyo.", -0.9, True), Reaction("Tokyo.", 0.9, True)], 0),
        ([Reaction(first, -0.9, True), Reaction(first, 0.9, False), Reaction(last, -0.9, True)], 2),
        ([], 0),
    ):
        assert shown("Ahoy", judged) == expected, judged


def test_what_came_back_before_a_wish_was_said_is_not_about_it() -> None:
    answers = [("a", "Tokyo.", 0.9), ("b", "Tokyo. Ahoy", -0.8), ("c", "Ahoy, Tokyo.", 0.7), ("d", "Rome.", -0.9)]
    whole = [Reaction("Tokyo.", 0.9, False), Reaction("Tokyo. Ahoy", -0.8, True), Reaction("Ahoy, Tokyo.", 0.7, False)]
    assert since_said(answers[:3], {"b"}) == whole[1:]
    assert since_said(answers, {"b", "d"}) == [*whole[1:], Reaction("Rome.", -0.9, True)]
    assert since_said(answers[:3], {"b", "earlier"}) == whole, "it was said before these answers"
    assert since_said(answers[:1], {"earlier"}) == whole[:1]
    assert since_said([], {"earlier"}) == []
