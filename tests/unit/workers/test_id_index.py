"""Ids are read by age, a page at a time, and those whose records have run out go."""

from __future__ import annotations

import pytest
import redis

from workers import id_index
from workers.id_index import IdIndex

IDS = [f"id_{number}" for number in range(7)]


@pytest.fixture
def index(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> IdIndex:
    monkeypatch.setattr(id_index, "_SWEPT_AT_ONCE", 3)
    redis_client.zadd("ids", dict.fromkeys(IDS, 0))
    for name in IDS:
        redis_client.set(f"record:{name}", 1)
    return IdIndex(redis_client, "ids", "record:{}".format)


def test_pages_follow_each_other_in_either_direction(index: IdIndex) -> None:
    assert index.ids(3) == ["id_6", "id_5", "id_4"]
    assert index.ids(3, "id_4") == ["id_3", "id_2", "id_1"]
    assert index.ids(9, "id_1") == ["id_0"]
    assert index.ids(2, "id_1", oldest_first=True) == ["id_2", "id_3"]
    assert index.ids(9, oldest_first=True, before="id_2") == ["id_0", "id_1"]
    # One that is gone is still a place to go on from.
    assert index.ids(1, "id_35") == ["id_3"]


def test_names_without_a_record_go_up_to_the_age_that_is_asked_for(
    index: IdIndex, redis_client: redis.Redis
) -> None:
    redis_client.delete("record:id_0", "record:id_1", "record:id_4", "record:id_6")
    assert index.forget_expired("id_6") == 3
    assert index.ids(9, oldest_first=True) == ["id_2", "id_3", "id_5", "id_6"]
    assert index.forget_expired() == 1
    assert index.forget_expired() == 0
