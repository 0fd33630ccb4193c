"""Tells a job's listeners what its Thinker makes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from stage_pipeline.long_form.account import Account
from stage_pipeline.stages import Segment, Task, ThinkerDelta
from workers.events import EventLog
from workers.job import Job, JsonObject
from workers.states import Stage

_SPEECH_PROGRESS_EVERY_S = 1.0


class Teller:
    """One attempt's. What is spoken as given (TTS) is no news to anybody, only how far it is."""

    def __init__(self, events: EventLog, job: Job) -> None:
        self._events = events
        self._job_id = job.id
        self._speaks_as_given = job.spec.type is Task.TTS
        self._share = 0.0
        self._told_at = time.monotonic()

    def restart(self, so_far: Account) -> None:
        """An attempt begins that is not the first: what is told from here on begins anew, with what earlier
        ones have made whole; tokens and audio go on where they were."""
        if self._speaks_as_given:
            return
        self._events.append(self._job_id, "restart", {"stage": Stage.THINKER.value})
        self._tell_text(*so_far.told)
        self._tell_segments(so_far.segments)

    def tell(self, delta: ThinkerDelta) -> None:
        if not self._speaks_as_given:
            self._tell_text(delta.text, delta.source_text)
            self._tell_segments(delta.segments)
        elif time.monotonic() - self._told_at < _SPEECH_PROGRESS_EVERY_S:
            return
        if delta.progress is not None and (share := round(delta.progress, 4)) > self._share:
            self._share, self._told_at = share, time.monotonic()
            self._events.append(self._job_id, "progress", {"stage": Stage.THINKER.value, "share": share})

    def _tell_text(self, text: str, source_text: str) -> None:
        if text or source_text:
            told: JsonObject = {"text": text}
            if source_text:
                told["source_text"] = source_text
            self._events.append(self._job_id, "text", told)

    def _tell_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            body: JsonObject = {"text": segment.text, "start_s": segment.start_s, "end_s": segment.end_s}
            self._events.append(self._job_id, "segment", body)
