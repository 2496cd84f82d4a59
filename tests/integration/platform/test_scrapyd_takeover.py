"""A folder of Scrapyd 1.6.0 itself is taken over, and can be given back."""

from pathlib import Path
from typing import Any

import httpx

from tests.servers.real_scrapyd import real_scrapyd
from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider, until

_SPIDERS = spider("says", "yield {'says': self.what}") + spider("sleepy", "await asyncio.sleep(600)")
_KEEPS_ENDED_JOBS = "jobstorage = scrapyd.jobstorage.SqliteJobStorage"


def _schedule(client: httpx.Client, **fields: Any) -> None:
    answer = client.post("/schedule.json", data={"project": "shop", **fields}).json()
    assert answer["status"] == "ok", answer


def _ended(client: httpx.Client) -> list[str]:
    return sorted(job["id"] for job in client.get("/listjobs.json").json()["finished"])


def _files(folder: Path) -> list[str]:
    kinds = ("eggs", "logs", "items")
    return sorted(str(path.relative_to(folder)) for kind in kinds for path in (folder / kind).rglob("*.*"))


def _begin_with_scrapyd(folder: Path) -> None:
    """Let Scrapyd run a job, and leave two in its queue."""
    with real_scrapyd(folder, _KEEPS_ENDED_JOBS) as scrapyd_itself:
        form = {"project": "shop", "version": "1.9"}
        deployed = scrapyd_itself.post("/addversion.json", data=form, files={"egg": egg(_SPIDERS)}).json()
        assert deployed["spiders"] == 2, deployed
        _schedule(scrapyd_itself, spider="says", jobid="ended", what="before")
        until(lambda: _ended(scrapyd_itself) == ["ended"])
        _schedule(scrapyd_itself, spider="sleepy", jobid="blocker")
        until(lambda: scrapyd_itself.get("/listjobs.json").json()["running"])
        _schedule(scrapyd_itself, spider="says", jobid="late", what="low", priority="-1")
        _schedule(scrapyd_itself, spider="says", jobid="early", what="high", priority="1", setting="JOB_NUMBER=7")


def _continue_with_ours(server: Scrapyd) -> None:
    folder = server.folder
    assert server.get("listversions", project="shop")["versions"] == ["1_9"]  # the name of its file
    for job in ("early", "late"):
        assert server.ended(job)["state"] == "finished"
    by_start = sorted(server.jobs()["finished"], key=lambda job: str(job["start_time"]))
    assert [job["id"] for job in by_start] == ["ended", "early", "late"]
    assert server.client.get("/logs/shop/says/ended.log").status_code == 200
    assert (folder / "items/shop/says/ended.jl").read_text() == '{"says": "before"}\n'
    assert server.deploy(egg(_SPIDERS + spider("third")), version="1.10")["spiders"] == 3
    _schedule(server.client, spider="third", jobid="ours")
    server.ended("ours")
    server.stop()
    server.start()  # nothing is taken over twice
    assert _ended(server.client) == ["early", "ended", "late", "ours"]
    said = "Taken over from Scrapyd: 1 project with 1 version, 2 waiting jobs, 1 ended job."
    assert server.said().count("Taken over") == server.said().count(said) == 1


def test_a_folder_is_taken_over_and_given_back(tmp_path: Path) -> None:
    _begin_with_scrapyd(tmp_path)
    with scrapyd(tmp_path, conf="max_proc = 1") as server:
        _continue_with_ours(server)
        server.stop()
    names = [f"{kind}/shop/says/{job}.{suffix}" for kind, suffix in (("items", "jl"), ("logs", "log"))
             for job in ("early", "ended", "late")]  # fmt: skip
    ours = ["eggs/shop/1_10.egg", "eggs/shop/1_9.egg", "items/shop/third/ours.jl", "logs/shop/third/ours.log"]
    assert [name for name in _files(tmp_path) if "blocker" not in name] == sorted([*names, *ours])
    with real_scrapyd(tmp_path, _KEEPS_ENDED_JOBS) as scrapyd_itself:
        versions = scrapyd_itself.get("/listversions.json", params={"project": "shop"}).json()["versions"]
        assert set(versions) == {"1_9", "1_10"}
        spiders = scrapyd_itself.get("/listspiders.json", params={"project": "shop", "_version": "1_10"}).json()
        assert spiders["spiders"] == ["says", "sleepy", "third"]
        assert scrapyd_itself.get("/items/shop/third/ours.jl").text == '{"a": 1}\n'
        assert scrapyd_itself.get("/listjobs.json").json()["pending"] == []  # what we took over does not run again
