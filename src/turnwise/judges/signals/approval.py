"""What people say when an answer pleased them, and the same words where they do not say that: data, no logic.

Praise, success, adoption, concession and thanks, each with patterns in the languages we know (English first; German,
French, Spanish, Italian, Dutch, Portuguese and Chinese where short). A praise word proves nothing by itself: it may be
denied ("not great"), or wished for ("make it nice and short", "would be perfect without the lists").
"""

from __future__ import annotations

from turnwise.patterns import IGNORECASE, MULTILINE, any_of, pattern

# Praise of the answer itself.
PRAISE = any_of(
    r"^(?:(?:yes|ok(?:ay)?|ah|oh|much|far|way|a lot|that's|this is|that is|now),? )*better\b(?! (?:than|if"
    r"|would|be|to|not))"
    r"|\bthat helps\b|\bhelps (?:a lot|me|so much|loads)\b|\bworks for me\b|\bthere we go\b|\bnow we're talking\b",
    r"\bi can (?:actually |really |definitely )?(?:use|send|hand|turn|work with|live with|copy) (?:it|this|that)\b",
    r"[,-] (?:so |very |really )?(?:nice|sweet|cool|neat|lovely|great|perfect|brilliant|excellent)(?:[.!]|$)"
    r"|\bword for word (?:what|how)\b|\b(?:kinked|it was|was) \w+, exactly\b",
    r"\b(?:perfect|great|awesome|amazing|excellent|brilliant|fantastic|wonderful|lovely|superb|stellar|terrific)\b",
    r"\b(?:flawless|impeccable|gorgeous|beautiful(?:ly)?|splendid|delightful|magnificent|outstanding|ideal"
    r"|chef's kiss)\b",
    r"\b(?:bravo|yay|woo+|hooray|legend|lifesaver|wizard|banger)\b",
    r"^(?:(?:oh|ah|very|really|ha|ok|yeah|yes|hey|so|aw+),? )*(?:nice|neat|sweet|cool|good|wow)\b(?! (?:to know"
    r"|question|grief))|\b(?:really|so|very|pretty|that's|this is|looks|reads|sounds|is|it's) (?:nice|neat"
    r"|sweet|cool|good)\b",
    r"\b(?:only|first|best|nicest|clearest|finest|funniest) (?:\w+ ){0,4}(?:i(?:'ve)?|we(?:'ve)?|that|who"
    r"|to) (?:\w+ ){0,2}(?:ever|actually|understood|understand|got|get|makes?|made|works?|worked|read|had|seen"
    r"|stuck|explained|loved)\b",
    r"\b(?:that's|this is|it's|there's|yes,? this is|now that's|c'est|das ist|es|è|dat is) (?:exactly |just "
    r"|precisely |pretty much |pile |genau |justo |proprio |precies )?(?:what|how|the (?:kind|sort|tone|warmth"
    r"|way|one|level|style|voice|length)|ce qu|so|lo que|quello|wat)\b",
    r"\b(?:justo|genau|pile|proprio) (?:lo que|was|mein|ce qu|quello)\b|\b(?:sounds?|reads?|feels?) (?:just "
    r"|exactly |a lot |very much )?like (?:me|us|myself|something i|how i|i (?:wrote|said))\b|\bthat's me\b",
    r"\bi'd (?:hire|buy|read|watch|eat|wear|actually (?:say|write|use|read))\b|\bsomething i'd\b"
    r"|\bkids will love\b|\b(?:finally|at last) (?:someone|somebody|an?|i|it|something)\b",
    r"\b(?:love|loved|loving|adore|like|liked|enjoyed?) (?:it|this|that|the|how|your)\b|\bi love\b",
    r"\b(?:spot[- ]on|nailed it|on point|bang on|hit the nail|top[- ]notch|first[- ]rate|well (?:done|put|said"
    r"|explained))\b",
    r"\b(?:much|way|so much|a lot|far) (?:better|clearer|nicer|easier|more (?:natural|readable|human))\b",
    r"\b(?:exactly|precisely|just) (?:it|that|right|what|how|the|like|as)\b"
    r"|\bcouldn't (?:have|be (?:better|happier|clearer|nicer))\b|\bcould have written\b",
    r"\b(?:helpful|impress(?:ed|ive)|hilarious|charming|elegant|crystal clear|makes sense|clear now|gets it"
    r"|got it right)\b",
    r"\b(?:ruthless|glorious|witch|ha+ha+|made my day|chapeau|kudos|props|respect)\b|\bHA\b",
    r"\b(?:10/10|a\+\+?|five stars|thumbs up|ship it|lgtm|keep (?:doing|up the)|more (?:of this|like this)(?!\s*:))\b",
    r"\b(?:that's|this is|now that's) (?:the (?:one|spirit|way|tone|stuff)|it|more like it|how i)\b",
    r"\b(?:yes+|yep|yup|yeah)\b[,.! ]*(?:that|this|exactly|perfect|!)|^yes+!|\bthat's it\b",
    r"\b(?:super|klasse|toll|prima|genial|perfekt|wunderbar|spitze|hervorragend|einwandfrei|passt|stimmt|sehr gut)\b",
    r"\b(?:gefällt|schön|ausgezeichnet|großartig|hammer|genau (?:so|das|richtig))\b",
    r"\b(?:parfait|impeccable|génial|excellent|formidable|bravo|nickel|top|super|magnifique|j'adore|très bien)\b",
    r"\b(?:perfecto|genial|estupendo|fenomenal|excelente|ole|muy bien|me encanta|buen[ií]simo|qué bien)\b",
    r"\b(?:perfetto|ottimo|bravissimo|fantastico|benissimo|grande|mi piace|eccellente)\b",
    r"\b(?:perfect|mooi|heerlijk|geweldig|uitstekend|prachtig|top|lekker|helemaal goed|precies)\b",
    r"\b(?:perfeito|ótimo|excelente|adorei|muito bom|maravilha|show de bola)\b",
    r"太好|很好|真好|好极|完美|不错|很棒|太棒|讲得好|喜欢|厉害|谢谢.*有用|哈哈|最高|すごい|ありがとう|完璧",
    r"[👍👏❤🎉😍🥰🙌💯🔥😂🤩👌✨😄😊]",
)

# It worked, in the world or in the program.
SUCCESS = any_of(
    r"\b(?:works?|worked|working|runs|ran|builds?|compiles?|passes|passed|loads|boots|boot(?:s|ed)) "
    r"(?:now|again|fine|great|perfectly|beautifully|first (?:time|try)|like a charm|well|cleanly|straight away"
    r"|at once)\b",
    r"\b(?:it|that|this|which|everything|all|trick|tip|they|both|works?) (?:just |totally |actually "
    r"|really )?worked\b",
    r"\b(?:that|this|it) (?:did|does) (?:it|the (?:trick|job))\b|\bdid the trick\b|\btests? (?:are|is) green\b"
    r"|\ball green\b",
    r"\b(?:fixed|solved|sorted|resolved|cured|gone|healed|cleared up|up and running|back online|restores cleanly)\b",
    r"\bno (?:more )?(?:problems?|issues?|errors?|complaints?|notes|changes needed|further changes)\b"
    r"|\bnothing to (?:add|change)\b",
    r"\bsaved? (?:me|us|my|our|the day)\b|\byou saved\b|\bgot (?:the (?:job|offer|part|flat|place|grant|money"
    r"|refund)|an? (?:a\b|1\b|yes|refund))",
    r"\b(?:they|he|she|boss|client|teacher|landlord|manager|lawyer|doctor|kids?|everyone|team|mum|mom"
    r"|dad)\b[^.!?]{0,30}"
    r"\b(?:accepted|agreed|approved|loved|loves|laughed|cried|said yes|signed|folded|caved|paid|refunded"
    r"|cancelled the|confirmed"
    r"|cheered|clapped|asked for (?:more|the recipe)|couldn't stop|was thrilled|is delighted|is thrilled)\b",
    r"\b(?:actually|finally) \w+[^.!?]*\bnow\b|\bnow (?:i|it|they|we|she|he) (?:\w+ )?(?:get|gets|know|knows"
    r"|understand|understands|works?|fits?|runs?|loads?|sleeps?)\b|\b(?:add|adds|line|lines|match|matches|fits?"
    r"|opens?|loads?|prints?) (?:up )?now\b",
    r"\bgot the (?:\w+ )?(?:interview|callback|visa|loan|permit|contract|role|deal|position|discount|seat)\b"
    r"|\b(?:hasn't|haven't) (?:\w+ ){0,2}since\b|\bmission accomplished\b|\bnot a dry eye\b|\bdry eye\b"
    r"|\blooks? (?:brand )?new\b|\baccepted without\b",
    r"\b(?:my|the|our|her|his) (?:\w+ ){1,2}(?:says?|said|reckons?|thinks?|confirmed"
    r"|told) (?:\w+ ){0,3}(?:the same|exactly that|so too|it's (?:flawless|perfect|great|right|spot on"
    r"|correct))\b|\b(?:matches|that's) what (?:my|the|our|she|he) (?:\w+ )?(?:\w+ )?(?:says?|said|told)\b",
    r"\b(?:hugged|kissed) me\b|\bhad (?:seconds|thirds)\b|\bwent (?:wild|down (?:well|a storm|a treat))\b"
    r"|\bstandard ovation\b|\bstanding ovation\b|\b(?:she|he|they)(?:'s|'ve| has| have)? (?:put|hung|framed"
    r"|pinned|kept|saved) it\b|\bon the (?:fridge|wall)\b|\bword got round\b",
    r"\b\d[\d.,]* ?(?:%|ms|s|gb|mb|kg|points?)? ?(?:->|→|to|down to|up to) ?\d|\bcaught a (?:real )?bug\b"
    r"|\bslept (?:through|like)\b|\bapproved\b|\b(?:can|could) \w+ (?:\w+ )?again\b|\bi owe you\b"
    r"|\bthat's the (?:culprit|reason|cause|problem|one)\b|\bstopped$|\bthe alerts stopped\b",
    r"^(?:yep,? |yes,? )?(?:works?|worked|compiles?|builds|runs|merged|fixed|solved|done)\b[.,! ]"
    r"|\bcompiles\b[.!]|\bbest (?:\w+ ){0,3}since\b|\bsalva(?:ste|do|ta)\b|\b(?:thank you|thanks)!!|\baprobé\b"
    r"|\bbestanden\b",
    r"\bwe have a hit\b|\bcame up in the exam\b|\bworth it\b|\bfirst (?:try|attempt)\b|\bfree at last\b",
    r"\b(?:funktioniert|klappt|läuft|geklappt|erledigt|gelöst|behoben|bestanden|gerettet|hat (?:mir )?geholfen)\b",
    r"\b(?:ça marche|ça fonctionne|a marché|réglé|résolu|réussi|funciona|funcionó|resuelto|arreglado|hecho"
    r"|funziona|risolto"
    r"|ha funzionato|werkt|gelukt|opgelost|funcionou|resolvido|deu certo)\b|成功|解决了|好了|有用|通过了",
)

# The person takes the answer and uses it, or follows the advice.
ADOPTED = any_of(
    r"\b(?:merg(?:ed|ing)|shipp(?:ed|ing)|deployed|submitted|sent|forwarded|printed|posted|published|booked"
    r"|ordered|filed"
    r"|framed|bought|adopted|handed (?:it )?in|pasted) (?:it|them|this|that|yours|as is|off|to|the|your|two"
    r"|both|straight)\b",
    r"^(?:just |already |and |so i |i |i've |we |ok,? )*(?!need|agreed|asked|wanted|expected|tried|used to"
    r"|looked|checked|guess|queued|wrong)[a-z]{3,}ed (?:it|them|both|everything|all (?:of )?(?:it|them)"
    r"|day (?:one|1)|two of)\b|\bsigned (?:this|it|up)\b|\bhand(?:ed|ing) (?:it |this |that |them )?in\b"
    r"|\bcop(?:y|ied)[ -]?(?:and[ -])?past(?:ed|ing)\b"
    r"|\b(?:in|into|on|onto|to) the \w+ it goes\b|\bmandato a tutti\b|\bgeht (?:so )?raus\b"
    r"|\bmoved the\b[^.]*\b(?:doubled|grew|gone)\b",
    r"^(?:merg(?:ed|ing)|shipp(?:ed|ing)|deployed|submitted|sent|posted|published|booked|ordered|done)\b[ .!,👍]",
    r"\b(?:i'm|i am|i'll|we'll|gonna|going to) (?:be )?(?:us(?:e|ing)|send(?:ing)?|steal(?:ing)?|keep(?:ing)?"
    r"|go(?:ing)? with"
    r"|tak(?:e|ing)|print(?:ing)?|post(?:ing)?|cancel(?:ling)?|buy(?:ing)?|book(?:ing)?|order(?:ing)?|frame|framing"
    r"|cop(?:y|ying)|put(?:ting)? (?:it|that|this)|bookmark(?:ing)?|doing (?:it|that|this))\b",
    r"\bgo(?:ing|es) (?:straight )?(?:in|into|up|on the|out)\b|\bverbatim\b|\bas (?:it )?is\b|\b(?:went|gone) with\b",
    r"\bcancel(?:l?ing) it\b|\b(?:let's|lets) (?:use|go with|take|keep|ship|do) (?:it|that|this|option|the)\b"
    r"|\bwalked away\b",
    r"\b(?:like|as) you (?:said|suggested|told|advised|recommended|described)\b|\bfollowed your\b|\b(?:took"
    r"|taking) your advice\b",
    r"\b(?:verschickt|abgeschickt|übernommen|übernehme|gebucht|bestellt|gekauft|nehme ich|so raus|telle quelle"
    r"|envoyée?|enviad[oa]"
    r"|inviat[oa]|verstuurd|gekozen|comprado|reservado)\b|直接用|已经发|就用",
)

# The person grants that the answer was right.
CONCEDED = any_of(
    r"\bi stand corrected\b|\byou(?:'re| are| were)(?: so| absolutely| totally| quite)? right\b|\bhow right you are\b"
    r"|\bfair (?:point|enough)\b|\bgood (?:point|catch|call|shout|thinking|idea|spot)\b|\bi was wrong\b"
    r"|\bmy mistake\b"
    r"|\b(?:said|says|told me) (?:exactly |pretty much )?(?:the (?:exact )?same|exactly that)\b"
    r"|\bhadn't thought of\b|\bdidn't (?:know|realise"
    r"|realize)\b[^.!?]{0,30}\b(?:that|could|existed)\b"
    r"|\b(?:i )?(?:finally|now i) (?:get|understand|see|know|got)\b|\bgot it now\b|\bjetzt (?:hab"
    r"|habe) ich'?s?\b|\bo+h+[,. ]+(?:ok|now|so that|i see|right)|\bohhh+\b|\baha+\b|\btil\b|\bclicked\b"
    r"|\bdu hast recht\b|\b(?:tu as|vous avez) raison\b|\btienes razón\b|\bhai ragione\b|\bje hebt gelijk\b"
    r"|你说得对|明白了|懂了",
)

THANKS = any_of(
    r"\b(?:thanks|thank you|thx|ty|tysm|cheers|ta|much appreciated|appreciate (?:it|that)|danke(?:schön)?"
    r"|vielen dank|merci|gracias"
    r"|grazie|bedankt|dank je|obrigad[oa]|tack)\b|谢谢|多谢|ありがと",
)

NEGATED_PRAISE = pattern(
    r"\b(?:stimmt|gefällt|passt|funktioniert|klappt|geht)(?: \w+)? (?:nicht|nie|gar nicht)\b|"
    r"\b(?:not|isn't|wasn't|aren't|doesn't|don't|didn't|never|hardly|barely|far from|anything but|less than"
    r"|nicht|pas|no(?= better)|no(?:t)? (?:very|so|really|exactly|all that|particularly|that))"
    r"\s+(?:(?:a|an|the|so|very|really|exactly|quite|too|all that|that|particularly|much of a|feel|sound|look"
    r"|read)\s+){0,3}"
    r"(?:great|good|better|perfect|helpful|nice|funny|ideal|clear|impressive|impressed|brilliant|amazing|cool"
    r"|like (?:it|this|that|the|how|your)|love|gut|schön|bien|bueno)\b",
    IGNORECASE,
)
# "That's the tone I was after": the words of a reproach, said in approval.
CONFIRMS = pattern(
    r"(?:(?:\b(?:that's|this is|it's|now that's|yes,? this|c'est|das ist|genau)|^yes,?) (?:exactly |just "
    r"|precisely |pretty much |totally )?|^(?:exactly|just|precisely) )"
    r"(?:(?:the|what|how|why|something|like) (?:\w+ ){0,5}?(?:i|we)(?:'d|\b)[^.!?,;\n]*)",
    IGNORECASE | MULTILINE,
)

# "Keep it up": the words of a wish for another form, said in approval of this one.
KEEP_ON = pattern(
    r"\b(?<!don't )(?<!not )keep (?:(?:it|them|'em|this|that|these|those|things) (?:exactly |just |right |always )?"
    r"(?:up|coming|going|rolling|like (?:this|that|it is)|this way|that way|as (?:it |they )?(?:is|are)"
    r"|the way (?:it|they))|doing (?:it|this|that|what|exactly|just|more)|up the)\b",
    IGNORECASE,
)
_GOOD = (
    r"(?:great|good|nice\w*|better|best|perfect\w*|lovely|ideal|cool|helpful|awesome|amazing|brilliant|fantastic"
    r"|wonderful|excellent|super|fine|sweet|neat|kinder|clearer|enough|appreciated)"
)
# Approval that is asked for and not given; each up to the end of its clause.
WISHED = pattern(
    # an order to make it so: "make it nice and short", "could you use clear and beautiful language"
    r"(?:^|[.,;:!?…-]\s*|\n|\b(?:please|pls|plz|kindly|just|maybe|ugh|ok|okay|hey|no|again|next time|instead"
    r"|(?:and|but|so|then)(?= (?:please|just|make|keep|use|try))"
    r"|(?:can|could|would|will) (?:you|u|we|it|this)(?: please| pls| maybe| just)*)[,:]? +)"
    r"(?:don't |do not |always |never |try to |try and )*"
    r"(?:make|keep|say|write|rewrite|rephrase|phrase|word|give|use|try|put|tell|show|sound|be|aim|pick|choose|explain"
    r"|include|add|turn|send|answer|respond|reply|describe|stick|go for|have|find|start|end|begin|open|close)\b"
    r"[^.,;!?\n]*"
    # a condition: "would be great if", "it'd be perfect without", "better if", "nice to have it in"
    r"|(?:\b(?:would|could|might|should|must|ought to|has to|have to|needs? to|will)|'d)"
    r"(?:(?: \w+){0,2}? (?:be|have been)|'ve been)"
    r"(?: \w+){0,3}? " + _GOOD + r"\b[^.,;!?\n]*"
    r"|\b" + _GOOD + r"(?: it)? (?:if|without|would (?:be|have)|could be)\b[^.,;!?\n]*"
    r"|\b(?:love|like|appreciate) it if\b[^.,;!?\n]*"
    # a want: "I'd like it shorter", "I need a good short one"
    r"|(?:\b(?:would|should)|'d) (?:\w+ )?(?:love|like|prefer|enjoy|appreciate|rather)\b"
    r"(?! to (?:thank|use|keep|frame|hire|say|buy|share|read more|see more|print|order|book))[^.,;!?\n]*"
    r"|\b(?:i|we) (?:just |only |really |simply |still |actually )*"
    r"(?:want|need|prefer|wish|expect|asked for|hoped for)\b"
    r"(?! to (?:say|admit|thank|tell))[^.,;!?\n]*"
    # the same in other languages
    r"|(?:\b\w+ )?\b(?:wäre|würde|hätte gern|serait|aimerais|sería|estaría|gustaría|sarebbe|vorrei|zou|seria|ficaria)\b"
    r"[^.,;!?\n]*",
    IGNORECASE,
)
# What takes praise back in the same breath: "good but …".
TURNS = pattern(r"[,;:]? *\b(?:but|however|yet|except|aber|mais|pero|ma|maar|mas)\b|但|可是|不过", IGNORECASE)
# A turn that only adds a wish for the next time, and lets the praise stand.
SOFTENED = pattern(
    r"\b(?:next|future|from now on|going forward|maybe|perhaps|slightly|only thing"
    r"|(?:a|one) (?:bit|touch|little|tad|small|tiny|minor|thing|nit|detail)"
    r"|nächste\w*|künftig|vielleicht|prochaine|peut-être|próxima|quizás|prossima|forse"
    r"|volgende|misschien|talvez)\b|下次|以后",
    IGNORECASE,
)
