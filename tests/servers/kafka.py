"""A real Kafka broker: KRaft, one node, on 127.0.0.1.

`python -m tests.servers.kafka` runs one for a developer until Ctrl-C and says its address. Its jars come from Maven,
into `.cache/kafka`, once; `python -m tests.servers.kafka --install` only gets them.
"""

import base64
import contextlib
import hashlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.command import run_command

from .process import ServerProcess
from .program import missing, require
from .valkey import free_ports

FILES = Path(__file__).with_name("kafka_files")
CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
_FLAGS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto")


def install() -> None:
    """Get the jars, and make a data directory that has been started once; quick when both are there."""
    digest = hashlib.sha256((FILES / "pom.xml").read_bytes()).hexdigest()
    stamp = CACHE / "installed"
    if stamp.exists() and stamp.read_text() == digest:
        return
    for program in ("java", "mvn"):
        require(program)
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    subprocess.run(
        [
            "mvn", "-B", "-q", f"-Dmaven.repo.local={CACHE / 'm2'}", "-f", str(FILES / "pom.xml"),
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
            "-DincludeScope=runtime", f"-DoutputDirectory={CACHE / 'libs'}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    shutil.rmtree(CACHE / "m2", ignore_errors=True)
    _make_template()
    stamp.write_text(digest)


def _make_template() -> None:
    """A formatted data directory whose first consumer group was already there: a broker on a copy of it is ready at
    once, and the first group joins at once too."""
    template = CACHE / "template"
    archive = _archive()
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        broker = Broker(Path(folder))
        broker.configure()
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", "-t", identity, "-c", str(broker.config)]
        subprocess.run([*_java(), *tool], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        broker.run(f"-XX:ArchiveClassesAtExit={archive}")
        _warm(broker.servers)
        broker.stop()
        shutil.rmtree(template, ignore_errors=True)
        shutil.copytree(broker.data, template)


def _warm(servers: str) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    admin.create_topics([NewTopic("warm", 1, 1)])["warm"].result(30)
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    producer.produce("warm", b"up")
    producer.flush(30)
    group = {"group.id": "warm", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, "log_level": 2, **group})
    consumer.subscribe(["warm"])
    last = time.monotonic() + 60
    while consumer.poll(1.0) is None:
        assert time.monotonic() < last
    consumer.close()
    admin.delete_topics(["warm"])["warm"].result(30)


def _archive() -> Path:
    """The class archive belongs to one Java: another one makes its own."""
    version = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    return CACHE / f"classes-{hashlib.sha256(version).hexdigest()[:12]}.jsa"


def _java(*flags: str) -> list[str]:
    jars = ":".join(sorted(map(str, (CACHE / "libs").glob("*.jar"))))
    return ["java", *_FLAGS, *flags, f"-Dlog4j2.configurationFile={FILES / 'log4j2.yaml'}", "-cp", jars]


class Broker(ServerProcess):
    """One broker on one directory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data = folder / "data"
        self.config = folder / "server.properties"
        self.port, self._controller = free_ports(2)

    @property
    def servers(self) -> str:
        """`host:port` of the broker, the same after a restart."""
        return f"127.0.0.1:{self.port}"

    def configure(self) -> None:
        """Write its settings."""
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "log.cleaner.threads": "1",
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "250",
        }
        self.config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def start(self) -> None:
        """From the template, or from what its last run left; returns when it answers."""
        if not self.data.exists():
            shutil.copytree(CACHE / "template", self.data)
        self.configure()
        archive = _archive()
        self.run(*([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []))

    def run(self, *flags: str) -> None:
        """Start the process with flags for Java, and return when it answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 2})

        def answers() -> bool:
            with contextlib.suppress(KafkaException):
                return bool(admin.list_topics(timeout=1).brokers)
            return False

        self.launch([*_java(*flags), "kafka.Kafka", str(self.config)], answers)


@contextlib.contextmanager
def broker() -> Iterator[Broker]:
    """A broker of its own, ready; the test is skipped where none can be had (in CI it fails)."""
    if not (CACHE / "installed").exists():
        missing("Kafka is not installed; run tests/servers/install")
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    started = Broker(folder)
    try:
        started.start()
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run one until Ctrl-C."""
    install()
    if "--install" not in sys.argv:
        with broker() as running, contextlib.suppress(KeyboardInterrupt):
            print(f"Kafka listens at {running.servers}: gossamer up --bus kafka://{running.servers}", flush=True)
            signal.pause()
    return 0


if __name__ == "__main__":
    run_command(main)
