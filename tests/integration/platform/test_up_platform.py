"""`gossamer up --platform`: a manager and a node beside the crawl service, which end with it."""

import contextlib
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.servers.platform import PlatformProcess
from tests.servers.scrapyd import until
from tests.servers.valkey import free_ports


def _nodes(port: int) -> Any:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/v1/nodes").json()
    return []


def test_a_manager_and_a_node_run_beside_the_crawl_service_and_end_with_it(tmp_path: Path) -> None:
    api, port = free_ports(2)
    up = PlatformProcess(tmp_path, ["up", "--port", str(api), "--platform", "--platform-port", str(port)])
    try:
        up.start()
        until(lambda: [node["state"] for node in _nodes(port)] == ["online"], what=up.said)
        until(lambda: f"platform http://127.0.0.1:{port}" in up.said(), what=up.said)
        assert httpx.get(f"http://127.0.0.1:{api}/v1/stats/queue").status_code < 500
        assert up.process is not None
        commands = {"manager", "node"}
        children = [child for child in psutil.Process(up.process.pid).children() if commands & set(child.cmdline())]
        assert len(children) == 2
        up.kill()  # no time to tell them
        until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))
    finally:
        up.kill()
