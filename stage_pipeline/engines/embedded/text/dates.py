"""Dates, years and decades in words."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.numerals import cardinal, ordinal, plural, year

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_BY_PREFIX = {month[:3].lower(): month for month in _MONTHS}
_MONTH = (
    r"(?P<month>January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?)"
)
_ZONE = r"(?:\.\d{1,9})?(?P<zone>Z|[+-]\d{2}:?\d{2})?"

_ISO = re.compile(
    r"(?<![\d/-])(?P<year>\d{4})(?P<sep>[-/])(?P<m>\d{1,2})(?P=sep)(?P<d>\d{1,2})"
    rf"(?:[T ](?P<time>\d{{2}}:\d{{2}}(?::\d{{2}})?){_ZONE})?(?![\d/-])"
)
_NUMERIC = re.compile(
    r"(?<![\d/.-])(?P<a>\d{1,2})(?P<sep>[/.-])(?P<b>\d{1,2})(?P=sep)(?P<year>\d{4}|(?<=/)\d{2})(?![\d/-])"
)
_MONTH_DAY = re.compile(
    rf"\b{_MONTH}\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:,.]*\d)(?:\s?[-–]\s?(?P<to>\d{{1,2}})(?:st|nd|rd|th)?)?"
    r"(?:,?\s(?P<year>\d{4})\b(?!:))?"
)
_MONTH_DAY_YEAR = re.compile(
    rf"\b{_MONTH}\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?P<to>),\s?(?P<year>\d{{4}})\b(?!:)"
)
_DAY_MONTH = re.compile(
    rf"(?P<the>\b[Tt]he\s)?(?<![\d.,:/$€£])\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}"
    r"(?:,?\s(?P<year>\d{4})\b(?!:))?(?!\w)"
)
_MONTH_YEAR = re.compile(rf"\b{_MONTH},?\s(?P<year>\d{{4}})\b(?!:)")
_DECADE = re.compile(r"(?<![\w'])'?(?P<century>1\d|20)?(?P<tens>\d0)s\b")
_YEAR_RANGE = re.compile(
    r"(?<![\w.,-])(1[1-9]\d\d|20\d\d)\s?[-–]\s?(1[1-9]\d\d|20\d\d|\d\d)(?![\w-]|[.,]\d)"
)
_YEAR = re.compile(
    r"(?P<before>\b[A-Za-z]+\s)?(?<![\w.,:/#+-])(?P<year>1[1-9]\d\d|20\d\d)(?![\w:/-]|[.,]\d)(?P<after>\s[a-z]+)?"
)

_YEAR_BEFORE = frozenset(
    "in since from until till of by before after during circa year and to mid late early around"
    " spring summer"
    " autumn fall winter".split()
)
# "2024 people" is a count, and so is "2024 items": a plural after the number.
_COUNTED = frozenset("people men women children percent miles feet more less other".split())


def spell_dates(text: str) -> str:
    """``2024-05-06`` is "May sixth twenty twenty four"; a time after it stays for the next pass.

    ``6/5/2024`` is read the American way, unless only the other order is a date.
    """
    text = _ISO.sub(_iso, text)
    text = _NUMERIC.sub(_numeric, text)
    text = _MONTH_DAY_YEAR.sub(_month_day, text)
    text = _MONTH_DAY.sub(_month_day, text)
    text = _DAY_MONTH.sub(_day_month, text)
    text = _MONTH_YEAR.sub(lambda m: f"{_month_name(m['month'])} {year(m['year'])}", text)
    return _DECADE.sub(_decade, text)


def spell_years(text: str) -> str:
    """Four digits that can be a year are read as one, unless they count something."""
    text = _YEAR_RANGE.sub(_year_range, text)
    return _YEAR.sub(_year, text)


def _month_name(written: str) -> str:
    return _BY_PREFIX[written[:3].lower()]


def _date(month: int, day: int, year_digits: str) -> str | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if len(year_digits) == 2:
        spoken = cardinal(year_digits) if year_digits[0] != "0" else f"oh {cardinal(year_digits[1])}"
    else:
        spoken = year(year_digits)
    return f"{_MONTHS[month - 1]} {ordinal(str(day))} {spoken}"


def _iso(match: re.Match[str]) -> str:
    date = _date(int(match["m"]), int(match["d"]), match["year"])
    if date is None:
        return match[0]
    if not match["time"]:
        return date
    zone = match["zone"] or ""
    spoken_zone = " U.T.C" if zone == "Z" else f" {zone}" if zone else ""
    return f"{date} at {match['time']}{spoken_zone}"


def _numeric(match: re.Match[str]) -> str:
    first, second = int(match["a"]), int(match["b"])
    day_first = match["sep"] == "." or first > 12
    month, day = (second, first) if day_first else (first, second)
    return _date(month, day, match["year"]) or match[0]


def _month_day(match: re.Match[str]) -> str:
    if not 1 <= int(match["day"]) <= 31:
        return match[0]
    days = ordinal(match["day"]) + (f" to {ordinal(match['to'])}" if match["to"] else "")
    return f"{_month_name(match['month'])} {days}" + (f" {year(match['year'])}" if match["year"] else "")


def _day_month(match: re.Match[str]) -> str:
    if not 1 <= int(match["day"]) <= 31:
        return match[0]
    spoken = f"{match['the'] or 'the '}{ordinal(match['day'])} of {_month_name(match['month'])}"
    return spoken + (f" {year(match['year'])}" if match["year"] else "")


def _decade(match: re.Match[str]) -> str:
    century, tens = match["century"], match["tens"]
    if tens == "00":
        if not century:
            return match[0]
        return plural("two thousand" if century == "20" else f"{cardinal(century)} hundred")
    decade = plural(cardinal(tens))
    return f"{cardinal(century)} {decade}" if century else decade


def _year_range(match: re.Match[str]) -> str:
    end = match[2]
    return f"{year(match[1])} to {year(end) if len(end) == 4 else _short_year(end)}"


def _short_year(two: str) -> str:
    return f"oh {cardinal(two[1])}" if two[0] == "0" else cardinal(two)


def _year(match: re.Match[str]) -> str:
    before, after = match["before"] or "", match["after"] or ""
    counted = after.strip() in _COUNTED or (after.endswith("s") and after.strip() not in _NOT_PLURAL)
    named = before.strip().lower() in _YEAR_BEFORE
    spoken = cardinal(match["year"]) if counted and not named else year(match["year"])
    return f"{before}{spoken}{after}"


_NOT_PLURAL = frozenset("is was has as this its does".split())
