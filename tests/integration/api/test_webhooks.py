from tests.integration.api.conftest import TTS, Api, problem_of

HOOK = {"url": "https://hooks.example.com/x", "secret": "whsec_" + "QUJD" * 10}


def test_webhooks_are_listed_and_sent_again(api: Api):
    job = api.post("/v1/jobs", json={**TTS, "webhook": {**HOOK, "events": ["job.succeeded"]}}).json()
    path = f"/v1/jobs/{job['id']}/webhooks"
    assert api.get(path).json() == {"data": []}
    assert job["options"]["webhook"] == {"url": HOOK["url"], "events": ["job.succeeded"]}
    api.hand.speak(job["id"])
    (owed,) = api.get(path).json()["data"]
    assert (owed["event"], owed["state"], owed["tries"], owed["log"]) == ("job.succeeded", "due", 0, [])
    again = api.post(f"{path}/{owed['id']}/replay")
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (202, owed["id"], "due")
    assert problem_of(api.post(f"{path}/msg_none/replay")) == (404, "not_found")


def test_the_secret_is_in_no_answer(api: Api):
    job = api.post("/v1/jobs", json={**TTS, "webhook": HOOK})
    assert job.status_code == 201
    api.hand.speak(job.json()["id"])
    for path in ("", "/webhooks", "/events"):
        assert HOOK["secret"] not in api.get(f"/v1/jobs/{job.json()['id']}{path}").text
    assert HOOK["secret"] not in api.get("/v1/jobs").text


def test_a_delivery_of_another_job_is_not_found(api: Api):
    job = api.post("/v1/jobs", json={**TTS, "webhook": HOOK}).json()
    api.hand.speak(job["id"])
    (owed,) = api.get(f"/v1/jobs/{job['id']}/webhooks").json()["data"]
    other = api.make()
    assert problem_of(api.post(f"/v1/jobs/{other['id']}/webhooks/{owed['id']}/replay"))[0] == 404
