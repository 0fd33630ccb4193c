"""Long jobs through one Thinker: cut, in order, and gone on with where an earlier attempt stopped."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import redis
import soundfile

from stage_pipeline.deploy import DeployConfig
from stage_pipeline.engines.noop.thinker import NoopThinker
from stage_pipeline.errors import ErrorCode, StagewaveError
from stage_pipeline.messages import TokenChunk
from stage_pipeline.stages import GenerateRequest, Task, ThinkerDelta
from workers import keys
from workers.attempt import Attempt
from workers.backend import Backend, connect_backend
from workers.breaker import Breaker
from workers.job import AudioSource, Job, JobSpec, new_job_id
from workers.results import input_key
from workers.settings import Settings
from workers.spool import Spool
from workers.states import Stage, Status, pool_of
from workers.thinker_runner import ThinkerRunner

DEPLOY = DeployConfig.model_validate(
    {
        "model": "noop",
        "engine": "noop",
        "stages": [{"stage_id": 0, "max_num_seqs": 4}, {"stage_id": 1}],
    }
)
BOOK = " ".join(
    f"This is sentence {number:03}, and it has tokens={number % 7 + 25}." for number in range(12)
)


class Fragile(NoopThinker):
    """Breaks at a token of a piece; every output id but the audio tokens' own is a text's."""

    longest_audio_s = 20.0

    def __init__(self, *, breaks_in: str | None = None, at: int = 0) -> None:
        super().__init__(longest_text_chars=60)
        self._breaks_in = breaks_in
        self._at = at
        self.asked: list[GenerateRequest] = []

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        self.asked.append(request)
        for delta in super().generate(request):
            piece = request.request_id.rpartition("/")[2]
            if piece == self._breaks_in and (not delta.tokens or delta.tokens[0] >= self._at):
                raise StagewaveError(ErrorCode.ENGINE_FAILED, "broken")
            ids = tuple(part for token in delta.tokens for part in (-1, token))
            yield ThinkerDelta(
                text=delta.text,
                source_text=delta.source_text,
                tokens=delta.tokens,
                output_ids=ids,
                language="en" if request.task is not Task.TTS else None,
                progress=delta.progress,
                finish_reason=delta.finish_reason,
                usage=delta.usage,
            )


@pytest.fixture
def backend(settings: Settings, redis_client: redis.Redis) -> Backend:
    backend = connect_backend(settings)
    backend.objects.ensure_bucket()
    return backend


def submit(backend: Backend, task: Task, audio: bytes | None = None, **options: object) -> Job:
    job_id = new_job_id()
    source = None
    if audio is not None:
        backend.objects.put_bytes(input_key(job_id), audio, "audio/wav")
        source = AudioSource("upload", size_bytes=len(audio))
    return backend.jobs.create(
        job_id, JobSpec(**{"type": task, "model": "noop", "audio": source} | options)
    )[0]


def attempt_of(backend: Backend) -> Attempt:
    claim = backend.claims.claim(pool_of(Stage.THINKER, "noop"), Stage.THINKER, "worker")
    assert claim
    return Attempt(claim)


def run(backend: Backend, engine: NoopThinker, attempt: Attempt) -> None:
    spool = Spool(backend.settings.home, 0)
    ThinkerRunner(backend, engine, DEPLOY, spool, Breaker(backend.objects)).run(attempt)


def run_twice(backend: Backend, broken: NoopThinker, whole: NoopThinker) -> None:
    first = attempt_of(backend)
    with pytest.raises(StagewaveError):
        run(backend, broken, first)
    backend.claims.release(first.claim)
    run(backend, whole, attempt_of(backend))


def pieces(chunks: list[TokenChunk]) -> list[list[int]]:
    made: list[list[int]] = [[]]
    for chunk in chunks:
        made[-1].extend(chunk.tokens)
        if chunk.piece_end:
            made.append([])
    return made


def speech(seconds: int) -> bytes:
    with files("moonshine_voice").joinpath("assets", "two_cities.wav").open("rb") as file:
        wave, rate_hz = soundfile.read(file, dtype="float32")
    out = io.BytesIO()
    soundfile.write(out, np.resize(wave, seconds * rate_hz), rate_hz, format="WAV")
    return out.getvalue()


def told(backend: Backend, job: Job, name: str) -> list[dict[str, object]]:
    return [event.data for event in backend.events.read(job.id) if event.name == name]


def test_a_long_text_is_handed_on_piece_by_piece(backend: Backend) -> None:
    job = submit(backend, Task.TTS, text=BOOK)
    engine = Fragile()
    run(backend, engine, attempt_of(backend))

    assert " ".join(request.text for request in engine.asked) == BOOK
    chunks = backend.tokens.chunks(job.id)
    assert pieces(chunks) == [list(range(number % 7 + 25)) for number in range(12)]
    assert [chunk.piece_end.pause_after_ms for chunk in chunks if chunk.piece_end] == [200] * 11
    assert chunks[-1].result and chunks[-1].result.audio_tokens == sum(n % 7 + 25 for n in range(12))


def test_the_next_attempt_goes_on_inside_the_piece_where_the_last_one_stopped(backend: Backend) -> None:
    job = submit(backend, Task.TTS, text=BOOK)
    # Of the piece's 29 tokens 28 complete a window, and are handed on.
    whole = Fragile()
    run_twice(backend, Fragile(breaks_in="4", at=28), whole)

    assert [request.request_id.rpartition("/")[2] for request in whole.asked] == [
        str(index) for index in range(4, 12)
    ]
    going_on = whole.asked[0]
    assert going_on.prior_tokens == tuple(range(28))
    assert going_on.prior_output_ids == tuple(part for token in range(28) for part in (-1, token))
    assert whole.asked[1].prior_tokens == whole.asked[1].prior_output_ids == ()
    assert pieces(backend.tokens.chunks(job.id)) == [list(range(n % 7 + 25)) for n in range(12)]


class Mute(Fragile):
    """Makes no audio of one sentence, unless it is asked with the right seed."""

    def __init__(self, speaks_with: int) -> None:
        super().__init__()
        self._speaks_with = speaks_with

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        if "003" in request.text and request.seed != self._speaks_with:
            self.asked.append(request)
            raise StagewaveError(ErrorCode.NO_AUDIO, "the model made no audio")
        yield from super().generate(request)


@pytest.mark.parametrize(
    ("task", "options", "beside"),
    [
        (Task.TTS, {"text": "tokens=30", "live": True}, True),
        (Task.TTS, {"text": "tokens=30"}, False),
        (Task.ASR, {"live": True}, False),
    ],
)
def test_token2wav_gets_ready_beside_the_thinker_where_somebody_listens(
    backend: Backend, task: Task, options: dict[str, object], beside: bool
) -> None:
    """Before the engine's first step, so that the first tokens do not wait for it."""
    pool, found = pool_of(Stage.TOKEN2WAV, "noop"), []

    class Watched(Fragile):
        def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
            found.append(backend.counts.live_depths([pool])[pool])
            return super().generate(request)

    submit(backend, task, **(options | ({"audio": speech(5)} if task is Task.ASR else {})))
    run(backend, Watched(), attempt_of(backend))
    assert found == [int(beside)]


def test_a_model_that_says_nothing_of_a_sentence_is_asked_again(backend: Backend) -> None:
    job = submit(backend, Task.TTS, text=BOOK, seed=7)
    run(backend, Mute(speaks_with=9), attempt_of(backend))
    assert pieces(backend.tokens.chunks(job.id)) == [list(range(n % 7 + 25)) for n in range(12)]

    submit(backend, Task.TTS, text=BOOK, seed=7)
    with pytest.raises(StagewaveError) as raised:
        run(backend, Mute(speaks_with=0), attempt_of(backend))
    assert raised.value.code is ErrorCode.NO_AUDIO


class Limited(Fragile):
    """Comes to a limit in the third piece."""

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        for delta in super().generate(request):
            at_limit = delta.finish_reason and request.request_id.endswith("/2")
            yield replace(delta, finish_reason="length") if at_limit else delta


@pytest.mark.parametrize(("sampling", "pieces_made"), [(({"max_tokens": 40},), 3), ((), 12)])
def test_the_piece_that_comes_to_the_clients_limit_is_the_last(
    backend: Backend, sampling: tuple[dict[str, int], ...], pieces_made: int
) -> None:
    job = submit(backend, Task.TTS, text=BOOK, sampling_params_list=sampling)
    run(backend, Limited(), attempt_of(backend))
    chunks = backend.tokens.chunks(job.id)
    assert pieces(chunks) == [list(range(n % 7 + 25)) for n in range(pieces_made)]
    assert chunks[-1].result and chunks[-1].result.finish_reason == "length"


def test_prior_ids_spell_the_prior_tokens_wherever_the_attempt_breaks(backend: Backend) -> None:
    for at in (0, 5, 27, 28, 29, 40):
        submit(backend, Task.TTS, text="One piece with tokens=60 only.")
        whole = Fragile()
        run_twice(backend, Fragile(breaks_in="0", at=at), whole)
        (request,) = whole.asked
        assert [id_ for id_ in request.prior_output_ids if id_ >= 0] == list(request.prior_tokens)
        assert len(request.prior_tokens) == (28 if at >= 28 else 0)


def test_a_long_recording_is_heard_in_pieces_that_become_one_transcript(backend: Backend) -> None:
    job = submit(backend, Task.ASR, speech(100))
    engine = Fragile()
    run(backend, engine, attempt_of(backend))

    done = backend.jobs.get(job.id)
    assert done.status is Status.SUCCEEDED and done.result
    assert len(engine.asked) > 5
    assert all(request.audio is not None and len(request.audio) <= 20 * 16_000 for request in engine.asked)
    # What the first piece was in, the others are taken to be in.
    assert [request.language for request in engine.asked] == [None] + ["en"] * (len(engine.asked) - 1)
    with backend.objects.open(str(done.result["transcript_key"])) as stored:
        transcript = json.loads(b"".join(stored.iter_chunks()))
    segments = transcript["segments"]
    assert " ".join(segment["text"] for segment in segments) == transcript["text"] == done.result["text"]
    for segment in segments:
        assert f"{segment['end_s'] - segment['start_s']:.3f} seconds" == segment["text"]
    assert segments[-1]["end_s"] == pytest.approx(100, abs=2.5)
    shares = [event["share"] for event in told(backend, job, "progress")]
    assert shares == sorted(shares) and len(shares) > 5
    assert not backend.client.exists(keys.tokens(job.id), keys.tokens_head(job.id))


def test_the_next_attempt_hears_only_what_the_last_one_has_not(backend: Backend) -> None:
    job = submit(backend, Task.ASR, speech(100))
    whole = Fragile()
    run_twice(backend, Fragile(breaks_in="3"), whole)

    assert whole.asked[0].request_id.endswith("-2/3")
    assert whole.asked[0].language == "en"
    done = backend.jobs.get(job.id)
    assert done.result and len(str(done.result["text"]).split(" seconds ")) == len(whole.asked) + 3
    # A listener who reads on after the restart has the whole text.
    names = [event.name for event in backend.events.read(job.id)]
    after = backend.events.read(job.id)[len(names) - names[::-1].index("restart") :]
    text = "".join(str(event.data["text"]) for event in after if event.name == "text")
    assert text.strip() == done.result["text"]


class Deaf(Fragile):
    """Hears no words in most pieces."""

    def __init__(self, *hears: str) -> None:
        super().__init__()
        self._hears = hears

    def generate(self, request: GenerateRequest) -> Iterator[ThinkerDelta]:
        if request.request_id.rpartition("/")[2] not in self._hears:
            raise StagewaveError(ErrorCode.AUDIO_EMPTY, "no words were heard in the audio")
        yield from super().generate(request)


@pytest.mark.parametrize("hears", ["0", "2"])
def test_a_piece_without_words_fails_no_job(backend: Backend, hears: str) -> None:
    job = submit(backend, Task.S2ST, speech(50))
    run(backend, Deaf(hears), attempt_of(backend))
    chunks = backend.tokens.chunks(job.id)
    assert [len(piece) for piece in pieces(chunks)] == [30 if str(n) == hears else 0 for n in range(4)]
    assert chunks[-1].result and "seconds" in chunks[-1].result.source_text


def test_a_job_without_any_words_fails(backend: Backend) -> None:
    submit(backend, Task.S2ST, speech(50))
    with pytest.raises(StagewaveError) as raised:
        run(backend, Deaf(), attempt_of(backend))
    assert raised.value.code is ErrorCode.AUDIO_EMPTY


@pytest.mark.parametrize("task", [Task.ASR, Task.S2ST])
def test_where_nobody_speaks_the_engine_is_not_asked(backend: Backend, task: Task) -> None:
    silence = io.BytesIO()
    soundfile.write(silence, np.zeros(40 * 16_000), 16_000, format="WAV")
    job = submit(backend, task, silence.getvalue())
    engine = Fragile()
    if task is Task.S2ST:
        with pytest.raises(StagewaveError) as raised:
            run(backend, engine, attempt_of(backend))
        assert raised.value.code is ErrorCode.AUDIO_EMPTY
    else:
        run(backend, engine, attempt_of(backend))
        done = backend.jobs.get(job.id)
        assert done.result and done.result["text"] == ""
    assert engine.asked == []
