"""Probes of a worker, at the port of its metrics."""

import subprocess
from pathlib import Path

import httpx
import pytest

from gossamer.telemetry.metrics import BROWSER_WORKERS, LAG, LEASED, QUEUED_TO_RENDER, WORKERS
from tests.servers.crawling import command
from tests.servers.program import until
from tests.servers.valkey import free_ports, standalone


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_is_alive_without_its_frontier_and_ready_with_it(tmp_path: Path, processes: str) -> None:
    """Before the frontier is there, while it is, while it is away, and again."""
    [port] = free_ports(1)
    with standalone() as server:
        server.kill()
        worker = subprocess.Popen(
            command(
                "worker", "--frontier", server.address, "--bus", "streams", "--processes", processes, "--quiet",
                "--data-dir", str(tmp_path),
            ),
            env={"GOSSAMER_WORKER__METRICS": f"127.0.0.1:{port}", "GOSSAMER_WORKER__HEARTBEAT": "2"},
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

        def answer(path: str) -> httpx.Response | None:
            try:
                return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10)
            except httpx.ConnectError:  # it has not begun to listen
                return None

        def is_ready(status: int) -> bool:
            alive, ready = answer("/healthz"), answer("/readyz")
            assert alive is None or alive.json() == {"status": "ok"}
            return ready is not None and ready.status_code == status

        try:
            until(lambda: is_ready(503), "a worker that waits")
            server.start()
            until(lambda: is_ready(200), "a worker that works")
            metrics = answer("/metrics")
            assert metrics is not None
            assert "gossamer_pages_total" in metrics.text
            of_services = {info.name for info in (WORKERS, BROWSER_WORKERS, LEASED, QUEUED_TO_RENDER, LAG)}
            assert not [line for line in metrics.text.splitlines() if line.partition(" ")[0] in of_services]
            server.kill()
            until(lambda: is_ready(503), "a worker that waits again")
            ready = answer("/readyz")
            assert ready is not None
            assert ready.json() == {"status": "waiting", "troubles": ["frontier"]}
            server.start()
            until(lambda: is_ready(200), "a worker that works again")
        finally:
            worker.terminate()
            worker.wait(60)
