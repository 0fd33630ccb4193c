"""A job's text as it comes, with nothing said twice when a worker was lost and the model began anew."""

from __future__ import annotations

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.events import Event


class TextDeltas:
    """Fed with a job's events, gives the text that the client does not have yet."""

    def __init__(self) -> None:
        self._told = ""
        self._now = ""

    def of(self, event: Event) -> str:
        """Often nothing. Raises ``worker_lost`` when the text of a new attempt is another."""
        if event.name == "stage" and event.data["stage"] == "thinker" and event.data["state"] == "running":
            self._now = ""
        if event.name != "text":
            return ""
        self._now += str(event.data["text"])
        if self._told.startswith(self._now):
            return ""
        if not self._now.startswith(self._told):
            raise StagewaveError(
                ErrorCode.WORKER_LOST, "the model began anew and gave another text: send the request again"
            )
        new = self._now[len(self._told) :]
        self._told = self._now
        return new
