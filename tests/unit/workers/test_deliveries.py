"""What a webhook says, and what it no longer says once its job is deleted."""

from __future__ import annotations

import json

import pytest
import redis

from tests.unit.workers.conftest import HOOK, MakeJob
from workers import keys
from workers.deliveries import Delivery, DeliveryStore
from workers.job_store import JobStore
from workers.settings import Settings


@pytest.fixture
def deliveries(redis_client: redis.Redis, settings: Settings) -> DeliveryStore:
    return DeliveryStore(redis_client, settings)


@pytest.fixture
def canceled(jobs: JobStore, make_job: MakeJob, deliveries: DeliveryStore) -> Delivery:
    job = make_job(text="what the user said", webhook=HOOK)
    jobs.cancel(job.id)
    held = deliveries.claim()
    assert held is not None
    return held


def test_what_is_sent_stays_the_same_in_every_try(
    deliveries: DeliveryStore, canceled: Delivery, jobs: JobStore
) -> None:
    first = deliveries.fix_body(canceled, jobs.get(canceled.subject).public())
    assert json.loads(first)["data"]["id"] == canceled.subject
    assert deliveries.fix_body(canceled, {"id": "another"}) == first


def test_a_job_deleted_after_its_sender_read_it_leaves_no_word_of_the_user(
    deliveries: DeliveryStore, canceled: Delivery, jobs: JobStore, redis_client: redis.Redis
) -> None:
    read = jobs.get(canceled.subject).public()
    jobs.delete(canceled.subject)
    sent = deliveries.fix_body(canceled, read)
    assert json.loads(sent)["data"] == {"id": canceled.subject, "deleted": True}
    kept = redis_client.hgetall(keys.delivery(canceled.id))
    assert b"what the user said" not in b"".join(kept.values())


def test_a_delivery_that_has_run_out_does_not_come_back(
    deliveries: DeliveryStore, canceled: Delivery, redis_client: redis.Redis
) -> None:
    redis_client.delete(keys.delivery(canceled.id))
    deliveries.fix_body(canceled, {"id": canceled.subject})
    assert not redis_client.exists(keys.delivery(canceled.id))
