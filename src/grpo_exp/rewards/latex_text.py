r"""One spelling for one thing: LaTeX and Unicode text of an answer, made uniform before it is read.

After `uniform_latex` there is one fraction command (`\frac{a}{b}`, always braced), one text command
(`\text{}`), one product sign (`\cdot`), `\le`, `\ge`, `\{`, `\}`, `\emptyset`, `\ldots`, `^\circ`, `%`, `\$`,
no layout commands, and numbers without separators between groups of three (but for the plain comma, which may
also separate the members of a list).
"""

# The signs that look alike are what this module is about.
# ruff: noqa: RUF001

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from grpo_exp.rewards.extraction import match_braces

_CHARACTERS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "‒": "-", "﹣": "-",
    "×": r"\cdot ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
    "≤": r"\le ", "⩽": r"\le ", "≥": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ",
    "∓": r"\mp ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ",
    "°": r"^\circ ", "√": r"\sqrt ", "…": r"\ldots ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",
    "π": r"\pi ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "θ": r"\theta ",
    "λ": r"\lambda ", "μ": r"\mu ", "φ": r"\phi ", "ω": r"\omega ", "′": "'", "’": "'",
    "\u200b": "", "\ufeff": "", "\u2061": "", "\u2062": "",
}  # fmt: skip

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")

_SEPARATOR = r"(\{,\}|,\s*\\!\s*|\\,|\\;|\\:|\\ |~|\s)"
_GROUPS_OF_THREE = re.compile(
    r"(?<![\d.,^_}])([1-9]\d{0,2})" + _SEPARATOR + r"(\d{3}(?:(?:\2|,\s*\\!\s*|\{,\})\d{3})*)(?!\d)"
)
_SEPARATOR_AGAIN = re.compile(_SEPARATOR)

_UNWRAPPED = r"\\(?:mathbf|mathit|mathsf|mathtt|mathnormal|boldsymbol|bm|pmb|underline|boxed|fbox|ensuremath)\s*(?=\{)"
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:left|right)\s*\.", ""),
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\s*", ""),
        (
            r"\\(?:display|text|script)style(?![a-zA-Z])|\\(?:no)?limits(?![a-zA-Z])|\\(?:bf|rm|it)(?![a-zA-Z])",
            "",
        ),
        (r"\\!", ""),
        (r"\\(?:quad|qquad|thinspace|enspace|space)(?![a-zA-Z])|\\[,;:> ]|~", " "),
        (r"\\[hv]space\*?\s*\{[^{}]*\}|\\phantom\s*\{[^{}]*\}", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
        (r"\\mathrm\s*\{\s*([eid])\s*\}(?=\s*(?:\^|\\pi|$))", r"\1"),
        (r"\\operatorname\s*\{\s*(sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|ln|log|exp)\s*\}", r"\\\1 "),
        (
            r"\\(?:mbox|hbox|mathrm|textrm|textbf|textit|textnormal|textsf|texttt|operatorname\*?)\s*\{",
            r"\\text{",
        ),
        (r"\\text\s+\{", r"\\text{"),
        (r"\\text\{\s*\}", " "),
        (r"\\(?:times|ast|cdotp)(?![a-zA-Z])|(?<!\\)\*", r"\\cdot "),
        (r"\\div(?![a-zA-Z])", "/"),
        (r"\\leq(?:slant|q)?(?![a-zA-Z])|<=", r"\\le "),
        (r"\\geq(?:slant|q)?(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\neq(?![a-zA-Z])|!=", r"\\ne "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\(?:lvert|rvert|vert)(?![a-zA-Z])", "|"),
        (r"\\langle(?![a-zA-Z])", "("),
        (r"\\rangle(?![a-zA-Z])", ")"),
        (r"\\varnothing(?![a-zA-Z])|\\\{\s*\\\}", r"\\emptyset "),
        (r"\\(?:dots[cbmio]?|cdots|hdots)(?![a-zA-Z])|\.\.\.+", r"\\ldots "),
        (r"\\colon(?![a-zA-Z])", ":"),
        (r"\\(?:lor|vee)(?![a-zA-Z])", r"\\text{ or }"),
        (r"\\(?:land|wedge)(?![a-zA-Z])", r"\\text{ and }"),
        (r"(?:\{\s*\})?\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degree(?![a-zA-Z])", r"^\\circ "),
        (r"\\%", "%"),
        (r"\^\s*\\prime(?![a-zA-Z])|\^\s*\{\s*\\prime\s*\}", "'"),
        (r"\^\s*\{\s*\\prime\s*\\prime\s*\}", "''"),
        (r"\\infin(?![a-zA-Z])", r"\\infty "),
        (r"\+\s*\\infty(?![a-zA-Z])", r"\\infty"),
        (r"\s+", " "),
    )
)
_BRACED_LATER = re.compile(r"\\(frac|binom|sqrt)(?![a-zA-Z])\s*")
_ARGUMENT = re.compile(r"\s*([0-9a-zA-Z]|\\(?!text|left|frac|sqrt|binom)[a-zA-Z]+)")
_INFIX_COMMANDS = {r"\over": r"\frac", r"\choose": r"\binom"}
_INFIX_PART = r"((?:[^{}]|\{[^{}]*\})*?)"
_BRACED_INFIX = re.compile(rf"(?<!\\)\{{{_INFIX_PART}(\\over|\\choose)(?![a-zA-Z]){_INFIX_PART}(?<!\\)\}}")
_BARE_INFIX = re.compile(r"([^{}=,;<>]*)(\\over|\\choose)(?![a-zA-Z])([^{}=,;<>]*)")
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))


@lru_cache(maxsize=8192)
def uniform_latex(text: str) -> str:
    """Return the uniform spelling of an answer's text; blanks are single and trimmed."""
    if text.isalnum() and text.isascii():
        return text
    text = re.sub(r"^\s*\*\*(.*)\*\*\s*$", r"\1", text, flags=re.DOTALL)  # bold in Markdown
    text = _unwrap_math(re.sub(r"\s+", " ", _plain_characters(text)).strip())
    if re.search(r"\\\\(?:begin|frac|text|sqrt|boxed|left|pi)\b", text) and not re.search(r"(?<!\\)\\begin", text):
        text = text.replace("\\\\", "\\")
    text = _GROUPS_OF_THREE.sub(lambda found: found[1] + _SEPARATOR_AGAIN.sub("", found[3]), text)
    # A break between rows would otherwise be read as a command together with what follows it.
    text = text.replace("\\\\", "\\newline ")
    text = re.sub(r"(?<!\\)\$", "", text)
    text = _unwrap_groups(text)
    text = _prefix_operators(text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _brace_arguments(text).strip()
    text = re.sub(r"(?<!\\ldots)\s*[.;,]$", "", text) if not text.endswith("..") else text
    return text.strip()


def _prefix_operators(text: str) -> str:
    r"""Write `{3 \over 4}` as `\frac{3}{4}` and `{5 \choose 2}` as `\binom{5}{2}`, with or without the braces."""
    if r"\over" not in text and r"\choose" not in text:
        return text
    while (found := _BRACED_INFIX.search(text)) is not None:
        prefixed = f"{_INFIX_COMMANDS[found[2]]}{{{found[1]}}}{{{found[3]}}}"
        if found[0] == text:
            return prefixed
        text = f"{text[: found.start()]}{{{prefixed}}}{text[found.end() :]}"
    found = _BARE_INFIX.fullmatch(text)
    return text if found is None else f"{_INFIX_COMMANDS[found[2]]}{{{found[1]}}}{{{found[3]}}}"


def nesting_depth(text: str) -> int:
    """Return how deeply brackets of any kind are nested in a text."""
    depth = deepest = 0
    for character in text:
        if character in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}])":
            depth = max(0, depth - 1)
    return deepest


def _plain_characters(text: str) -> str:
    """Replace Unicode signs by LaTeX; digits and Latin letters of other widths and scripts by ASCII."""
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: "^{" + found[0].translate(_SUPERSCRIPTS) + "}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda found: "_{" + found[0].translate(_SUBSCRIPTS) + "}", text)
    text = re.sub(r"√\s*(?:(\d[\d.]*)|\(([^()]*)\))", lambda found: rf"\sqrt{{{found[1] or found[2]}}}", text)
    return "".join(character if character.isascii() else _plain_character(character) for character in text)


def _plain_character(character: str) -> str:
    """Return the ASCII or LaTeX spelling of one character, or the character itself."""
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    if unicodedata.category(character) == "Nd":
        return str(unicodedata.decimal(character))
    decomposed = unicodedata.decomposition(character)
    if decomposed.startswith("<fraction>"):
        numerator, _, denominator = unicodedata.normalize("NFKC", character).partition("⁄")
        return rf"\frac{{{numerator}}}{{{denominator}}}" if denominator else character
    if decomposed.startswith("<wide>"):
        return unicodedata.normalize("NFKC", character)
    return " " if character.isspace() else character


def _unwrap_math(text: str) -> str:
    """Remove the signs that start and end mathematics round the whole text."""
    for opening, closing in _WRAPPERS:
        inside = text[len(opening) : -len(closing)]
        whole = len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing)
        if whole and opening not in inside and not inside.endswith("\\"):
            return inside.strip()
    return text


def _unwrap_groups(text: str) -> str:
    r"""Remove commands that only change the look (`\mathbf{7}`) and keep what they hold."""
    if not re.search(_UNWRAPPED, text):
        return text
    closes = match_braces(text)
    dropped: set[int] = set()
    for found in re.finditer(_UNWRAPPED, text):
        if found.end() in closes:
            dropped.update(range(found.start(), found.end() + 1))
            dropped.add(closes[found.end()])
    return "".join(character for position, character in enumerate(text) if position not in dropped)


def _brace_arguments(text: str) -> str:
    r"""Write `\frac12` as `\frac{1}{2}` and `\sqrt2` as `\sqrt{2}`."""
    closes = match_braces(text)
    inserts: dict[int, str] = {}
    for found in _BRACED_LATER.finditer(text):
        position = found.end()
        if found[1] == "sqrt" and text.startswith("[", position):
            position = text.find("]", position) + 1 or len(text)
        for _ in range(1 if found[1] == "sqrt" else 2):
            while text.startswith(" ", position):
                position += 1
            argument = _ARGUMENT.match(text, position)
            if position in closes:
                position = closes[position] + 1
            elif argument is not None:
                inserts[argument.start(1)] = inserts.get(argument.start(1), "") + "{"
                inserts[argument.end(1)] = "}" + inserts.get(argument.end(1), "")
                position = argument.end(1)
            else:
                break
    if not inserts:
        return text
    pieces: list[str] = []
    previous = 0
    for position in sorted(inserts):
        pieces += [text[previous:position], inserts[position]]
        previous = position
    return "".join([*pieces, text[previous:]])
