import pytest

from api.openai_errors import is_openai_path, openai_error_of, openai_status
from stage_pipeline.errors import ErrorCode, StagewaveError
from workers.openai_body import UnsupportedValue, fields_named


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/a/b", "/v1/audio/speech", "/v1/chat/completions"]
)
def test_these_paths_are_openais(path):
    assert is_openai_path(path)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/jobs", "/v1/audio", "/v1/modelsx", "/v1/jobs/x/audio", "/audio/speech"]
)
def test_these_are_not(path):
    assert not is_openai_path(path)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (ErrorCode.INVALID_REQUEST, 400, "invalid_request_error"),
        (ErrorCode.NOT_AUDIO, 400, "invalid_request_error"),
        (ErrorCode.MODEL_UNKNOWN, 404, "invalid_request_error"),
        (ErrorCode.UNAUTHORIZED, 401, "authentication_error"),
        (ErrorCode.QUEUE_FULL, 429, "rate_limit_error"),
        (ErrorCode.DEADLINE_EXCEEDED, 503, "server_error"),
        (ErrorCode.ENGINE_FAILED, 500, "server_error"),
    ],
)
def test_a_status_is_one_that_openais_clients_act_on(code, status, kind):
    assert openai_status(code, code.http_status) == status
    assert openai_error_of(StagewaveError(code, "why"))["error"]["type"] == kind


def test_no_error_is_answered_with_a_status_that_their_clients_do_not_know():
    known = {400, 401, 404, 405, 409, 410, 413, 415, 416, 429, 500, 503}
    assert {openai_status(code, code.http_status) for code in ErrorCode} <= known


def test_what_is_not_offered_has_openais_code_for_it():
    body = openai_error_of(UnsupportedValue("speed", "not so fast"))["error"]
    assert (body["code"], body["param"], body["message"]) == ("unsupported_value", "speed", "not so fast")


def test_a_field_at_fault_is_named_as_the_client_named_it():
    for ours, theirs in (("text", "input"), ("voice", "voice"), (None, None)):
        with pytest.raises(StagewaveError) as caught, fields_named({"text": "input"}):
            raise StagewaveError(ErrorCode.INVALID_REQUEST, "why", field=ours)
        assert caught.value.field == theirs
