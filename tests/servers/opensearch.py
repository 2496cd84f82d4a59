"""A real OpenSearch server: one node, on 127.0.0.1.

The distribution comes from Maven into `.cache/opensearch`, once: `python -m tests.servers.opensearch`. The server may
run as root: it asks a native library whether it does, and the library is not loaded here.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .process import ServerProcess
from .program import missing, require
from .valkey import free_ports

VERSION = "2.19.6"
CACHE = Path(__file__).parents[2] / ".cache" / "opensearch"
HOME = CACHE / f"opensearch-{VERSION}"
_FLAGS = (
    "-Xms128m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto",
    "-Djna.nosys=true", "-Djna.nounpack=true",  # without the native library, the server runs as root, too
    "-Djava.security.manager=allow", "-Dlog4j.shutdownHookEnabled=false", "-Dlog4j2.disable.jmx=true",
    "-Dio.netty.noUnsafe=true", "-Dio.netty.noKeySetOptimization=true", "-Dio.netty.recycler.maxCapacityPerThread=0",
    "-Dio.netty.allocator.numDirectArenas=0", "-Dopensearch.distribution.type=zip",
)  # fmt: skip
_LOGGING = """rootLogger.level = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n%throwable
rootLogger.appenderRef.console.ref = console
"""


def install() -> None:
    """Get the distribution, and make an archive of its classes; quick when both are there."""
    stamp = CACHE / "installed"
    if stamp.exists() and stamp.read_text() == VERSION:
        return
    for program in ("java", "mvn"):
        require(program)
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    artifact = f"org.opensearch.distribution.integ-test-zip:opensearch:{VERSION}:zip"
    subprocess.run(
        [
            "mvn", "-B", "-q", f"-Dmaven.repo.local={CACHE / 'm2'}",
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy",
            f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    shutil.rmtree(CACHE / "m2", ignore_errors=True)
    [packed] = CACHE.glob("*.zip")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(CACHE)
    packed.unlink()
    with tempfile.TemporaryDirectory(prefix="go-", ignore_cleanup_errors=True) as folder:
        server = OpenSearchServer(Path(folder))
        server.start(f"-XX:ArchiveClassesAtExit={_archive()}")
        server.stop()
    stamp.write_text(VERSION)


def _archive() -> Path:
    """The class archive belongs to one Java: another one makes its own."""
    version = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    return CACHE / f"classes-{hashlib.sha256(version).hexdigest()[:12]}.jsa"


class OpenSearchServer(ServerProcess):
    """One server of one node."""

    start_seconds = 240.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self._transport = free_ports(2)

    @property
    def url(self) -> str:
        """URL of the server, the same after a restart."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, *flags: str) -> None:
        """Start the server, and return when it answers."""
        for name in ("config", "tmp", "logs"):
            (self.folder / name).mkdir(exist_ok=True)
        settings = {
            "path.data": str(self.folder / "data"),
            "path.logs": str(self.folder / "logs"),
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": self._transport,
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }
        (self.folder / "config/opensearch.yml").write_text("".join(f"{k}: {v}\n" for k, v in settings.items()))
        (self.folder / "config/log4j2.properties").write_text(_LOGGING)
        archive = _archive()
        if not flags and archive.exists():
            flags = (f"-XX:SharedArchiveFile={archive}",)
        jars = ":".join(sorted(map(str, (HOME / "lib").glob("*.jar"))))
        command = [
            require("java"), *_FLAGS, *flags, f"-Dopensearch.path.home={HOME}",
            f"-Dopensearch.path.conf={self.folder / 'config'}", f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            "-cp", jars, "org.opensearch.bootstrap.OpenSearch",
        ]  # fmt: skip
        self.launch(command, self._answers)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer to a request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/{path}", data, {"content-type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def documents(self, index: str, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the documents of an index. `fields`: only these; empty: all."""
        self.call("POST", f"{index}/_refresh")
        body = {"size": 10_000, "_source": list(fields) or True}
        found = self.call("POST", f"{index}/_search?scroll=1m", body)
        documents: list[dict[str, Any]] = []
        while hits := found["hits"]["hits"]:
            documents += [hit["_source"] for hit in hits]
            if len(hits) < body["size"]:
                break
            found = self.call("POST", "_search/scroll", {"scroll": "1m", "scroll_id": found["_scroll_id"]})
        return documents

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, urllib.error.URLError):
            return bool(self.call("GET", "_cluster/health?wait_for_status=yellow&timeout=30s")["status"] != "red")
        return False


@contextlib.contextmanager
def opensearch() -> Iterator[OpenSearchServer]:
    """A server of its own, ready; the test is skipped where none can be had (in CI it fails)."""
    if not (CACHE / "installed").exists():
        missing("OpenSearch is not installed; run tests/servers/install")
    folder = Path(tempfile.mkdtemp(prefix="go-"))
    server = OpenSearchServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    install()
