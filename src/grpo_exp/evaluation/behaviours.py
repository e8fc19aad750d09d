"""Traces of four ways of reasoning in a completion, found by text patterns. Pure: text in, snippets out.

| Name | What the text says |
|---|---|
| `self_verification` | it checks its own result: "let me check my answer", "substitute back" |
| `reflection` | it stops and thinks again: "wait, ...", "hmm", "let's reevaluate this" |
| `backtracking` | it gives something up: "that's wrong", "this doesn't work", "let me start over" |
| `alternatives` | it tries another way: "alternatively, ...", "let's try a different approach" |

Sources of the names: Gandhi et al. 2025 (arXiv:2503.01307) for verification and backtracking, with the examples "let me
check my answer" and "let's try a different approach"; DeepSeek-R1 (arXiv:2501.12948, section 2.2.4) for reflection
("Wait, wait. Wait. ... Let's reevaluate this") and for the exploration of alternatives. Gandhi et al. let a language
model judge; these patterns see English phrases only. They tell that a phrase occurs, not that the check was made or
that it helped: base models write such phrases before any training, often to no effect (Liu et al. 2025, "There May Not
be Aha Moment in R1-Zero-like Training"). Look at the snippets before you believe a curve.

The patterns keep to phrases in which the writer speaks of the own work ("let me check", not "check the box"). Fenced
code blocks are not looked at. A pattern is tried only where the text holds a piece of plain text that its matches need:
most texts hold few. No pattern has an unbounded repetition, so the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Length of a snippet, about: the hit with the words around it.
SNIPPET_CHARACTERS = 80
_BEFORE = 24

# Pieces of patterns. The text is in lower case and has straight apostrophes by then.
_WE_WILL = (
    r"(?:let me|let us|let's|lets|i'll|i will|i'd better|i should|we should|i need to|we need to|i want to|we'll|i can|"
    r"we can|now to|time to|just to|i have to)(?: (?:just|now|also|quickly|carefully|first|at least|briefly)){0,2}"
)
_OWN_WORK = (
    r"(?:this|that|it|these|them|my|our|if|whether|by|again|each|both|everything|the (?:\w{1,20} )?(?:answer|result|"
    r"solution|calculation|calculations|computation|arithmetic|math|work|sum|product|total|equation|equations|condition|"
    r"conditions|constraint|constraints|step|steps|value|values|logic|reasoning|count|formula))\b"
)
#: Where a sentence begins, or words of hesitation in front of an interjection.
_START = r"(?:^|[.!?:;\n>\"(*…—-] {0,2}|\b(?:oh|but|so|and|no|hmm|ah|okay|ok|well|actually|wait),? )"
#: Ways of reasoning. Paths, angles, combinations and solutions are also what ordinary problems ask for.
_METHOD = r"(?:approach|way|method|strategy|idea|technique|attempt)(?:s|es)?\b"
#: Parts of a problem: "let's find another point" goes on with the solution and does not leave it.
_PART = (
    r"(?:angle|point|line|side|edge|vertex|triangle|circle|equation|expression|relation|inequality|term|root|digit"
    r"|variable|constraint|condition)s?\b"
)
_WAY = r"(?:approach|way|method|strategy|route|path|idea|technique|angle|attempt|combination|solution|option)s?\b"

#: Name -> (pieces of text of which a match holds one, pattern). What begins with the same words is one pattern.
_PHRASES: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "self_verification": (
        (
            ("check", "verif", "make sure", "confirm"),
            rf"\b{_WE_WILL} (?:(?:double|cross|re)-? ?check\b|(?:re-?)?verify\b|confirm\b"
            rf"|check(?:ing)?(?: {_OWN_WORK}|:|[.,!]? ?(?:\n|$)|\. )"
            r"|make sure (?:this|that|my|our|it|the (?:answer|result|solution)|i|we)\b)",
        ),
        (("check",), r"\b(?:double|cross|re)[- ]?check(?:ing)? (?:this|that|my|our|if|whether|by)\b"),
        (("check",), r"(?:^|[.\n]) ?(?:quick |sanity |final |double[- ])?check:"),
        (("check",), r"\b(?:this|that|it|which|answer|everything) (?:all )?checks out\b(?! (?:\d|an?\b|the\b|of\b))"),
        (
            ("check",),
            r"\b(?:checking|to check) (?:my|our) (?:answer|work|result|solution|calculation|arithmetic|steps)\b",
        ),
        (("sanity",), r"\bsanity[- ]check(?: (?:this|that|my|our|the (?:answer|result))\b|:|,|\.)"),
        (("verif",), r"(?:^|[.\n]) ?(?:verification|verifying|to verify)(?::|,| (?:this|that|my|our|the|we|i|by)\b)"),
        (("verif",), r"\bverif(?:y|ying) (?:this|that|my|our) (?:answer|work|result|solution|calculation|claim|step)"),
        (("back",), r"\b(?:plug|plugging|substitute|substituting)\b[^.\n]{1,40}\bback\b"),
        (
            ("back",),
            r"\b(?:put|putting)\b[^.\n]{1,40}\bback in(?:to)? (?:the |our )?(?:\w{1,15} )?"
            r"(?:equation|expression|formula)",
        ),
        (("sense",), r"\bdoes (?:this|that|it|the answer|my answer) make sense\?"),
    ),
    "reflection": (
        (
            ("wait",),
            rf"{_START}wait(?!, (?:then|and|until)\b|: ?\d)(?:[,.!?:…—]| ?-|\n|$| no\b"
            r"| (?:a|one) (?:minute|second|moment|sec)(?:[,.!?…—\n]| -)"
            r"| (?:that|this|is (?:that|this|it|the)|isn't|i|maybe|actually|if|but|so"
            r"|the (?:answer|problem|question))\b)",
        ),
        (("hmm",), r"\bhmm+\b"),
        (("hold on",), rf"{_START}hold on[,.!…—]"),
        (
            ("think", "consider", "evaluate", "examine", "read", "visit", "assess", "look", "pause", "step back"),
            rf"\b{_WE_WILL} (?:rethink|think (?:again|this over|(?:about )?(?:this|that|it) (?:again|through|over))"
            r"|reconsider|re-?examine|re-?evaluate|re-?read|re-?think|revisit|re-?assess"
            r"|take another look|look (?:at (?:this|that|it) )?again|pause|step back)\b",
        ),
        (("second thought",), r"\bon second thoughts?\b"),
        (("reflection",), r"(?:^|[.\n] ?)(?:up)?on (?:further |closer )?reflection,"),
        (("did i",), r"\bdid i (?:make|miss|misread|mis\w{1,15}|forget|do|get|count|use)\b[^.\n]{0,60}\?"),
        (
            ("sure",),
            r"\bam i sure\b|\bi'm not (?:so |quite |entirely )?sure (?:about |if )?(?:this|that)\b",
        ),
        (("right?",), r"\b(?:is|was) (?:that|this|it) (?:really )?right\?"),
        (("i may have", "i might have"), r"\bi (?:may|might) have (?:made|mis\w{1,15}|missed|overlooked)\b"),
        (("actually",), rf"{_START}actually, (?:no|wait|i|that|this|maybe|let)\b"),
    ),
    "backtracking": (
        (
            (" work",),
            rf"\b(?:this|that)(?: {_WAY})? (?:won't|will not|doesn't|does not|didn't|did not|isn't going to|can't)"
            r" work\b",
        ),
        (
            ("that's",),
            r"\bthat's (?:wrong|incorrect|not (?:right|correct|it|what)|a mistake|an error|still not|a dead[- ]end)\b",
        ),
        (
            ("that is", "this is", "that was"),
            r"(?:^|[.!,\n] ?)(?:that is|this is|that was) (?:wrong|incorrect|not (?:right|correct|working)|a mistake"
            r"|an error|still not|a dead[- ]end)\b(?! (?:for|if|when|unless)\b)",
        ),
        (("be right", "be correct"), r"\b(?:this|that|it) (?:can't|cannot) be (?:right|correct)\b"),
        (
            ("i made", "i've made", "i have made"),
            r"\bi(?: have|'ve)? made (?:a|an|another) (?:\w{1,15} )?(?:mistake|error|slip)\b",
        ),
        (("my mistake",), r"\bmy mistake\b"),
        (("i was wrong",), r"\bi was wrong\b"),
        (
            ("start", "back", "undo", "correct", "fix"),
            rf"\b{_WE_WILL} (?:start (?:over|again|afresh|from scratch)|restart|go back(?! (?:home|in time)\b)"
            r"|backtrack|undo (?:this|that|the last)|(?:correct|fix) (?:my|the (?:error|mistake))"
            r"|correct (?:this|that|it)|fix (?:this|that|it)(?= by\b|[.,:;!]| ?(?:\n|$)))\b",
        ),
        (
            ("back",),
            r"\b(?:backtracking(?=[.,:])|going back to (?:the|my|our|step)|back to (?:the drawing board|square one))\b",
        ),
        (("scratch that",), r"\bscratch that\b"),
        (("dead",), r"\b(?:i|we)(?:'ve)? (?:hit|reached) a dead[- ]end\b"),
        (("not work",), r"\bnot working(?: out)?,? so (?:i|we|let)\b"),
    ),
    "alternatives": (
        (
            ("alternatively",),
            r"(?:^|[.!?:;\n>(*] {0,2}|\b(?:or|but|and),? )alternatively(?:,|:| (?:we|i|you|one|use|using|try)\b)",
        ),
        (
            ("another", "instead"),
            rf"\b{_WE_WILL} (?:(?:try|use|consider|find|think of|explore|look for|attempt) another\b"
            rf"(?! (?:\w{{1,15}} )?{_PART})"
            r"|[^.\n]{1,40} instead\b(?! of))",
        ),
        (
            ("another",),
            rf"\banother (?:possible |good |simpler |easier )?{_METHOD} "
            r"(?:is|would be|could be|might be|to)\b(?! the\b)",
        ),
        (("another",), rf"\b(?:is there|there is|there's|there must be|there might be) another {_METHOD}"),
        (("different",), rf"\ba (?:\w{{1,15}} )?different (?:\w{{1,15}} )?{_METHOD}"),
        (("different",), rf"(?:\bfrom|\b{_WE_WILL} (?:try|use|take|consider)) a (?:\w{{1,15}} )?different {_WAY}"),
        (("alternative",), rf"\b(?:an|one) alternative (?:\w{{1,15}} )?{_METHOD}"),
        (
            ("what if",),
            r"\bwhat if (?:we|i) (?:instead |first )?(?:try|use|tried|used|consider|set|let|think|take|assume|start|add"
            r"|multiply|subtract|divide|swap|combine|look|work|rewrite|do|did)\b",
        ),
        (("instead",), r"(?:^|[.!\n] ?)instead, (?:let|i|we|try)\b"),
        (("maybe",), r"\bmaybe (?:i|we) (?:can|could|should) (?:try|use|consider|instead|start|rewrite|think)\b"),
        (("other way",), r"\b(?:some|any) other ways? (?:to|of)\b"),
        (("let's try",), r"\blet's try (?:again with|other|using|the other)\b"),
    ),
}

_PATTERNS = {
    name: tuple((needles, re.compile(pattern)) for needles, pattern in phrases) for name, phrases in _PHRASES.items()
}
_NEEDLES = sorted({needle for patterns in _PATTERNS.values() for needles, _ in patterns for needle in needles})
#: In the order of the columns of a table.
BEHAVIOURS = tuple(_PATTERNS)
_FENCE = "```"


def find_behaviours(text: str) -> dict[str, str]:
    """Return the behaviours of a completion: name -> the words around a hit, about 80 characters.

    Args:
        text: What the policy wrote, without the prompt.
    """
    lowered = _lowered(text)
    found: dict[str, str] = {}
    present = {needle for needle in _NEEDLES if needle in lowered}
    for name, patterns in _PATTERNS.items():
        for needles, pattern in patterns:
            if not present.isdisjoint(needles) and (hit := pattern.search(lowered)) is not None:
                found[name] = _snippet(text, *hit.span())
                break
    return found


def behaviour_rates(texts: list[str]) -> dict[str, float]:
    """Return the share of texts in which each behaviour occurs, 0 to 1; nothing of nothing."""
    if not texts:
        return {}
    found = [find_behaviours(text) for text in texts]
    return {name: sum(name in one for one in found) / len(texts) for name in BEHAVIOURS}


def _lowered(text: str) -> str:
    """Return the text as the patterns want it, each character at its old place."""
    if _FENCE in text:
        text = _without_code(text)
    # The one letter whose lower case is longer than itself.
    return text.replace("\u0130", "I").replace("\u2019", "'").lower()


def _without_code(text: str) -> str:
    """Blank out fenced blocks; one that is never closed goes to the end."""
    parts = text.split(_FENCE)
    return _FENCE.join(" " * len(part) if place % 2 else part for place, part in enumerate(parts))


def _snippet(text: str, start: int, end: int) -> str:
    """Return the words around a hit on one line."""
    first = max(0, start - _BEFORE)
    last = max(end, first + SNIPPET_CHARACTERS)
    words = " ".join(text[first:last].split())
    return f"{'…' if first else ''}{words}{'…' if last < len(text) else ''}"
