"""Reading what OpenAI's clients send: fields they add that mean nothing here, and names in their forms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from api.faults import InvalidRequest
from api.job_request import fault_of

Body = TypeVar("Body", bound=BaseModel)


class VoiceId(BaseModel):
    """A voice as an object."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str


def voice_name(voice: str | VoiceId) -> str:
    return voice if isinstance(voice, str) else voice.id


def parse_body(
    model: type[Body],
    fields: Mapping[str, JsonValue],
    *,
    ignored: Collection[str] = (),
    from_form: bool = False,
) -> Body:
    """Raises ``InvalidRequest``. A null is a field that is not there; ``ignored`` are not looked at."""
    given = {name: value for name, value in fields.items() if value is not None and name not in ignored}
    try:
        return model.model_validate(given, strict=not from_form)
    except ValidationError as error:
        # Of a place inside a field only the field: pydantic puts the forms that it tried among the rest.
        faults = [fault_of(item["loc"][:1], item["type"], item["msg"]) for item in error.errors()]
        raise InvalidRequest(faults) from None
