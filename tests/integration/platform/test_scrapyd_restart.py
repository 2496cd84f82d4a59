"""Jobs outlive the server: it may be killed at any moment, and the next one continues."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.servers import crawling
from tests.servers.platform import waits_for_job
from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider, until

_WAITS = spider("waits", "while not os.path.exists('go'):\n    await asyncio.sleep(0.05)\nyield {'done': 1}")
_ESCAPES = spider(
    "escapes",
    "subprocess.Popen(['setsid', 'sleep', self.seconds])\n"
    "subprocess.Popen(['env', '-i', 'setsid', '/bin/sh', '-c', f'sleep {self.seconds} & sleep {self.seconds}'])\n"
    "yield {'escaped': 1}\nawait asyncio.sleep(600)",
)
_DEAF = spider("deaf", "signal.signal(signal.SIGINT, signal.SIG_IGN)\nyield {'deaf': 1}\nawait asyncio.sleep(600)")


def _sleeping(seconds: str) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["cmdline"] == ["sleep", seconds] and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def _is_gone(pid: int) -> bool:
    """Also a zombie is gone: the system's first process may reap it late."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _shim_of(job_pid: int) -> psutil.Process:
    parent = psutil.Process(job_pid).parent()
    assert parent is not None
    assert "shim.py" in " ".join(parent.cmdline())
    return parent


def _spare_of(server: Scrapyd) -> psutil.Process:
    """The shim that waits for the next job."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        assert server.process is not None
        children = psutil.Process(server.process.pid).children()
        found[:] = [child for child in children if waits_for_job(Path(f"/proc/{child.pid}"))]
        return len(found) == 1

    until(is_there, what=server.said)
    return found[0]


def test_a_shim_waits_for_the_next_job_and_ends_with_its_server(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="max_proc = 2") as server:
        server.deploy(egg(_WAITS))
        first = _spare_of(server)
        server.post("schedule", project="shop", spider="waits", jobid="one")
        assert _shim_of(server.running("one")["pid"]).pid == first.pid
        _spare_of(server).kill()
        server.post("schedule", project="shop", spider="waits", jobid="two")
        server.running("two")
        last = _spare_of(server)
        server.kill()
        until(lambda: _is_gone(last.pid))
        assert not _is_gone(first.pid)
        (tmp_path / "go").touch()
        server.start()
        assert [server.ended(name)["state"] for name in ("one", "two")] == ["finished", "finished"]
        last = _spare_of(server)
        assert server.stop() == 0
        until(lambda: _is_gone(last.pid))


def test_a_shim_whose_folder_was_deleted_ends_with_its_job(tmp_path: Path) -> None:
    """So does each shim of a server without a folder for its state, which deletes its own at its end."""
    with scrapyd(tmp_path, conf="dbs_dir = :memory:") as server:
        server.deploy(egg(_WAITS))
        server.post("schedule", project="shop", spider="waits", jobid="one")
        job = server.running("one")["pid"]
        shim = _shim_of(job)
        assert server.stop() == 0
        assert "no later start knows of them" in server.said()
        assert not _is_gone(job)
        (tmp_path / "go").touch()
        until(lambda: _is_gone(shim.pid))


def _audited(server: Scrapyd) -> tuple[str, str, str]:
    entry = server.client.get("/v1/audit").json()[0]
    return entry["action"], entry["subject"], entry["outcome"]


def test_a_killed_server_continues_with_its_jobs(tmp_path: Path) -> None:
    """One job ends while no server is there, one runs on, one still waits for a slot. A change that the server was
    about to make is in its audit."""
    with scrapyd(tmp_path, conf="max_proc = 2") as server:
        server.deploy(egg(_WAITS + spider("short", "await asyncio.sleep(float(self.seconds))")))
        server.post("schedule", project="shop", spider="waits", jobid="long")
        server.post("schedule", project="shop", spider="short", jobid="short", seconds="2")
        server.post("schedule", project="shop", spider="waits", jobid="queued")
        pid = server.running("long")["pid"]
        short = psutil.Process(server.running("short")["pid"])
        with socket.create_connection(("127.0.0.1", server.port)) as wire:  # half of a deployment
            path = b"/v1/versions?project=shop&version=7"
            wire.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nPK" % path)
            until(lambda: _audited(server)[0] == "version.deploy")
            server.kill()
        until(lambda: not short.is_running())
        begun = time.monotonic()
        server.start()
        assert time.monotonic() - begun < 20
        assert _audited(server) == ("version.deploy", "shop 7", "begun")
        assert server.ended("short")["state"] == "finished"
        assert server.running("long")["pid"] == pid
        assert server.running("queued")["pid"] != pid
        (tmp_path / "go").touch()
        assert {server.ended("long")["state"], server.ended("queued")["state"]} == {"finished"}
        assert len((tmp_path / "items/shop/waits/long.jl").read_text().splitlines()) == 1  # it ran once
        assert server.get("daemonstatus")["finished"] == 3


def test_jobs_run_on_when_the_server_is_stopped(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        server.deploy(egg(_WAITS))
        server.post("schedule", project="shop", spider="waits", jobid="one")
        pid = server.running("one")["pid"]
        assert server.stop() == 0
        assert psutil.pid_exists(pid)
        server.start()
        assert server.running("one")["pid"] == pid
        (tmp_path / "go").touch()
        assert server.ended("one")["state"] == "finished"


def test_a_killed_shim_takes_its_job_along_and_the_job_has_failed(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        server.deploy(egg(_ESCAPES))
        seconds = str(86_000 + server.port)
        server.post("schedule", project="shop", spider="escapes", jobid="one", seconds=seconds)
        pid = server.running("one")["pid"]
        until(lambda: len(_sleeping(seconds)) == 3)
        _shim_of(pid).kill()
        row = server.ended("one")
        assert (row["state"], row["reason"]) == ("failed", "shim_lost")
        assert _is_gone(pid)
        assert not _sleeping(seconds)  # nor what has left its group and its environment


def test_a_server_that_finds_a_killed_shim_reports_the_end(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        server.deploy(egg(_WAITS))
        server.post("schedule", project="shop", spider="waits", jobid="one")
        pid = server.running("one")["pid"]
        shim = _shim_of(pid)
        server.kill()
        shim.kill()
        server.start()
        assert server.ended("one")["reason"] == "shim_lost"
        assert _is_gone(pid)


def test_a_server_starts_after_a_power_cut_that_left_files_empty(tmp_path: Path) -> None:
    """A file that was renamed just before may be there without its content. The folders of attempts also have
    something that is none."""
    emptied = {
        "one": ["shim.json"],
        "two": ["started.json"],
        "three": ["attempt.json", "job.json", "shim.json", "started.json", "stops"],
    }
    attempts = tmp_path / "dbs/gossamer/node/attempts"
    with scrapyd(tmp_path, conf="max_proc = 4") as server:
        server.deploy(egg(_WAITS))
        folders = {}
        for name in emptied:
            server.post("schedule", project="shop", spider="waits", jobid=name)
            pid = server.running(name)["pid"]
            folders[name] = Path(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2]))
            assert folders[name].parent == attempts
        shims = [_shim_of(server.running(name)["pid"]) for name in emptied]
        server.kill()
        for shim in shims:
            shim.kill()
            until(lambda pid=shim.pid: _is_gone(pid))
        for name, files in emptied.items():
            for file in files:
                (folders[name] / file).write_bytes(b"")
        owner = folders["two"] / "shim.json"
        owner.write_text(json.dumps({**json.loads(owner.read_text()), "boot": "earlier"}))
        (attempts / "77-1").write_bytes(b"")
        server.start()
        assert {server.ended(name)["reason"] for name in emptied} == {"machine_restarted"}
        (tmp_path / "go").touch()
        server.post("schedule", project="shop", spider="waits", jobid="next")
        assert server.ended("next")["state"] == "finished"


def test_a_cancelled_job_is_gone_with_all_that_escaped_from_it(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        server.deploy(egg(_ESCAPES))
        seconds = str(86_000 + server.port)
        server.post("schedule", project="shop", spider="escapes", jobid="one", seconds=seconds)
        pid = server.running("one")["pid"]
        until(lambda: len(_sleeping(seconds)) == 3)
        assert server.post("cancel", project="shop", job="one")["prevstate"] == "running"
        assert server.ended("one")["state"] == "cancelled"
        assert not _sleeping(seconds)
        assert _is_gone(pid)


def test_a_job_that_ignores_the_signal_is_killed_after_the_grace(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="stop_grace = 1") as server:
        server.deploy(egg(_DEAF))
        server.post("schedule", project="shop", spider="deaf", jobid="one")
        server.running("one")
        until((tmp_path / "items/shop/deaf/one.jl").exists)
        server.post("cancel", project="shop", job="one")
        assert server.ended("one")["state"] == "cancelled"


@pytest.mark.parametrize("while_away", [False, True])
def test_a_second_cancel_does_not_wait_for_the_grace(tmp_path: Path, while_away: bool) -> None:
    """Also if the server was killed in between."""
    with scrapyd(tmp_path, conf="stop_grace = 600") as server:
        server.deploy(egg(_DEAF))
        server.post("schedule", project="shop", spider="deaf", jobid="one")
        pid = server.running("one")["pid"]
        until((tmp_path / "items/shop/deaf/one.jl").exists)
        server.post("cancel", project="shop", job="one")
        if while_away:
            server.kill()
            server.start()
            assert server.running("one")["pid"] == pid  # it is still stopping
        server.post("cancel", project="shop", job="one")
        assert server.ended("one")["state"] == "cancelled"


def test_a_cancel_whose_signal_is_lost_in_an_import_ends_the_job(tmp_path: Path) -> None:
    """The module catches what the signal raises, as a careless `except` does."""
    module = (
        "import time\nif 'list' not in sys.argv:\n    open('importing', 'w').close()\n"
        "    try:\n        time.sleep(600)\n    except KeyboardInterrupt:\n        pass\n"
    )
    with scrapyd(tmp_path, conf="stop_grace = 600") as server:
        server.deploy(egg(module + spider("endless", "await asyncio.sleep(600)")))
        server.post("schedule", project="shop", spider="endless", jobid="one")
        until((tmp_path / "importing").exists)
        server.running("one")
        server.post("cancel", project="shop", job="one")
        assert server.ended("one")["state"] == "cancelled"


def test_a_cancel_with_kill_takes_no_time(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="stop_grace = 600") as server:
        server.deploy(egg(_DEAF))
        server.post("schedule", project="shop", spider="deaf", jobid="one")
        server.running("one")
        assert server.post("cancel", project="shop", job="one", signal="KILL")["prevstate"] == "running"
        assert server.ended("one")["state"] == "cancelled"


def test_a_signal_that_ends_no_process_leaves_the_job_running(tmp_path: Path) -> None:
    handles = "signal.signal(signal.SIGUSR1, lambda *_: open('heard', 'w').close())\nyield {'ready': 1}\n"
    with scrapyd(tmp_path) as server:
        server.deploy(egg(spider("listens", f"{handles}await asyncio.sleep(600)")))
        server.post("schedule", project="shop", spider="listens", jobid="one")
        server.running("one")
        until((tmp_path / "items/shop/listens/one.jl").exists)
        answer = server.post("cancel", project="shop", job="one", signal=str(int(signal.SIGUSR1)))
        assert answer["prevstate"] == "running"
        until((tmp_path / "heard").exists)
        assert server.running("one")


def test_a_pending_job_is_cancelled_at_once(tmp_path: Path) -> None:
    with scrapyd(tmp_path, conf="max_proc = 1") as server:
        server.deploy(egg(_WAITS))
        server.post("schedule", project="shop", spider="waits", jobid="one")
        server.post("schedule", project="shop", spider="waits", jobid="two")
        server.running("one")
        assert server.post("cancel", project="shop", job="two")["prevstate"] == "pending"
        assert server.get("status", job="two")["currstate"] is None  # as in Scrapyd
        assert server.post("cancel", project="shop", job="two")["prevstate"] is None
        assert not server.jobs()["pending"]


def test_a_second_server_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        assert server.process is not None
        second = crawling.gossamer("scrapyd", cwd=tmp_path)
        assert second.returncode == 2
        assert f"(process {server.process.pid})" in second.stderr


def test_jobs_with_one_id_have_files_of_their_own(tmp_path: Path) -> None:
    with scrapyd(tmp_path) as server:
        server.deploy(egg(spider("says", "yield {'says': self.what}")))
        for what in ("first", "second"):
            server.post("schedule", project="shop", spider="says", jobid="same", what=what)
        until(lambda: len(server.jobs()["finished"]) == 2)
        urls = {job["items_url"] for job in server.jobs()["finished"]}
        assert len(urls) == 2
        assert {server.client.get(url).text for url in urls} == {'{"says": "first"}\n', '{"says": "second"}\n'}


def _is_alive(server: Scrapyd) -> bool:
    return server.process is not None and server.process.poll() is None


def test_a_version_whose_build_was_interrupted_is_built_after_the_restart(tmp_path: Path) -> None:
    """The client of the interrupted deployment learned nothing; the version is there all the same."""
    slow = "import time\nif not os.path.exists('go'): open('building', 'w').close()\n"
    slow += "while not os.path.exists('go'): time.sleep(0.05)\n"
    with scrapyd(tmp_path) as server:
        deploying = subprocess.Popen(
            ["curl", "-s", f"http://127.0.0.1:{server.port}/addversion.json", "-F", "project=shop", "-F", "version=1",
             "-F", "egg=@slow.egg"], cwd=tmp_path, stdout=subprocess.DEVNULL,
        ) if (tmp_path / "slow.egg").write_bytes(egg(slow + spider("good"))) else None  # fmt: skip
        assert deploying is not None
        until((tmp_path / "building").exists)
        assert server.get("listprojects")["projects"] == []
        server.kill()
        deploying.wait(30)
        (tmp_path / "go").touch()
        server.start()
        until(lambda: server.get("listversions", project="shop")["versions"] == ["1"])
        assert server.get("listspiders", project="shop")["spiders"] == ["good"]
        assert _is_alive(server)
        assert os.listdir(tmp_path / "eggs/shop") == ["1.egg"]
