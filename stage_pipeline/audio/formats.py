"""The formats that audio is given out in; light to import, for whoever only checks a name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Each can be played from its first bytes on, before its end is made."""

    name: str
    content_type: str
    extension: str


WAV = AudioFormat("wav", "audio/wav", "wav")
PCM = AudioFormat("pcm", "audio/pcm", "pcm")
FLAC = AudioFormat("flac", "audio/flac", "flac")
MP3 = AudioFormat("mp3", "audio/mpeg", "mp3")
OPUS = AudioFormat("opus", "audio/ogg; codecs=opus", "opus")

AUDIO_FORMATS = {format.name: format for format in (WAV, PCM, FLAC, MP3, OPUS)}
"""By the name that a job's ``response_format`` has. ``pcm`` is int16 little-endian mono, no header."""
