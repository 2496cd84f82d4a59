"""`gossamer crawls audit`: who changed what in a crawl service, as its history has it.

Fixed: flags, and the fields of `--json`, which are those of the REST API.
"""

import json as json_text
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from gossamer.cli import options, tables, terminal
from gossamer.cli.parser import option
from gossamer.cli.past_crawls import audit_entries
from gossamer.cli.running import run as run_loop
from gossamer.errors import BadInput
from gossamer.storage.audit import AuditFilter, outcome_word

if TYPE_CHECKING:
    from gossamer.storage.sql.audit import AuditEntryRow


@options.takes("frontier", "data_dir")
def audit(
    *,
    actor: Annotated[
        str, option("--actor", metavar="NAME", help="Only changes of token, local, kafka, streams or 'policy file'.")
    ] = "",
    action: Annotated[
        str, option("--action", metavar="WORD", help="Only actions that begin with this: crawl, crawl.stop.")
    ] = "",
    subject: Annotated[
        str, option("--subject", metavar="TEXT", help="Only changes of what contains this: shop/prices, example.com.")
    ] = "",
    limit: Annotated[int, option("--limit", metavar="N", min=1, max=10_000, help="Number of changes to show.")] = 100,
    json: options.Json = False,
    **given: Any,
) -> None:
    """Show who changed what in a crawl service, the latest change first.

    gossamer crawls audit --action domain

    The audit has the changes that came by the REST API, the dashboard and the bus, as long as the history keeps them.
    Commands that change a frontier directly are not in it.
    """
    settings = options.load_settings(given)
    rows = run_loop(audit_entries(settings, AuditFilter(actor, action, subject), limit=limit))
    if rows is None:
        raise BadInput("no service has kept a history here, and so no audit. Name its database: history.database")
    if json:
        terminal.print_json([_as_json(row) for row in rows])
    elif not rows:
        terminal.print_result("There are no such changes. Those by commands, such as gossamer domains, are not here.")
    else:
        table = tables.PlainTable("when", "who", "from", "what", "of what", "outcome", "details")
        for row in rows:
            at = datetime.fromtimestamp(row.at).strftime("%Y-%m-%d %H:%M:%S")
            outcome = f"{outcome_word(row.status)}{f': {row.reason}' if row.reason else ''}"
            table.add_row(at, row.actor, row.origin, row.action, row.subject, outcome, row.details.strip("{}"))
        tables.show(table)


def _as_json(row: "AuditEntryRow") -> dict[str, Any]:
    return {**row._asdict(), "details": json_text.loads(row.details), "outcome": outcome_word(row.status)}
