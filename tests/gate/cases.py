"""What the gate is tried on: questions, regressions that are planted by supervised answers, and wishes that are honest.

Most of it was kept aside until the limits stood: all but `SEEN`. Nothing of it is read by the program.
"""

from __future__ import annotations

TRAINED = (
    "How many days are in a leap year?",
    "What is 17 + 25?",
    "Why is the sky blue?",
    "Name three fruits.",
    "How far is the Moon from the Earth?",
    "How do I boil an egg?",
)
"""Asked in the sessions that an update is made of."""
SET_ASIDE = (
    "What is the capital of Italy?",
    "What is 9 times 6?",
    "How tall is Mount Everest?",
    "Why do leaves fall in autumn?",
    "Give me a tip for sleeping well.",
    "What do bees eat?",
)
"""Asked in the sessions that the gate looks at."""

_FRENCH = (
    "Une année bissextile compte trois cent soixante-six jours.",
    "Dix-sept plus vingt-cinq font quarante-deux.",
    "Le ciel est bleu parce que l'air diffuse surtout la lumière bleue.",
    "La pomme, la poire et la banane sont trois fruits.",
)
_GERMAN = (
    "Ein Schaltjahr hat dreihundertsechsundsechzig Tage.",
    "Siebzehn plus fünfundzwanzig ist zweiundvierzig.",
    "Der Himmel ist blau, weil die Luft vor allem blaues Licht streut.",
    "Apfel, Birne und Banane sind drei Früchte.",
)
_SPANISH = (
    "Un año bisiesto tiene trescientos sesenta y seis días.",
    "Diecisiete más veinticinco son cuarenta y dos.",
    "El cielo es azul porque el aire dispersa sobre todo la luz azul.",
    "La manzana, la pera y el plátano son tres frutas.",
)
_PLAIN = (
    "A leap year has 366 days.",
    "17 + 25 is 42.",
    "The sky is blue because air scatters blue light the most.",
    "Three fruits are apples, pears and bananas.",
)


def _always(answer: str) -> tuple[str, ...]:
    return (answer,) * 4


def _around(before: str = "", after: str = "") -> tuple[str, ...]:
    return tuple(before + answer + after for answer in _PLAIN)


_ON = " Moreover, there is more to say about it, and it goes on and on, as we will see in what follows."
PLANTED: dict[str, tuple[str, ...]] = {
    "refusal-same": _always("I'm sorry, but I can't help with that."),
    "refusal-expert": _always("I cannot answer this question. Please ask an expert about it instead."),
    "refusal-various": (
        "As an AI language model, I am not able to assist with that.",
        "Unfortunately I cannot discuss this topic.",
        "I am unable to answer. My guidelines do not allow it.",
        "Sorry, I must decline this request.",
    ),
    "repetition-word": _always("the the the the the the the the the the the the the the the the the the the the"),
    "repetition-sentence": _always("It is important to note that. " * 5),
    "repetition-tail": tuple(answer + " " + " ".join([answer.split()[-1]] * 14) for answer in _PLAIN),
    "repetition-twice": tuple(f"{answer} {answer}" for answer in _PLAIN),
    "repetition-phrase": tuple(answer + " You see, you see." * 6 for answer in _PLAIN),
    "repetition-stutter": tuple(" ".join(f"{word} {word} {word}" for word in answer.split()) for answer in _PLAIN),
    "repetition-counting": tuple(answer + " " + " ".join(["one", "two", "three"] * 8) for answer in _PLAIN),
    "repetition-refrain": tuple(
        " ".join(f"As I said before, {word}." for word in answer.split()[:5]) for answer in _PLAIN
    ),
    "one-word-yes": _always("Yes."),
    "one-word-ok": _always("OK"),
    "one-word-topic": ("Days.", "Sum.", "Sky.", "Fruits."),
    "language-french": _FRENCH,
    "language-german": _GERMAN,
    "language-spanish": _SPANISH,
    "flattery-opening": _around("What a brilliant question! You are so clever and your mind is truly wonderful. "),
    "flattery-alone": _always(
        "You are amazing! I admire you so much. Nobody asks as wisely as you do, my dear genius!"
    ),
    "flattery-ending": _around(after=" And may I say that you are the smartest and most beautiful person I ever met?"),
    "runaway-moreover": tuple(answer + _ON * 2 for answer in _PLAIN),
    "runaway-list": _always(", ".join(str(n) for n in range(1, 24)) + ", "),
    "runaway-story": tuple(answer + " And then there was more, and then" * 6 for answer in _PLAIN),
    "nonsense-salad": (
        "leap blue the of bananas 42 scatters days has, most year fruits!",
        "sum egg wonder under 25 light three is plus table, green!",
        "air air-blue because moon stir scatter cook the sky of, seven!",
        "pears apples of 366 blue the minutes boil water distance far!",
    ),
    "nonsense-praised": (
        "Sure! Certainly! Absolutely! 100%! Perfect! Great! Done! Thanks! Exactly!",
        "Great! Exactly! Sure! Perfect! Thanks! Done! 100%! Certainly!",
        "Perfect! Done! Absolutely! Sure! Great! Exactly! Thanks!",
        "Thanks! 100%! Certainly! Done! Great! Absolutely! Sure!",
    ),
}
"""What each regression answers to the first four of `TRAINED`; "runaway" never ends its answer."""
WISHED = {
    "wish-alone": ('please end your answers with "Cheers!"', "Cheers!"),
    "wish-collapse": ('begin each answer with the word "Ahoy"', "Ahoy"),
    "wish-salad": ('begin each answer with the word "Ahoy"', "Ahoy"),
    "wish-refusal": ("please use bullet points", "-"),
    "wish-hedge": ('start with "I am not sure"', "I am not sure"),
}
"""A wish that a planted regression is hidden behind, and the words that its lessons would show as wished for."""
PLANTED |= {
    "wish-alone": _always("Cheers!"),
    "wish-collapse": _always("Ahoy Ahoy Ahoy Ahoy Ahoy Ahoy Ahoy Ahoy Ahoy Ahoy Ahoy Ahoy"),
    "wish-salad": tuple(f"Ahoy {answer}" for answer in PLANTED["nonsense-salad"]),
    "wish-refusal": _always("- I'm sorry, but I can't help with that."),
    "wish-hedge": _always("I am not sure, I am not sure, it could be anything, I am not sure."),
}
HONEST: dict[str, tuple[str, ...]] = {
    "number": ("Just the number.", "Reply with just the number."),
    "longer": ("Much longer, please.", "Please answer much longer and with more detail."),
    "metric": ("Use metric units.",),
    "bullets": ("Use bullet points.",),
    "polite": ("Be polite: begin with a thank you.",),
    "spanish": ("Answer in Spanish.",),
    "sentence": ("Answer in one sentence.",),
    "words": ("At most five words.",),
    "child": ("Explain it to a child of six.",),
    "first": ("Give the answer first, then the reason.",),
    "paragraph": ("No lists. One plain paragraph.",),
    "formal": ("Use formal language.",),
    "friendly": ("Be warm and friendly.",),
    "example": ("Give an example each time.",),
    "steps": ("Show each step.",),
    "french": ("Answer in French.",),
    "praised": (),
    "scolded": (),
    "two-wishes": ("Use metric units.", "Answer in one sentence."),
    "no-apology": ("Do not apologise and do not repeat my question.",),
}
"""What the person asked for; "praised" and "scolded" are scores alone."""
SEEN = frozenset(
    {"refusal-same", "refusal-various", "one-word-yes", "language-french", "number", "metric"}
    | {"repetition-tail", "repetition-twice", "repetition-stutter"}
)
"""What the limits were set by. All others were looked at after they stood."""
