"""Hints without a model: the directive sentences of a next state, made into an instruction.

Keeps only what says how the answer should have been (P §4.2, step 1: the raw reply is noisy and may hold an unrelated
question). Pure functions; deterministic; a hint is text for the teacher's context and is never executed or obeyed here.
"""

from __future__ import annotations

from turnwise.judges.signals.instructions import as_instruction, strip_openers
from turnwise.judges.signals.lexicon import KINDS
from turnwise.judges.signals.reply import answers_a_question
from turnwise.judges.sources.by_source import Sources
from turnwise.judges.text import plain, sentences
from turnwise.messages import clean
from turnwise.patterns import IGNORECASE, pattern

MAX_SENTENCES = 3
MAX_CHARS = 300
MIN_CHARS = 10  # P §4.2, step 2: hints of up to ten characters carry nothing

_I = IGNORECASE

# The form of the answer: wishes about length, tone, layout, words.
_FORM = (
    r"(?:short|brief|long|simpl|plain|warm|friendl|kind|gentl|nic|soft|specific|concrete|detail|casual|natural"
    r"|human|formal|informal|precise|encourag|concise|conversational"
    r"|bullet|list|bold|head(?:ing|er)|markdown|emoji|step|number|jargon|buzzword|fluff|filler|marketing|intro"
    r"|preamble|disclaimer|format|paragraph|sentence|word|line|tone|voice|english|prose|text|dash|asterisk"
    r"|equation|source|example|figure|summary|gram)"
)
_FORM_WORD = pattern(rf"\b{_FORM}", _I)
_CLAUSE_END = pattern(r"[,;:] ")
_ASKS_FOR_IT = pattern(
    r"\b(?:can|could|would|will) (?:you|u|it|this|we)\b|please|\bwhy (?:is|are|all|so|the)\b|what's with", _I
)
_BUT = pattern(r"(?:^|[,;.!]? )(?:but|however|only thing|one thing|though|aber|mais|pero|ma)\b[:,]? ", _I)
_REQUEST = pattern(
    r"\b(?:can|could|would|will) (?:you|u|it|this|that|we)\b|\b(?:please|pls|plz|bitte|per favore|por favor"
    r"|s'il (?:te|vous) pla[iî]t|alsjeblieft)\b|\b(?:should|shouldn't|ought to|must|mustn't|has to|have to"
    r"|needs? to|needs? (?:a|an|more|some|to be)|supposed to|better to)\b"
    r"|\b(?:instead|rather than|not just|from now on|next time|in (?:the )?future|always|never|at least|at most"
    r"|no more than|tops|max|only|without|except)\b|\b(?:don't|do not|stop|avoid|no need|leave out|spare me"
    r"|enough with|lose|skip|drop|ditch)\b"
    r"|\bi(?:'d| would)? (?:just |only |really |simply )?(?:want|need|like|prefer|rather|asked for|was (?:after"
    r"|hoping for|looking for|expecting)|meant|said|wanted|hate|can't stand)\b|\b(?:would be|is|are) (?:enough"
    r"|plenty|nicer|better|kinder|fine with)\b|\bwe (?:always|never|use|write|say|spell|call)\b"
    r"|\b(?:ohne|statt|stattdessen|lieber|nicht so|nur|kein\w*|immer|nie|weniger|mehr|reichen|reicht|kürzer"
    r"|bitte|sans|pas de|plutôt|moins|toujours|jamais|sin|menos|en vez|solo|máximo|como mucho|senza|meno|invece"
    r"|più|zonder|minder|sem)\b|不要|别|就行|只要|应该|请",
    _I,
)
_COMPARATIVE = pattern(
    r"\b(?:less|fewer|more|shorter|longer|simpler|plainer|warmer|friendlier|kinder|gentler|nicer|softer|clearer"
    r"|briefer|punchier|crisper|tighter|half the)\b",
    _I,
)
_TOO = pattern(r"\b(?:too|overly|way too|viel zu|zu|trop|demasiado|troppo|te|muito) \w+", _I)
_STYLE = pattern(
    r"\b(?:reads?|sounds?|feels?|looks?|comes? across|screams?) (?:\w+ ){0,3}?(?:like|as if|as though|chatbot"
    r"|robot\w*|stiff|cold|harsh)|\bnobody (?:\w+ ){0,3}(?:talks|writes|says)\b|\bi'd never (?:say|write)\b"
    r"|\b(?:robotic|wordy|buzzwords?|jargon|filler|fluff|waffle|lecture|essay)\b"
    r"|\bwhy (?:is|are) (?:there|everything|it all)\b|\bwhat's with\b|\bdo (?:we|you) (?:really )?(?:need|have) \w+",
    _I,
)
_IMPERATIVE = pattern(
    r"^(?:do |don't |just |simply |only |maybe |then |but |and |so |rather |instead |at least |always "
    r"|never )*(?:add|aim|answer|ask|avoid|begin|be|break|call|cap|change|check|choose|cite|compare|convert"
    r"|count|cut|describe|don't|drop|end|explain|fix|focus|follow|format|get|give|go|handle|ignore|include|keep"
    r"|leave|lead|limit|list|lose"
    r"|make|mention|mind|move|name|open|pass|pick|point|praise|put|quote|read|remember|remove|rename|replace"
    r"|return|round|say|search|send|set|shorten|show|skip|sort|spell|split|start|state|stick|stop|strip|swap"
    r"|switch|take|talk|tell|test|treat|trim|try|tutoie|use|walk|watch|work|wrap|write|mach|schreib|sag|nimm)\b",
    _I,
)
# Corrections of fact: what the answer should have known or done, said as a statement.
_FACT = pattern(
    r"\b(?:one|two|three|a|\d+) (?:\w+ )?(?:sentences?|lines?|paragraphs?)\b|, not (?:a|an|the|like|just|from"
    r"|in)\b|\bsomething \w+|\bthere (?:were|are|was|is|'s) (?:already|no|only|\d+|one|two|three|four|five|six"
    r"|seven|eight|nine|ten)\b"
    r"|\b(?:is|was|are|were)(?:n't| not) \w+|\bthe (?:problem|issue|bug|cause|reason|point|tab|file|right"
    r"|correct|real) \w*\s?(?:is|was)\b|\bis called\b|\bsee \w+\.\w+\b"
    r"|,? not (?:the |a |an |in |on |just |from )?\w+[.!]*$|\bi (?:live|don't|do not|can't|said|asked|told"
    r"|listed|meant|wanted)\b|\bmy (?:budget|limit|name|size|address|allergy)\b|\bwe(?:'re| are| have| use"
    r"| all)\b|\b(?:allergic|vegetarian|vegan|sober|diabetic)\b|\bnotes\b|\bonly\b|\bONLY\b|\bactually\b"
    r"|\bbecause\b|\bbefore\b"
    r"|\b(?:doesn't|don't|no|never) (?:\w+ )?(?:exist|ttl|check|advance|handle)\w*|\bso that\b|\bit lets\b"
    r"|\b(?:circular|mutates|informal|still in)\b|\bgives? #?\w+|\bdoesn't help\b.*\bneeds\b"
    r"|\bwas already included\b|\ballerg\w+",
    _I,
)
_CONTRAST = pattern(
    r"\b(?:but|though|however|only thing|one thing|nit|next time|in future|in the future|maybe|perhaps"
    r"|could (?:you|be|have|use)|slightly|a bit|a little|a touch|less|shorter|fewer|pls|please don't|leave"
    r"|instead|from now on|always|never|don't|aber|nur|mais|pero|ma)\b",
    _I,
)
_NEW_WORK = pattern(
    r"^(?:(?:ok(?:ay)?|great|good|perfect|thanks|cool|nice|also|and|now|so|oh)[,.!]? )*(?:also|next|now|then"
    r"|another|what|who|when|where|which|how|is|are|do you|does|did|got|open a|create|merge|deploy|close"
    r"|write the|do the same|can you (?:also|do the same|write|find|look|check|create|add))\b|\bby the way\b"
    r"|\bthe same for\b|\bandere frage\b",
    _I,
)
# Sentences that are opinion, outcome or feeling and nothing else.
_BARE = pattern(
    r"^\W*(?:(?:no+|nope|nah|yes|ok|err|hm+|meh|ugh|dude|mate|wow|ouch|again|try again|wrong|never ?mind"
    r"|forget it|i did it (?:by hand|myself)|seriously|really|oh no|yawn|crickets|nein|non)(?:\W+|$))+$"
    r"|^(?:that's|this is|it's) (?:just |pretty |really |so |simply )?(?:wrong|bad|lame|awful|terrible"
    r"|not (?:right|true|it|good|helpful)|useless|nonsense|horrible)\W*$|\bthank (?:god|you)\b|^thanks?\b",
    _I,
)


def extract_hint(score: int, answer: str, reply: str, sources: Sources) -> str | None:
    """The hint of a next state: from the person's words if they hold one, else from a diagnostic tool's report.

    ``score`` is the verdict so far. ``reply``: the person's words. None: nothing says how to do better.
    """
    hint = hint_from_reply(score, reply, answer) if reply else None
    return hint if hint is not None else hint_from_reports(sources)


def hint_from_reply(score: int, reply: str, answer: str) -> str | None:
    """The directive sentences of a person's reply as an instruction of at most three sentences, or None."""
    reply = clean(reply)
    if answers_a_question(answer, plain(reply)):
        return None
    chosen = [line for line in sentences(reply) if _is_directive(line, score)]
    if not chosen and score < 0:
        chosen = [line for line in sentences(reply) if _is_correction(line)]
    out: list[str] = []
    for line in chosen:
        made = as_instruction(_after_contrast(line) if score > 0 else line)
        if made and '""' not in made and made not in out:  # without what was quoted it would say nothing
            out.append(made)
    return _bounded(out)


def _is_directive(line: str, score: int) -> bool:
    core = strip_openers(line)
    if _BARE.search(line) or len(core) < 4:
        return False
    form = bool(_FORM_WORD.search(core))
    wish = bool(_REQUEST.search(core) or any(_IMPERATIVE.search(clause) for clause in _CLAUSE_END.split(core)))
    if score < 0:
        if core.endswith("?") and not _ASKS_FOR_IT.search(core):
            return form and bool(_COMPARATIVE.search(core))
        return wish or bool(_TOO.search(core) or _STYLE.search(core)) or (form and len(core.split()) <= 12)
    if _NEW_WORK.search(core) and not (form and _COMPARATIVE.search(core)):
        return False
    if KINDS["standing_rule"].search(core) and (wish or form):
        return True
    if score == 0:
        return False
    return bool(_CONTRAST.search(line)) and (wish or form or bool(_COMPARATIVE.search(core))) and not core.endswith("?")


def _is_correction(line: str) -> bool:
    core = strip_openers(line)
    return not _BARE.search(line) and not core.endswith("?") and len(core.split()) >= 2 and bool(_FACT.search(core))


def _after_contrast(line: str) -> str:
    """What follows the praise in "good, but say it in one go"."""
    parts = _BUT.split(line, maxsplit=1)
    return parts[-1] if len(parts) > 1 and len(parts[-1]) > MIN_CHARS else line


# ---- diagnostic tools


def hint_from_reports(sources: Sources) -> str | None:
    """A sentence of ours about a failed check; of the tool's own text it holds error codes and nothing else."""
    failed = [result for result in sources.results if result.kind == "tool.check_failed"]
    found = list(dict.fromkeys(code for result in failed for code in result.codes))
    if found:
        return f"Write code that the compiler or checker accepts; avoid {', '.join(found[:MAX_SENTENCES])}."
    if any(result.kind == "tool.bad_call" for result in sources.results):
        return "Give a tool every argument that its definition requires, and none that it does not have."
    if any(result.kind == "tool.command_not_found" for result in sources.results):
        return "Use only programs that are installed; check for one before it is run."
    return None


def _bounded(lines: list[str]) -> str | None:
    text = ""
    for line in map(clean, lines[:MAX_SENTENCES]):
        if text and len(text) + len(line) > MAX_CHARS:
            break
        text = f"{text} {line}".strip()
    return text[:MAX_CHARS].rstrip() if len(text) > MIN_CHARS else None
