"""A voice that a client made: its name, its record, and where its objects lie."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from workers.ids import is_id, new_id
from workers.job import JsonObject, iso8601

_PREFIX = "voice_"
DEFAULT_VOICE = "default"
NAME_CHARS = 64
_BETWEEN = " ._-"
"""What may stand in a name beside letters, digits and their marks."""

VoiceStatus = Literal["preparing", "ready", "failed"]


def new_voice_id() -> str:
    """``voice_`` and a ULID: ids sort by creation."""
    return new_id(_PREFIX)


def is_voice_id(text: str) -> bool:
    return is_id(text, _PREFIX)


def clean_name(text: str) -> str | None:
    """The one spelling of a name, or None for text that can be no name: letters and digits of any script,
    and between them spaces, dots, hyphens and underscores. So no name looks like a path or a header."""
    name = unicodedata.normalize("NFC", text)
    if not 1 <= len(name) <= NAME_CHARS or not _is_letter(name[0]) or name[-1] in " .":
        return None
    return name if all(_is_letter(char) or char in _BETWEEN for char in name) else None


def name_digest(model: str, name: str) -> str:
    """What a name is looked up by: no user's text gets into a key."""
    return hashlib.sha256(f"{model}\0{unicodedata.normalize('NFC', name)}".encode()).hexdigest()


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN"


def voice_prefix(voice_id: str) -> str:
    return f"voices/{voice_id}/"


def prompt_key(voice_id: str) -> str:
    return f"{voice_prefix(voice_id)}prompt.wav"


def features_key(voice_id: str, tag: str) -> str:
    """``tag``: of the engine that prepared them; another one's features are of no use to it."""
    return f"{voice_prefix(voice_id)}features.{tag}"


def voice_of_key(key: str) -> str | None:
    """The voice an object belongs to."""
    parts = key.split("/")
    return parts[1] if len(parts) == 3 and parts[0] == "voices" else None


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice's record at one moment. Times are Unix seconds by the broker's clock."""

    id: str
    name: str
    model: str
    status: VoiceStatus
    created_at: float
    duration_s: float
    warnings: tuple[str, ...] = ()
    tries: int = 0
    error: JsonObject | None = None

    @classmethod
    def from_hash(cls, record: Mapping[str, str]) -> Voice:
        return cls(
            id=record["id"],
            name=record["name"],
            model=record["model"],
            status=record["status"],  # type: ignore[arg-type]  # the scripts write these three only
            created_at=int(record["created_ms"]) / 1000,
            duration_s=float(record["duration_s"]),
            warnings=tuple(json.loads(record["warnings"])),
            tries=int(record["tries"]),
            error=json.loads(record["error"]) if "error" in record else None,
        )

    def public(self) -> JsonObject:
        """The record as the API gives it."""
        return {
            "id": self.id,
            "name": self.name,
            "built_in": False,
            "model": self.model,
            "status": self.status,
            "error": self.error,
            "duration_s": self.duration_s,
            "warnings": list(self.warnings),
            "created_at": iso8601(self.created_at),
        }


@dataclass(frozen=True, slots=True)
class NewVoice:
    """What a client made a voice of. ``content``: the digest of its prompt."""

    name: str
    model: str
    content: str
    duration_s: float
    warnings: tuple[str, ...] = field(default=())
