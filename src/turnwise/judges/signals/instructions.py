"""Turning a directive sentence of a reply into an instruction: "can you make it shorter?" → "Make it shorter."

Pure and deterministic. Where no rule fits, the sentence stays as it is: a person's own wish is a good instruction.
"""

from __future__ import annotations

from turnwise.patterns import IGNORECASE, Anchored, Match, anchored, pattern

_I = IGNORECASE

_OPENER = pattern(
    r"^(?:(?:hm+|mm+|um+|uh+|err?|ah+|oh+|ohh+|ok(?:ay)?|well|so|and|but|hey|hi|hello|mate|dude|bro|man|sorry"
    r"|look|listen|please|pls|plz|yeah|yes|no|nope|nah|right|sure|ugh|ouch|anyway|honestly|tbh|thanks?|thank you|"
    r"cool|nice|good|great|perfect|lovely|sweet|fine|also|just|maybe|perhaps|actually|bitte|next time"
    r"|bit of a shame|good one|wow|meh|hmm)\b[\s,.!;:…-]*)+",
    _I,
)
_LAST_WORD = pattern(
    r"\b(?:please|pls|plz|though|thanks|thank you|thx|tbh|ok|okay|obviously|bitte|ta|cheers|lol|haha|mate)\Z", _I
)
_LAST_WORD_CHARS = 12  # more than the longest of them, so that what stands before it is seen
_CLAUSE = anchored(
    r"^([^,;:]{3,80})[,;:] (?=(?:please|pls|just|can you|could you|would you|make|say|write|use|give|tell|keep"
    r"|talk|start|mention|name|show|try|drop|skip|leave|cut|do|don't|stop|no|one|two|three|a|plain|only|simply"
    r"|put|swap|move|return|remove|add|so)\b)",
    _I,
)

_WOULD_BE_GOOD = (
    r"(?:(?:it|that)(?:'d| would) |would )?(?:be )?(?:great|nice\w*|better|perfect|lovely|ideal|good|cool|helpful)"
)

# (pattern, replacement); the first that matches is used once.
_RULES: tuple[tuple[Anchored[str], str], ...] = tuple(
    (anchored(p, _I), r)
    for p, r in (
        (
            r"^(?:do you think )?(?:can|could|would|will) (?:you|u|we)(?: please| pls| maybe| just| perhaps"
            r"| possibly| kindly| try to| try and)* (?:not )?(?=\w)",
            "",
        ),
        (r"^(?:can|could|would) (?:it|this|that|they|these)(?: please| maybe| just)* be ", "Make it "),
        (r"^(?:can|could|would) (?:it|this|that|they|these)(?: please| maybe| just)* ", "It should "),
        (
            r"^(?:you|it|this|that|they|the (?:answer|comment|feedback|reply|text)) (?:really )?(?:should|could"
            r"|might|ought to)(?:n't| not) have (?:just )?(\w+)\b",
            "Don't {base}",
        ),
        (r"^(?:you|it|this|that) (?:really )?(?:should|could|might|ought to) have (?:just )?(\w+)\b", "{base}"),
        (
            r"^you(?:'d| would)? (?:really )?(?:should|could|need to|have to|must|ought to|better"
            r"|might want to) (?=\w)",
            "",
        ),
        (r"^i(?:'d| would)? (?:really )?(?:like|love|want|prefer|need) (?:you|it|this) to (?=\w)", ""),
        (r"^you (?:don't|do not) (?:need|have) to (?=\w)", "Don't "),
        (r"^(?:there's |there is )?no need (?:to|for you to) ", "Don't "),
        (r"^(?:there's |there is )?no need for ", "Leave out "),
        (
            r"^(?:i(?:'d| would)|would) (?:really )?(?:love|like|prefer|appreciate)(?: it)? if you (\w+)\b",
            "{base}",
        ),
        (
            r"^(?:i(?:'d| would)|would) (?:really )?(?:rather|prefer|have (?:liked|preferred)|love|like|appreciate)"
            r"(?: to (?:see|have|get|read|hear))?(?: it)?(?: if)?(?: you)? (?:not )?",
            "Preferably: ",
        ),
        (rf"^{_WOULD_BE_GOOD} if you (\w+)\b", "{base}"),
        (rf"^{_WOULD_BE_GOOD} if (?:it|this|that|they) (?:was|were|is|are|would be) ", "Make it "),
        (
            rf"^{_WOULD_BE_GOOD}(?: if| to (?:have|see|get|read|hear)(?: it)?|(?= without\b)) ",
            "Preferably: ",
        ),
        (
            r"^i (?:just |only |really |simply |actually )?(?:want|wanted|need|needed|asked for|was (?:after"
            r"|hoping for|looking for|expecting)|meant|prefer)(?: to (?:see|have|get|read"
            r"|hear))? (?:just )?(?=an? |the |one |two |three |\w+ing|`|\"|plain|short|some|only|something"
            r"|sentences?|\w)",
            "What is wanted: ",
        ),
        (r"^i (?:clearly |already |specifically )?(?:said|told you|asked you)(?: to)? (?=\w)", ""),
        (
            r"^i (?:don't|do not|didn't) (?:want|need|ask for|like) (?:any |the |all (?:the |these |those )?)?",
            "Leave out ",
        ),
        (
            r"^(?:i (?:hate|dislike|can't stand)|enough (?:with|of)|spare me|lose|ditch|get rid of"
            r"|can we (?:lose|drop|skip)) (?:all )?(?:the |these |those )?",
            "Leave out ",
        ),
        (r"^(?:no offence,? but )?why (?:is|are) [\w' ]{1,25}?(?:in )?bold\b", "Don't use bold"),
        (
            r"^(?:why (?:is|are|so many|all|do (?:you|i) (?:need|have|get))|what's with|what is with"
            r"|why) (?:there )?(?:so many |all |the |these |those )*(?=(?:\w+ ){0,2}(?:bullets?|lists?|bold"
            r"|headings?|headers?|steps?|emojis?|numbers?|asterisks|stars|dashes|formatting|markdown|jargon"
            r"|sections?))",
            "Leave out the ",
        ),
        (
            r"^(?:(?:this|that|it|which|your \w+) )?(?:just |still |kind of |kinda |really |totally )*(?:reads?"
            r"|sounds?|feels?|looks?|comes? across|screams?) (?:a (?:bit|little) |too much |very |so |more "
            r"|kind of |kinda |much )*(?=(?:like|as if|as though)\b)",
            "It must not sound ",
        ),
        (
            r"^(?:(?:this|that|it|it's|that's|this is|way|far|viel|a bit|kind of|is) )*(?:way |far |much "
            r"|a bit |a little |kind of |viel )*(?:too|overly|zu) (?:long|wordy|verbose|lang)\b.*$",
            "Make it shorter",
        ),
        (
            r"^(?:(?:this|that|it|it's|that's|this is|way|far|a bit|is) )*(?:way |far |much |a bit "
            r"|a little )*(?:too|overly) (?:short|brief|terse|curt|thin)\b.*$",
            "Give more detail",
        ),
        (
            r"^(?:(?:this|that|it|it's|that's|this is|is) )*(?:way |far |much |a bit |a little |kind of "
            r"|kinda )*(?:too|overly) (formal|stiff|cold|dry|generic|vague|robotic|dense|complicated|technical"
            r"|salesy|cheesy|harsh|blunt|structured|mechanical|impersonal|clinical|academic)\b",
            "Make it less {1}",
        ),
        (r"^(?:way |far |much |a bit |a little )*too (?:many|much) ", "Use less "),
        (r"^it needs (?:more |to be )", "Make it more "),
    )
)

_CARRIES = anchored(r"(?:no|just|so|but) \w+", _I)
_ALONE = anchored(r"\W*(?:no|just)\W*$", _I)
_LIMITS = anchored(r"(no|just) (?!,)\w+", _I)
_SMILEY = pattern(r"\s*[(\[]?[:;]-?[)(DPp]+")
_DIRECTS = anchored(r"(?:don't|do|make|say|write|use|give|tell|keep|no|without|start|mention|just|only)\b", _I)
_NOT = pattern(r"^not (?!an?\b|one\b|the\b|so\b|too\b|very\b|even\b|like\b|just\b|in\b)(?=\w)", _I)
_PLEASE = pattern(r"\b(?:please|pls|plz)\b ?", _I)
_SPACE_BEFORE_MARK = pattern(r"\s+(?=[,.;:!?])")
_SILENT_E = pattern(r"(?:[vzcu]|[^aeiou][aeiou][sktrdnbmg]|[lr]g|[aeiou]s)$")
_NO_E = pattern(r"(?:en|er|it|on|et|ck|ow|[aeiou]{2}\w)$")

# Past participles whose infinitive the spelling rules do not give.
_BASE = {
    "read": "read",
    "said": "say",
    "told": "tell",
    "gave": "give",
    "given": "give",
    "written": "write",
    "put": "put",
    "made": "make",
    "kept": "keep",
    "left": "leave",
    "used": "use",
    "been": "be",
    "done": "do",
    "shown": "show",
    "seen": "see",
    "known": "know",
    "gone": "go",
    "taken": "take",
    "sent": "send",
    "found": "find",
    "thought": "think",
    "included": "include",
    "named": "name",
    "praised": "praise",
    "noticed": "notice",
    "looked": "look",
}


def strip_openers(line: str) -> str:
    """The sentence without greetings, fillers and thanks at its start."""
    rest = _OPENER.sub("", line.strip(), count=1)
    # "no lists please" and "just one line" lose their sense with their first word.
    if _CARRIES.match(line.strip()) and not _ALONE.match(line.strip()):
        return line.strip() if _LIMITS.match(line.strip()) else rest
    return rest or line.strip()


def without_tail(text: str) -> str:
    """The text without thanks, fillers and marks at its end."""
    end = len(text)
    while True:
        while end and (text[end - 1].isspace() or text[end - 1] in ".!?…:;,-"):
            end -= 1
        last = _LAST_WORD.search(text[max(0, end - _LAST_WORD_CHARS) : end])
        if last is None:
            return text[:end]
        end -= len(last[0])


def as_instruction(line: str) -> str:
    """One directive sentence as an instruction with a capital letter and a full stop; "" when nothing is left."""
    text = strip_openers(line)
    text = _SMILEY.sub("", text)
    text = without_tail(text)
    clause = _CLAUSE.match(text)
    if clause and not _DIRECTS.match(text):
        text = strip_openers(text[clause.end() :])
    for rule, replacement in _RULES:
        match = rule.match(text)
        if match:
            text = _apply(match, replacement) + text[match.end() :]
            break
    text = _NOT.sub("Don't ", text.strip())
    text = " ".join(text.split()).strip(" ,;:-")
    text = _PLEASE.sub("", text).strip()
    text = _SPACE_BEFORE_MARK.sub("", text)
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!…。" else ".")


def _apply(match: Match[str], replacement: str) -> str:
    if "{base}" in replacement:
        return replacement.replace("{base}", base_form(match[1]))
    return replacement.replace("{1}", match[1]) if "{1}" in replacement else replacement


def base_form(participle: str) -> str:
    """The infinitive of a past participle: a short table of irregular verbs, then the spelling rules."""
    word = participle.lower()
    if word in _BASE:
        return _BASE[word]
    if not word.endswith("ed"):
        return word
    stem = word[:-2]
    if len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "lsz":
        return stem[:-1]
    if word.endswith("ied"):
        return word[:-3] + "y"
    # "moved", "replaced", "used": the infinitive keeps the e after v, c, z, u, or a lone consonant after a vowel.
    silent = _SILENT_E.search(stem)
    plain = _NO_E.search(stem)
    return stem + "e" if silent and not plain else stem
