"""Reads the extraction rules of a crawl: from a file in YAML, JSON or TOML, or from the short forms of `--field`.

A fault is reported with the file and the line, before anything is fetched. Fixed: the formats, and which option stands
for which part of a rule.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import BadExtraction, BadInput
from gossamer.model.extraction import Extraction
from gossamer.option_names import label, named
from gossamer.settings.crawl import CrawlSettings
from gossamer.storage.documents import decode_document, line_of, read_text

if TYPE_CHECKING:  # imported late: most crawls have no rules
    from yaml import MarkedYAMLError

_MAX_FILE_BYTES = 1024 * 1024
"""Largest file of rules. Rules themselves have a smaller limit, but a file may have comments."""
_FIELD_EXAMPLE = "Write NAME=SELECTOR, for example title=h1."


def load_extraction(crawl: CrawlSettings) -> Extraction | None:
    """Return the checked rules of these settings. None: the crawl has none. Raises BadInput.

    They come from `--extract` (a file or, from Python, an object), or they are one rule that `--field` and `--each`
    describe; not both."""
    if not crawl.field:
        if crawl.each:
            raise BadInput(
                f"there is no {named('field')} that it could be for. Write {named('each', 'SELECTOR')} "
                f"{named('field', 'NAME=SELECTOR')}.",
                option="each",
            )
        return _load(crawl.extract) if crawl.extract else None
    if crawl.extract:
        raise BadInput(
            f"{label('field')} and {label('extract')} cannot be combined. Write the fields into the file, or omit "
            "one of them."
        )
    from gossamer.extract.fields import check_rules

    fields: dict[str, str] = {}
    for text in crawl.field:
        name, equals, selector = text.partition("=")
        name = name.strip()
        if not equals or not name or not selector.strip() or not re.fullmatch(r"[^\s@:.#\[\]\"']+", name):
            raise BadInput(f"cannot read {text!r}. {_FIELD_EXAMPLE}", option="field")
        if name in fields:
            raise BadInput(f"{name} is given twice. Write one {named('field')} for each name.", option="field")
        fields[name] = selector
    try:
        return check_rules({**({"each": crawl.each} if crawl.each else {}), "fields": fields})
    except BadExtraction as fault:
        if fault.path[:1] == ("each",):
            raise BadInput(f"{fault.reason}. Write a CSS selector, for example .product.", option="each") from None
        name = f" {fault.path[1]}" if len(fault.path) > 1 else ""
        raise BadInput(_sentence(f"{label('field')}{name}: {fault.reason}")) from None


def _sentence(text: str) -> str:
    """Return the text with a full stop, unless it ends a sentence already."""
    return text if text.endswith(("?", ".")) else f"{text}."


def _load(source: str | dict[str, Any]) -> Extraction:
    """Return the rules in a file, or (from Python) in an object. Raises BadInput."""
    from gossamer.extract.fields import check_rules

    if isinstance(source, dict):
        try:
            return check_rules(source)
        except BadExtraction as fault:
            raise BadInput(_sentence(fault.detail), option="extract") from None
    path = Path(source)
    advice = f"Name a file of rules in YAML, JSON or TOML, or write {named('field', 'NAME=SELECTOR')}."
    text = read_text(path, most_bytes=_MAX_FILE_BYTES, advice=advice, option="extract")
    rules = decode_document(path, text, hint=_yaml_hint)
    if rules is None:
        raise BadInput(f"{path}: is empty. Write fields: and below it NAME: SELECTOR for each field.")
    try:
        return check_rules(rules)
    except BadExtraction as fault:
        line = line_of(text, fault.path) if path.suffix.lower() != ".toml" else 0
        place = f"{source}, line {line}" if line else source
        raise BadInput(_sentence(f"{place}: {fault.detail}")) from None


def _yaml_hint(text: str, error: "MarkedYAMLError") -> str:
    """Return what to write where YAML gives a backslash, or a selector's first character, a meaning of its own."""
    if "escape" in (error.problem or ""):
        return " Put an expression with a backslash into single quotes."
    mark = error.problem_mark or error.context_mark
    lines = text.splitlines()
    if mark is None or mark.line >= len(lines):
        return ""
    odd = re.search(r":\s+([@*&!%`\[{#>|])", lines[mark.line])
    return f" Put a selector that begins with {odd[1]} into quotes." if odd else ""
