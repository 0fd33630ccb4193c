"""Which audio format an answer is given in, by the request's ``Accept`` (RFC 9110, section 12)."""

from __future__ import annotations

from werkzeug.datastructures import MIMEAccept

_FORMATS = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/pcm": "pcm",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/ogg": "opus",
    "audio/opus": "opus",
    "application/ogg": "opus",
}
_ANY = frozenset({"*/*", "audio/*", "application/octet-stream"})
"""The last is what OpenAI's clients ask for whenever they want bytes."""


def accepted_format(accept: MIMEAccept, own: str) -> str | None:
    """``own`` if it is acceptable at all, since nothing needs to be made for it; else the format that is
    liked best, or None when there is no such format."""
    wanted = [(str(value).partition(";")[0].strip().lower(), quality) for value, quality in accept]
    if not wanted:
        return own
    # Listed by quality; of two entries for one format the better counts, and a refusal only alone.
    named: dict[str, float] = {}
    for media_type, quality in wanted:
        if (form := _FORMATS.get(media_type)) is not None:
            named.setdefault(form, quality)
    any_else = max((quality for media_type, quality in wanted if media_type in _ANY), default=0)
    if named.get(own, any_else) > 0:
        return own
    return next((form for form, quality in named.items() if quality > 0), None)
