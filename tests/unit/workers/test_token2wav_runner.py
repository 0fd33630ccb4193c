"""Long jobs through one Token2Wav: an attempt goes on behind what those before it have voiced."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import redis
import soundfile

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.engines.noop.token2wav import NoopToken2Wav, tone
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.long_form.joins import Joins
from stage_pipeline.messages import PieceEnd, ThinkerResult
from stage_pipeline.stages import Float32Wave, Task
from workers.attempt import Attempt, LeaseKeeper
from workers.backend import Backend, connect_backend
from workers.breaker import Breaker
from workers.job import Job, JobSpec, new_job_id
from workers.object_store import ObjectStore
from workers.results import result_prefix
from workers.settings import Settings
from workers.spool import Spool
from workers.states import Stage, Status, pool_of
from workers.token2wav_runner import Token2WavRunner
from workers.voiced_parts import PART_S
from workers.worker import Worker

DEPLOY = DeployConfig.model_validate(
    {"model": "noop", "engine": "noop", "stages": [{"stage_id": 0}, {"stage_id": 1}]}
)
PIECES, PIECE_TOKENS, PAUSE_MS = 10, 250, 200
"""Ten seconds of sound a piece, so three of them and their pauses are a part."""


class Fragile(NoopToken2Wav):
    """Notes which pieces it is asked for, by their first token, and breaks in one of them."""

    def __init__(self, breaks_in: int | None = None, error: ErrorCode = ErrorCode.ENGINE_FAILED) -> None:
        super().__init__({"default": "0"})
        self.begun: list[int] = []
        self.background: list[object] = []
        self._breaks_in = breaks_in
        self._error = error

    def open(self, voice: str, seed: int, **options: object) -> FragileStream:
        self.background.append(options["background"])
        return FragileStream(self)

    def began(self, piece: int) -> None:
        self.begun.append(piece)
        if piece == self._breaks_in:
            raise StagewaveError(self._error, "broken")


class FragileStream:
    def __init__(self, engine: Fragile) -> None:
        self._engine = engine
        self._stream = NoopToken2Wav({"default": "0"}).open("default", 0)
        self._fresh = True

    def feed(self, tokens: tuple[int, ...], final: bool) -> Iterator[Float32Wave]:
        if self._fresh:
            self._engine.began(tokens[0] // PIECE_TOKENS)
        self._fresh = False
        yield from self._stream.feed(tokens, final)

    def close(self) -> None:
        self._stream.close()


@pytest.fixture
def backend(settings: Settings, redis_client: redis.Redis) -> Backend:
    backend = connect_backend(settings)
    backend.objects.ensure_bucket()
    return backend


def spoken(backend: Backend, **options: object) -> Job:
    """A job whose tokens are made, and that Token2Wav may take."""
    job = backend.jobs.create(new_job_id(), JobSpec(type=Task.TTS, model="noop", text="-", **options))[0]
    claim = backend.claims.claim(pool_of(Stage.THINKER, "noop"), Stage.THINKER, "worker")
    assert claim and claim.job.id == job.id
    say_all(backend, job, attempt=1)
    assert backend.claims.start_next(claim, done=True, streamed=False)[0]
    return job


def say_all(backend: Backend, job: Job, *, attempt: int) -> None:
    writer = backend.tokens.open(job.id, attempt, afresh=True)
    for piece in range(PIECES):
        tokens = range(piece * PIECE_TOKENS, (piece + 1) * PIECE_TOKENS)
        if piece < PIECES - 1:
            writer.send(tokens, piece_end=PieceEnd(PAUSE_MS, ThinkerResult()))
        else:
            result = ThinkerResult(text="-", language="en", audio_tokens=PIECES * PIECE_TOKENS)
            writer.send(tokens, result=result)


def run(
    backend: Backend, engine: Fragile, breaker: Breaker | None = None, deploy: DeployConfig = DEPLOY
) -> Attempt:
    claim = backend.claims.claim(pool_of(Stage.TOKEN2WAV, "noop"), Stage.TOKEN2WAV, "worker")
    assert claim
    attempt = Attempt(claim)
    spool = Spool(backend.settings.home, 0)
    runner = Token2WavRunner(backend, engine, deploy, spool, breaker or Breaker(backend.objects))
    try:
        runner.run(attempt)
    except StagewaveError:
        backend.claims.release(claim)
    return attempt


def stored(backend: Backend, job: Job) -> list[str]:
    prefix = result_prefix(job.id)
    return [item.key.removeprefix(prefix) for item in backend.objects.list(prefix)]


def expected() -> Float32Wave:
    joins, parts = Joins(24_000), []
    for piece in range(PIECES):
        for position in range(PIECE_TOKENS):
            parts.append(joins.add(tone(piece * PIECE_TOKENS + position, position)))
        parts.append(joins.join(PAUSE_MS) if piece < PIECES - 1 else joins.finish())
    return np.concatenate(parts)


def heard(backend: Backend, job: Job) -> Float32Wave:
    done = backend.jobs.get(job.id)
    assert done.status is Status.SUCCEEDED and done.result, done.error
    with backend.objects.open(str(done.result["audio_key"])) as found:
        return soundfile.read(io.BytesIO(b"".join(found.iter_chunks())), dtype="float32")[0]


def test_what_was_voiced_is_not_voiced_again(backend: Backend) -> None:
    assert 3 * PIECE_TOKENS / 25 >= PART_S > 2 * PIECE_TOKENS / 25
    job = spoken(backend)
    first, second = Fragile(breaks_in=7), Fragile()
    run(backend, first)
    assert first.begun == list(range(8))
    assert stored(backend, job) == ["voiced/1/0-3", "voiced/1/3-6"]

    run(backend, second)
    assert second.begun == list(range(6, PIECES))
    np.testing.assert_allclose(heard(backend, job), expected(), atol=1e-4)
    assert stored(backend, job) == ["2.wav"]


def test_a_third_attempt_goes_on_behind_the_second(backend: Backend) -> None:
    job = spoken(backend)
    third = Fragile()
    run(backend, Fragile(breaks_in=4))
    run(backend, Fragile(breaks_in=8))
    run(backend, third)
    assert third.begun == list(range(6, PIECES))
    np.testing.assert_allclose(heard(backend, job), expected(), atol=1e-4)


def test_a_listener_hears_each_sample_once(backend: Backend) -> None:
    job = spoken(backend, live=True)
    run(backend, Fragile(breaks_in=5))
    run(backend, Fragile())
    whole = backend.audio.follow(job.id)
    pcm = b"".join(chunk.pcm for chunk in whole if chunk is not None)
    np.testing.assert_allclose(np.frombuffer(pcm, "<i2") / 32768, expected(), atol=1e-4)


def test_what_was_voiced_of_other_tokens_is_void(backend: Backend) -> None:
    job = spoken(backend)
    run(backend, Fragile(breaks_in=7))
    say_all(backend, job, attempt=2)  # the Thinker began anew
    second = Fragile()
    run(backend, second)
    assert second.begun == list(range(PIECES))
    assert stored(backend, job) == ["2.wav"]


def test_a_job_of_one_piece_keeps_nothing_beside_its_result(backend: Backend) -> None:
    job = backend.jobs.create(new_job_id(), JobSpec(type=Task.TTS, model="noop", text="-"))[0]
    claim = backend.claims.claim(pool_of(Stage.THINKER, "noop"), Stage.THINKER, "worker")
    assert claim
    backend.tokens.open(job.id, 1).send(range(2000), result=ThinkerResult(text="-"))
    backend.claims.start_next(claim, done=True, streamed=False)
    run(backend, Fragile())
    assert stored(backend, job) == ["1.wav"]


def test_a_store_that_is_away_keeps_nothing_and_stops_nobody(backend: Backend) -> None:
    job = spoken(backend)
    breaker = Breaker(backend.objects)
    nowhere = replace(backend.settings, s3_endpoint="http://127.0.0.1:9")
    dead = ObjectStore(nowhere, patient=False)
    attempt = run(backend, Fragile(breaks_in=2))
    assert breaker.once(attempt, lambda: dead.size("results/x")) is None
    assert breaker.once(attempt, lambda: "answered") is None

    run(backend, Fragile(breaks_in=9), breaker)
    assert stored(backend, job) == []
    second = Fragile()
    run(backend, second, breaker)  # storing the result finds that the store is back
    assert second.begun == list(range(PIECES))
    np.testing.assert_allclose(heard(backend, job), expected(), atol=1e-4)
    assert breaker.once(attempt, lambda: "answered") == "answered"


def test_what_waited_for_the_store_goes_with_the_next_piece(backend: Backend) -> None:
    job = spoken(backend)
    breaker = Breaker(backend.objects)

    class Opens(Fragile):
        def began(self, piece: int) -> None:
            super().began(piece)
            breaker._open = 2 <= piece <= 4  # the first part would be stored after piece 2

    run(backend, Opens(breaks_in=8), breaker)
    assert stored(backend, job) == ["voiced/1/0-6"]


def test_a_job_that_is_cut_keeps_what_the_thinker_knows(backend: Backend) -> None:
    job = spoken(backend)
    limits = DEPLOY.limits.model_copy(update={"audio_out_s": 15.0})
    run(backend, Fragile(), deploy=DEPLOY.model_copy(update={"limits": limits}))
    done = backend.jobs.get(job.id)
    assert done.result and done.result["finish_reason"] == "length"
    assert done.result["language"] == "en" and done.usage["audio_tokens"] == PIECES * PIECE_TOKENS
    assert len(heard(backend, job)) == 15 * 24_000


@pytest.mark.parametrize("options", [{"sample_rate_hz": 16_000}, {"loudness": -20.0}])
def test_what_is_made_of_the_sound_is_the_same_after_a_loss(
    backend: Backend, options: dict[str, object]
) -> None:
    once = spoken(backend, **options)
    run(backend, Fragile())
    twice = spoken(backend, **options)
    run(backend, Fragile(breaks_in=7))
    run(backend, Fragile())
    np.testing.assert_allclose(heard(backend, twice), heard(backend, once), atol=1e-4)


def test_a_piece_without_tokens_is_passed_over_on_the_way_back_too(backend: Backend) -> None:
    job = spoken(backend)
    writer = backend.tokens.open(job.id, 1, afresh=True)
    for piece in range(6):
        writer.send(range(piece * PIECE_TOKENS, (piece + 1) * PIECE_TOKENS))
        writer.send((), piece_end=PieceEnd(PAUSE_MS, ThinkerResult()))
        writer.send((), piece_end=PieceEnd(PAUSE_MS, ThinkerResult()))  # somebody only laughed
    writer.send((), result=ThinkerResult(text="-"))
    run(backend, Fragile(breaks_in=4))
    second = Fragile()
    run(backend, second)
    assert second.begun == [3, 4, 5]
    assert len(heard(backend, job)) == 6 * (PIECE_TOKENS * 960 + PAUSE_MS * 24)


def test_of_a_job_that_fails_for_good_nothing_is_kept(backend: Backend) -> None:
    job = spoken(backend)
    claim = backend.claims.claim(pool_of(Stage.TOKEN2WAV, "noop"), Stage.TOKEN2WAV, "worker")
    assert claim
    keeper = LeaseKeeper(backend.claims, 1.0)
    spool = Spool(backend.settings.home, 0)
    engine = Fragile(breaks_in=7, error=ErrorCode.INVALID_REQUEST)
    runner = Token2WavRunner(backend, engine, DEPLOY, spool, Breaker(backend.objects))
    worker = Worker(backend, keeper, claim.job.spec.pool(Stage.TOKEN2WAV), "worker", runner, spool, 1)
    worker._run(keeper.hold(claim))
    assert backend.jobs.get(job.id).status is Status.FAILED
    assert stored(backend, job) == []


@pytest.mark.parametrize(
    ("options", "background"),
    [({}, False), ({"batch_id": "batch_1"}, True), ({"batch_id": "batch_1", "live": True}, False)],
)
def test_only_what_nobody_waits_for_is_made_in_the_background(
    backend: Backend, options: dict[str, object], background: bool
) -> None:
    spoken(backend, **options)
    engine = Fragile()
    run(backend, engine)
    assert engine.background == [background] * PIECES
