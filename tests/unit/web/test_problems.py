"""Errors of every HTTP interface have one form."""

import json

import msgspec

from gossamer.api.problems import problem_response
from gossamer.web.problems import Problem, internal_error, problem_json


def test_a_problem_has_a_name_a_title_and_what_else_there_is() -> None:
    problem = Problem(409, "Crawl refused", "it is stopped", headers={"Retry-After": "5"}, errors=({"field": "x"},))
    response = problem_json(problem)
    assert (response.status_code, response.headers["retry-after"]) == (409, "5")
    assert response.headers["content-type"] == "application/problem+json"
    assert json.loads(response.body) == {
        "type": "urn:gossamer:problem:crawl-refused",
        "title": "Crawl refused",
        "status": 409,
        "detail": "it is stopped",
        "errors": [{"field": "x"}],
    }
    assert Problem.named(404, "not-found", "").body() == Problem(404, "Not found").body()
    assert "detail" not in Problem(404, "Not found").body()
    assert Problem(400, "New words", kind="old-name").body()["type"] == "urn:gossamer:problem:old-name"


def test_a_detail_may_repeat_any_text_of_a_request() -> None:
    """Half of a character, which no strict reader of JSON takes, is replaced."""
    detail = "ä \ud800 \x00 \u2028"
    body = bytes(problem_json(Problem(400, "Invalid request", detail)).body)
    assert msgspec.json.decode(body)["detail"] == "ä \ufffd \x00 \u2028"
    classic = bytes(problem_response(Problem(400, "Invalid request", detail), "/feed").body)
    assert msgspec.json.decode(classic)["error"] == {"message": "Invalid request", "cause": "ä \ufffd \x00 \u2028"}


def test_a_bug_is_told_without_its_details() -> None:
    assert internal_error().body()["detail"] == "This is a bug in Gossamer. The log of the process has the details."
