"""A job's audio as PCM, from wherever it is: the live channel while it is made, the object store after."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from api.services import Services
from api.waiting_room import TICK_S, Seat
from stage_pipeline.audio.decode import decode_blocks
from stage_pipeline.audio.limits import DecodeLimits
from stage_pipeline.messages import wave_to_pcm16
from workers.audio_channel import AudioDropped, AudioRestarted
from workers.job import Job
from workers.states import Status

_ROUNDING_S = 60.0
"""What a codec may add to the length of an utterance."""


class StreamCut(Exception):
    """The audio will never be whole: the job failed, was canceled or began anew, or nobody waits for it."""


@dataclass(frozen=True, slots=True)
class Pcm:
    """int16 little-endian mono samples."""

    rate_hz: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredAudio:
    """The audio of a job that has succeeded."""

    key: str
    format: str
    content_type: str
    rate_hz: int
    size_bytes: int


def stored_audio(job: Job) -> StoredAudio | None:
    """None for a job that has none (yet)."""
    result = job.result or {}
    audio, key = result.get("audio"), result.get("audio_key")
    if not isinstance(audio, dict) or not isinstance(key, str):
        return None
    return StoredAudio(
        key=key,
        format=str(audio["format"]),
        content_type=str(audio["content_type"]),
        rate_hz=int(str(audio["sample_rate_hz"])),
        size_bytes=int(str(audio["size_bytes"])),
    )


def live_pcm(having: Services, job_id: str, seat: Seat) -> Iterator[Pcm]:
    """Every sample from the first one on, as they are made; what the channel no longer keeps comes from
    the object store once the job has succeeded. Raises ``StreamCut``, also when the job ended before
    there was anything to give: then it is all in the object store, or nowhere."""
    return (pcm for pcm in live_beats(having, job_id, seat) if pcm is not None)


def live_beats(having: Services, job_id: str, seat: Seat) -> Iterator[Pcm | None]:
    """As ``live_pcm``, and None whenever nothing came for ``TICK_S``."""
    sent = 0
    try:
        for chunk in having.backend.audio.follow(job_id, beat_s=TICK_S):
            if chunk is None:
                if seat.over:
                    raise StreamCut
                if _has_ended(having, job_id):
                    break
                yield None
                continue
            sent = chunk.end_sample
            if chunk.pcm:
                yield Pcm(chunk.rate_hz, chunk.pcm)
            if chunk.final:
                return
    except AudioRestarted:
        raise StreamCut from None  # the rest would not fit what was heard; who asks anew hears it all
    except AudioDropped:
        _wait_for_end(having, job_id, seat)
    job = having.backend.jobs.get(job_id)
    stored = stored_audio(job)
    if job.status is not Status.SUCCEEDED or stored is None or sent == 0:
        raise StreamCut
    yield from stored_pcm(having, stored, skip=sent)


def stored_pcm(having: Services, stored: StoredAudio, skip: int = 0) -> Iterator[Pcm]:
    """The finished audio, decoded, without its first ``skip`` samples."""
    longest_s = max(deploy.limits.audio_out_s for deploy in having.deploys)
    limits = DecodeLimits(size_bytes=stored.size_bytes, duration_s=longest_s + _ROUNDING_S)
    with tempfile.TemporaryFile() as file:
        with having.backend.objects.open(stored.key) as found:
            for block in found.iter_chunks():
                file.write(block)
        for wave in decode_blocks(file, rate_hz=stored.rate_hz, limits=limits):
            skipped = min(skip, len(wave))
            skip -= skipped
            if skipped < len(wave):
                yield Pcm(stored.rate_hz, wave_to_pcm16(wave[skipped:]))


def _has_ended(having: Services, job_id: str) -> bool:
    status = having.backend.jobs.status(job_id)
    return status is None or status.terminal


def _wait_for_end(having: Services, job_id: str, seat: Seat) -> None:
    for event in having.backend.events.follow(job_id, heartbeat_s=TICK_S):
        if event is None and seat.over:
            raise StreamCut
