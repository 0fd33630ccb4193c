"""The demo's jobs, made over HTTP as any client makes them: speaking, recognising, saying again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stagewave.audio_file import save_audio
from stagewave.client import Client
from stagewave.record import Job
from stagewave.recordings import BECKETT, MANDARIN, MANDARIN_IN_ENGLISH, TWO_CITIES, Recording
from stagewave.word_errors import word_error_rate

PARAGRAPH = (
    "Good morning, and welcome aboard. The 9:30 train to Edinburgh departs from platform 12. A ticket for "
    "all of you together is $42.50. Please have it ready when the inspector asks for it. Find your seats, "
    "make yourselves comfortable, and enjoy the view of the sea."
)
JOB_S = 300.0
"""Longer than any of these jobs takes on a slow machine."""


class StepFailed(Exception):
    """A job of the demo did not end as it should; the text says how it ended."""


@dataclass(frozen=True, slots=True)
class Done:
    """One job of the demo and what came of it."""

    job: Job
    said: str | None = None
    """What is really said in the audio that was recognised."""
    meant: str | None = None
    """What a right translation says."""
    saved: Path | None = None

    @property
    def word_error_rate(self) -> float | None:
        return None if self.said is None else word_error_rate(self.said, self.job.text)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing the demo shows. ``run`` raises ``StepFailed`` or ``ClientError``."""

    title: str
    run: Callable[[], Done]


class Demo:
    """Makes the jobs, one after the other; audio is saved in ``folder``."""

    def __init__(self, client: Client, recordings: Path, folder: Path) -> None:
        self._client = client
        self._recordings = recordings
        self._folder = folder

    def steps(self) -> tuple[Step, ...]:
        spoken = self._folder / "spoken.wav"
        return (
            Step("speak a paragraph, heard live", self._speak_live),
            Step("speak it as a whole", self._speak_whole),
            Step("recognise what was just spoken", lambda: self._recognise(spoken, PARAGRAPH)),
            Step(
                "recognise a real recording",
                lambda: self._recognise(self._real(TWO_CITIES), TWO_CITIES.text),
            ),
            Step("say a real recording again", self._say_again),
            Step("say Mandarin in English", self._translate),
        )

    def _speak_live(self) -> Done:
        job = self._client.submit("tts", text=PARAGRAPH, live=True)
        # Taken while it is made, as a player would; it ends when the job does.
        path = self._folder / "spoken-live.wav"
        save_audio(self._client.listen(job.id), path)
        return Done(self._ended(job), saved=path)

    def _speak_whole(self) -> Done:
        job = self._ended(self._client.submit("tts", text=PARAGRAPH))
        return Done(job, saved=self._save(job, "spoken.wav"))

    def _recognise(self, audio: Path, said: str) -> Done:
        return Done(self._ended(self._client.submit("asr", audio=audio)), said=said)

    def _say_again(self) -> Done:
        job = self._ended(self._client.submit("s2st", audio=self._real(BECKETT)))
        return Done(job, said=BECKETT.text, saved=self._save(job, "said-again.wav"))

    def _translate(self) -> Done:
        job = self._client.submit("s2st", audio=self._real(MANDARIN), language="zh", target_language="en")
        job = self._ended(job)
        return Done(job, meant=MANDARIN_IN_ENGLISH, saved=self._save(job, "mandarin-in-english.wav"))

    def _real(self, recording: Recording) -> Path:
        return self._recordings / recording.name

    def _ended(self, job: Job) -> Job:
        job = self._client.wait(job.id, timeout_s=JOB_S)
        if job.error:
            raise StepFailed(f"{job.error['message']} ({job.error['code']})")
        if not job.succeeded:
            raise StepFailed(f"the job is still {job.status}")
        return job

    def _save(self, job: Job, name: str) -> Path:
        save_audio(self._client.listen(job.id), self._folder / name)
        return self._folder / name
