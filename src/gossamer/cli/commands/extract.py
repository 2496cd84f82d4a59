"""`gossamer extract`: tries extraction rules on one page, and shows what they find there and what they do not.

Fixed: flags, exit codes, and the fields of the JSON object that `_found` returns, which `--json` prints; fields may be
added. The rules must be read and applied by the code that crawls use, never by a copy.
"""

import json as json_module
import os
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.cli.running import run as run_loop
from gossamer.crawling.single import fetch_page, read_page
from gossamer.errors import BadInput
from gossamer.extract.document import HtmlDocument
from gossamer.extract.fields import CompiledExtraction, PageItems, RuleResult
from gossamer.extract.page import Page
from gossamer.model.extraction import Extraction, FieldType, ItemField, ItemRule, rule_label
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.wiring.extraction import load_extraction

_ITEMS_SHOWN = 3
"""Items of each rule that are shown; --json shows all."""
_SHOWN_CHARACTERS = 100
"""Characters of a value that are shown."""

_FILES = (".html", ".htm", ".xhtml")
"""Endings of names that are files, not hosts."""


@options.takes(
    "extract", "field", "each", "allow_domain", *options.PLAIN_REQUEST_OPTIONS,
)  # fmt: skip
def extract(
    page: Annotated[str, argument(metavar="URL|FILE", help="The page: a URL, or a file of HTML.")],
    *,
    url: Annotated[
        str, option("--url", metavar="URL", help="URL of the page in FILE, for its links and the rules' urls.")
    ] = "",
    json: options.Json = False,
    **given: Any,
) -> None:
    """Try extraction rules on one page. Shows the items and, for each field, what was found.

    The rules are those of gossamer crawl.

    gossamer extract https://example.com --field title=h1 --field 'price=.price @number'

    gossamer extract saved.html --url https://example.com/p/1 --extract fields.yaml

    Exit code: 0 there is an item; 1 there is none, or the page could not be fetched; 2 bad input.
    """
    settings = options.load_settings(given)
    extraction = load_extraction(settings.crawl)
    if extraction is None:
        raise BadInput("there is nothing to extract. Write --field NAME=SELECTOR, or --extract FILE.")
    found = _found(extraction, *_read(settings, page, url))
    terminal.print_result(
        msgspec.json.encode(found).decode() if json else "\n".join(_report(found)),
    )
    raise SystemExit(0 if any(rule["items"] for rule in found["rules"]) else 1)


def _read(settings: Settings, page: str, url: str) -> tuple[Page | None, str, str]:
    """Return the page, its URL, and the reason why there is none."""
    if "://" not in page and os.path.exists(page):
        if url and "://" not in url:
            url = f"https://{url}"
        return read_page(Path(page), url=url), url, ""
    if "://" not in page and page.endswith(_FILES):
        raise BadInput(f"there is no file {page}. Name an existing file, or a URL with http:// or https://.")
    if url:
        raise BadInput(f"--url: {page} is no file that exists; omit the option for a page that is fetched.")
    trace = run_loop(fetch_page(settings, page))
    if trace.page is None:
        return None, trace.url, trace.failure
    return trace.page, trace.page.url, ""


def _found(extraction: Extraction, page: Page | None, url: str, error: str) -> dict[str, Any]:
    """Return what was found, as a JSON object: for each rule its items and, by field, how many matches have a value;
    for a field without any, what its selector matched."""
    found: dict[str, Any] = {"url": page.url if page else url, "error": error, "rules": []}
    if page is None:
        return found
    if page.record.ip:  # a page from a file has neither an address nor a status of its own
        found["status"] = page.status_code
    if not page.is_html:
        return found | {"error": "it is not HTML, so a crawl takes no items from it"}
    if refusal := page.record.refusal:
        found["error"] = f"the site refuses it ({refusal.kind}), so a crawl would take no items from it"
    elif page.status_code and not 200 <= page.status_code < 300:
        found["error"] = f"its status is {page.status_code}, so a crawl would take no items from it"
    document = HtmlDocument(page.body, page.record.encoding or None)
    items = CompiledExtraction(extraction).extract(document, page.url)
    if items is None:
        return found | {"error": "its elements nest so deeply that parsing it could take far too long (too_complex)"}
    if document.cut:
        found["error"] = "only its first 2 MiB were searched (cut)"
    if items.cut:
        found["error"] = "it has so many or so long items that some were left out (limit)"
    results = {result.rule: result for result in items.results}
    found["rules"] = [
        _rule(rule, rule_label(rule, at, len(extraction.rules)), results.get(at), document, page.url)
        for at, rule in enumerate(extraction.rules)
    ]
    return found


def _rule(rule: ItemRule, name: str, result: RuleResult | None, document: HtmlDocument, url: str) -> dict[str, Any]:
    """Return what a rule has found, for `_found`. `result` None: the rule is not for this URL."""
    shown: dict[str, Any] = {"rule": name, "is_for_url": result is not None, "matches": 0, "items": [], "fields": {}}
    if result is None:
        return shown
    shown |= {"matches": result.matches, "items": result.items, "left_out": result.lacking}
    for field, given in rule.fields.items():
        values = [item[field] for item in result.items if item[field] not in (None, [])]
        source = _source(given)
        shown["fields"][field] = {"source": source, "items_with_value": len(values), "found": field in result.found}
        if field not in result.found:
            shown["fields"][field]["raw"] = _raw(rule, given, document, url)
    return shown


def _source(field: ItemField) -> str:
    """Return what a field looks for, in one line."""
    if field.each is not None:
        return f"each {field.each}"
    for name in ("css", "xpath", "jsonld", "meta", "regex"):
        text = getattr(field, name)
        if text is not None:
            kind = "" if field.type is FieldType.TEXT else f" @{field.type}"
            attribute = f"@{field.attribute}" if field.attribute else ""
            return f"{'' if name == 'css' else name + ':'}{text}{attribute}{kind}"
    return "fields"


def _raw(rule: ItemRule, field: ItemField, document: HtmlDocument, url: str) -> list[str]:
    """Return the texts that the source of a field finds although the field has no value. Empty: it finds nothing."""
    if field.fields is not None or field.type is FieldType.COUNT:
        return []
    plain = msgspec.structs.replace(
        field, type=FieldType.TEXT, argument="", list=True, required=False, default=None, regex=field.regex
    )
    only = Extraction(rules=(msgspec.structs.replace(rule, fields={"raw": plain}),))
    items: PageItems | None = CompiledExtraction(only).extract(document, url)
    return [text for item in items.items for text in item["raw"]][:_ITEMS_SHOWN] if items else []


# --- text for a person ------------------------------------------------------------------------------------------------


def _report(found: dict[str, Any]) -> list[str]:
    """Return what `_found` returned as lines for a person."""
    status = f"   (status {found['status']})" if found.get("status") else ""
    lines = [f"{found['url']}{status}"]
    if found["error"]:
        lines.append(f"  {found['error']}")
    for rule in found["rules"]:
        lines += _rule_lines(rule)
    return lines


def _rule_lines(rule: dict[str, Any]) -> list[str]:
    """Return what `_rule` returned as lines for a person."""
    items, matches = rule["items"], rule["matches"]
    if not rule["is_for_url"]:
        return [f"  {rule['rule']}: not for this page; none of its urls matches"]
    matched = "" if matches in (1, len(items)) else f" of {matches:,} matches"
    lines = [f"  {rule['rule']}: {counted(len(items), 'item')}{matched}"]
    lines += [
        f"    left out {counted(count, 'item')} without the required {field}"
        for field, count in rule["left_out"].items()
    ]
    width = max(map(len, rule["fields"]), default=0)
    for name, field in rule["fields"].items():
        lines.append(f"    {name:{width}}  {_field_text(field, len(items))}")
    for number, item in enumerate(items[:_ITEMS_SHOWN], 1):
        lines.append(f"  item {number}")
        lines += [f"    {name:{max(width, len('page_url'))}}  {_shown(value)}" for name, value in item.items()]
    if len(items) > _ITEMS_SHOWN:
        lines.append(f"  ... and {counted(len(items) - _ITEMS_SHOWN, 'more item')} (--json shows all)")
    return lines


def _field_text(field: dict[str, Any], items: int) -> str:
    """Return how often a field has a value, and why it has none."""
    if field["found"]:
        count = field["items_with_value"]
        return f"found{'' if count == items or not items else f' in {count:,} of {items:,} items'}   {field['source']}"
    if field["raw"]:
        return f"NO VALUE   {field['source']} finds {_shown(field['raw'][0])}, which is no value of this type"
    return f"NOT FOUND   {field['source']} matches nothing"


def _shown(value: object) -> str:
    text = json_module.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
