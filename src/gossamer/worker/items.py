"""Items that extraction rules take from a page, as records of its request.

Safe to change: what is counted. Fixed: that the page's own record stays the first output, whatever the rules find, and
the words of `PageRecord.extract_error`, which are in records.
"""

from typing import TYPE_CHECKING

from gossamer.commit.outlinks import FinishedLease
from gossamer.extract.document import HtmlDocument
from gossamer.model.crawl import SHARED_POOL
from gossamer.model.extraction import rule_label
from gossamer.model.record import Output, PageRecord
from gossamer.telemetry.tally import RuleCount, Tally
from gossamer.worker.context import Context
from gossamer.worker.records import item_record

if TYPE_CHECKING:
    from gossamer.extract.fields import CompiledExtraction, PageItems

_TOO_COMPLEX, _LIMIT = "too_complex", "limit"
ITEM_BYTES = 1000
"""Approximate memory of an item besides the text of its values. Tuning only: more lets fewer pages wait for a slow
output at once."""


def add_items(context: Context, document: HtmlDocument | None, finished: FinishedLease, tally: Tally) -> None:
    """Add the items of a page to the outputs of its request, whose first one is the page's record.

    `document` None: the page is not HTML. Only HTML with a status from 200 to 299 has items: other pages are about
    errors."""
    page, rules = finished.outputs[0].record, context.rules
    if rules is None or not isinstance(page, PageRecord):
        return
    counts = context.run.crawl.pool != SHARED_POOL
    if counts and not tally.rules:
        for at, rule in enumerate(rules.rules):
            tally.rules[rule_label(rule, at, len(rules.rules))] = RuleCount(fields=dict.fromkeys(rule.fields, 0))
    if document is None or not 200 <= page.status_code < 300 or not rules.is_for(page.response_url):
        return
    found = rules.extract(document, page.response_url)
    if found is None:
        page.extract_error = _TOO_COMPLEX
        return
    if found.cut:
        page.extract_error = _LIMIT
    items = [Output(record=item_record(page, item)) for item in found.items]
    if items:
        finished.outputs = [*finished.outputs, *items]
        finished.size += ITEM_BYTES * len(items) + found.characters
        tally.items += len(items)
    if counts:
        _count(rules, found, tally)


def _count(rules: "CompiledExtraction", found: "PageItems", tally: Tally) -> None:
    """Count what each rule found on a page."""
    for result in found.results:
        name = rule_label(rules.rules[result.rule], result.rule, len(rules.rules))
        count = tally.rules.setdefault(name, RuleCount())
        count.pages += 1
        count.items += len(result.items)
        for field in result.found:
            count.fields[field] = count.fields.get(field, 0) + 1
        for field, lacking in result.lacking.items():
            count.lacking[field] = count.lacking.get(field, 0) + lacking
