"""Amounts of money in words."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.numerals import NUMBER, cardinal, number

# sign: (singular, plural, hundredth, hundredths); a currency without hundredths in use has none
_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "", ""),
    "₽": ("ruble", "rubles", "", ""),
    "CHF": ("franc", "francs", "", ""),
    "CNY": ("yuan", "yuan", "", ""),
}
_CODES = {
    "USD": "$",
    "EUR": "€",
    "GBP": "£",
    "JPY": "¥",
    "INR": "₹",
    "CHF": "CHF",
    "CNY": "CNY",
    "RMB": "CNY",
}
_SCALES = {
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "mn": "million",
    "b": "billion",
    "B": "billion",
    "bn": "billion",
    "T": "trillion",
    "tn": "trillion",
}
_SIGN = r"[$€£¥₹₩₽]"
_SCALE = r"(?:\s?(?P<scale>k|K|mn|m|M|bn|b|B|tn|T)\b|\s(?P<word>thousand|million|billion|trillion)\b)?"

_BEFORE = re.compile(
    rf"(?P<minus>(?<!\w)[-−]\s?)?(?:\b(?:US)?(?=[$])|\b(?=[A-Z]{{3}})|)"
    rf"(?P<currency>{_SIGN}|(?:{'|'.join(_CODES)})\s)\s?(?P<minus2>[-−])?(?P<amount>{NUMBER})"
    rf"(?:\s?[-–]\s?{_SIGN}?(?P<to>{NUMBER}))?{_SCALE}"
)
_AFTER = re.compile(
    rf"(?P<minus>(?<!\w)[-−]\s?)?(?P<minus2>)(?<![\d.,])(?P<amount>{NUMBER})"
    rf"(?:\s?[-–]\s?(?P<to>{NUMBER}))?{_SCALE}\s?"
    rf"(?P<currency>[€£₹₩₽]|\b(?:{'|'.join(_CODES)})\b)"
)
_CENTS = re.compile(r"(?<![\d.,])(\d{1,3})\s?¢")


def spell_money(text: str) -> str:
    """``$42.50`` is "forty two dollars and fifty cents"."""
    text = _BEFORE.sub(_amount, text)
    text = _AFTER.sub(_amount, text)
    return _CENTS.sub(lambda m: f"{cardinal(m[1])} {'cent' if m[1] == '1' else 'cents'}", text)


def _amount(match: re.Match[str]) -> str:
    currency = match["currency"].strip()
    one, many, hundredth, hundredths = _CURRENCIES[_CODES.get(currency, currency)]
    sign = "minus " if match["minus"] or match["minus2"] else ""
    scale = match["word"] or _SCALES.get(match["scale"] or "", "")
    amount = match["amount"]
    whole, _, decimals = amount.partition(".")
    if match["to"]:
        words = f"{number(amount)} to {number(match['to'])} {scale} {many}"
    elif scale:
        words = f"{number(amount)} {scale} {many}"
    elif hundredth and len(decimals) == 2:
        parts = []
        if whole.strip("0,") or decimals == "00":
            parts.append(f"{cardinal(whole or '0')} {one if whole == '1' else many}")
        if decimals != "00":
            parts.append(f"{cardinal(str(int(decimals)))} {hundredth if decimals == '01' else hundredths}")
        words = " and ".join(parts)
    else:
        words = f"{number(amount)} {one if amount == '1' else many}"
    return f" {sign}{words} ".replace("  ", " ")
