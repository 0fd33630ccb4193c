"""Reading what OpenAI's clients send: fields they add that mean nothing here, and names in their forms."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.faults import InvalidRequest
from workers.job_request import fault_of
from workers.models import deploy_of

Body = TypeVar("Body", bound=BaseModel)

_ALIASES = frozenset(
    {
        "gpt-4o-audio-preview",
        "gpt-4o-mini-audio-preview",
        "gpt-4o-mini-transcribe",
        "gpt-4o-mini-tts",
        "gpt-4o-transcribe",
        "gpt-audio",
        "gpt-audio-mini",
        "step-audio-2",
        "step-audio-2-mini",
        "step-audio2-mini",
        "tts-1",
        "tts-1-hd",
        "whisper-1",
    }
)
"""Names that clients have built in, where their users can often not change them. They mean the model that
is served, the first one that does the task, and its true name is in the list, the job and the answer."""


class UnsupportedValue(StagewaveError):
    """Something that OpenAI's API has and this server does not do."""

    def __init__(self, param: str, why: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, why, field=param)


@contextmanager
def fields_named(names: Mapping[str, str]) -> Iterator[None]:
    """Errors inside name the field at fault as ``names`` has it, by our name of it."""
    try:
        yield
    except StagewaveError as error:
        if error.field is not None:
            error.field = names.get(error.field, error.field)
        raise


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


def model_of(name: str | None, deploys: Sequence[DeployConfig]) -> str | None:
    """The model that is meant, None for the one that does the task. Raises ``model_unknown``."""
    served = any(name == deploy.model for deploy in deploys)
    if not name or (not served and name.rpartition("/")[2].lower() in _ALIASES):
        return None
    return deploy_of(deploys, name).model
