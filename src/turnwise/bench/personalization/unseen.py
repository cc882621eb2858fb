"""People kept aside: nothing of the learning was tuned on them. Half of their wishes are about content."""

from __future__ import annotations

from turnwise.bench.personalization.persons import Person, Wish, begins_with, ends_with, has, lower_case, words_at_most
from turnwise.demo.questions import KEPT_ASIDE

_DEAR = Wish(
    "dear friend",
    "form",
    'Begin every answer with "Dear friend,".',
    begins_with("dear friend"),
    (
        'i\'d love it if you began with "Dear friend,"',
        'begin with "Dear friend," please',
        'always open with "Dear friend," for me',
    ),
)
_OVER = Wish(
    "over and out",
    "form",
    'Finish every answer with the words "Over and out".',
    ends_with("over and out"),
    (
        'finish with "Over and out" like on the radio',
        'the last words should be "Over and out", each time',
        'please close with "Over and out"',
    ),
)
_SMALL = Wish(
    "lower case",
    "form",
    "Write everything in lower case, without any capital letter.",
    lower_case,
    (
        "no capital letters please, all lower case",
        "write it all in lower case",
        "could you use small letters only, always",
    ),
)
_TEN = Wish(
    "ten words",
    "form",
    "Answer in at most ten words.",
    words_at_most(10),
    ("ten words at most please", "that's too many words, i want ten or fewer", "never more than ten words"),
)
_SURE = Wish(
    "how sure",
    "content",
    "Say in every answer how sure you are, as a percentage.",
    has("%", "percent", "per cent"),
    (
        "tell me how sure you are, in percent",
        "always add how certain you are as a percentage",
        "and how sure is that? give a percentage each time",
    ),
)
_READ = Wish(
    "a book",
    "content",
    "Recommend a book about the topic in every answer.",
    has("book"),
    (
        "recommend a book about it too, please",
        "i always want a book tip with the answer",
        "add a book that i could read on this",
    ),
)
_CAREFUL = Wish(
    "be careful",
    "content",
    'Add a warning to every answer that begins with "Be careful".',
    has("be careful"),
    (
        'add a warning that begins with "Be careful"',
        'i need a "Be careful ..." line in every answer',
        'please warn me too: "Be careful ..."',
    ),
)
_SPANISH = Wish(
    "a Spanish word",
    "content",
    "Mention one Spanish word in every answer.",
    has("spanish", "hola", *"áéíóúñ¡¿"),
    (
        "teach me one spanish word with every answer",
        "put a spanish word into it please, i'm learning",
        "always add a word in spanish",
    ),
)

UNSEEN = (
    Person(
        "dear-friend", (_DEAR,), praise=("wonderful", "ah, that is nice", "good one, thanks"), examination=KEPT_ASIDE
    ),
    Person("over-and-out", (_OVER,), praise=("roger that", "yes! like that", "good, thanks"), examination=KEPT_ASIDE),
    Person(
        "small-and-short", (_SMALL, _TEN), praise=("nice", "yes, good", "ok thanks, that works"), examination=KEPT_ASIDE
    ),
    Person(
        "how-sure",
        (_SURE,),
        praise=("good to know", "thanks, that helps me", "right, thank you"),
        examination=KEPT_ASIDE,
    ),
    Person(
        "book", (_READ,), praise=("thank you, i'll have a look", "great tip", "good answer"), examination=KEPT_ASIDE
    ),
    Person(
        "careful",
        (_CAREFUL,),
        praise=("good, thank you", "that's safe then, thanks", "well done"),
        examination=KEPT_ASIDE,
    ),
    Person("spanish", (_SPANISH,), praise=("gracias", "nice, thanks", "very good"), examination=KEPT_ASIDE),
    Person(
        "over-back",
        (_OVER,),
        later=((_DEAR,),),
        change_after=24,
        praise=("good", "thanks a lot", "fine, thank you"),
        examination=KEPT_ASIDE,
    ),
)
