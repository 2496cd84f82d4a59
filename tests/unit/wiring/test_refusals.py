"""A person's rules for refusals: read from a file, tried with Gossamer's own, and checked as those are."""

from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.policy.refusal_rules import VERSION
from gossamer.policy.refusals import DEFAULT_FINDER, RefusalFinder
from gossamer.settings import load
from gossamer.wiring.refusals import load_refusals

RULES = """
version: 7
rules:
  - name: shop_busy
    kind: denied
    titles: ["Too Busy"]
    source: ['class="busy"', Come back]
  - name: shop_wall
    kind: challenge
    statuses: [403]
    header: [X-Wall, "On"]
  - name: shop_untitled
    kind: captcha
    statuses: [200]
    source: ["<div id='puzzle'"]
"""


def finder(folder: Path, text: str, name: str = "rules.yaml") -> RefusalFinder:
    """The finder with the rules of a file of this text."""
    path = folder / name
    path.write_text(text)
    return load_refusals(load({"fetch.refusal_rules": str(path)}, config=None))


def found(rules: RefusalFinder, status: int, body: str, *headers: tuple[str, str]) -> tuple[str, int] | None:
    """Rule and version of the refusal, as a worker finds it."""
    source = body.encode()
    if 200 <= status < 300 and not rules.may_be_refused(status, source, redirected=False):
        return None
    refusal = rules.find(status, headers, source, url="http://a.test/x", requested="http://a.test/x")
    return (refusal.rule, refusal.version) if refusal else None


def test_rules_of_a_file_find_refusals_beside_gossamers_own(tmp_path: Path) -> None:
    rules = finder(tmp_path, RULES)
    busy = "<title>Too busy | Shop</title><p class='busy'>come back later"
    assert found(rules, 200, busy) == ("shop_busy", 7)
    assert found(rules, 403, "", ("x-wall", "on")) == ("shop_wall", 7)
    puzzle = "<title>Offers</title><p>x<div id='puzzle'>"
    assert found(rules, 200, puzzle) == ("shop_untitled", 7)
    rejected = "<title>Request Rejected</title>The requested URL was rejected. Your support ID is: 1"
    assert found(rules, 200, rejected) == ("f5", VERSION)
    for page in ("<title>Too busy</title>to read", "<title>Shop</title><p class='busy'>come back", "<title>x</title>"):
        assert found(rules, 200, page) is None
    assert [found(DEFAULT_FINDER, 200, page) for page in (busy, puzzle)] == [None, None]


def rule(more: str) -> str:
    """A file with one rule."""
    return f'{{"rules": [{{"name": "x", "kind": "denied", {more}}}]}}'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"rules": []}', "it has 0 rules"),
        ('{"rule": []}', "unknown field `rule`"),
        ('{"rules": [{"name": "x"}]}', r"missing required field `kind` - at `\$.rules\[0\]`"),
        (rule('"titles": ["a"], "sourc": ["b"]'), "unknown field `sourc`"),
        (rule('"kinds": "odd"'), "unknown field `kinds`"),
        (rule('"titles": ["a"], "titles": ["b"]'), "the key titles stands twice"),
        (rule('"titles": ["a"]'), "the rule 'x' needs two signs at least"),
        (rule('"statuses": [403], "most_bytes": 10'), "the rule 'x' needs two signs at least"),
        (rule('"titles": ["a"], "source": [""]'), "has an empty text"),
        (rule('"statuses": [200], "header": ["a", "b"]'), "is for pages with status 200, and so needs titles"),
        (rule('"titles": ["a"], "most_bytes": 1000000'), "most_bytes is more than"),
        (rule('"titles": ["a"], "source": ["b"]').replace('"x"', '"f5"'), "needs a name that no other rule has"),
        ("rules: [", "line 1: is not valid"),
    ],
)
def test_a_rule_that_cannot_hold_is_refused_with_its_file(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint) as refused:
        finder(tmp_path, text, "mine.json" if text.startswith("{") else "mine.yaml")
    assert str(tmp_path / "mine.") in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read .*none\.yaml"):
        load_refusals(load({"fetch.refusal_rules": str(tmp_path / "none.yaml")}, config=None))


def test_kinds_that_are_accepted_are_pages(tmp_path: Path) -> None:
    shell = "<title>Shop</title><div id=root></div><script src=/a.js></script>"
    assert found(DEFAULT_FINDER, 200, shell) == ("shell", VERSION)
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    for more in ({}, {"fetch.refusal_rules": str(path)}):
        rules = load_refusals(load({"fetch.accept_refused": ["empty", "same"], **more}, config=None))
        assert found(rules, 200, shell) is None
        assert rules.accepts_repeats


def test_a_rule_may_ask_for_headings_and_for_what_a_reader_sees(tmp_path: Path) -> None:
    signs = 'headings: ["We are CLOSED"], says: [Monday], most_text: 60, lacks: [<pre]'
    rules = finder(tmp_path, f"rules: [{{name: closed, kind: denied, {signs}}}]")
    assert found(rules, 200, "<h1 class=x>We are <b>closed</b></h1><p>Come back on Monday.") == ("closed", 1)
    for page in (
        "<h1>We are closed</h1><p>Come on Sunday.",
        "<h1>We are closed</h1><pre>Monday",
        "<p>We are closed Monday",
    ):
        assert found(rules, 200, page) is None
    assert found(rules, 200, f"<h1>We are closed</h1><p>Monday{' is a day' * 20}") is None
