"""What people say when an answer did not please them, and when they say neither: data, no logic.

Each entry is one *kind* of evidence with patterns in the languages we know (``approval.py`` has those of praise). The
kinds, not the phrases, carry weights (``weights.json``).
"""

from __future__ import annotations

from turnwise.judges.signals.approval import ADOPTED, CONCEDED, PRAISE, SUCCESS, THANKS
from turnwise.patterns import IGNORECASE, Pattern, any_of, pattern

# The answer is refused or called wrong.
REJECTED = any_of(
    r"\bis(?: not|n't) (?:an?|much|enough|really|worth|even)\b|\bdeserves? (?:more|better)\b|\bnot (?:one"
    r"|a single) \w+"
    r"|\bnothing (?:about|on|kind|nice|warm|specific|personal|new)\b",
    r"\b(?:blödsinn|schwachsinn|käse|sehr witzig|sehr lustig|très drôle|muy gracioso|qué chorrada"
    r"|che sciocchezza|onzin|bobagem)\b|\bvery funny\b|\bnobody (?:\w+ ){0,5}(?:talks|writes|says|speaks|uses"
    r"|would|wants)\b",
    r"^(?:err|uh|um|hm+|dude|mate|bro|ok|sorry|ugh|oh|well|ah)?[,.!… ]*\b(?:no+|nope|nah|nein|non|nee"
    r"|não)\b(?! (?:problem|worries|"
    r"rush|clue|idea|notes|complaints|more|changes|thanks needed|way!|longer|one|hurry|allergies|kids))",
    r"\b(?:wrong|incorrect|inaccurate|false|mistaken|nonsense|rubbish|garbage|bullshit|bs|crap|trash|bogus"
    r"|untrue|made up|invented)\b(?! (?:chat|window|tab|thread|person))",
    r"\b(?:absolutely|certainly|definitely|clearly|obviously) not\b|\bcan't be right\b|\bdoesn't (?:look|seem"
    r"|sound|feel) right\b|\bi get \d|\bnot (?:really )?my (?:thing|style|taste|voice|tone)\b|\b(?:isn't"
    r"|not) (?:me|us|my)\b|\bnobody (?:talks|writes|says|speaks|uses|would)\b|\bi'd never (?:say|write|use)\b"
    r"|\bexpected (?:more|better)\b|\b(?:could|can) have (?:guessed|done)\b|\bthat's a different\b",
    r"\b(?:that's|that is|this is|it's|this isn't|that isn't|these are|those are|it is)(?: just| really| so"
    r"| simply)? ?"
    r"(?:not|n't) (?:it\b|right|true|correct|what|how|the|my|an?\b|even|at all)",
    r"\bnot (?:right|true|correct|what i|what we|how (?:i|we|you)|even close|at all|quite|helpful|good|great"
    r"|useful|funny|it\b|really|like that)\b",
    r"\bisn't (?:right|true|correct|what|how|it|helpful|good|useful|even)\b|\bdoesn't (?:answer|help|make sense"
    r"|sound like me)\b",
    r"\b(?:didn't|don't|doesn't) (?:ask|want|need|like|care for|think so|love)\b|\bcan't (?:use|send|show"
    r"|stand) (?:this|that|it)\b",
    r"\b(?:falsch|stimmt nicht|quatsch|unsinn|nicht richtig|so nicht|daneben|faux|pas (?:ça|du tout|bon|correct"
    r"|ce que)|n'importe quoi"
    r"|muy mal|está mal|incorrecto|no tiene sentido|ningún sentido|no es|sbagliato|non è|fout|klopt niet"
    r"|niet (?:goed|wat)|errado|não é)\b|不对|错了|不是|不行|違う",
)

# The person says what they had said, or what was done wrongly: always about the answer.
REPROACHED = any_of(
    r"\bi (?:just |clearly |already |specifically |literally |only )?(?:said|asked|told|wrote|listed|mentioned"
    r"|pasted|gave|wanted"
    r"|meant|requested|specified|needed|was (?:asking|after|hoping|looking|expecting))\b",
    r"\byou(?:'ve| have)? (?:just |also |still |completely |totally |clearly |again )?(?:forgot|forgotten"
    r"|missed|ignored|overwrote|overwritten|deleted"
    r"|removed|changed|broke|broken|dropped|skipped|left out|misread|misunderstood|mixed up|got|made up"
    r"|repeated|invented|used|wrote"
    r"|sent|put|took|gave|added|keep|kept|assumed|confused|didn't|did not|don't(?! (?:have|need) to)"
    r"|haven't|weren't|never|failed)\b",
    r"\b(?:should|could|might|ought to) (?:not )?(?:n't )?(?:have|'ve)\b|\b(?:should|shouldn't|couldn't) have\b",
    r"\bwhy (?:did|didn't|would|are|is|do|does|on earth|so) (?:you|it|there|this|that|the|everything|so|many"
    r"|all)\b|\bwhat happened to\b",
    r"\b(?:did|have|do) you (?:even|actually|really|not)\b|\bdidn't i (?:say|ask|tell)\b|\bas i (?:said|wrote"
    r"|asked)\b|\bread (?:it|that|the|my)\b.*\bagain\b",
    r"\boh no\b|\bthank god for backups\b|\bwhat have you done\b|\bsupposed to\b|\bmeant to be\b|\bweren't meant\b",
    r"\b(?:ich (?:hatte|habe|wollte|sagte|meinte)|hatte ich nicht|du hast (?:vergessen|übersehen|nicht)"
    r"|warum hast)\b",
    r"\b(?:j'avais (?:dit|demandé)|je voulais|j'ai (?:dit|demandé)|tu as oublié|vous avez oublié|te dije"
    r"|te pedí|quería|has olvidado|olvidaste"
    r"|avevo (?:detto|chiesto)|volevo|hai dimenticato|ik (?:zei|vroeg|wilde)|je bent vergeten|eu (?:disse|pedi"
    r"|queria)|esqueceu)\b|我说的|我要的|忘了|我让你",
)

# Something is the matter with the answer's form or content.
DEFECT = any_of(
    r"\b(?:sounds?|reads?|feels?|looks?|is|so|very|too) (?:so |very |too |a bit |totally |like )*(?:an? )?ai\b"
    r"|\b(?:says?|tells? (?:me|him|her|them|us)|means?|adds?) nothing\b|\bnever (?:invalidates|ends|stops"
    r"|returns|works)\b",
    r"\b(?:too|way too|overly|awfully|a bit|a little|kind of|kinda|rather|pretty|so|very|super|sounds?|still"
    r"|quite|painfully)"
    r" (?:\w+ )?(?:long|short|wordy|formal|stiff|cold|dry|generic|vague|robotic|dense|complicated|technical"
    r"|much|many|salesy|cheesy|corporate"
    r"|polite|harsh|blunt|bland|boring|flat|clinical|preachy|flowery|pompous|terse|curt|confusing|mechanical"
    r"|impersonal|verbose|fussy"
    r"|structured|childish|abstract|bare|thin|brief|lame|off|weird|aggressive|pushy|distant|fancy|heavy|canned"
    r"|stilted|academic)\b",
    r"\b(?:robotic|wordy|longwinded|long-winded|verbose|buzzwords?|jargon|filler|fluff|waffle|boilerplate"
    r"|marketing|wall of text|ai[- ](?:ish|like|"
    r"generated|sounding|written)|corporate[- ]speak|stilted|clunky|soulless|generic|meaningless|lame|meh|bland"
    r"|boring|cringe|tone[- ]deaf"
    r"|essay|lecture|textbook|manual|brochure|powerpoint|template|chatbot|chatgpt|overkill|a novel"
    r"|bullet points?|numbered list)\b",
    r"\b(?:reads?|sounds?|feels?|looks?|comes? across|come off|screams?) (?:\w+ ){0,3}?(?:like|as if|as though"
    r"|chatbot|robot)\b(?! (?:me\b|us\b|myself|something i|how i|i (?:wrote|said)|a (?:plan|good|great)|fun"
    r"|it works|heaven))",
    r"\b(?:doesn't|does not|didn't|did not|don't|isn't|won't|can't|cannot|couldn't|wouldn't)(?: even| really"
    r"| actually)? "
    r"(?:work|compile|run|build|load|open|match|add up|start|exist|fit|parse|pass|sound|show|render|do anything"
    r"|know|taste|rhyme|scan)\b",
    r"\b(?:broken|broke|crash(?:es|ed)|fails?|failed|failing|error|exception|hangs|blank|empty|missing|misses"
    r"|duplicate|out of date|outdated|still "
    r"(?:the same|broken|wrong|not|there|getting|shows|too|says|in)|same (?:error|mistake|problem|issue"
    r"|thing) (?:as|again))\b|#(?:REF|N/A|NAME|VALUE)",
    r"\b(?:useless|unusable|unreadable|pointless|terrible|awful|horrible|bad|worse|worst|poor|sloppy"
    r"|disappoint(?:ed|ing)|hopeless|ugly|weak)\b",
    r"\b(?:no|never) (?:fun|good|use|help|sense|warmth|soul)\b|\b(?:hard|impossible|difficult) to (?:read"
    r"|follow|understand)\b|\bcan't follow\b",
    r"\b(?:makes no sense|hate|don't get|lost me|confus(?:es|ed|ing)|what (?:even )?is this|unclear|where(?:'s"
    r"| is| are) the)\b",
    r"\b(?:zu (?:lang|kurz|förmlich|steif|viel|viele|kompliziert|trocken|hart)|klingt (?:wie|nach|so)"
    r"|liest sich|geht nicht|funktioniert nicht|fehlt|kaputt"
    r"|langweilig|schlecht|umständlich|trop|sonne comme|on dirait|ne (?:marche|fonctionne) pas|il manque"
    r"|demasiado|suena|no funciona|falta|muy (?:largo|formal)"
    r"|troppo|sembra|non funziona|manca|te (?:lang|kort|formeel|veel)|klinkt|werkt niet|ontbreekt"
    r"|muito (?:longo|formal)|não funciona)\b|太长|太短|太正式|像机器",
)

# A wish to have *this* answer in another form.
REVISE = any_of(
    r"\b(?:i(?:'d| would)|^would) (?:like|love|want|prefer|rather|need) (?:you|it|this|that|if"
    r"|to (?:see|have|hear|read)|something|the (?:answer|text|reply|comment|result|feedback))\b"
    r"|\bi want (?:you|it|this) to\b",
    # what would have pleased, said of this answer: "would be great if", "a short sentence would be perfect"
    r"(?:\bwould|'d)(?: have been|'ve been| be) (?:\w+ ){0,2}?"
    r"(?:great|nice\w*|better|perfect|lovely|ideal|good|cool|helpful) "
    r"(?:if (?!(?:i|he|she|they|we)\b)|to (?:have|see|get|read|hear)|with(?:out)?\b|in\b)"
    r"|(?<!\bthat)(?<!\bthis)(?<!\bwhich) would (?:have been|be) (?:\w+ )?"
    r"(?:great|nice\w*|better|perfect|lovely|ideal)"
    r"|\b(?:great|nice\w*|better|best|perfect|lovely|ideal) would (?:have been|be)\b"
    r"|\b(?:better|nicer) (?:if|without)\b",
    r"(?:^|[.!?,;:] )(?:one|two|three|four|five|a (?:single|short|couple of|few)|max|just|only"
    r"|half) (?:\w+ )?(?:sentences?|lines?|paragraphs?|words?|slides?|bullets?|pages?)\b|, not (?:a|an|the|like"
    r"|just|from|in|as|with)\b|\bsomething (?:shorter|simpler|sweet|warm|kind|nice|friendly|plain|short|lighter"
    r"|less|more)\b",
    r"\b(?:can|could|would|will) (?:you|u|it|this|we)(?: please| pls| maybe| just| perhaps| try to)* (?:be "
    r"|make |keep |say |rewrite |write |redo |do |give |put |cut |trim "
    r"|shorten |tone |drop |skip |lose |leave |remove |simplify |explain |rephrase |stop |have |sound |talk "
    r"|try |stick |tell |get |use |boil )",
    r"(?:^|[,.;:!?…-]\s*|\b(?:please|pls|kindly|just|then|and|but|you can|you could|maybe|simply|rather|ugh|ok|hey|no"
    r"|time)\s+)(?:make"
    r"|keep|say|write|rewrite|redo|rephrase|put|try|get|turn|trim|cut|boil|explain|do|tell) (?:it|this|that"
    r"|these|them|things|me|her|him|us)\b",
    r"\b(?:would|is|are|should|will|has to|have to|needs? to) (?:be |do |have )?(?:enough|plenty|fine"
    r"|sufficient|better|nicer|kinder)\b|\b(?:tops|max|at most|suffice|reichen|reicht|genügen|como mucho"
    r"|al massimo|suffit|suffisent)\b|\bshort means short\b|\b(?:a )?(?:little|bit|touch|tad) (?:more|less"
    r"|shorter|warmer|kinder)\b|\b(?:a|one) (?:\w+ )?tone\b",
    r"\b(?:please|pls|plz|bitte|per favore|por favor|s'il (?:te|vous) pla[iî]t|svp|alsjeblieft)\b[.!?\s]*$",
    r"\b(?:it|this|they|there) (?:needs?|has to|have to|must|ought to)\b|\bi (?:don't|can't|do not"
    r"|cannot) (?:eat|drink|own|speak|drive|use|want|need|do|like|have)\b|\bmy (?:budget|limit|maximum|name"
    r"|size|address|deadline) (?:is|was)\b|\bwe(?:'re| are) (?:\w+ ){0,2}(?:people|persons|of us|adults|kids)\b"
    r"|\bis (?:allergic|vegan|vegetarian)\b|\bto the point\b",
    r"\b(?:shorter|longer|simpler|plainer|warmer|friendlier|kinder|gentler|nicer|softer|clearer|briefer"
    r"|punchier|funnier|crisper|tighter|looser|lighter|half the length"
    r"|less|fewer|more (?:specific|concrete|detail|detailed|casual|human|natural|personal|like|friendly|formal"
    r"|precise|encouraging|concise|relaxed|conversational))\b",
    r"\b(?:no|without|drop|skip|lose|ditch|cut|leave out|strip|remove|avoid|enough with|stop (?:with |using )?"
    r"|spare me) (?:all )?(?:of )?(?:the |any |those |these |your |that )?"
    r"(?:\w+ )?(?:bullets?|lists?|bold|headings?|headers?|markdown|asterisks|stars|emojis?|formatting|steps?"
    r"|step[- ]by[- ]step|numbers?|numbering|jargon|buzzwords|fluff|filler"
    r"|marketing|intro|preamble|padding|structure|exclamation marks|recap|summary|sections?|tables?|equations"
    r"|latex|adjectives|java|waffle|ceremony|sales)\b",
    r"(?:^|[,.;:!?-]\s*)(?:just|only|simply) (?:a |an |the |one |two |three |give|say|tell|write|use|plain|text"
    r"|answer)\b|\bplain (?:text|english|words?|language|sentences?|prose|talk)\b",
    r"\b(?:in|into) (?:one|two|three|a|a couple of|a few|plain|normal|my|your own|everyday|simple|half"
    r"|\d+) (?:\w+ )?(?:words?|sentences?|lines?|paragraphs?|language|english|voice)\b",
    r"\b(?:next time|in (?:the )?future|from now on|should (?:be|have|say"
    r"|mention|use|include|contain)|needs? (?:to|more|a|an|some))\b",
    r"\b(?:try again|again,? (?:please|but)|once more|one more time|start over|another go|have another|redo"
    r"|do over|fix (?:it|that|this))\b",
    r"\b(?:kürzer|länger|einfacher|freundlicher|lockerer|weniger|ohne|statt(?:dessen)?|lieber|nochmal"
    r"|noch einmal|bitte (?:nur|kein|nicht|ohne|in|auf|etwas|mehr)|mach (?:es|das))\b",
    r"\b(?:plus (?:court|simple|long|chaleureux|naturel)|sans|moins|plutôt|au lieu|refais|encore une fois"
    r"|más (?:corto|breve|simple|largo|natural)|sin|menos|en vez|otra vez"
    r"|più (?:corto|breve|semplice)|senza|meno|invece|di nuovo|korter|simpeler|zonder|minder|in plaats|opnieuw"
    r"|mais (?:curto|simples)|sem|em vez|de novo)\b|短一点|简单|不要|别用|重新|再来",
)

# Disbelief and mockery.
INCREDULOUS = any_of(
    r"\?\?|\?!|!\?|\bwtf\b|\bseriously\b|\breally\s*\?|\bare (?:we|you) (?:even|sure|kidding|joking|serious"
    r"|drunk|ok|okay|high)\b|^you ok\b|\bsince when\b|\bhuh\?|\bwhat (?:even|on earth|the)\b|\blol what\b"
    r"|\bdid you even\b|认真的吗|\bexcuse me\b"
    r"|\b(?:what|which) (?:planet|year|universe)\b|\bis this a joke\b|\bfacepalm\b|\bgood grief\b|\bfor (?:god"
    r"|heaven|christ|pete)'s sake\b|[🙄🤦😒🤨😑😡👎💀]|\bernsthaft\b|\bsérieux\b|\ben serio\b|什么鬼",
)
SARCASM = any_of(
    r"\b(?:\w+teen|\d+|ten|twenty|thirty|fifty|a hundred|whole) (?:paragraphs?|pages?|words|lines|steps"
    r"|sentences) (?:for|to|about)\b|\btruly\b|\bmasterpiece\b|\bokay then\b|\bout of all\b",
    r"^(?:oh |wow,? |ah |well )?(?:great|nice|lovely|brilliant|fantastic|wonderful|perfect|excellent|awesome"
    r"|cool|super)[,.!] (?:another|yet another|an?|the|so|now|more|still|again) ",
    r"\b(?:oh|wow|yeah)[,.]? (?:great|wonderful|brilliant|fantastic|lovely|perfect|super|right|sure)\b"
    r"(?![^!]*(?:thank|makes sense|love|exactly|!))[^!]*$",
    r"\b(?:great|wonderful|fantastic|brilliant|lovely|perfect|nice|thanks|cool|super|bravo|congrat\w*|well done"
    r"|amazing|good job|nice work|genius)[,.!… ]+(?:now|so now|another|yet another|except|"
    r"if only|just what (?:i|we) (?:didn't|never)|you(?:'ve)? (?:just )?(?:broke|deleted|lost|ruined|killed"
    r"|wiped|managed)|that's (?:only|just) \w+ (?:wrong|off)|only )",
    r"\bthanks for nothing\b|\bslow clap\b|\bhow (?:very |incredibly |so )?(?:helpful|useful|original|creative"
    r"|insightful)\b|\bwhat a (?:surprise|revelation|insight|treat|shock)\b|\s/s$|\bjust what (?:i"
    r"|we) (?:needed|wanted)\b[^!]*$"
    r"|\bas if\b|\bif (?:by|you) [^.]{0,40}\bmean\b|\bwho knew\b|\bi'm sure (?:the|my|they|he|she|everyone)\b"
    r"|\bbecause (?:that's|what) (?:exactly )?(?:what )?(?:everyone|i|we) (?:needs?|wants?)\b|\bvery (?:helpful"
    r"|useful|funny)\.$"
    r"|\bgenius move\b|\bmasterpiece\b.*\b(?:of|in)\b|\b(?:truly|really) (?:groundbreaking|revolutionary)\b"
    r"|\bin (?:what|which) (?:world|universe)\b",
)
GAVE_UP = any_of(
    r"\bnever ?mind\b|\bforget (?:it|about it)\b|\bi(?:'ll| will| just)?(?: just)? (?:do|did|fix|fixed|write"
    r"|wrote|wrote it|handle|google|googled|look it up|looked it up) (?:it |that |this )?(?:myself|by hand"
    r"|manually)\b|\bby hand\b"
    r"|\bgive up\b|\bgave up\b|\b(?:ask|asked|asking) (?:someone|somebody) else\b|\bwaste of (?:time|my time)\b"
    r"|\bdon't bother\b|\bvergiss es\b|\blaisse tomber\b|\bolvídalo\b|\blascia (?:stare|perdere)\b"
    r"|\blaat maar\b|\bdeixa (?:pra|para) lá\b|算了",
)

# ---- neither good nor bad
ACKNOWLEDGED = any_of(
    r"^(?:ok(?:ay)?|k|kk|right|alright|noted|got it|gotcha|i see|understood|sure|fine|mhm|hm+|mm+|interesting"
    r"|good to know|aha|roger|cool|ah ok|all right|fair enough|makes sense|alles klar|verstanden|gut|okidoki|ja"
    r"|d'accord|je note|c'est noté|entendu|vale|entendido|de acuerdo|va bene|capito|oké|begrepen|duidelijk|tá"
    r"|entendi|好的?|嗯|知道了|はい)\b[.,!… ]*",
)
DEFERRED = any_of(
    r"\b(?:will|i'll|gonna|going to|let me|have to|need to|want to|should) (?:\w+ )?(?:check|try|look|see|ask"
    r"|test|think|read|have a look|get back|come back|report|run (?:it|this)|show|compare|measure|verify"
    r"|sleep on|talk|pass|discuss|decide)\b",
    r"\b(?:haven't (?:\w+ ){0,2}(?:had|got|gotten|tried|looked|checked|read|seen|shown|been|decided|opened"
    r"|tested|asked)|(?:still )?(?:has|have|wants?|needs?) to (?:read|see|check|look|approve|decide|sign)"
    r"|waiting (?:for|on|until|till)|make up my mind|decides? these|i'll run|run (?:it|both|this|them) by"
    r"|pass it on|te digo|vediamo|mal (?:überlegen|sehen|schauen)|voy a|je te dis|sleep on it|not (?:yet|sure"
    r"|there yet)|no (?:clue|idea)|can(?:'t|not) (?:say|tell|judge)\b(?! the difference)|too early"
    r"|hard to (?:say|tell)"
    r"|don't know (?:yet|if)|we'll see|remains to be seen)\b",
    r"\b(?:asking|ask) (?:my|the|our|him|her)\b|\breport back\b|\blet you know\b|\b(?:tomorrow|later|next week"
    r"|before (?:may|june|monday|friday|next))\b[^?]*$|\bwhen i(?:'m| am| get)\b",
    r"\b(?:maybe|perhaps|could be(?! \w+er\b| great| good| nice| perfect)"
    r"|might be|possibly|possible|dunno|depends|i guess|undecided|on the fence)\b"
    r"|\bbefore i (?:say|decide|judge)\b|\bin a (?:sec|minute|bit|moment)\b|\bone sec\b|\bbrb\b|\bhold on\b",
    r"\b(?:schaue|prüfe|probiere|teste|frage|melde mich|weiß (?:noch )?nicht|mal sehen|später|morgen|leite ich"
    r"|je (?:vais|verrai|regarde)|on verra|plus tard|peut-être|ya veré|luego|quizás|tal vez|mañana"
    r"|vedrò|forse|più tardi|domani|misschien|straks|talvez|depois|amanhã)\b|等一下|再说|看看|问问|也许",
)
NEW_TOPIC = any_of(
    r"\b(?:by the way|btw|unrelated|different (?:question|topic|thing)|other (?:question|topic|thing)"
    r"|another (?:question|thing)|separate(?:ly)?|on another note|off topic|changing (?:the )?(?:subject|topic)"
    r"|quick question"
    r"|completely different|remind me|while (?:i|you)(?:'m|'re| am| are)|meanwhile|while she's|anyway"
    r"|speaking of|that reminds me|also looking|one more thing|oh and|random)\b",
    r"\bandere frage\b|\bübrigens\b|\bmal was anderes\b|\bapropos\b|\bsinon\b|\bau fait\b|\brien à voir\b"
    r"|\bpor cierto\b|\botra (?:cosa|pregunta)\b|\ba proposito\b|\baltra (?:cosa|domanda)\b|\btrouwens\b"
    r"|\bandere vraag\b|\baliás\b|\boutra (?:coisa|pergunta)\b|对了|另外|顺便|ところで",
)
OUTSIDE = any_of(
    r"\b(?:my bad|my fault|power cut|outage|router|wifi|proxy|vpn|flu|sick|ill in bed|on (?:ice|hold|leave"
    r"|holiday|vacation)|parental leave|postponed|parking this|parked|rescheduled|called off|budget (?:freeze"
    r"|cut)|strike|snow(?:ed)?"
    r"|cancelled my|unplugged|reboot(?:ing|ed)?|maintenance|don't bother|wait for|nobody will|out of office"
    r"|delayed|the (?:boss|client|customer) (?:has )?(?:changed|cancelled)|train|airline|traffic|dentist)\b",
)
ACCIDENT = any_of(
    r"\bwrong (?:window|chat|tab|thread|person)\b|\bsorry,? that was\b|\bignore that\b|\b(?:the|my) (?:cat|dog"
    r"|toddler|kid|son|daughter)\b[^.]*\b(?:keyboard|typed|walk)|\b(?:pocket|butt) (?:dial|typ)|\bhit (?:send"
    r"|enter) too\b|\btypo\b|\bmisclick|\btest(?:ing)?,? (?:one|1)\b|\bignore (?:me|my)\b",
)
# The same kind of work, asked for again in a way that builds on this answer.
BUILDS_ON = any_of(
    r"\b(?:next|now|then|on to|onto)\b[:,]? (?:the|do|let's|we|rotate|add|for|one|up|step|can|could|please"
    r"|same)\b|^next\b(?! time)|\b(?:do|write|make|same) (?:the same|one|it|this|that|another)(?: one)? (?:for|with|in"
    r"|again for)\b|\bcan you do the same\b|\bthe same for\b"
    r"|\b(?:also|and) (?:add|invite|include|do|for|on|put|the|one)\b|\bpart (?:two|2)\b|\blet's (?:tackle|move"
    r"|continue|start|do)\b|\bon (?:attaque|passe|continue)\b|\bweiter mit\b|\bjetzt (?:noch|bitte|das|die"
    r"|den)\b|\bahora (?:el|la)\b|\bora (?:il|la)\b|\bnu (?:de|het)\b|接下来|下一",
)
STANDING_RULE = any_of(
    r"\b(?:always|never|from now on|in (?:the )?future|next time|every time|as a rule|house style"
    r"|put that on your list|keep in mind|remember (?:that|to|this)|for (?:future|next)|going forward"
    r"|please remember|make a note)\b"
    r"|\b(?:immer|nie(?:mals)?|bitte merken|merk dir|künftig|in zukunft|ab jetzt|nächstes mal|toujours|jamais"
    r"|à l'avenir|la prochaine fois|dorénavant|siempre|nunca|la próxima vez|a partir de ahora|sempre|mai"
    r"|la prossima volta|altijd|nooit|voortaan|volgende keer|da próxima vez)\b|以后|下次|总是",
)

NEGATED_DEFECT = pattern(
    r"\b(?:not bad|no longer|not wrong|nothing wrong|can't complain|can't fault|never (?:been )?(?:better"
    r"|clearer)|no (?:more )?(?:problems?|issues?|errors?|bugs?|complaints?|failures?)"
    r"|without (?:a )?(?:problem|issue|hitch|error)s?"
    r"|(?:error|bug|crash|problem|issue|warning|squeak|noise|leak|lag|flicker|pain|itch|stain"
    r"|smell)s?(?: message)? (?:is|are|has|have)(?: been)?(?: all| finally| now)? (?:gone|fixed|solved|vanished"
    r"|disappeared|away)|(?:doesn't|don't|didn't) (?:crash|fail|hang|break|complain))\b",
    IGNORECASE,
)

KINDS: dict[str, Pattern[str]] = {
    "praise": PRAISE,
    "success": SUCCESS,
    "adopted": ADOPTED,
    "conceded": CONCEDED,
    "thanks": THANKS,
    "rejected": REJECTED,
    "reproached": REPROACHED,
    "defect": DEFECT,
    "revise": REVISE,
    "incredulous": INCREDULOUS,
    "sarcasm": SARCASM,
    "gave_up": GAVE_UP,
    "acknowledged": ACKNOWLEDGED,
    "deferred": DEFERRED,
    "new_topic": NEW_TOPIC,
    "outside": OUTSIDE,
    "accident": ACCIDENT,
    "builds_on": BUILDS_ON,
    "standing_rule": STANDING_RULE,
}
"""Kind of evidence in a person's reply → its patterns."""
