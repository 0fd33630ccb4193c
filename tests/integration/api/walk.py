"""A walk through the API that holds every answer to its description."""

import re
from collections import defaultdict

from openapi_schema_validator import OAS31Validator

from tests.integration.api.conftest import Api

UNPROVOKED = {500}
"""What no request should bring about."""


class Walk:
    """Calls the API, holds every answer to the document, and remembers which were seen."""

    def __init__(self, api: Api, document: dict) -> None:
        self.api = api
        self.document = document
        self.seen: dict[tuple[str, str], set[int]] = defaultdict(set)

    def __call__(self, method: str, path: str, status: int, *, api: Api | None = None, **how) -> dict:
        answer = (api or self.api).request(method, path, **how)
        template = self._template(path.partition("?")[0])
        operation = self.document["paths"][template][method.lower()]
        where = f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        assert answer.status_code == status, where
        promised = operation["responses"].get(str(status))
        assert promised is not None, f"not promised: {where}"
        for name in promised.get("headers", {}):
            if status >= 400 or name == "Location" or name.startswith("Content-"):
                assert name in answer.headers, f"no {name}: {where}"
        if answer.content and "content" in promised:
            media_type = answer.headers["Content-Type"].partition(";")[0]
            assert media_type in promised["content"], where
            if media_type.endswith("json"):
                schema = promised["content"][media_type]["schema"]
                validator = OAS31Validator({**schema, "components": self.document["components"]})
                errors = list(validator.iter_errors(answer.json()))
                assert not errors, f"{errors[0].message} at {list(errors[0].path)}: {where}"
        self.seen[template, method.lower()].add(status)
        is_json = answer.headers.get("Content-Type", "").partition(";")[0].endswith("json")
        return answer.json() if answer.content and is_json else {}

    def _template(self, path: str) -> str:
        for template in self.document["paths"]:
            if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
                return template
        raise AssertionError(f"no path in the document for {path}")

    def missed(self) -> set[tuple[str, str, int]]:
        return {
            (method, path, int(status))
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            for status in operation["responses"]
            if int(status) not in self.seen[path, method] | UNPROVOKED
        }
