r"""Words after a value that say something about the value itself, so that they are no unit.

Units are an open class (`5\text{ apples}`); what changes a value is not: words for numbers, for operations, for
doubt and denial, and the small words that make a condition or a remark.
"""

from __future__ import annotations

import re

#: Digits and tens as they begin a cardinal, an ordinal, a fraction or a compound.
_NUMERALS = (
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"twenty|thirty|fou?rty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|lakh|crore|myriad|dozen|dozzen|"
    r"[a-z]{1,12}illi(?:on|ard)"
)
_ORDINALS = (
    r"third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|[a-z]{3,5}teenth|[a-z]{3,5}tieth|"
    r"hundredth|thousandth|[a-z]{1,12}illi(?:on|ard)th|nth|kth"
)
#: `zeros` and `seconds` are counted and measured; `zero` and `hundreds` are numbers.
_NUMBER = re.compile(rf"(?:(?!zeros)(?:{_NUMERALS})(?:e?s)?|(?:{_ORDINALS})s?)+(?:fold|ish|some|plus|odd)?")

#: Beginnings of words that are never a unit's, whatever their ending.
_STEMS = re.compile(
    # operations and parts; what may be counted (roots, multiples, triples, logs, floors, lessons) is left alone
    r"neg(?:$|ativ)|minus|subtract|substract|multipl(?:y|i)|divid(?:e|ing)|divis(?:ion|ibl)|add(?:$|ed|ing)|addition$|"
    r"plus|sum(?:$|m)|difference$|quotient|remainder|residue|reciproc|invers|invert|opposit|complement|conjugat|"
    r"factorial|choos|chose|expon|power(?:$|ed)|root$|sqrt|squareroot|cuberoot|radical$|log(?:$|arith)|"
    r"modul(?:o|ar)|mod$|doubl(?:e$|ed|ing)|tripl(?:e$|ed|ing)|trebl|quadrupl(?:e$|ed|ing)|twice|thrice|half|halv|"
    r"quarters?$|score$|gross$|couple$|[a-z]*fold$|ths$|repeat|recur|imagin|binary|octal|hexa?dec|hex$|base$|basis|"
    r"mils?$|mill?n|bi?ll?n|mio$|mrd|tr?n$|kilo$|mega$|giga$|tera$|mill[ei]$|micro$|nano$|pp[mb]$|permil|googol|"
    r"infinit|trunc|round(?:$|ed|ing)|"
    # doubt
    r"appro?x|about|around|rough|circa$|ca$|near|almost|mayb|perhap|possib|probab|presum|suppos|apparent|seem|"
    r"likel|unlikel|guess(?:$|ed|ing)|estimat|assum|believ|think|thought|suspect$|might|may$|could|would|should|hope|"
    r"unsure|sure|uncertain|certain|unknown|undetermin|undefin|unclear|doubt|dubious|tentativ|arguab|potential|"
    r"hypothet|suggest|imprec|inexact|rather|somewhat|sort$|kind$|ish$|"
    # denial
    r"wrong|incorrect|false|untrue|fake|invalid|error$|erron|mistake(?:$|n)|inaccur|impossib|except|exclud|without|"
    r"lack(?:$|s|ing)|neither|never|none|nor$|not$|non$|nope|no$|isn|aren|doesn|don$|didn|won$|can(?:not|t$)|instead|"
    r"ignor|discard|reject|"
    # ranges and comparisons
    r"exceed|beyond|between|within|over$|under$|above|below|beneath|at$|least|less(?:$|er|en)|lower|fewer|few$|"
    r"small(?:er|est)|most(?:$|ly)|more(?:$|over)|great(?:er|est)|larg(?:er|est)|bigg|high(?:er|est)|up$|upto|until|"
    r"till$|through|thru|onward|max(?:$|im)|minim|limits?$|bound(?:$|s$|ed)"
)

#: Words that make a remark or a condition, or begin a sentence.
_REMARKS = frozenset({
    "a", "all", "an", "and", "any", "are", "because", "be", "both", "but", "by", "each", "either", "else",
    "equal", "equals", "every", "for", "from", "give", "hence", "however", "if", "is", "it", "like", "or",
    "otherwise", "same", "since", "so", "some", "take", "than", "that", "then", "therefore", "this", "though", "thus",
    "to", "unless", "was", "were", "when", "where", "whereas", "which", "while", "who", "with", "you", "i", "we", "pi",
})  # fmt: skip

#: A single letter is a variable or short for a number (k, M, B), but for these; `R`, `x`, `n`, `i` are none.
_LETTER_UNITS = frozenset("mghslLAVWJNKCFdt")


def changes_value(word: str) -> bool:
    """Tell whether a word (letters only, or with hyphens and full stops) is none of a unit."""
    for part in re.split(r"[^A-Za-z]+", word):
        if len(part) == 1 and part not in _LETTER_UNITS and part == word:
            return True
        lower = part.lower()
        if lower in _REMARKS or _STEMS.match(lower) or _NUMBER.fullmatch(lower):
            return True
        # Written together with another word: 'fivemillion', 'millionths'.
        if re.search(r"illions?(?:ths?)?$|illiards?$|thousand|hundred|factorial|negativ|approx", lower):
            return True
    return False
