"""The deployment files name what there is: metrics, settings, commands."""

import json
import re
from pathlib import Path

import pytest
import yaml

from gossamer.cli.app import COMMANDS
from gossamer.settings import rows
from gossamer.telemetry.metrics import ALL_METRICS

DEPLOY = Path(__file__).parents[3] / "deploy"
VARIABLE = re.compile(r"GOSSAMER_[A-Z_]+")
OUTSIDE = {"GOSSAMER_TOKEN"}
"""Of the compose file's own."""


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


@pytest.mark.parametrize("path", [*DEPLOY.rglob("*.yaml")], ids=lambda path: path.name)
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
