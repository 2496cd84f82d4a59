"""The Helm chart, as far as it can be checked without helm: `make chart` does the rest."""

import hashlib
import json
import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from gossamer import __version__
from gossamer.telemetry.metrics import QUEUED, QUEUED_TO_RENDER
from gossamer.valkey.address import Address

CHART = Path(__file__).parents[3] / "deploy" / "helm"
TEMPLATES = sorted((CHART / "templates").glob("*.*"))
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
SCHEMES = ("redis", "rediss", "valkey", "valkeys")
FREE = {"settings", "service.resources", "worker.resources", "browser.resources", "nodeSelector", "affinity"}
"""Values whose keys are of the user's choice."""


def names(values: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield the dotted names of values."""
    for key, value in values.items():
        name = f"{place}{key}"
        if isinstance(value, dict) and name not in FREE:
            yield from names(value, f"{name}.")
        else:
            yield name


def names_of_schema(schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield the dotted names of values in a schema."""
    for key, part in schema["properties"].items():
        name, part = f"{place}{key}", SCHEMA["definitions"].get(part.get("$ref", "").rpartition("/")[2], part)
        if "properties" in part:
            assert part["additionalProperties"] is False, f"a mistyped value below {name} is not noticed"
            yield from names_of_schema(part, f"{name}.")
        else:
            yield name


def test_every_value_is_in_the_schema_and_has_a_default() -> None:
    assert set(names_of_schema(SCHEMA)) - {"global"} == set(names(VALUES))
    assert SCHEMA["additionalProperties"] is False


def test_every_value_is_used_and_every_value_that_is_used_exists() -> None:
    text = "\n".join(path.read_text() for path in TEMPLATES)
    used = set(re.findall(r"\.Values\.([\w.]*\w)", text))
    parts = {f"{part}.{name}" for name in re.findall(r"\.values\.([\w.]*\w)", text) for part in ("worker", "browser")}
    # Workers without a browser have no sandbox, and an image is given to the template as a whole.
    parts -= {"worker.sandbox"}
    images = {
        f"{place}image.{name}" for name in re.findall(r"(?<!Values)\.image\.(\w+)", text) for place in ("", "browser.")
    }
    groups = {"image", "browser.image", "worker", "browser"}
    assert (used | parts | images) - groups == set(names(VALUES))


def test_values_have_comments() -> None:
    """Each block of values.yaml has one, if not all its names are those of Kubernetes or of the chart's parts."""
    plain = {"service", "replicas", "resources", "requests", "limits", "nodeSelector", "tolerations", "affinity"}
    for block in (CHART / "values.yaml").read_text().split("\n\n"):
        assert "# " in block or set(re.findall(r"^ *(\w+):", block, re.MULTILINE)) <= plain, block


def test_its_version_is_that_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_number_of_workers_follows_metrics_that_the_documented_rules_make() -> None:
    """Each kind of worker counts only requests that it can take."""
    page = (CHART.parents[1] / "docs/howto/production.md").read_text()
    [block] = re.findall(r"```yaml\n(rules:.*?)```", page, re.DOTALL)
    made = {}
    for rule in yaml.safe_load(block)["rules"]["external"]:
        series = rule["seriesQuery"].partition("{")[0]
        name = rule.get("name", {}).get("as", series)
        made[name] = set(re.findall(r"gossamer_\w+", rule["metricsQuery"].replace("<<.Series>>", series)))
    followed = [VALUES[part]["autoscaling"]["metric"] for part in ("worker", "browser")]
    assert [made[name] for name in followed] == [{QUEUED.name, QUEUED_TO_RENDER.name}, {QUEUED_TO_RENDER.name}]


@pytest.mark.parametrize(
    ("frontier", "is_right"),
    [
        *((f"{scheme}{kind}://default@a:6379", True) for scheme in SCHEMES for kind in ("", "+cluster")),
        ("redis+cluster://a:6379,b:6379", True),
        *((address, False) for address in ("", "unix:///run/valkey.sock", "redis://", "redis+sentinel://a", "a:6379")),
    ],
)
def test_a_frontier_is_each_server_and_cluster_that_pods_can_share(frontier: str, is_right: bool) -> None:
    assert bool(re.search(SCHEMA["properties"]["frontier"]["pattern"], frontier)) is is_right
    if is_right:
        Address.parse(frontier)


def test_the_manifests_without_helm_are_made_of_this_chart() -> None:
    files = [*(CHART / name for name in ("Chart.yaml", "values.yaml", "values.schema.json")), *TEMPLATES]
    lines = [line for path in files for line in path.read_bytes().splitlines(keepends=True)]
    # Without the version, which a release sets in the chart and in the manifests.
    content = b"".join(line for line in lines if not line.startswith((b"version: ", b"appVersion: ")))
    manifests = (CHART.parent / "kubernetes" / "gossamer.yaml").read_text()
    assert f"chart: {hashlib.sha256(content).hexdigest()}\n" in manifests, "run make chart"


def test_the_example_of_an_egress_rule_opens_no_private_network() -> None:
    [example] = re.findall(r"# (\[\{to: .*?\]\}\]\n)", (CHART / "values.yaml").read_text(), re.DOTALL)
    [rule] = yaml.safe_load(example.replace("#", " "))
    closed = [ip_network(network) for network in rule["to"][0]["ipBlock"]["except"]]
    for address in ("10.0.0.1", "172.31.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254"):
        assert any(ip_address(address) in network for network in closed), address


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_ends_what_it_begins(path: Path) -> None:
    text = re.sub(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", "", path.read_text(), flags=re.DOTALL)
    begun = re.findall(r"\{\{-?\s*(?:define|if|with|range)\b", text)
    assert len(begun) == len(re.findall(r"\{\{-?\s*end\b", text))
