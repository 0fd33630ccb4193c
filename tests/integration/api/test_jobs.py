"""Looking at jobs, waiting for them, listing, canceling, deleting."""

import time

import pytest

from stage_pipeline.errors import ErrorCode
from tests.integration.api.conftest import TTS, Api, problem_of, tone_wav

UNKNOWN = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize("job_id", [UNKNOWN, "job_1", "..", "%2e%2e%2f", "x" * 500, "job_%00", "job_é"])
def test_an_unknown_job_is_not_found_whatever_its_id_looks_like(api: Api, job_id):
    for path in ("", "/events", "/audio", "/transcript", "/webhooks"):
        answer = api.get(f"/v1/jobs/{job_id}{path}")
        assert problem_of(answer) == (404, "not_found")


def test_a_job_goes_its_way_and_the_record_says_so(api: Api):
    job = api.make()
    claim = api.hand.claim(job["id"], "thinker")
    running = api.get(f"/v1/jobs/{job['id']}").json()
    assert (running["status"], running["stage"], running["attempts"]) == (
        "running",
        "thinker",
        {"thinker": 1},
    )
    api.hand.finish(claim, samples=24_000)
    done = api.get(f"/v1/jobs/{job['id']}").json()
    assert (done["status"], done["error"]) == ("succeeded", None)
    assert done["result"]["audio"]["url"] == f"/v1/jobs/{job['id']}/audio"
    assert done["result"]["audio"]["duration_s"] == 1.0
    assert done["timings"]["e2e_ms"] > 0 and done["expires_at"]
    assert "key" not in str(done["result"])


def test_a_long_poll_is_answered_when_the_job_ends(api: Api, later):
    job = api.make()
    later(0.4, api.hand.speak, job["id"])
    began = time.monotonic()
    answer = api.get(f"/v1/jobs/{job['id']}?wait=20")
    assert answer.json()["status"] == "succeeded"
    assert 0.3 < time.monotonic() - began < 3


@pytest.mark.parametrize("how", [{"params": {"wait": "0.5"}}, {"headers": {"Prefer": "wait=1"}}])
def test_a_long_poll_ends_with_the_time_asked_for(api: Api, how):
    job = api.make()
    began = time.monotonic()
    answer = api.get(f"/v1/jobs/{job['id']}", **how)
    took_s = time.monotonic() - began
    assert answer.json()["status"] == "queued"
    assert 0.4 < took_s < 1.6
    assert answer.headers.get("Preference-Applied") == ("wait=1" if "headers" in how else None)


def test_a_long_poll_on_a_job_that_has_ended_is_answered_at_once(api: Api):
    job = api.make()
    api.hand.speak(job["id"])
    began = time.monotonic()
    assert api.get(f"/v1/jobs/{job['id']}?wait=30").json()["status"] == "succeeded"
    assert time.monotonic() - began < 1


def test_a_long_poll_ends_when_the_job_is_deleted(api: Api, later):
    job = api.make()
    later(0.3, api.delete, f"/v1/jobs/{job['id']}")
    assert problem_of(api.get(f"/v1/jobs/{job['id']}?wait=20")) == (410, "gone")


@pytest.mark.parametrize("wait", ["abc", "-1", "nan", "", "1e400x"])
def test_a_wait_that_is_no_time_is_refused(api: Api, wait):
    answer = api.get(f"/v1/jobs/{api.make()['id']}?wait={wait}")
    assert (problem_of(answer), answer.json()["field"]) == ((422, "invalid_request"), "wait")


def test_a_failed_job_says_why(api: Api):
    job = api.make()
    api.hand.fail(api.hand.claim(job["id"], "thinker"), ErrorCode.TEXT_EMPTY, "nothing to say")
    error = api.get(f"/v1/jobs/{job['id']}").json()["error"]
    assert error == {
        "code": "text_empty",
        "message": "nothing to say",
        "stage": "thinker",
        "retryable": False,
    }


def test_lists_are_newest_first_and_paged_by_a_cursor(api: Api):
    made = [api.make()["id"] for _ in range(5)]
    seen, path = [], "/v1/jobs?limit=2"
    while path:
        answer = api.get(path)
        seen += [job["id"] for job in answer.json()["data"]]
        cursor = answer.json()["next_cursor"]
        path = f"/v1/jobs?limit=2&after={cursor}" if cursor else ""
        assert answer.links.get("next", {}).get("url") == (
            path and f"/v1/jobs?limit=2&after={cursor}" or None
        )
    assert seen[:5] == made[::-1]
    assert len(seen) == len(set(seen))


def test_lists_are_filtered(api: Api):
    spoken, waiting = api.make(), api.make()
    heard = api.make_asr(tone_wav(0.1))
    api.hand.speak(spoken["id"])

    def ids(query: str) -> set[str]:
        return {job["id"] for job in api.get(f"/v1/jobs?limit=100&{query}").json()["data"]}

    ours = {spoken["id"], waiting["id"], heard["id"]}
    assert ids("status=succeeded") & ours == {spoken["id"]}
    assert ids("type=asr") & ours == {heard["id"]}
    assert ids("type=tts&status=queued") & ours == {waiting["id"]}
    assert ids("batch=batch_none") == set()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("limit=-1", "limit"),
        ("limit=%D9%A3", "limit"),
        ("after=x", "after"),
        ("after=(", "after"),
        ("status=done", "status"),
        ("type=vad", "type"),
        ("batch=a:b", "batch"),
        ("batch=", "batch"),
    ],
)
def test_a_wrong_parameter_of_a_list_is_named(api: Api, query, field):
    answer = api.get(f"/v1/jobs?{query}")
    assert (problem_of(answer), answer.json()["field"]) == ((422, "invalid_request"), field)


def test_cancel_ends_a_job_and_twice_is_no_error(api: Api):
    job = api.make()
    for _ in range(2):
        answer = api.post(f"/v1/jobs/{job['id']}/cancel")
        assert (answer.status_code, answer.json()["status"]) == (200, "canceled")
    spoken = api.make()
    api.hand.speak(spoken["id"])
    assert problem_of(api.post(f"/v1/jobs/{spoken['id']}/cancel")) == (409, "job_finished")


def test_delete_removes_record_and_objects_at_once(api: Api):
    job = api.make_asr(tone_wav(0.1))
    api.hand.transcribe(job["id"], "hello")
    prefix = f"results/{job['id']}/"
    assert api.backend.objects.size(f"inputs/{job['id']}") and list(api.backend.objects.list(prefix))
    answer = api.delete(f"/v1/jobs/{job['id']}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert api.backend.objects.size(f"inputs/{job['id']}") is None
    assert not list(api.backend.objects.list(prefix))
    for path in ("", "/events", "/transcript", "/audio", "/webhooks"):
        assert problem_of(api.get(f"/v1/jobs/{job['id']}{path}")) == (410, "gone")
    assert problem_of(api.post(f"/v1/jobs/{job['id']}/cancel")) == (410, "gone")
    assert problem_of(api.delete(f"/v1/jobs/{job['id']}")) == (410, "gone")
    assert job["id"] not in api.get("/v1/jobs?limit=100").text


def test_a_running_job_can_be_deleted_and_its_worker_changes_nothing_any_more(api: Api):
    job = api.make()
    claim = api.hand.claim(job["id"], "thinker")
    assert api.delete(f"/v1/jobs/{job['id']}").status_code == 204
    assert api.backend.claims.renew([claim]) == [0]
    assert problem_of(api.get(f"/v1/jobs/{job['id']}")) == (410, "gone")


def test_a_full_queue_is_429_with_a_time_to_come_back(small_queue: Api):
    files = {"file": ("a.wav", tone_wav(0.1))}
    for _ in range(3):
        assert small_queue.post("/v1/jobs", json=TTS).status_code == 201
    answer = small_queue.post("/v1/jobs", data={"type": "asr"}, files=files)
    assert problem_of(answer) == (429, "queue_full")
    assert int(answer.headers["Retry-After"]) >= 1
    assert not list(small_queue.backend.objects.list("inputs/")), "the upload is gone again"
