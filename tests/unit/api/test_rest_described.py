"""What OpenAPI says of the API is complete, holds together, and stands in the reference."""

import copy
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from gossamer.api.app import routes
from gossamer.api.openapi import EXAMPLES

DESCRIBED = routes().openapi()
JSON = "application/json"


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DESCRIBED["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def contents(part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from part.get("content", {}).items()


def check(schema: dict[str, Any], example: object) -> None:
    whole = {**copy.deepcopy(schema), "components": DESCRIBED["components"]}
    jsonschema_rs.validator_for(whole).validate(example)


def test_operations_have_names_of_their_own_and_say_what_they_do() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names)
    for path, method, operation in operations():
        assert operation["summary"], (path, method)
        assert operation["tags"], (path, method)
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), (path, method, parameter["name"])


def test_an_operation_whose_query_may_be_invalid_says_so() -> None:
    bounded = {"maximum", "minimum", "enum", "maxLength", "anyOf"}
    missing = []
    for path, method, operation in operations():
        given = [each["schema"] for each in operation.get("parameters", ()) if each["in"] == "query"]
        may_be_invalid = any(bounded & each.keys() or each.get("type") in ("integer", "boolean") for each in given)
        if may_be_invalid and "400" not in operation["responses"]:
            missing.append((method, path))
    assert missing == []


@pytest.mark.parametrize(("path", "method", "operation"), list(operations()), ids=lambda value: str(value)[:40])
def test_examples_have_the_forms_that_are_promised(path: str, method: str, operation: dict[str, Any]) -> None:
    for kind, content in contents(operation.get("requestBody", {})):
        if kind != JSON:
            assert content["example"]
            continue
        given = [content["example"]] if "example" in content else [e["value"] for e in content["examples"].values()]
        for example in given:
            check(content["schema"], example)
    successes = {s: r for s, r in operation["responses"].items() if s.startswith("2")}
    assert successes
    for status, response in successes.items():
        assert status == "204" or list(contents(response)), (path, method)
        for kind, content in contents(response):
            assert "example" in content, (path, method, status, kind)
            if kind == JSON:
                check(content["schema"], content["example"])


@pytest.mark.parametrize(("path", "method", "operation"), list(operations()), ids=lambda value: str(value)[:40])
def test_refusals_are_described_in_the_form_of_their_path(path: str, method: str, operation: dict[str, Any]) -> None:
    refused = {status: response for status, response in operation["responses"].items() if status[0] in "45"}
    if path == "/healthz":
        assert not refused
        assert "security" not in operation
        return
    assert {"401", "403", "429"} <= set(refused)
    assert operation["security"] == [{"token": []}]
    is_new = path.startswith(("/v1", "/metrics", "/readyz"))
    for status, response in refused.items():
        if (path, status) != ("/readyz", "503"):
            assert [kind for kind, _ in contents(response)] == ["application/problem+json" if is_new else JSON]
    assert "422" not in operation["responses"]


def test_no_example_is_of_an_endpoint_that_is_gone() -> None:
    there = {(op["operationId"], status) for _, _, op in operations() for status in op["responses"]}
    assert set(EXAMPLES) <= there


def test_every_reference_leads_somewhere() -> None:
    def references(part: object) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(reference := part.get("$ref"), str):
                yield reference
            for inner in part.values():
                yield from references(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from references(inner)

    for reference in references(DESCRIBED):
        assert reference.removeprefix("#/components/schemas/") in DESCRIBED["components"]["schemas"]
