"""What is advised to install works, and is never a name on the package index that a stranger could register."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gossamer.extras import install_advice

ROOT = Path(__file__).parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PEOPLE_READ = [
    *(path for folder in ("src", "docs", "examples", "deploy", "fakeweb") for path in (ROOT / folder).rglob("*")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]


def test_no_text_advises_to_install_gossamer_from_the_index() -> None:
    advice = re.compile(r"gossamer[-_]crawl\[|pip install ['\"]?gossamer", re.IGNORECASE)
    for path in PEOPLE_READ:
        if path.suffix in (".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt") or path.name == "Dockerfile":
            assert not advice.findall(path.read_text()), path


def test_no_package_of_this_repository_requires_another_one_from_the_index() -> None:
    for path in ("fakeweb/pyproject.toml", "native/pyproject.toml", "pyproject.toml"):
        project = tomllib.loads((ROOT / path).read_text())["project"]
        assert not [name for name in project.get("dependencies", []) if name.startswith("gossamer")]


def test_every_extra_that_is_advised_exists() -> None:
    advised = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="install_advice"), args=[ast.Constant(value=extra)]):
                    advised.add(extra)
    assert advised >= {"text", "kafka", "platform"}
    assert advised <= EXTRAS.keys()


def test_the_advice_names_the_checkout() -> None:
    *command, place = shlex.split(install_advice("text"))
    folder, _, extra = place.removesuffix("]").partition("[")
    assert (command, extra) == (["pip", "install", "-e"], "text")
    assert tomllib.loads((Path(folder) / "pyproject.toml").read_text())["project"]["name"] == "gossamer-crawl"


@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        ({"url": "file://{}", "dir_info": {}}, "pip install '{}[text]'"),
        ({"url": "file://{}", "dir_info": {"editable": True}}, "pip install -e '{}[text]'"),
        ({"url": "file://{}/gone", "dir_info": {}}, "pip install '/path/to/the/checkout[text]'"),
        ({"url": "file://{}/dist/gossamer_crawl.whl", "archive_info": {}}, "pip install '/path/to/the/checkout[text]'"),
        ({"url": "https://git.example/gossamer"}, "pip install '/path/to/the/checkout[text]'"),
        (None, "pip install '/path/to/the/checkout[text]'"),
    ],
)
def test_the_advice_follows_how_gossamer_was_installed(
    origin: dict[str, object] | None, advice: str, tmp_path: Path
) -> None:
    checkout, installed = tmp_path / "a check-out", tmp_path / "installed" / "gossamer_crawl-0.1.0.dist-info"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: gossamer-crawl\nVersion: 0.1.0\n")
    if origin is not None:
        written = json.dumps(origin).replace("{}", str(checkout).replace(" ", "%20"), 1)
        (installed / "direct_url.json").write_text(written)
    code = "from gossamer.extras import install_advice; print(install_advice('text'))"
    paths = {"PYTHONPATH": f"{installed.parent}:{ROOT / 'src'}"}
    said = subprocess.run([sys.executable, "-c", code], env={**os.environ, **paths}, capture_output=True, text=True)
    assert said.stdout == advice.format(checkout) + "\n", said.stderr
