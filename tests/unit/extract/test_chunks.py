"""Chunks end at headings where they can, never exceed their limit, and lose nothing."""

import re

import pytest

from gossamer.extract.content import extract_content
from gossamer.model.content import ContentChunk, ContentOptions

SENTENCE = "Words of a sentence that says little. "
PAGE = (
    "<html><body><main><h1>Guide</h1><p>" + SENTENCE * 4 + "</p><h2>Install</h2><p>" + SENTENCE * 3 + "</p>"
    "<h3>On Linux</h3><p>" + SENTENCE * 2 + "</p><h2>Use</h2><p>" + SENTENCE * 40 + "</p><pre>"
    + "\n".join(f"line {number} of code" for number in range(100))
    + "</pre><table><tr><th>Key</th><th>Value</th></tr>"
    + "".join(f"<tr><td>key {number}</td><td>value {number}</td></tr>" for number in range(100))
    + "</table></main></body></html>"
)  # fmt: skip


def chunks(limit: int, html: str = PAGE) -> list[ContentChunk]:
    _, found = extract_content(html, "http://a.test/", ContentOptions(markdown=True, chunk=limit))
    assert found is not None
    return found


@pytest.mark.parametrize("limit", [200, 333, 1000, 5000])
def test_no_chunk_exceeds_the_limit_and_every_word_is_in_one(limit: int) -> None:
    found = chunks(limit)
    assert all(0 < len(chunk.body) <= limit for chunk in found)
    everything = "\n".join(chunk.body for chunk in found)
    for number in range(100):
        assert f"line {number} of code" in everything
        assert f"| key {number} | value {number} |" in everything
    assert len(re.findall("sentence", everything)) == 49


def test_a_page_that_fits_is_one_chunk() -> None:
    assert [chunk.headings for chunk in chunks(100_000)] == [("Guide",)]


def test_a_chunk_names_the_headings_above_it() -> None:
    found = chunks(600)
    assert found[0].headings == ("Guide",)
    assert found[1].headings == ("Guide", "Install")
    assert "### On Linux" in found[1].body  # a section that fits has its subsections
    assert {chunk.headings for chunk in found[2:]} == {("Guide", "Use")}


def test_code_that_is_cut_is_closed_and_opened_again() -> None:
    for chunk in chunks(400):
        fences = [line for line in chunk.body.split("\n") if line.startswith("```")]
        assert len(fences) % 2 == 0, chunk.body


def test_a_table_that_is_cut_repeats_its_header() -> None:
    found = [chunk.body for chunk in chunks(400) if "| key " in chunk.body]
    assert len(found) > 3
    assert all("| Key | Value |\n| --- | --- |\n| key " in body for body in found)


def test_a_word_longer_than_a_chunk_is_cut() -> None:
    found = chunks(200, f"<html><body><main><p>{'x' * 1000} {SENTENCE * 5}</p></main></body></html>")
    assert sum(chunk.body.count("x") for chunk in found) == 1000


@pytest.mark.parametrize("limit", [200, 500])
def test_a_paragraph_is_cut_between_words_and_only_there(limit: int) -> None:
    words = [f"word{number}" for number in range(500)]
    found = chunks(limit, f"<html><body><main><p>{' '.join(words)}</p></main></body></html>")
    assert [word for chunk in found for word in chunk.body.split(" ")] == words


def test_a_line_of_code_longer_than_a_chunk_keeps_every_character() -> None:
    line = " ".join(f"f({number})" for number in range(300))
    found = chunks(250, f"<html><body><main><p>{SENTENCE * 9}</p><pre>{line}</pre></main></body></html>")
    code = [chunk.body for chunk in found if "f(" in chunk.body]
    assert all(len(body) <= 250 for body in code)
    assert "".join(body.replace("```", "").strip("\n") for body in code) == line


def test_a_heading_stays_with_the_beginning_of_its_text() -> None:
    found = chunks(300, f"<html><body><main><h1>Title</h1><p>{SENTENCE * 20}</p></main></body></html>")
    assert found[0].body.startswith("# Title\n\nWords of a sentence")
    assert len(found) == 3
