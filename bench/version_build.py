"""`python -m bench.version_build`: how fast the API of `gossamer scrapyd` answers while an environment is built.

Deploys a wheel that needs Scrapy and python-slugify from the package index, once with pip and once with uv, each with
an empty server. Meanwhile a client asks for jobs, versions and the state of the server, one request after the other;
before that it asks while nothing is built. Exit code 1: the 99th percentile is over the limit. Another load on the
machine makes the figures worse, as the line `idle` shows.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.servers.pip_programs import program
from tests.servers.scrapyd import Scrapyd, egg, project_wheel, scrapyd, spider

_LIMIT_SECONDS = 0.05
_PATHS = ("/v1/jobs", "/v1/versions?project=base", "/daemonstatus.json")
_BUILD_SECONDS = 900.0
_IDLE_SECONDS = 5.0


def _ask(server: Scrapyd, stop: threading.Event) -> list[float]:
    """Return the seconds that each answer took, until `stop` is set."""
    times = []
    with httpx.Client(base_url=server.client.base_url, timeout=60) as client:
        client.get(_PATHS[0])  # connects
        while not stop.is_set():
            for path in _PATHS:
                begun = time.perf_counter()
                assert client.get(path).status_code == 200
                times.append(time.perf_counter() - begun)
            time.sleep(0.01)
    return times


def measure(folder: Path, builder: str) -> tuple[float, list[float], list[float]]:
    """Return the seconds that the deployment took, those of the answers meanwhile, and of those before."""
    path = os.environ["PATH"]
    if builder == "uv":
        path = f"{program('uv', 'uv').parent}{os.pathsep}{path}"
    variables = {"PATH": path, "GOSSAMER_PLATFORM_BUILDER": builder}
    with scrapyd(folder, environment=variables) as server:
        server.deploy(egg(spider("good")), project="base")
        stop, found = threading.Event(), []
        threading.Timer(_IDLE_SECONDS, stop.set).start()
        idle = _ask(server, stop)
        stop.clear()
        asking = threading.Thread(target=lambda: found.append(_ask(server, stop)))
        asking.start()
        begun = time.perf_counter()
        answer = server.client.post(
            "/v1/versions",
            params={"project": "shop", "version": "1", "environment": "isolated"},
            content=project_wheel(f"import slugify\n{spider('good')}", requires=["python-slugify==8.0.4"]),
            timeout=_BUILD_SECONDS,
        )
        seconds = time.perf_counter() - begun
        stop.set()
        asking.join()
        if answer.status_code != 201:
            sys.exit(f"the version cannot be built: {answer.text}")
    return seconds, found[0], idle


def _percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    """Measure, and print the table."""
    argparse.ArgumentParser(prog="make bench-builds", description=(__doc__ or "").partition("\n")[0]).parse_args()
    print("Answers of the API while an environment is built, in milliseconds")
    print(f"{'':8}{'build':>8}{'answers':>9}{'median':>8}{'p90':>8}{'p99':>8}{'most':>8}")
    slowest = 0.0
    for builder in ("pip", "uv"):
        with tempfile.TemporaryDirectory(prefix="gossamer-bench-") as folder:
            seconds, times, idle = measure(Path(folder), builder)
        slowest = max(slowest, _percentile(times, 0.99))
        for name, took, answers in (("idle", _IDLE_SECONDS, idle), (builder, seconds, times)):
            figures = [_percentile(answers, share) for share in (0.5, 0.9, 0.99, 1.0)]
            print(f"{name:8}{took:6.1f} s{len(answers):9}" + "".join(f"{1000 * figure:8.1f}" for figure in figures))
    print(f"Limit of the 99th percentile: {1000 * _LIMIT_SECONDS:.0f} ms.")
    sys.exit(slowest > _LIMIT_SECONDS)


if __name__ == "__main__":
    main()
