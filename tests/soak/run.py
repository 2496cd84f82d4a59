"""One long crawl by one worker, with memory and CPU of everything that takes part noted each second."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.scale.emptied import Emptied
from tests.scale.sampling import Sample, Sampler, cpu_of, memory_of
from tests.servers.crawling import command
from tests.servers.valkey import Server, standalone

HOST_PAGES = 10_000
_SAY_SECONDS = 15.0


@dataclass(slots=True)
class Soaked:
    """What came of it."""

    pages: int
    """That the web has."""
    samples: list[Sample]
    """pages: requests the web has answered; worker_memory, valkey_memory, valkey_used: bytes; worker_cpu, valkey_cpu,
    web_cpu: seconds."""
    summary: dict[str, Any]
    """The crawl's own, `--json`; empty if it gave none."""
    exit_code: int
    complaints: str
    """What it said on standard error, warnings included."""
    records: int
    urls: int
    """Different ones among the records of fetched pages."""
    failures: list[str]
    output_bytes: int


def soak(
    pages: int,
    *,
    hosts: int = 0,
    page_bytes: int = 12_000,
    every_seconds: float = 1.0,
    output_bytes: int = 64 * 2**20,
    say: Callable[[str], None] = lambda _: None,
) -> Soaked:
    """Crawl a web of so many pages to the end. The pages' records are counted and thrown away as they come.

    `hosts` that share the pages; 0: one for each `HOST_PAGES`. `output_bytes`: the output is read and removed whenever
    it has grown to this size. `say` hears now and then how far it is.
    """
    hosts = hosts or max(1, pages // HOST_PAGES)
    spec = WebSpec(hosts=hosts, pages=max(1, pages // hosts), page_bytes=page_bytes)
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        FakeWeb.start(spec) as web,
        standalone() as server,
        Emptied(Path(name, "pages.jsonl"), at_bytes=output_bytes) as output,
    ):
        folder = Path(name)
        (folder / "seeds").write_text("\n".join(web.seeds()))
        arguments = ["crawl", "--seeds", "seeds", "--frontier", server.address, "-o", str(output.path), "--json"]
        arguments += ["--rate", "100000/1", "--domain-concurrency", "64", "--resolve", "*.test:127.0.0.1"]
        arguments += ["--scope", "any", "--depth", "1000000"]  # the web leads nowhere else; a scope holds fewer hosts
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                command(*arguments),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "GOSSAMER_LOG_LEVEL": "warning"},
            )
            try:
                with Sampler(lambda: _figures(process.pid, server, web), every_seconds=every_seconds) as sampler:
                    while process.poll() is None:
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            process.wait(_SAY_SECONDS)
                        if sampler.samples:
                            say(_progress(sampler.samples[-1], spec.hosts * spec.pages))
            finally:
                process.kill()
                process.wait()
        said = (folder / "out").read_text().strip()
        complaints = (folder / "err").read_text().strip()
    return Soaked(
        pages=spec.hosts * spec.pages,
        samples=sampler.samples,
        summary=json.loads(said) if said else {},
        exit_code=process.returncode,
        complaints=complaints,
        records=output.records,
        urls=len(output.urls),
        failures=output.failures,
        output_bytes=output.bytes,
    )


def _progress(sample: Sample, pages: int) -> str:
    worker, valkey = (sample.figures[name] / 2**20 for name in ("worker_memory", "valkey_memory"))
    return (
        f"{sample.seconds:5.0f} s {sample.figures['pages']:>9,.0f} of {pages:,} pages; worker {worker:.0f} MiB, "
        f"Valkey {valkey:.0f} MiB"
    )


def _figures(worker: int, server: Server, web: FakeWeb) -> Mapping[str, float]:
    return {
        "pages": web.stats().requests,
        "worker_memory": memory_of(worker),
        "worker_cpu": cpu_of(worker),
        "valkey_memory": memory_of(server.pid),
        "valkey_used": int(server.info("memory")["used_memory"]),
        "valkey_cpu": cpu_of(server.pid),
        "web_cpu": cpu_of(web.pid),
    }
