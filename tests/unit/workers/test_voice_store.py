"""The rules of a voice's life, on a real broker."""

from __future__ import annotations

import threading

import pytest
import redis

from stage_pipeline.errors import ErrorCode, StagewaveError
from workers import keys, voice_store
from workers.job import JobSpec, Task, new_job_id
from workers.job_store import JobStore
from workers.voice import NewVoice, Voice, new_voice_id
from workers.voice_store import VoiceStore

POOL = "token2wav.noop"
ANNA = NewVoice("Anna", "noop", "content-1", 4.2, ("short",))


@pytest.fixture
def voices(redis_client: redis.Redis) -> VoiceStore:
    return VoiceStore(redis_client, max_tries=3)


def make(voices: VoiceStore, new: NewVoice = ANNA) -> Voice:
    return voices.create(new_voice_id(), new)[0]


def due_now(client: redis.Redis, voice: Voice) -> None:
    """As if the time that it is held for were over."""
    client.zadd(keys.voices_due(POOL), {voice.id: 0}, xx=True)


def test_a_voice_is_found_by_its_name_and_listed(voices: VoiceStore) -> None:
    made = make(voices)
    assert voices.find("noop", "Anna") == made == voices.get(made.id)
    assert (made.status, made.duration_s, made.warnings) == ("preparing", 4.2, ("short",))
    assert voices.find("noop", "anna") is None and voices.find("other", "Anna") is None
    later = [make(voices, NewVoice(f"v{i}", "noop", "c", 3.0)) for i in range(4)]
    first, cursor = voices.page("noop", None, 3)
    second, end = voices.page("noop", cursor, 3)
    assert [voice.id for voice in first + second] == [voice.id for voice in [*reversed(later), made]]
    assert cursor == first[-1].id and end is None


def test_the_same_again_is_the_same_voice_and_another_is_refused(voices: VoiceStore) -> None:
    made, new = voices.create(new_voice_id(), ANNA)
    again, new_again = voices.create(new_voice_id(), ANNA)
    assert (new, new_again) == (True, False) and again.id == made.id
    with pytest.raises(StagewaveError) as caught:
        make(voices, NewVoice("Anna", "noop", "content-2", 4.2))
    assert caught.value.code is ErrorCode.VOICE_EXISTS
    assert make(voices, NewVoice("Anna", "other", "content-2", 4.2)).model == "other"


def test_a_race_for_a_name_has_one_winner(voices: VoiceStore) -> None:
    ids, refused = [], []

    def post(number: int) -> None:
        try:
            ids.append(make(voices, NewVoice("Anna", "noop", f"content-{number % 2}", 3.0)).id)
        except StagewaveError as error:
            refused.append(error.code)

    threads = [threading.Thread(target=post, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 1 and len(ids) == 10
    assert refused == [ErrorCode.VOICE_EXISTS] * 10


def test_a_voice_is_prepared_by_one_worker_at_a_time(voices: VoiceStore, redis_client: redis.Redis) -> None:
    made = make(voices)
    held = voices.claim(POOL)
    assert held is not None and held.id == made.id and held.tries == 1
    assert voices.claim(POOL) is None and voices.claim(POOL, made.id) is None
    due_now(redis_client, made)  # its worker died
    second = voices.claim(POOL, made.id)
    assert second is not None and second.tries == 2
    voices.settle_failed(held, StagewaveError(ErrorCode.NOT_AUDIO, "late"))  # the dead one wakes up
    assert voices.get(made.id).status == "preparing"
    voices.settle_ready(second)
    assert voices.get(made.id).status == "ready"
    due_now(redis_client, made)
    assert voices.claim(POOL) is None


def test_a_voice_that_kills_its_workers_fails_in_the_end(
    voices: VoiceStore, redis_client: redis.Redis
) -> None:
    made = make(voices)
    for _ in range(3):
        due_now(redis_client, made)
        assert voices.claim(POOL) is not None
    due_now(redis_client, made)
    assert voices.claim(POOL) is None
    failed = voices.get(made.id)
    assert failed.status == "failed" and failed.error is not None
    assert failed.error["code"] == "worker_lost"


def test_a_failure_that_may_pass_is_tried_again_and_one_that_may_not_is_not(voices: VoiceStore) -> None:
    made = make(voices)
    held = voices.claim(POOL)
    assert held is not None
    voices.settle_failed(held, StagewaveError(ErrorCode.STORE_UNAVAILABLE, "away"))
    assert voices.get(made.id).status == "preparing"
    assert voices.claim(POOL) is None, "not at once"
    assert voices.count_due(POOL, 4e9) == 1
    assert voices.get(made.id).tries == 0, "a store that is away costs no try"
    other = make(voices, NewVoice("Bo", "noop", "c", 3.0))
    held = voices.claim(POOL, other.id)
    assert held is not None
    voices.settle_failed(held, StagewaveError(ErrorCode.INVALID_REQUEST, "no speech in it"))
    failed = voices.get(other.id)
    assert (failed.status, failed.error) == (
        "failed",
        {"code": "invalid_request", "message": "no speech in it"},
    )
    again = make(voices, NewVoice("Bo", "noop", "c", 3.0))
    assert (again.id, again.status, again.error) == (other.id, "preparing", None)


def test_a_job_keeps_the_voice_that_had_the_name_when_it_was_made(
    voices: VoiceStore, jobs: JobStore
) -> None:
    made = make(voices)
    spec = JobSpec(Task.TTS, "noop", text="x", voice="Anna")
    first = jobs.create(new_job_id(), spec)[0]
    assert first.voice_id == made.id
    assert voices.delete("noop", "Anna") == (made.id, 1)
    assert voices.delete("noop", "Anna") is None
    assert voices.find("noop", "Anna") is None and voices.page("noop", None, 9) == ([], None)
    assert jobs.create(new_job_id(), spec)[0].voice_id is None
    other = make(voices, NewVoice("Anna", "noop", "content-2", 3.0))
    assert jobs.create(new_job_id(), spec)[0].voice_id == other.id
    # It stays until the job has ended, in whichever way.
    assert list(voices.unused()) == []
    voices.forget(made.id)
    assert voices.get(made.id) == made
    jobs.cancel(first.id)
    assert list(voices.unused()) == [made.id]
    voices.forget(made.id)
    assert not voices.exists(made.id) and voices.exists(other.id)
    assert voices.claim(POOL, made.id) is None


def test_the_same_name_may_be_of_a_voice_and_of_jobs_without_one(
    voices: VoiceStore, jobs: JobStore
) -> None:
    make(voices)
    plain = jobs.create(new_job_id(), JobSpec(Task.TTS, "noop", text="x"))[0]
    elsewhere = jobs.create(new_job_id(), JobSpec(Task.TTS, "other", text="x", voice="Anna"))[0]
    assert plain.voice_id is None and elsewhere.voice_id is None


def test_there_is_an_end_to_how_many_there_may_be(
    voices: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice_store, "MOST_VOICES", 1)
    make(voices)
    with pytest.raises(StagewaveError) as caught:
        make(voices, NewVoice("Bo", "noop", "c", 3.0))
    assert caught.value.code is ErrorCode.TOO_MANY_VOICES
    assert voices.find("noop", "Bo") is None
