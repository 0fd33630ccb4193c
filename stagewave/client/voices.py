"""Voices: what each call about them sends, and how its answer is read."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from stagewave.client.call import Call, Plan, Upload, given, path_of
from stagewave.record import Page, Voice


class VoiceFilters(TypedDict, total=False):
    """Which voices to list: of which model, after which one, and how many a page."""

    model: str | None
    after: str | None
    limit: int | None


def create(name: str, recording: Path | bytes, model: str | None) -> Plan[Voice]:
    # The same recording under the same name is the same voice: so this may be sent twice.
    form = {"name": name, **_of(model)}
    answer = yield Call(method="POST", path="/v1/voices", form=form, file=Upload.of(recording))
    return Voice(answer.json())


def get(name: str, model: str | None) -> Plan[Voice]:
    answer = yield Call(method="GET", path=path_of("voices", name), params=_of(model))
    return Voice(answer.json())


def page(filters: VoiceFilters) -> Plan[Page[Voice]]:
    params = {name: str(value) for name, value in given(filters).items()}
    found = (yield Call(method="GET", path="/v1/voices", params=params)).json()
    return Page(tuple(Voice(record) for record in found["data"]), found["next_cursor"])


def delete(name: str, model: str | None) -> Plan[None]:
    yield Call(method="DELETE", path=path_of("voices", name), params=_of(model))


def _of(model: str | None) -> dict[str, str]:
    return {"model": model} if model is not None else {}
