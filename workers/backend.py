"""Everything a process needs of the queue side, connected once."""

from __future__ import annotations

from dataclasses import dataclass

import redis

from workers.audio_channel import AudioChannel
from workers.batch_store import BatchStore
from workers.bell import Bell
from workers.broker import connect, connect_blocking
from workers.celery_app import make_celery
from workers.claim_store import ClaimStore
from workers.deliveries import DeliveryStore
from workers.events import EventLog
from workers.file_store import FileStore
from workers.job_counts import JobCounts
from workers.job_store import JobStore
from workers.job_streams import JobStreams
from workers.job_upkeep import JobUpkeep
from workers.object_store import ObjectStore
from workers.pool_registry import PoolRegistry
from workers.settings import Settings
from workers.token_channel import TokenChannel
from workers.voice_store import VoiceStore


@dataclass(frozen=True, slots=True)
class Backend:
    settings: Settings
    client: redis.Redis
    jobs: JobStore
    claims: ClaimStore
    upkeep: JobUpkeep
    counts: JobCounts
    streams: JobStreams
    events: EventLog
    tokens: TokenChannel
    audio: AudioChannel
    objects: ObjectStore
    bell: Bell
    deliveries: DeliveryStore
    pools: PoolRegistry
    batches: BatchStore
    files: FileStore
    voices: VoiceStore


def connect_backend(settings: Settings, *, patient_s: float = 0.0) -> Backend:
    """``patient_s``: how long commands are tried again while the broker is away (see ``broker.connect``).
    Connects lazily: nothing is opened before the first command."""
    settings.require("redis_url")
    url = settings.redis_url or ""
    client, blocking = connect(url, patient_s=patient_s), connect_blocking(url, patient_s=patient_s)
    ttl_s = settings.job_deadline_s + 3600
    return Backend(
        settings=settings,
        client=client,
        jobs=JobStore(client, settings),
        claims=ClaimStore(client, settings),
        upkeep=JobUpkeep(client, settings),
        counts=JobCounts(client),
        streams=JobStreams(client),
        events=EventLog(client, blocking),
        tokens=TokenChannel(client, blocking, ttl_s),
        audio=AudioChannel(client, blocking, ttl_s, settings.audio_stream_bytes),
        objects=ObjectStore(settings, patient=patient_s > 0),
        bell=Bell(make_celery(settings), client),
        deliveries=DeliveryStore(client, settings),
        pools=PoolRegistry(client),
        batches=BatchStore(client, settings),
        files=FileStore(client, settings),
        voices=VoiceStore(client, settings.max_attempts),
    )
