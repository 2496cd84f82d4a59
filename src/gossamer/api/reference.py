"""The reference page of the REST service, made of what OpenAPI says of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gossamer.api.app import routes
from gossamer.api.openapi import ALWAYS

_IN_MESSAGES = {"CrawlRequest", "ActionRequest", "StatsRequest", "DomainRequest", "PollRequest", "Wrapper", "Root"}


def rest_page() -> str:
    """docs/reference/rest.md, but for who made it."""
    described = routes().openapi()
    lines = ["# REST", "", described["info"]["description"], "", *_INTRODUCTION]
    operations = [
        (path, method, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    for tag in dict.fromkeys(operation["tags"][0] for _, _, operation in operations):
        lines += [f"## {tag[0].upper()}{tag[1:]}", ""]
        for path, method, operation in operations:
            if operation["tags"][0] == tag:
                lines += _operation(path, method, operation)
    lines += ["## Forms", "", "A field with `?` may be missing.", ""]
    for name, form in sorted(described["components"]["schemas"].items()):
        if form.get("properties") and name not in _IN_MESSAGES:
            lines += _form(name, form)
    return "\n".join(lines).rstrip() + "\n"


_ANYWHERE = {str(status) for status in ALWAYS} | {"408", "413"}
_INTRODUCTION = [
    "A running service shows all of this at `/docs`, where requests can be tried, and gives it to tools as",
    "`/openapi.json`; both need no token. Forms of requests are in [Messages](messages.md); how to use it all stands",
    "in [Use the REST service](../howto/rest.md). What every endpoint may refuse with:",
    "",
    "| status | when |",
    "|---|---|",
    "| 401 | `service.token` is set, and `Authorization: Bearer <token>` is missing or wrong (not `/healthz`) |",
    "| 403 | `service.token` is not set, and a web page asks, or `Host` is not this machine (not `/healthz`) |",
    "| 408, 413 | the body does not come within a minute; it is longer than `service.max_body` |",
    "| 429 | this address sends more than `service.max_requests`; see `Retry-After` |",
    "",
]


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method.upper()} {path}"
    yield ""
    yield f"{operation['summary']}. {_one_line(operation.get('description', ''))}".rstrip()
    yield ""
    parameters = [p for p in operation.get("parameters", ()) if p["in"] != "path"]
    if parameters:
        yield "| parameter | form | meaning |"
        yield "|---|---|---|"
        for parameter in parameters:
            meaning = _one_line(parameter.get("description", ""))
            yield f"| `{parameter['name']}` ({parameter['in']}) | {_type(parameter['schema'])} | {_cell(meaning)} |"
        yield ""
    if body := operation.get("requestBody"):
        yield f"Body ({', '.join(f'`{kind}`' for kind in body['content'])}): {body['description']}."
        yield ""
    yield "| status | form | meaning |"
    yield "|---|---|---|"
    for status, response in operation["responses"].items():
        if status in _ANYWHERE:
            continue
        forms = [_type(content.get("schema", {})) for content in response.get("content", {}).values()]
        forms = [form for form in dict.fromkeys(forms) if form not in ("", "object", "text")]
        yield f"| {status} | {', '.join(forms)} | {_cell(_one_line(response['description']))} |"
    yield ""
    if example := _example(operation):
        yield "```json"
        yield example
        yield "```"
        yield ""


def _example(operation: Mapping[str, Any]) -> str:
    """Of the first success that has one."""
    for status, response in operation["responses"].items():
        if not status.startswith("2"):
            continue
        content = response.get("content", {}).get("application/json", {})
        if "example" in content:
            return json.dumps(content["example"], ensure_ascii=False, indent=2)
    return ""


def _form(name: str, form: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield _one_line(form.get("description", ""))
    yield ""
    yield "| field | form | meaning |"
    yield "|---|---|---|"
    required = set(form.get("required", ()))
    for field, schema in form["properties"].items():
        optional = "" if field in required else "?"
        yield f"| `{field}`{optional} | {_type(schema)} | {_cell(_one_line(schema.get('description', '')))} |"
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    """In a few words; a form of ours as a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        page = "messages.md" if name in _IN_MESSAGES else f"#{name.lower()}"
        return f"[{name}]({page})"
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(_type(part) for part in schema[choice]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object" if isinstance(inner := schema.get("additionalProperties"), dict):
            return f"object of {_type(inner)}"
        case "string":
            return "text"
        case str(kind):
            return kind
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
