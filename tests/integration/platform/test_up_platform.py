"""`gossamer up --platform`: a manager and a node beside the crawl service, which end with it."""

import contextlib
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from gossamer.cli.commands.beside import platform_beside
from gossamer.errors import BadInput
from tests.servers.platform import PlatformProcess
from tests.servers.scrapyd import until
from tests.servers.valkey import free_ports


def _nodes(port: int) -> Any:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/v1/nodes").json()
    return []


def _schedules_submit_to_the_service(api: int, port: int, up: PlatformProcess) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", timeout=60) as client:
        rule = {"project": "shop", "name": "nightly", "cron": "@yearly"}
        added = client.post("/schedules", json={**rule, "crawl": {"url": "https://nowhere.invalid/", "maxdepth": 1}})
        assert added.status_code == 201, added.text
        [request] = added.json()["crawl"]
        assert (request["appid"], request["crawlid"], request["fresh"]) == ("shop", "nightly", True)
        refused = client.post("/schedules", json={**rule, "name": "private", "crawl": {"url": "http://10.0.0.1/"}})
        for number in (added.json()["id"], refused.json()["id"]):
            for _ in range(2):  # repeated
                ran = client.post(f"/schedules/{number}/run", headers={"Idempotency-Key": "once"})
                assert (ran.status_code, ran.json()["schedule_id"]) == (202, number)

        def firing(schedule: int) -> Any:
            [found] = client.get(f"/schedules/{schedule}/firings").json()["firings"]
            return found

        until(lambda: firing(1)["state"] != "waiting" != firing(2)["state"], what=up.said)
        good, bad = firing(1), firing(2)
        assert (good["state"], good["result"]) == ("submitted", "crawl shop/nightly: 1 request added")
        assert (bad["state"], "not on the public internet" in bad["result"]) == ("failed", True)
        [crawl] = good["crawls"]
        assert crawl["url"] == f"http://127.0.0.1:{api}/v1/crawls/shop/nightly"
        assert httpx.get(crawl["url"]).json()["run"] == 1


def _each_dashboard_shows_both(api: int, port: int) -> None:
    for own in (api, port):
        with httpx.Client(base_url=f"http://127.0.0.1:{own}/ui", timeout=60) as client:
            shown = client.get("/").text
            assert [text for text in ("Running crawls", "Scrapy projects") if text not in shown] == []
            for path in ("/crawls", "/workers", "/bus", "/jobs", "/projects", "/schedules", "/nodes", "/audit"):
                answer = client.get(path)
                assert answer.status_code == 200, (own, path, answer.text)
            until(lambda own=own: "nightly" in httpx.get(f"http://127.0.0.1:{own}/ui/crawls").text)
            assert "local" in client.get("/nodes").text
            assert f"gossamer deploy http://127.0.0.1:{port}</pre>" in client.get("/projects").text
            audit = client.get("/audit").text
            assert audit.count('rel="next"') == audit.count('class="notice"') == 0
            shown = re.findall(r"<td>(Crawl service|Scrapy projects)</td>.*<code>([a-z.]+)</code>", audit)
            assert {("Crawl service", "crawl.submit"), ("Scrapy projects", "schedule.create")} <= set(shown)
    # What a manager's visitor changes in the crawl service is in the manager's audit.
    stopped = httpx.post(f"http://127.0.0.1:{port}/ui/crawl/stop", data={"appid": "shop", "crawlid": "nightly"})
    assert stopped.status_code == 303
    assert httpx.get(f"http://127.0.0.1:{api}/v1/crawls/shop/nightly").json()["state"] == "stopped"
    refused = httpx.post(f"http://127.0.0.1:{port}/ui/crawl/stop", data={"appid": "shop", "crawlid": "unknown"})
    assert refused.status_code == 404
    failed, entry, *_ = httpx.get(f"http://127.0.0.1:{port}/v1/audit").json()
    assert (failed["action"], failed["subject"]) == ("crawl.delete", "/v1/crawls/shop/unknown")
    assert (failed["outcome"], failed["reason"]) == ("refused", "there is no crawl shop/unknown")
    assert (entry["actor"], entry["action"], entry["outcome"]) == ("local", "crawl.delete", "done")
    assert entry["subject"] == "/v1/crawls/shop/nightly"


def test_a_manager_and_a_node_run_beside_the_crawl_service_and_end_with_it(tmp_path: Path) -> None:
    api, port = free_ports(2)
    up = PlatformProcess(tmp_path, ["up", "--port", str(api), "--platform", "--platform-port", str(port)])
    try:
        up.start()
        until(lambda: [node["state"] for node in _nodes(port)] == ["online"], what=up.said)
        until(lambda: f"  platform   http://127.0.0.1:{port} " in up.said(), what=up.said)
        assert "gossamer node --manager" not in up.said()  # one runs already
        assert httpx.get(f"http://127.0.0.1:{api}/v1/stats/queue").status_code < 500
        _schedules_submit_to_the_service(api, port, up)
        _each_dashboard_shows_both(api, port)
        assert up.process is not None
        commands = {"manager", "node"}
        children = [child for child in psutil.Process(up.process.pid).children() if commands & set(child.cmdline())]
        assert len(children) == 2
        up.kill()  # no time to tell them
        until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))
    finally:
        up.kill()


async def test_a_port_of_another_program_is_refused_before_a_node_could_join_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BadInput, match=rf"port {port} .*--platform-port PORT"):
            async with platform_beside(tmp_path / "platform", port, print, service="", token=""):
                pass
    assert not (tmp_path / "platform").exists()
