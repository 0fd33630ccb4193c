import time
from datetime import datetime

from tests.integration.api.conftest import Api, tone_wav


def moment(told: str) -> float:
    return datetime.fromisoformat(told).timestamp()


def test_health_needs_nothing_else(api: Api):
    with api.broker_away():
        assert api.get("/healthz").json() == {"status": "ok"}


def test_readiness_says_what_is_missing(api: Api):
    empty = api.get("/readyz")
    assert empty.status_code == 503
    checks = empty.json()["checks"]
    assert checks["redis"] == checks["object_store"] == {"ok": True}
    never_seen = checks["pool:thinker.noop"]
    assert (never_seen["ok"], never_seen["detail"]) == (False, "no worker")
    with api.all_pools():
        seen_at = time.time()
        ready = api.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    gone = api.get("/readyz").json()["checks"]["pool:thinker.noop"]
    assert moment(never_seen["since"]) < moment(gone["since"])
    assert abs(moment(gone["since"]) - seen_at) < 5
    with api.broker_away():
        away = api.get("/readyz")
        assert (away.status_code, away.json()["checks"]["redis"]["ok"]) == (503, False)


def test_metrics_count_jobs_and_requests_by_route(api: Api):
    job = api.make()
    api.make_asr(tone_wav(0.1))
    api.hand.speak(job["id"])
    api.get(f"/v1/jobs/{job['id']}")
    api.get("/v1/jobs/what-a-path")
    api.request("BREW", "/v1/jobs")
    text = api.get("/metrics").text
    assert 'stagewave_jobs_ended_total{status="succeeded",type="tts"}' in text
    assert 'stagewave_queue_depth{pool="thinker.noop"}' in text
    assert 'stagewave_job_ttfp_seconds_bucket{le="0.25",type="tts"}' in text
    assert 'stagewave_job_e2e_seconds_count{type="tts"}' in text
    assert 'method="GET",route="/v1/jobs/<job_id>",status="404"' in text
    assert "what-a-path" not in text and job["id"] not in text and "BREW" not in text
    assert "stagewave_broker_up 1.0" in text
    with api.broker_away():
        began = time.monotonic()
        assert "stagewave_broker_up 0.0" in api.get("/metrics").text
        assert time.monotonic() - began < 3
