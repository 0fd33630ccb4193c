"""An object store that is there and fails all the same: no stage is repeated for it, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator

import boto3
import pytest

from stagewave.embedded_store import EmbeddedStore
from tests.chaos.faulty_proxy import FaultyProxy, Mood
from tests.chaos.rig import Rig
from workers.settings import Settings
from workers.states import Status


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    with EmbeddedStore(tmp_path_factory.mktemp("store"), "stagewave") as made:
        yield made


@pytest.fixture(scope="module")
def proxy(store: EmbeddedStore) -> Iterator[FaultyProxy]:
    made = FaultyProxy(store.endpoint)
    yield made
    made.close()


@pytest.fixture(scope="module")
def rig(
    store: EmbeddedStore, proxy: FaultyProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    made = Rig(
        tmp_path_factory.mktemp("chaos"),
        s3_endpoint=proxy.endpoint,
        s3_access_key=store.access_key,
        s3_secret_key=store.secret_key,
    )
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("mood", ["unavailable", "cut", "slow"])
def test_finished_audio_waits_for_the_store_and_is_not_made_again(
    rig: Rig, proxy: FaultyProxy, mood: Mood
) -> None:
    suffered = proxy.suffered

    def misbehave(rig: Rig) -> None:
        proxy.mood = mood
        time.sleep(4)
        proxy.mood = "good"

    row = rig.through(f"object store {mood} for 4 s", misbehave, jobs=12)
    assert proxy.suffered > suffered
    assert (row.lost, row.doubled, row.faults) == ([], [], [])
    for job_id in row.job_ids:
        assert set(rig.backend.jobs.get(job_id).attempts.values()) == {1}


def test_a_bucket_that_is_lost_is_made_again(rig: Rig, store: EmbeddedStore) -> None:
    """What was in it is gone, and that is not ours to mend; what comes after it is kept."""
    s3 = boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        aws_access_key_id=store.access_key,
        aws_secret_access_key=store.secret_key,
        region_name=Settings().s3_region,
    )
    rig.backend.objects.delete_prefix("results/")
    rig.backend.objects.delete_prefix("inputs/")
    s3.delete_bucket(Bucket="stagewave")
    job_id = rig.client().submit("tts", text="tokens=30").id
    ended = rig.ended(job_id)
    assert ended.status is Status.SUCCEEDED, ended.error
    assert ended.attempts == {"thinker": 1, "token2wav": 1}
