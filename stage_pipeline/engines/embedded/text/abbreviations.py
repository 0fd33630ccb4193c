"""Abbreviations, titles, initials and acronyms, written out."""

from __future__ import annotations

import re

LETTER_A = "eh"
"""Sounds as the letter does; "A" alone would be read as the article."""

# Followed by a name, these are titles; their dot never ends a sentence.
_TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miz", "Messrs": "Messieurs", "Prof": "Professor",
    "Rev": "Reverend", "Gen": "General", "Sen": "Senator", "Gov": "Governor", "Capt": "Captain",
    "Lt": "Lieutenant", "Col": "Colonel", "Sgt": "Sergeant", "Pres": "President", "Hon": "Honorable",
    "Mt": "Mount", "Ft": "Fort", "Cpl": "Corporal", "Maj": "Major", "Cmdr": "Commander", "Adm": "Admiral",
    "Supt": "Superintendent",
}  # fmt: skip
# These may close a sentence.
_PLAIN = {
    "etc": "et cetera", "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation", "Co": "Company",
    "Jr": "Junior", "Sr": "Senior", "Bros": "Brothers", "Esq": "Esquire", "approx": "approximately",
    "dept": "department", "Dept": "Department", "govt": "government", "Govt": "Government",
    "est": "estimated", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Hwy": "Highway",
    "Pkwy": "Parkway", "Apt": "Apartment", "Univ": "University", "Assn": "Association",
    "Intl": "International", "incl": "including", "misc": "miscellaneous", "min": "minimum",
    "max": "maximum", "avg": "average", "ext": "extension", "tel": "telephone", "Tel": "Telephone",
}  # fmt: skip
# Only before a number.
_BEFORE_NUMBER = {
    "No": "Number", "no": "number", "Nos": "Numbers", "nos": "numbers", "Fig": "Figure", "fig": "figure",
    "Figs": "Figures", "figs": "figures", "Vol": "Volume", "vol": "volume", "Ch": "Chapter",
    "ch": "chapter", "Sec": "Section", "sec": "section", "p": "page", "pp": "pages", "Eq": "Equation",
    "eq": "equation", "Art": "Article", "ca": "circa", "c": "circa",
}  # fmt: skip
_DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_LATIN = {
    "e.g": "for example", "i.e": "that is", "et al": "and others", "cf": "compare", "vs": "versus",
    "viz": "namely", "a.k.a": "also known as", "Ph.D": "P.H.D", "M.Sc": "M.S.C", "B.Sc": "B.S.C",
}  # fmt: skip
# Acronyms that the dictionary takes for the word they look like, or that have no reading there.
_SPELLED = ("WHO", "US", "IT", "AM", "PM", "AD", "PhD", "MSc", "BSc")

_ENDS = re.compile(r"\s*$|\s*\n|\s+[\"'(]?[A-Z]")

_TITLE = re.compile(rf"\b(?:({'|'.join(_TITLES)})\.(?=\s?[A-Z])|(Mr|Mrs|Ms)\.)")
# "5 min." is a measure.
_PLAIN_DOT = re.compile(rf"(?<!\d)(?<!\d\s)\b({'|'.join(_PLAIN)})\.")
_NUMBERED = re.compile(rf"\b({'|'.join(_BEFORE_NUMBER)})\.\s?(?=\d)")
# "Sat." and "Sun." may be words that end a sentence, unless a date goes on.
_DAY = re.compile(rf"\b({'|'.join(_DAYS)})\.(?=,|\s\d|\s(?:the|and|to|at)\b)")
_LATIN_DOT = re.compile(r"(?<![\w.])(e\.\s?g|i\.\s?e|et al|cf|vs|viz|a\.k\.a|Ph\.D|M\.Sc|B\.Sc)\.?(?![\w])")
_STREET = re.compile(
    r"(?P<before>\b(?:[A-Z][a-z]+|\d+(?:st|nd|rd|th))\s)?\b(?P<what>St|Dr)\.(?P<after>\s?[A-Z])?"
)
_DOTTED = re.compile(r"\b((?:[A-Za-z]\.){2,})(?=\W|$)")
_INITIAL = re.compile(r"(?<![\w.])([A-Z])\.(?=\s(?:[A-Z][a-z]|[A-Z]\.))")
_WITH = re.compile(r"(?<![\w/])w/(o)?(?=[\s\w])")
_ACRONYM = re.compile(rf"\b(?:{'|'.join(_SPELLED)})\b")
_MIXED = re.compile(
    r"(?<![\w.])(?=[A-Za-z-]{0,30}\d)(?=[\d-]{0,30}[A-Za-z])[A-Za-z\d]{1,40}(?:-[A-Za-z\d]{1,40}){0,4}(?![\w])"
)
_RUN = re.compile(r"[A-Za-z]+|\d+")
# Named, not used as the article: "vitamin A.", "plan A,".
_LETTER_A = re.compile(r"\bA(?=[.,;:?!]?$|[.,;:?!]\s|\n)")


def expand_abbreviations(text: str) -> str:
    """``Dr. Smith`` is "Doctor Smith", ``e.g.`` "for example", ``U.S.`` two letters.

    A dot that only marks the abbreviation goes; one that also ends the sentence stays.
    """
    text = _WITH.sub(lambda m: "without " if m[1] else "with ", text)
    text = _LATIN_DOT.sub(_latin, text)
    text = _TITLE.sub(lambda m: _TITLES[m[1] or m[2]], text)
    text = _STREET.sub(_street, text)
    text = _NUMBERED.sub(lambda m: f"{_BEFORE_NUMBER[m[1]]} ", text)
    text = _DAY.sub(lambda m: _DAYS[m[1]], text)
    text = _PLAIN_DOT.sub(lambda m: _PLAIN[m[1]] + _kept_dot(m), text)
    text = _DOTTED.sub(_dotted, text)
    text = _INITIAL.sub(r"\1", text)
    return text


def spell_acronyms(text: str) -> str:
    """Letters one by one where a word would be read instead: ``WHO``, ``US``; not in a shouted text."""
    if sum(char.islower() for char in text) < sum(char.isupper() for char in text):
        return text
    text = _ACRONYM.sub(lambda m: ".".join(m[0].upper()), text)
    return _LETTER_A.sub(LETTER_A, text)


def split_mixed(text: str) -> str:
    """Letters and digits in one word are read apart: ``MP3`` is "MP 3", ``COVID-19`` "COVID 19"."""
    return _MIXED.sub(_mixed, text)


def _kept_dot(match: re.Match[str]) -> str:
    return "." if _ENDS.match(match.string, match.end()) else ""


def _latin(match: re.Match[str]) -> str:
    written = match[1].replace(" ", "") if match[1] != "et al" else match[1]
    dot = "." if match[0].endswith(".") and re.match(r"\s*$|\s*\n", match.string[match.end() :]) else ""
    return _LATIN[written] + dot


def _street(match: re.Match[str]) -> str:
    before, what, after = match["before"] or "", match["what"], match["after"] or ""
    # "Main St." and "Lakeview Dr." name a street, "St. Paul" and "Dr. Smith" a person or a place.
    if before and not (after and what == "Dr" and before.strip()[0].islower()):
        name = "Street" if what == "St" else "Drive"
        is_title = before.strip() in _SENTENCE_STARTS
        if not is_title:
            ends = not after and _ENDS.match(match.string, match.end()) is not None
            return f"{before}{name}{'.' if ends else ''}{after}"
    name = "Saint" if what == "St" else "Doctor"
    return f"{before}{name}{after}"


# Capitalised only because they begin a sentence (or a greeting): what follows is a title.
_SENTENCE_STARTS = frozenset(
    "The A An When If As Then And But So Yes No Dear Hello Hi Thank Thanks Is Was Did Does Has Had"
    " Can Will Ask Call See"
    " Meet Both While After Before Since For From To In On At By With Our My Your His Her Their Now"
    " Today Because".split()
)


def _dotted(match: re.Match[str]) -> str:
    letters = match[1].replace(".", "").upper()
    if letters in {"AM", "PM"}:
        # A time of day: whether its dot ends the sentence has been seen to.
        return match[0]
    ends = re.match(r"\s*$|\s*\n", match.string[match.end() :]) is not None
    return ".".join(letters) + ("." if ends else "")


def _mixed(match: re.Match[str]) -> str:
    runs = _RUN.findall(match[0])
    spoken = []
    for run in runs:
        if run.isalpha() and len(run) <= 3 and run.isupper():
            spoken.append(LETTER_A if run == "A" else ".".join(run))
        else:
            spoken.append(run)
    return " ".join(spoken)
