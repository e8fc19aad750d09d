r"""Units of a value: only words in `\text{}`, with `\$`, `%` and `^\circ`; a letter outside is a variable."""

from __future__ import annotations

import re

from grpo_exp.rewards.remark_words import changes_value

_SYNONYMS = {
    "degree": ("deg", "degs", "degrees"), "dollar": ("dollars", "usd", "USD"), "cent": ("cents",),
    "%": ("percent", "percentage", "pct"), "unit": ("units",),
    "mm": ("millimeter", "millimetre"), "cm": ("centimeter", "centimetre"), "m": ("meter", "metre"),
    "km": ("kilometer", "kilometre"), "in": ("inch", "inches"), "ft": ("foot", "feet"), "yd": ("yard", "yds"),
    "mi": ("mile",), "g": ("gram", "gm"), "kg": ("kilogram", "kgs"), "lb": ("pound", "lbs"),
    "l": ("liter", "litre", "L"), "ml": ("milliliter", "millilitre", "mL"), "s": ("second", "sec", "secs"),
    "min": ("minute", "mins"), "h": ("hour", "hr", "hrs"), "day": ("days",),
}  # fmt: skip
_CANONICAL = {word: unit for unit, words in _SYNONYMS.items() for word in words}

_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}
_UNIT_WORDS = re.compile(r"[A-Za-z][A-Za-z./ -]{0,40}")
_TRAILING_TEXT = re.compile(r"(.*[^\s\\+*/^_(\[{=-])\s*\\text\{([^{}]*)\}\s*(?:\^\s*\{?\s*(\d)\s*\}?)?", re.DOTALL)
_CURRENCIES = {r"\$": "dollar", "€": "euro", "£": "pound sterling", "¥": "yen"}
_CURRENCY = re.compile(r"\\\$|[€£¥]")
_LEADING_CURRENCY = re.compile(r"([+-]?)\s*(\\\$|[€£¥])\s*(.+)", re.DOTALL)
_TRAILING_CURRENCY = re.compile(r"(.+?)\s*(\\\$|[€£¥])", re.DOTALL)
_JOINED_TEXTS = re.compile(r"\\text\{([^{}]*)\}\s*(/|\\cdot|)\s*\\text\{([^{}]*)\}")


def split_unit(text: str) -> tuple[str, str | None] | None:
    r"""Split a value's text into expression and unit.

    Returns:
        The expression and the canonical unit (None where none is named), or None when a trailing text is not
        a unit but a remark (`7 \text{ or more}`), so that the whole is no plain value.
    """
    text = _JOINED_TEXTS.sub(lambda found: rf"\text{{{found[1]}{'/' if found[2] == '/' else ' '}{found[3]}}}", text)
    if len(_CURRENCY.findall(text)) > 1:
        return None
    for pattern, value_group, sign_group in ((_LEADING_CURRENCY, 3, 1), (_TRAILING_CURRENCY, 1, 0)):
        found = pattern.fullmatch(text)
        if found is not None:
            rest = split_unit(found[value_group])
            sign = found[sign_group] if sign_group else ""
            currency = _CURRENCIES[found[2]]
            # '\$5 \text{ million}' names two units: the amount is another one.
            if rest is None or (rest[1] is not None and rest[1] != currency):
                return None
            return sign + rest[0], currency
    if text.endswith("%") and len(text) > 1:
        return text[:-1].rstrip(), "%"
    if text.endswith(r"^\circ") and len(text) > len(r"^\circ"):
        return text[: -len(r"^\circ")].rstrip(), "degree"
    found = _TRAILING_TEXT.fullmatch(text)
    if found is None:
        return text, None
    unit = canonical_unit(found[2], power=found[3])
    return None if unit is None else (found[1].rstrip(), unit)


def canonical_unit(words: str, *, power: str | None = None) -> str | None:
    r"""Return one spelling of a unit, or None when the words are not a unit.

    Args:
        words: What stands in `\text{}`.
        power: The exponent that follows it, if any.
    """
    words = re.sub(r"\bper ?cent\b", "percent", words.strip().rstrip("."), flags=re.IGNORECASE)
    if not _UNIT_WORDS.fullmatch(words):
        return None
    names: list[str] = []
    for word in words.replace("/", " / ").replace(" per ", " / ").split():
        if changes_value(word):
            return None
        if word.lower() in _POWERS:
            power = _POWERS[word.lower()]
        else:
            names.append(_canonical_word(word.rstrip(".")))
    if not names:
        return None
    return "".join(f" {name}" if name != "/" else " /" for name in names).strip() + (
        f"^{power}" if power and power != "1" else ""
    )


def _canonical_word(word: str) -> str:
    """Return one spelling of a word of a unit; case counts only in abbreviations (`m`, `M`)."""
    if word in _CANONICAL:
        return _CANONICAL[word]
    word = word.lower() if len(word) > 2 else word
    singular = word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
    return _CANONICAL.get(word) or _CANONICAL.get(singular) or singular
