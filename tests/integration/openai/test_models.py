"""``/v1/models``."""

import httpx
import openai as openai_package
import pytest
from openai import OpenAI

from tests.integration.openai.conftest import error_of


def test_the_model_that_is_served_is_listed(openai: OpenAI):
    (model,) = openai.models.list().data
    assert (model.id, model.object, model.owned_by) == ("noop", "model", "stagewave")
    assert openai.models.retrieve("noop") == model


def test_the_names_that_clients_have_built_in_mean_that_model(openai: OpenAI):
    for name in ("whisper-1", "tts-1", "stepfun-ai/Step-Audio-2-mini"):
        assert openai.models.retrieve(name).id == "noop"


def test_another_model_is_not_found(openai: OpenAI, http: httpx.Client):
    with pytest.raises(openai_package.NotFoundError) as caught:
        openai.models.retrieve("davinci")
    assert caught.value.code == "model_not_found"
    assert error_of(http.get("/v1/models/a/b")) == (404, "model_not_found", "model")
