"""Server-sent events, read off the wire as a browser would."""

import json
import time

import pytest

from stage_pipeline.errors import ErrorCode
from tests.integration.api.conftest import Api, problem_of


def read(api: Api, job_id: str, *, stop_after: int | None = None, **how) -> list[dict]:
    """The events of one connection; ``data`` is parsed."""
    events, event = [], {}
    with api.stream("GET", f"/v1/jobs/{job_id}/events", **how) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Accel-Buffering"] == "no"
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line == "" and "event" in event:
                events.append({**event, "data": json.loads(event["data"])})
                event = {}
                if len(events) == stop_after:
                    return events
            elif name in ("id", "event", "data"):
                assert name not in event, "one line each"
                event[name] = value
    return events


def test_all_events_come_from_the_start_and_the_stream_ends_with_the_job(api: Api, later):
    job = api.make()
    later(0.3, api.hand.speak, job["id"])
    events = read(api, job["id"])
    assert [event["event"] for event in events[:2]] == ["status", "status"]
    assert events[0]["data"] == {"status": "queued"}
    assert {"stage", "first_audio"} <= {event["event"] for event in events}
    assert (events[-1]["event"], events[-1]["data"]) == ("succeeded", {"status": "succeeded"})
    assert read(api, job["id"]) == events, "the same again, after the end"


def test_who_follows_a_job_that_is_deleted_reads_its_end(api: Api, later):
    job = api.make()
    later(0.3, api.delete, f"/v1/jobs/{job['id']}")
    events = read(api, job["id"])
    assert (events[-1]["event"], events[-1]["data"]) == ("canceled", {"status": "canceled"})
    assert api.get(f"/v1/jobs/{job['id']}/events").status_code == 410


def test_events_come_as_they_happen(api: Api):
    job = api.make()
    began = time.monotonic()
    assert read(api, job["id"], stop_after=1)[0]["event"] == "status"
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("by", ["headers", "params"])
def test_a_client_resumes_after_the_last_event_it_saw(api: Api, by):
    job = api.make()
    first = read(api, job["id"], stop_after=1)
    api.hand.speak(job["id"])
    last_id = first[-1]["id"]
    how = (
        {"headers": {"Last-Event-ID": last_id}}
        if by == "header"
        else {"params": {"last_event_id": last_id}}
    )
    assert first + read(api, job["id"], **how) == read(api, job["id"])


def test_resuming_after_the_last_event_stops_an_event_source(api: Api):
    job = api.make()
    api.hand.speak(job["id"])
    last = read(api, job["id"])[-1]["id"]
    answer = api.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": last})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("last", ["x", "1", "-", "1-1-1", "0-0\u0663", "$"])
def test_an_id_that_was_never_given_out_is_refused(api: Api, last):
    answer = api.get(f"/v1/jobs/{api.make()['id']}/events", params={"last_event_id": last})
    assert problem_of(answer) == (422, "invalid_request")


def test_text_with_line_breaks_stays_one_event(api: Api):
    job = api.make()
    text = "one\ntwo\r\nthree\u2028four\n\ndata: five\nevent: failed"
    api.backend.events.append(job["id"], "text", {"text": text})
    api.post(f"/v1/jobs/{job['id']}/cancel")
    events = read(api, job["id"])
    assert [event["event"] for event in events] == ["status", "text", "canceled"]
    assert events[1]["data"] == {"text": text}


def test_a_failed_job_ends_with_its_error(api: Api):
    job = api.make()
    api.hand.fail(api.hand.claim(job["id"], "thinker"), ErrorCode.AUDIO_EMPTY, "no sound")
    last = read(api, job["id"])[-1]
    assert (last["event"], last["data"]["error"]["code"]) == ("failed", "audio_empty")


def test_head_answers_without_the_stream(api: Api):
    answer = api.head(f"/v1/jobs/{api.make()['id']}/events")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")


@pytest.mark.slow
def test_a_heartbeat_keeps_an_idle_stream_alive(api: Api):
    job = api.make()
    began = time.monotonic()
    with api.stream("GET", f"/v1/jobs/{job['id']}/events", timeout=30) as answer:
        for line in answer.iter_lines():
            if line.startswith(":"):
                break
    assert 14 < time.monotonic() - began < 19
