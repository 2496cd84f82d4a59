"""The deployment files name what there is: metrics, settings, commands."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer.cli.app import COMMANDS
from gossamer.errors import BadInput, ServerUnsuitable
from gossamer.render.browser import DATA_KIB
from gossamer.settings import load
from gossamer.settings.rows import rows
from gossamer.telemetry.metrics import ALL_METRICS
from gossamer.valkey.address import Address, with_password
from gossamer.valkey.connection import retrying
from gossamer.valkey.embedded import find_server
from gossamer.valkey.shards import Shards
from tests.servers.composed import services
from tests.servers.crawling import gossamer
from tests.servers.valkey import free_ports
from tools.image import TRIED, is_sent, sent, stages

DEPLOY = Path(__file__).parents[3] / "deploy"
VARIABLE = re.compile(r"GOSSAMER_[A-Z_]+")
OUTSIDE = {
    "GOSSAMER_TOKEN",
    "GOSSAMER_NODE_TOKEN",
    "GOSSAMER_NODE_TOKEN_FILE",
    "GOSSAMER_SERVICE_PORT",
    "GOSSAMER_NATIVE",
}
"""Of the compose file's own, of a node and of the build; and one that Kubernetes would set."""


def test_the_dashboard_shows_only_metrics_that_there_are() -> None:
    board = json.loads((DEPLOY / "grafana" / "gossamer.json").read_text())
    known = {name.name for name in ALL_METRICS} | {
        f"{name.name}_bucket" for name in ALL_METRICS if name.kind == "histogram"
    }
    shown = {
        metric
        for panel in board["panels"]
        for target in panel["targets"]
        for metric in re.findall(r"gossamer_\w+", target["expr"])
    }
    assert shown <= known
    missing = {name.name for name in ALL_METRICS} - {metric.removesuffix("_bucket") for metric in shown}
    assert not missing, f"nobody would see {missing}"


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.*")), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_setting_that_is_named_exists(path: Path) -> None:
    known = {variable for _, variable, _, _ in rows()} | OUTSIDE
    assert set(VARIABLE.findall(path.read_text())) <= known


@pytest.mark.parametrize(
    "path", [path for path in DEPLOY.rglob("*.yaml") if path.parent.name != "templates"], ids=lambda path: path.name
)
def test_manifests_are_yaml_and_call_commands_that_exist(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    text = path.read_text()
    called = re.findall(r"command: (\w+)", text) + re.findall(r"args: \[(\w+)", text)
    assert {name for name in called if name != "valkey"} <= set(COMMANDS)


def test_kubernetes_probes_and_scrapes_the_port_that_needs_no_token() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "gossamer.yaml").read_text()))
    [template] = [
        one["spec"]["template"]
        for one in documents
        if one["metadata"]["name"] == "gossamer-service" and one["kind"] == "Deployment"
    ]
    [container] = template["spec"]["containers"]
    [address] = [row["value"] for row in container["env"] if row["name"] == "GOSSAMER_SERVICE__METRICS"]
    port = address.rpartition(":")[2]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == port
    ready = container["readinessProbe"]["httpGet"]
    named = {row["name"]: row["containerPort"] for row in container["ports"]}
    assert (ready["path"], named[ready["port"]]) == ("/readyz", int(port))
    [service] = [one for one in documents if one["kind"] == "Service"]
    assert int(port) not in [row["port"] for row in service["spec"]["ports"]]


@pytest.mark.parametrize("path", [*DEPLOY.rglob("*.service")], ids=lambda path: path.name)
def test_units_call_commands_that_exist(path: Path) -> None:
    [command] = re.findall(r"ExecStart=\S+/gossamer (\w+)", path.read_text())
    assert command in COMMANDS


@pytest.mark.parametrize("path", [*DEPLOY.rglob("*.service")], ids=lambda path: path.name)
def test_a_unit_finds_what_the_documentation_installs_and_its_head_names_its_settings(path: Path) -> None:
    page = (DEPLOY.parent / "docs/howto/production.md").read_text()
    head, _, unit = path.read_text().partition("[Unit]")
    [folder] = re.findall(r"ExecStart=(\S+)/bin/gossamer ", unit)
    [user] = re.findall(r"User=(\w+)", unit)
    assert f"python3 -m venv {folder}\n" in page
    assert user == "root" or f"useradd --system {user}\n" in page
    assert all(name in head for name in re.findall(r"/etc/gossamer/[\w.-]+", unit))


def test_no_unit_owns_the_folder_of_another_one() -> None:
    """systemd gives a unit's user all that is in its StateDirectory: running jobs would lose their files."""
    units = {path.name: path.read_text() for path in DEPLOY.rglob("*.service")}
    folders = {name: re.findall(r"^StateDirectory=(\S+)$", unit, re.MULTILINE) for name, unit in units.items()}
    for name, [folder] in folders.items():
        assert f" /var/lib/{folder}\n" in units[name], "its command works in this folder"
        assert not [
            other for other, [place] in folders.items() if other != name and f"{place}/".startswith(f"{folder}/")
        ]


@pytest.mark.parametrize("path", [*DEPLOY.rglob("*.service")], ids=lambda path: path.name)
def test_a_unit_whose_child_is_killed_for_memory_runs_on(path: Path) -> None:
    """By default, systemd would stop all the others with a job, a browser or one worker process."""
    assert "\nOOMPolicy=continue\n" in path.read_text()


@pytest.mark.parametrize(
    ("file", "limit"),
    [
        ("systemd/gossamer-browser@.service", r"MemoryMax=(\d+)G"),
        ("compose.cluster.yaml", r"browser-worker:(?s:.*?)mem_limit: (\d+)g"),
        ("helm/values.yaml", r"\nbrowser:(?s:.*?)limits: \{memory: (\d+)Gi\}"),
    ],
)
def test_a_page_meets_its_own_limit_before_that_of_its_worker(file: str, limit: str) -> None:
    """A worker, its browser and their files take less than 768 MiB."""
    found = re.search(limit, (DEPLOY / file).read_text())
    assert found is not None
    assert int(found[1]) * 1024 >= DATA_KIB / 1024 + 768


# --- the image --------------------------------------------------------------------------------------------------------

DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def test_the_images_user_is_a_number() -> None:
    """Else Kubernetes cannot see that it is not root (`runAsNonRoot`)."""
    for stage in DOCKERFILE.split("\nFROM ")[4:]:
        users = re.findall(r"^USER (\S+)$", stage, re.MULTILINE)
        assert not users or re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])


def test_the_images_default_command_listens_beyond_the_container_and_so_needs_a_token(tmp_path: Path) -> None:
    arguments, *others = [json.loads(found) for found in re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)]
    assert {other[0] for other in others} == {"manager", "worker"} <= set(COMMANDS)
    arguments[arguments.index("--data-dir") + 1] = str(tmp_path / "data")
    assert arguments[arguments.index("--host") + 1] == "0.0.0.0"
    done = gossamer(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "GOSSAMER_SERVICE__TOKEN" in done.stderr


def test_the_image_without_a_browser_is_built_by_default() -> None:
    names = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
    assert names[-1] == ("gossamer", "")
    assert {name for _, name in names} >= {"gossamer", "platform", "browser"}


def test_the_steps_of_the_image_can_be_executed_without_a_daemon() -> None:
    """By tools/image.py, which executes them; here they are only read."""
    found = stages(DOCKERFILE)
    assert found.keys() >= TRIED.keys()
    copied = [
        source
        for stage in found.values()
        for instruction, rest in stage.instructions
        if instruction == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert copied
    assert all(sent(source) for source in copied)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".cache/site/index.html",
        "dist/a.whl",
        "native/Cargo.lock",
        "native/target/release/lib.so",
        "src/gossamer/__pycache__/errors.cpython-313.pyc",
    ],
)
def test_a_builder_gets_nothing_that_was_made_on_this_machine(path: str) -> None:
    assert not is_sent(Path(path))


# --- compose ----------------------------------------------------------------------------------------------------------

PASSWORDS = [
    "plain",
    "a/b",
    "me@home",
    "a:b",
    "100%",
    "%41",
    "?#&=",
    "two words",
    "\"quoted\" 'too'",
    "\\back",
    "$HOME é",
]


CLUSTER, SMALL = "compose.cluster.yaml", "compose.small.yaml"
SECRETS = ("GOSSAMER_TOKEN", "VALKEY_PASSWORD", "POSTGRES_PASSWORD", "NODE_1_TOKEN", "NODE_2_TOKEN")


def compose(password: str, name: str = CLUSTER) -> dict[str, Any]:
    """The services of a compose file, with this password for all."""
    return services(name, dict.fromkeys(SECRETS, password))


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_of_any_characters_reaches_the_frontier(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gets it as one argument, and the services and its health check from the environment."""
    found = compose(password)
    for name in ("service", "worker", "browser-worker"):
        with monkeypatch.context() as environment:
            for variable, value in found[name]["environment"].items():
                environment.setenv(variable, value)
            address = Address.parse(load(config=None).frontier)
            assert (address.user, address.password, str(address.endpoints[0])) == ("default", password, "valkey:6379")
    command = found["valkey"]["command"]
    assert command[command.index("--requirepass") + 1] == password
    assert found["valkey"]["environment"]["REDISCLI_AUTH"] == password


def test_valkey_starts_by_its_command_and_asks_for_the_password(tmp_path: Path) -> None:
    [port] = free_ports(1)
    password = "a/b@c \"d\" 'e' \\f %41"
    _, *arguments = compose(password)["valkey"]["command"]
    server = subprocess.Popen(
        [find_server(), *arguments, "--port", str(port), "--bind", "127.0.0.1"], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    try:
        asyncio.run(_knows(f"redis://default@127.0.0.1:{port}", password))
    finally:
        server.terminate()
        server.wait(60)
    assert list(tmp_path.rglob("*.aof")), "its data are in the folder of its volume, the working folder"


async def _knows(address: str, password: str) -> None:
    """Connect with the password, and see that the server has one and its settings."""
    shards = await retrying(lambda: Shards.connect(with_password(address, password)), timeout_seconds=60)
    assert await shards.everywhere("CONFIG", "GET", "maxmemory-policy") == [[b"maxmemory-policy", b"noeviction"]]
    await shards.close()
    with pytest.raises(ServerUnsuitable, match="password"):
        await Shards.connect(address)


def test_data_are_written_into_the_volumes() -> None:
    found = compose("x")
    volumes = {name: dict(v.split(":") for v in one.get("volumes", ())) for name, one in found.items()}
    assert found["kafka"]["environment"]["KAFKA_LOG_DIRS"] == volumes["kafka"]["kafka"]
    assert volumes["valkey"]["valkey"] == "/data"  # the working folder of the image
    assert volumes["postgresql"]["postgresql"] == "/var/lib/postgresql/data"  # the folder of the image
    assert "--store /data/" in found["manager"]["command"]
    [made] = re.findall(r"install -d -o gossamer -g gossamer (.+)$", DOCKERFILE, re.MULTILINE)
    for name in ("service", "worker", "browser-worker"):
        assert found[name]["environment"]["GOSSAMER_TOPICS__BLOBS"] == volumes[name]["blobs"]
    for name in OWN:
        # A new volume gets the owner of the image's folder; without one it belongs to root.
        assert set(volumes[name].values()) <= set(made.split())


def test_a_node_builds_environments_in_a_volume_of_its_own() -> None:
    """Docker mounts a tmpfs with noexec: compiled modules of an environment could not be loaded."""
    found = compose("x")
    for name in ("node-1", "node-2"):
        assert " --folder /data/" in found[name]["command"]
        assert found[name]["volumes"] == [f"{name}:/data"]
        assert not [place for place in found[name]["tmpfs"] if place.startswith("/data")]


def test_code_of_projects_reaches_no_server_of_the_cluster_but_its_manager() -> None:
    """Kafka asks for no password, and its clients can do everything."""
    networks = {name: set(one.get("networks", ["default"])) for name, one in compose("x").items()}
    reached = {name for name, own in networks.items() if own & (networks["node-1"] | networks["node-2"])}
    assert reached == {"manager", "node-1", "node-2"}
    servers = {"worker": {"valkey", "kafka"}, "browser-worker": {"valkey", "kafka"}, "manager": {"postgresql"}}
    for name, needed in (servers | {"service": {"valkey", "kafka", "postgresql"}}).items():
        assert all(networks[name] & networks[server] for server in needed), name
    assert set.union(*networks.values()) == yaml.safe_load((DEPLOY / CLUSTER).read_text())["networks"].keys()


OWN = ("service", "worker", "browser-worker", "manager", "node-1", "node-2")
"""Services of the cluster that are Gossamer's."""


def test_every_container_has_a_health_check_at_an_address_that_is_served() -> None:
    found = compose("x") | compose("x", SMALL)
    for name, one in found.items():
        if name.startswith("node-"):
            continue  # nodes serve nothing: the manager knows whether they are online
        test = " ".join(one["healthcheck"]["test"])
        if variables := {"GOSSAMER_SERVICE__METRICS", "GOSSAMER_WORKER__METRICS"} & one["environment"].keys():
            assert f"http://{one['environment'][variables.pop()]}/readyz" in test


def test_no_container_of_ours_has_rights_or_writes_to_its_root() -> None:
    for one in [compose("x")[name] for name in OWN] + [compose("x", SMALL)["gossamer"]]:
        assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
        assert "no-new-privileges:true" in one["security_opt"]
        written = [place.partition(":")[0] for place in one["tmpfs"]]
        written += [place.partition(":")[2] for place in one.get("volumes", ())]
        assert {"/tmp", "/data"} <= set(written)
        assert (
            f"\nFROM {'user' if one['build']['target'] != 'browser' else 'gossamer'} AS {one['build']['target']}\n"
            in DOCKERFILE
        )


def test_the_container_of_browsers_is_confined_and_permits_their_sandbox() -> None:
    service = compose("x")["browser-worker"]
    assert service["build"]["target"] == "browser"
    privileges, profile = service["security_opt"]
    assert privileges == "no-new-privileges:true"
    rules = json.loads((DEPLOY / profile.removeprefix("seccomp:")).read_text())
    refused = {name for rule in rules["syscalls"] for name in rule["names"]}
    assert {"mount", "ptrace", "bpf", "keyctl", "setns", "kexec_load"} <= refused
    assert not {"clone", "clone3", "unshare", "chroot"} & refused, "the sandbox makes namespaces by them"


# --- Kubernetes -------------------------------------------------------------------------------------------------------

PART = "app.kubernetes.io/component"
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "gossamer.yaml").read_text()))


def pods() -> dict[str, dict[str, Any]]:
    """The specification of each deployment's pods."""
    return {
        one["spec"]["template"]["metadata"]["labels"][PART]: one["spec"]["template"]["spec"]
        for one in MANIFESTS
        if one["kind"] == "Deployment"
    }


@pytest.mark.parametrize("part", ["service", "worker"])
def test_pods_have_probes_and_the_images_user(part: str) -> None:
    pod = pods()[part]
    [container] = pod["containers"]
    named = {row["name"] for row in container["ports"]}
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"]["path"] == path
        assert container[probe]["httpGet"]["port"] in named
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"USER {pod['securityContext']['runAsUser']}:" in DOCKERFILE
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert mounted == {"/data", "/tmp"}


def test_the_variables_of_a_service_of_kubernetes_do_not_reach_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the Service `gossamer`, Kubernetes sets variables that look like settings, unless a pod declines them."""
    monkeypatch.setenv("GOSSAMER_SERVICE_PORT", "5343")
    with pytest.raises(BadInput, match="GOSSAMER_SERVICE_PORT"):
        load(config=None)
    assert [pod["enableServiceLinks"] for pod in pods().values()] == [False, False]


def test_only_prometheus_reaches_the_ports_that_need_no_token() -> None:
    policies = {
        one["spec"]["podSelector"]["matchLabels"][PART]: one for one in MANIFESTS if one["kind"] == "NetworkPolicy"
    }
    assert policies.keys() == pods().keys()
    for part, policy in policies.items():
        [container] = pods()[part]["containers"]
        rules = {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert rules.keys() == {row["name"] for row in container["ports"]}
        assert rules["metrics"], f"everybody reaches the metrics of a {part}"


def test_no_password_is_in_an_address() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".json":
            assert not re.findall(r"\w+://[^\s@]*:[^\s@]*@", path.read_text()), path
