"""`gossamer demo`: a web of our own, crawled, in a few seconds and without the network."""

from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from gossamer.cli import options, standard
from gossamer.cli.commands.crawl import run_crawl, tell
from gossamer.cli.running import run as run_loop
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fetch.resolve import parse_override
from gossamer.settings import load
from gossamer.sinks.jsonl import read_records


def demo(
    pages: Annotated[int, typer.Option("--pages", metavar="N", help="Pages of the demonstration's web.")] = 500,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PATH", help="Where the records go.")] = Path(
        "demo/pages.jsonl"
    ),
    json: options.Json = False,
) -> None:
    """Start a small web on this machine, crawl it, and show where the pages are.

    Nothing leaves the machine. It is crawled fast, because nobody else lives there; the web of others is asked once a
    second per domain unless you say otherwise.
    """
    spec = WebSpec(hosts=5, pages=max(1, pages // 5), cross_host_share=0.05, not_found=0.01, redirect_same=0.02)
    settings_flags = {
        "crawl.output": (str(output),),
        "crawl.rate": "1000/1",
        "crawl.domain_concurrency": 16,
        "data_dir": output.parent / "data",
    }
    before = sum(1 for _ in read_records(output)) if output.is_file() else 0
    with FakeWeb.start(spec) as web:
        standard.note(f"A web of {spec.hosts} sites with {spec.hosts * spec.pages:,} pages is up: {web.url()}")
        overrides = dict(map(parse_override, web.resolve_overrides()))
        settings = load({**settings_flags, "fetch.resolve": overrides})
        summary = run_loop(run_crawl(settings, web.seeds(), [], crawl_id=f"demo-{web.port}", fresh=False, quiet=json))
    tell(summary, as_json=json, quiet=False, on_stderr=False)
    if not json and output.is_file():
        standard.note(f"\nSome of its records in {output}, one JSON object a line:")
        for record in islice(read_records(output), before, before + 3):
            standard.note(f"  {_line(record)}")
        standard.note("\nNow yours: gossamer crawl https://example.com")
    raise typer.Exit(summary.exit_code())


def _line(record: object) -> str:
    get = record.get if isinstance(record, dict) else lambda name: getattr(record, name, "")
    return f"{get('status_code')} {get('url')} depth {get('depth')} {len(get('body') or ''):,} characters"
