"""Files and batches over HTTP; a feeder in the test does the scheduler's part."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from stage_pipeline.deploy import load_deploys
from tests.integration.api.conftest import Api, problem_of
from tests.integration.api.walk import Walk
from workers import keys
from workers.batch_feeder import BatchFeeder
from workers.file_store import file_key

LINES = b"".join(
    json.dumps({"custom_id": f"c{n}", "type": "tts", "text": f"Number {n}."}).encode() + b"\n"
    for n in range(4)
)
HOOK = {"url": "https://hooks.example.com/x", "secret": "whsec_" + "QUJD" * 10}


def sent(data: bytes = LINES, name: str = "lines.jsonl") -> dict:
    return {"files": {"file": (name, data)}}


def make(api: Api, data: bytes = LINES, **fields: str) -> dict:
    answer = api.post("/v1/batches", data=fields, **sent(data))
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == f"/v1/batches/{answer.json()['id']}"
    return answer.json()


def feed(api: Api, times: int = 8) -> BatchFeeder:
    feeder = BatchFeeder(api.backend, load_deploys(api.settings.config))
    for _ in range(times):
        feeder.tick()
    return feeder


def jobs_of(api: Api, batch_id: str) -> list[dict]:
    return api.get("/v1/jobs", params={"batch": batch_id, "limit": 100}).json()["data"]


def end(api: Api, batch_id: str) -> dict:
    """Do all that it asks for."""
    feeder = feed(api)
    for job in jobs_of(api, batch_id):
        if job["status"] == "queued":
            api.hand.speak(job["id"])
    feeder.tick()
    feeder._leadership.resign()
    feed(api)._leadership.resign()
    return api.get(f"/v1/batches/{batch_id}").json()


def output(api: Api, batch_id: str, kind: str = "output") -> list[dict]:
    answer = api.get(f"/v1/batches/{batch_id}/{kind}")
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/jsonl"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_file_is_kept_as_it_was_sent(api: Api):
    answer = api.post("/v1/files", data={"purpose": "batch"}, **sent(LINES, "sätze\r\n.jsonl"))
    assert answer.status_code == 201
    record = answer.json()
    assert re.fullmatch(r"file_[0-9A-Z]{26}", record["id"])
    assert (record["bytes"], record["purpose"], record["object"]) == (len(LINES), "batch", "file")
    assert api.get(f"/v1/files/{record['id']}").json() == record
    content = api.get(f"/v1/files/{record['id']}/content")
    assert content.content == LINES and content.headers["Content-Length"] == str(len(LINES))
    assert api.delete(f"/v1/files/{record['id']}").json()["deleted"] is True
    assert problem_of(api.get(f"/v1/files/{record['id']}")) == (404, "not_found")
    assert api.backend.objects.size(file_key(record["id"])) is None


def test_a_batch_goes_its_way(api: Api):
    batch = make(api, metadata='{"mine": 1}', webhook=json.dumps(HOOK))
    assert batch["status"] == "validating" and batch["metadata"] == {"mine": 1}
    assert "secret" not in json.dumps(batch) and "files/" not in json.dumps(batch)
    ended = end(api, batch["id"])
    assert ended["status"] == "completed", ended
    assert ended["request_counts"] == {"total": 4, "completed": 4, "failed": 0}
    assert ended["counts"]["succeeded"] == 4 and ended["usage"]["audio_out_s"] == 4.0
    lines = output(api, batch["id"])
    assert [(line["line"], line["custom_id"]) for line in lines] == [(n + 1, f"c{n}") for n in range(4)]
    for line in lines:
        assert line["response"]["body"] == api.get(f"/v1/jobs/{line['job_id']}").json()
    assert output(api, batch["id"], "errors") == []
    content = api.get(f"/v1/files/{ended['output_file_id']}/content").text
    assert content == api.get(f"/v1/batches/{batch['id']}/output").text
    assert ended["error_file_id"] is None


def test_lines_may_lie_in_the_object_store(api: Api):
    api.backend.objects.put_bytes("uploads/lines", LINES, "application/jsonl")
    answer = api.post("/v1/batches", json={"input": f"s3://{api.settings.s3_bucket}/uploads/lines"})
    assert answer.status_code == 201 and answer.json()["input_file_id"] is None
    assert end(api, answer.json()["id"])["request_counts"]["completed"] == 4


@pytest.mark.parametrize("key", ["uploads/none", "results/x", "uploads/../results/x", "/etc/passwd"])
def test_an_object_that_may_not_be_named_and_one_that_is_not_there_look_alike(api: Api, key: str):
    answer = api.post("/v1/batches", json={"input": f"s3://{api.settings.s3_bucket}/{key}"})
    assert problem_of(answer) == (422, "url_not_allowed")
    assert (answer.json()["field"], answer.json()["detail"]) == ("input", "this object may not be named")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "input_file_id"),
        ({"input": "s3://x/y", "input_file_id": "file_1"}, 422, "input_file_id"),
        ({"input_file_id": "../../etc/passwd"}, 404, "input_file_id"),
        ({"input_file_id": "file_01ARZ3NDEKTSV4RRFFQ69G5FAV"}, 404, "input_file_id"),
        ({"input": "s3://x/y", "endpoint": "/v1/embeddings"}, 422, "endpoint"),
        ({"input": "s3://x/y", "priority": 11}, 422, "priority"),
        ({"input": "s3://x/y", "completion_window": "soon"}, 422, "completion_window"),
        ({"input": "s3://x/y", "nonsense": 1}, 422, "nonsense"),
        ({"input": "s3://x/y", "metadata": {"a": "x" * 20_000}}, 422, "metadata"),
        ({"input": "s3://x/y", "webhook": {"url": "http://127.0.0.1/"}}, 422, "webhook.url"),
        ({"input": "s3://x/y", "webhook": {**HOOK, "events": ["job.started"]}}, 422, "webhook"),
    ],
)
def test_what_is_wrong_with_a_batch_is_named(api: Api, body: dict, status: int, field: str):
    answer = api.post("/v1/batches", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["field"] == field


def test_one_key_makes_one_batch_however_often_and_from_how_many(api: Api):
    key = {"Idempotency-Key": "once"}

    def post(data: bytes) -> tuple[int, str]:
        answer = api.post("/v1/batches", headers=key, **sent(data))
        return answer.status_code, answer.json().get("id", answer.json().get("code"))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, [LINES] * 8))
    assert len({name for _, name in answers}) == 1
    assert sorted(status for status, _ in answers) == [200] * 7 + [201]
    assert post(LINES + b"x") == (422, "idempotency_mismatch")
    files = list(api.backend.objects.list("files/"))
    assert len(files) == 1, "what was sent for nothing stays"


def test_a_key_finds_its_batch_without_the_file_and_is_gone_with_the_batch(api: Api):
    file = api.post("/v1/files", data={"purpose": "batch"}, **sent()).json()["id"]
    requests = [
        ("/v1/batches", {"json": {"input_file_id": file}, "headers": {"Idempotency-Key": "named"}}),
        ("/v1/batches", {**sent(), "headers": {"Idempotency-Key": "sent"}}),
    ]
    made = [api.post(path, **how).json()["id"] for path, how in requests]
    end(api, made[0])
    resume = (f"/v1/batches/{made[0]}/resume", {"headers": {"Idempotency-Key": "resumed"}})
    requests.append(resume)
    made.append(api.post(resume[0], **resume[1]).json()["id"])
    api.delete(f"/v1/files/{file}")
    for (path, how), batch_id in zip(requests, made, strict=True):
        again = api.post(path, **how)
        assert (again.status_code, again.json()["id"]) == (200, batch_id)

    # When the records run out
    for batch_id in made:
        api.backend.client.delete(keys.batch(batch_id))
    files = [item.key for item in api.backend.objects.list("files/")]
    for path, how in requests:
        assert problem_of(api.post(path, **how)) == (410, "gone")
    assert [item.key for item in api.backend.objects.list("files/")] == files, (
        "what was sent for nothing stays"
    )
    other = api.post("/v1/batches", **sent(b"{}"), headers={"Idempotency-Key": "sent"})
    assert problem_of(other) == (422, "idempotency_mismatch")


def test_cancel_and_resume_over_http(api: Api):
    batch_id = make(api)["id"]
    feeder = feed(api)
    api.hand.speak(jobs_of(api, batch_id)[-1]["id"])
    assert problem_of(api.post(f"/v1/batches/{batch_id}/resume")) == (409, "not_ready")
    assert api.post(f"/v1/batches/{batch_id}/cancel").json()["status"] == "cancelling"
    assert api.post(f"/v1/batches/{batch_id}/cancel").json()["status"] == "cancelling"
    for _ in range(4):
        feeder.tick()
    feeder._leadership.resign()
    batch = api.get(f"/v1/batches/{batch_id}").json()
    assert batch["status"] == "cancelled" and batch["cancelled_at"]
    assert batch["counts"] | {"total": 0} == {
        "total": 0,
        "queued": 0,
        "running": 0,
        "succeeded": 1,
        "failed": 0,
        "canceled": 3,
    }
    assert problem_of(api.post(f"/v1/batches/{batch_id}/cancel")) == (409, "job_finished")
    assert [line["custom_id"] for line in output(api, batch_id)] == ["c0"]
    for body, count in (({"only": "unfinished"}, 3), ({"only": "failed"}, 0), ({}, 3)):
        answer = api.post(f"/v1/batches/{batch_id}/resume", json=body)
        assert answer.status_code == 201 and answer.json()["resumes"] == batch_id
        assert end(api, answer.json()["id"])["request_counts"]["completed"] == count
    assert problem_of(api.post(f"/v1/batches/{batch_id}/resume", json={"only": "x"}))[0] == 422


def test_whoever_waits_hears_of_the_end_at_once(api: Api, later):
    batch_id = make(api, b"nonsense")["id"]
    later(0.5, feed, api)
    batch = api.get(f"/v1/batches/{batch_id}", params={"wait": 20}).json()
    assert (batch["status"], batch["counts"]["failed"]) == ("completed", 1)
    [error] = output(api, batch_id, "errors")
    assert error["error"]["code"] == "invalid_json"


def test_batches_are_listed_newest_first_in_pages(api: Api):
    ids = [make(api)["id"] for _ in range(5)]
    first = api.get("/v1/batches", params={"limit": 3}).json()
    assert [batch["id"] for batch in first["data"]] == ids[:1:-1] and first["has_more"]
    rest = api.get("/v1/batches", params={"limit": 3, "after": first["last_id"]}).json()
    assert [batch["id"] for batch in rest["data"]] == ids[1::-1] and not rest["has_more"]


def test_files_are_listed_in_pages_by_purpose_and_either_way(api: Api):
    def page(**params: object) -> dict:
        answer = api.get("/v1/files", params=params)
        assert answer.status_code == 200
        found = answer.json()
        found["ids"] = [file["id"] for file in found["data"]]
        assert (found["first_id"], found["last_id"]) == (
            (found["ids"] or [None])[0],
            (found["ids"] or [None])[-1],
        )
        return found

    assert page()["data"] == [] and not page()["has_more"]
    ended = end(api, make(api)["id"])
    left, read = ended["output_file_id"], ended["input_file_id"]
    uploads = [
        api.post("/v1/files", data={"purpose": "batch"}, **sent(b"x", f"{n}.jsonl")).json()
        for n in range(3)
    ]
    ids = [read, left, *(file["id"] for file in uploads)]

    first = page(limit=3)
    assert first["ids"] == ids[:1:-1] and first["has_more"] and first["data"][0] == uploads[2]
    rest = page(limit=3, after=first["last_id"])
    assert rest["ids"] == ids[1::-1] and not rest["has_more"]
    assert page(order="asc", limit=2)["ids"] == ids[:2]
    assert page(order="asc", limit=5, after=left)["ids"] == ids[2:]
    assert page(purpose="batch_output")["ids"] == [left]
    assert page(purpose="batch", limit=4)["ids"] == [*ids[:1:-1], read]

    api.delete(f"/v1/files/{ids[3]}")
    assert page(limit=4)["ids"] == [ids[4], ids[2], left, read]


@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", "101"), ("limit", "0"), ("after", "batch_1"), ("order", "up"), ("purpose", "vision")],
)
def test_a_wrong_parameter_of_the_list_of_files_is_named(api: Api, name: str, value: str):
    answer = api.get("/v1/files", params={name: value})
    assert (problem_of(answer)[0], answer.json()["field"]) == (422, name)


def test_openais_client_pages_through_the_files(api: Api):
    client = openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0)
    ids = [client.files.create(file=(f"{n}.jsonl", b"x"), purpose="batch").id for n in range(5)]
    assert [file.id for file in client.files.list(limit=2)] == ids[::-1]
    assert [file.id for file in client.files.list(limit=2, order="asc", after=ids[1])] == ids[2:]
    assert [file.id for file in client.files.list(purpose="batch_output")] == []
    assert client.files.list().data[0].filename == "4.jsonl"


def test_openais_client_runs_a_batch(api: Api):
    client = openai.OpenAI(base_url=f"{api.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.NotFoundError, match="there is no such batch"):
        client.batches.retrieve("batch_0")
    line = {"custom_id": "a", "method": "POST", "url": "/v1/audio/speech", "body": {"input": "Hello."}}
    file = client.files.create(file=("x.jsonl", json.dumps(line).encode()), purpose="batch")
    made = client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/audio/speech",  # type: ignore[arg-type]
        completion_window="24h",
    )
    end(api, made.id)
    batch = client.batches.retrieve(made.id)
    assert batch.status == "completed" and batch.request_counts.completed == 1
    assert json.loads(client.files.content(batch.output_file_id).text)["custom_id"] == "a"
    assert [found.id for found in client.batches.list(limit=1)] == [made.id]
    assert client.files.delete(file.id).deleted


def test_each_endpoint_gives_each_status_it_promises(api: Api, guarded: Api):
    walk = Walk(api, api.get("/openapi.json").json())
    form = {"headers": {"Content-Type": "multipart/form-data; boundary=B"}}
    file = walk("POST", "/v1/files", 201, data={"purpose": "batch"}, **sent())["id"]
    walk("POST", "/v1/files", 400, content=b"nonsense", **form)
    walk("POST", "/v1/files", 413, data={"purpose": "x" * 600_000}, **sent())
    walk("POST", "/v1/files", 415, json={})
    walk("POST", "/v1/files", 422, data={"purpose": "assistants"}, **sent())
    walk("GET", "/v1/files", 200)
    walk("GET", "/v1/files?limit=0", 422)
    walk("GET", f"/v1/files/{file}", 200)
    walk("GET", f"/v1/files/{file}/content", 200)

    key = {"Idempotency-Key": "walk"}
    body = {"input_file_id": file, "webhook": {**HOOK, "events": ["batch.failed", "batch.completed"]}}
    batch = walk("POST", "/v1/batches", 201, json=body, headers=key)["id"]
    walk("POST", "/v1/batches", 200, json=body, headers=key)
    walk("POST", "/v1/batches", 422, json={**body, "priority": 1}, headers=key)
    walk("POST", "/v1/batches", 400, content=b"{", headers={"Content-Type": "application/json"})
    walk("POST", "/v1/batches", 404, json={"input_file_id": "file_1"})
    walk("POST", "/v1/batches", 413, data={"endpoint": "x" * 600_000}, **sent())
    walk("POST", "/v1/batches", 415, content=b"{}", headers={"Content-Type": "text/plain"})
    walk("GET", "/v1/batches", 200)
    walk("GET", "/v1/batches?limit=0", 422)
    walk("GET", f"/v1/batches/{batch}", 200)
    walk("GET", f"/v1/batches/{batch}?wait=x", 422)
    under = f"/v1/batches/{batch}"
    walk("POST", f"{under}/resume", 409)
    assert end(api, batch)["status"] == "completed"
    walk("POST", f"{under}/cancel", 409)
    walk("GET", f"{under}/output", 200)
    walk("GET", f"{under}/errors", 200)
    walk("POST", f"{under}/resume", 201, json={"only": "failed"}, headers=key | {"Idempotency-Key": "r"})
    walk("POST", f"{under}/resume", 200, json={"only": "failed"}, headers=key | {"Idempotency-Key": "r"})
    walk("POST", f"{under}/resume", 422, json={"only": "x"})
    walk("POST", f"{under}/resume", 400, content=b"{", headers={"Content-Type": "application/json"})
    walk("POST", f"{under}/resume", 415, content=b"{}", headers={"Content-Type": "text/plain"})
    large = bytes(api.settings.max_json_bytes + 1)
    walk("POST", f"{under}/resume", 413, headers={"Content-Type": "application/json"}, content=large)
    walk("POST", f"/v1/batches/{make(api)['id']}/cancel", 200)
    delivery = walk("GET", f"{under}/webhooks", 200)["data"][0]["id"]
    walk("POST", f"{under}/webhooks/{delivery}/replay", 202)
    for path, how in (("/v1/batches", {"json": body}), (f"{under}/resume", {"json": {"only": "failed"}})):
        gone = {"Idempotency-Key": f"gone {path}".replace(" ", "-")}
        api.backend.client.delete(keys.batch(api.post(path, **how, headers=gone).json()["id"]))
        walk("POST", path, 410, **how, headers=gone)

    places = [
        ("GET", f"/v1/files/{file}"),
        ("GET", f"/v1/files/{file}/content"),
        ("DELETE", f"/v1/files/{file}"),
        ("GET", under),
        ("POST", f"{under}/cancel"),
        ("POST", f"{under}/resume"),
        ("GET", f"{under}/output"),
        ("GET", f"{under}/errors"),
        ("GET", f"{under}/webhooks"),
        ("POST", f"{under}/webhooks/msg_1/replay"),
    ]
    roots = [("POST", "/v1/files"), ("GET", "/v1/files"), ("GET", "/v1/batches"), ("POST", "/v1/batches")]
    for method, path in places:
        walk(method, path.replace(batch, "nope").replace(file, "nope"), 404)
    for method, path in [*places, *roots]:
        walk(method, path, 401, api=guarded)
    with api.broker_away():
        for method, path in places:
            walk(method, path, 503)
        walk("GET", "/v1/batches", 503)
        walk("GET", "/v1/files", 503)
        walk("POST", "/v1/batches", 503, json=body)
        walk("POST", "/v1/files", 503, data={"purpose": "batch"}, **sent())
    walk("DELETE", f"/v1/files/{file}", 200)
    ours = ("/v1/files", "/v1/batches")
    assert {promise for promise in walk.missed() if promise[1].startswith(ours)} == set()
