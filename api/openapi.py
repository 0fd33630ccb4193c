"""The OpenAPI 3.1 document, made from the routes, what hangs on their views, and the models."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from flask import Flask
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.operation import JSON, Answer, Operation, Parameter, operation_of
from api.problems import MEDIA_TYPE
from api.records import Problem

JsonObject = dict[str, object]

_TAGS = ("jobs", "batches", "listening", "voices", "webhooks", "openai", "health")
_REF = "#/components/schemas/{model}"
_FLASK_ARGUMENT = re.compile(r"<(?:[a-z]+:)?([a-z_]+)>")
_HEADERS = {
    "Location": "The path of what was made.",
    "Preference-Applied": "`wait=N`, when `Prefer` was heeded.",
    "Retry-After": "Seconds until trying again makes sense.",
    "Content-Range": "`bytes FIRST-LAST/SIZE`.",
    "ETag": "Names this version.",
    "Link": 'The next page: `rel="next"`.',
    "WWW-Authenticate": "`Bearer`.",
    "x-job-id": "The job that was made for this request.",
}
_ALWAYS_UNDER_V1 = {401: "A key is needed, or this one is wrong.", 500: "Something failed here."}
_RETRY_AFTER = frozenset({429, 503})


def openapi_document(app: Flask) -> JsonObject:
    """Every view of ``app`` that has an operation."""
    models: set[type[BaseModel]] = set()
    paths: dict[str, JsonObject] = {}
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule):
        operation = operation_of(app.view_functions[rule.endpoint])
        if operation is None:
            continue
        path = _FLASK_ARGUMENT.sub(r"{\1}", rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            name = rule.endpoint.replace(".", "_")
            paths.setdefault(path, {})[method.lower()] = _operation(operation, name, path, models)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stagewave",
            "version": _version(),
            "description": "Speech jobs that run in stages: ASR, TTS, and speech to speech.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _schemas(models),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "tags": [{"name": name} for name in _TAGS],
    }


def _operation(operation: Operation, name: str, path: str, models: set[type[BaseModel]]) -> JsonObject:
    problems = dict(operation.problems)
    made: JsonObject = {"operationId": name, "summary": operation.summary, "tags": [operation.tag]}
    if operation.description:
        made["description"] = operation.description
    if path.startswith("/v1/"):
        problems |= _ALWAYS_UNDER_V1
        made["security"] = [{}, {"key": []}]  # open unless the server has keys
    if operation.parameters:
        made["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.request_model is not None or operation.form_model is not None:
        made["requestBody"] = _request_body(operation, models)
    answers = {status: _answer(answer, models) for status, answer in operation.answers.items()}
    error_model, error_type = (
        operation.error_model or Problem,
        JSON if operation.error_model else MEDIA_TYPE,
    )
    models.add(error_model)
    answers |= {
        status: _problem(status, meaning, error_model, error_type) for status, meaning in problems.items()
    }
    made["responses"] = {str(status): answers[status] for status in sorted(answers)}
    return made


def _request_body(operation: Operation, models: set[type[BaseModel]]) -> JsonObject:
    content: JsonObject = {}
    if operation.request_model is not None:
        models.add(operation.request_model)
        content[JSON] = {"schema": _ref(operation.request_model)}
    if operation.form_model is not None:
        models.add(operation.form_model)
        content["multipart/form-data"] = {"schema": _ref(operation.form_model)}
    return {"required": True, "content": content}


def _answer(answer: Answer, models: set[type[BaseModel]]) -> JsonObject:
    made: JsonObject = {"description": answer.description}
    content: JsonObject = {media_type: {"schema": {"type": "string"}} for media_type in answer.media_types}
    if answer.body is not None:
        models.add(answer.body)
        content[JSON] = {"schema": _ref(answer.body)}
    if content:
        made["content"] = content
    if answer.headers:
        made["headers"] = _headers(*answer.headers)
    return made


def _problem(status: int, meaning: str, model: type[BaseModel], media_type: str) -> JsonObject:
    made: JsonObject = {"description": meaning, "content": {media_type: {"schema": _ref(model)}}}
    if status in _RETRY_AFTER:
        made["headers"] = _headers("Retry-After")
    elif status == 401:
        made["headers"] = _headers("WWW-Authenticate")
    return made


def _headers(*names: str) -> JsonObject:
    return {name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in names}


def _parameter(parameter: Parameter) -> JsonObject:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": parameter.schema,
    }


def _schemas(models: set[type[BaseModel]]) -> JsonObject:
    # A set has no order of its own; the document must be the same every time.
    ordered = sorted(models, key=lambda model: model.__name__)
    _, definitions = models_json_schema([(model, "validation") for model in ordered], ref_template=_REF)
    schemas = definitions["$defs"]
    return dict(sorted(schemas.items()))


def _ref(model: type[BaseModel]) -> JsonObject:
    return {"$ref": _REF.format(model=model.__name__)}


def _version() -> str:
    try:
        return version("stagewave")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"
