"""Measures in words: a number with its unit."""

from __future__ import annotations

import re

from stage_pipeline.engines.embedded.text.numerals import NUMBER, number

_UNITS = {
    "%": ("percent", "percent"),
    "‰": ("per mille", "per mille"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "mph": ("mile per hour", "miles per hour"),
    "km2": ("square kilometer", "square kilometers"),
    "cm2": ("square centimeter", "square centimeters"),
    "m2": ("square meter", "square meters"),
    "cm3": ("cubic centimeter", "cubic centimeters"),
    "m3": ("cubic meter", "cubic meters"),
    "sq ft": ("square foot", "square feet"),
    "sq. ft.": ("square foot", "square feet"),
    "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "μm": ("micrometer", "micrometers"),
    "nm": ("nanometer", "nanometers"),
    "m": ("meter", "meters"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "μg": ("microgram", "micrograms"),
    "g": ("gram", "grams"),
    "lbs": ("pound", "pounds"),
    "lb": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "L": ("liter", "liters"),
    "l": ("liter", "liters"),
    "gal": ("gallon", "gallons"),
    "TB": ("terabyte", "terabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "MB": ("megabyte", "megabytes"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "GHz": ("gigahertz", "gigahertz"),
    "MHz": ("megahertz", "megahertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "Hz": ("hertz", "hertz"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"),
    "W": ("watt", "watts"),
    "V": ("volt", "volts"),
    "mA": ("milliampere", "milliamperes"),
    "mAh": ("milliampere hour", "milliampere hours"),
    "dB": ("decibel", "decibels"),
    "ms": ("millisecond", "milliseconds"),
    "s": ("second", "seconds"),
    "sec": ("second", "seconds"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "rpm": ("revolution per minute", "revolutions per minute"),
    "fps": ("frame per second", "frames per second"),
    "kcal": ("kilocalorie", "kilocalories"),
    "px": ("pixel", "pixels"),
}
_PER = {
    "s": "second", "h": "hour", "min": "minute", "day": "day", "d": "day", "week": "week", "month": "month",
    "year": "year", "kg": "kilogram", "l": "liter", "L": "liter", "km": "kilometer", "person": "person",
}  # fmt: skip

_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_MEASURE = re.compile(
    rf"(?P<minus>(?<![\w.)])[-−])?(?<![\w.,:/])(?P<amount>{NUMBER})"
    rf"(?:\s?[-–]\s?(?P<to>{NUMBER}))?(?P<gap>\s?|-)(?P<unit>{_UNIT})(?![A-Za-z\d])(?:/(?P<per>{'|'.join(_PER)})\b)?"
    # The dot of "5 min." when the sentence goes on.
    r"(?:(?<=[A-Za-z])\.(?=\s[a-z]))?"
)
_FEET_INCHES = re.compile(r"(?<![\w.,])(\d{1,2})'\s?(\d{1,2})(?:\"|'')")
_SPACED_DEGREE = re.compile(r"(?<=\d)\s?°\s?([CF])\b")


def spell_measures(text: str) -> str:
    """``5 km`` is "five kilometers"; a minus directly before the number is said."""
    text = _SPACED_DEGREE.sub(r"°\1", text)
    text = _FEET_INCHES.sub(lambda m: f"{number(m[1])} foot {number(m[2])}", text)
    return _MEASURE.sub(_measure, text)


def _measure(match: re.Match[str]) -> str:
    unit = match["unit"]
    one, many = _UNITS[unit]
    words = number(match["amount"])
    if match["to"]:
        words += f" to {number(match['to'])}"
    singular = match["amount"] == "1" and not match["to"]
    # A hyphen makes it an adjective: "a 5-km run".
    spoken = f"{words} {one if singular or match['gap'] == '-' else many}"
    if match["per"]:
        spoken += f" per {_PER[match['per']]}"
    return f"minus {spoken}" if match["minus"] else spoken
