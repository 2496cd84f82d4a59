"""What is advised to install works, and is never a name on the package index that a stranger could register."""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import quote

import pytest

from gossamer.extras import install_advice
from tools.release import is_on_index, places_before_release

ROOT = Path(__file__).parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def wrong_advice(root: Path) -> list[str]:
    """Return the places of a checkout whose advice does not fit its state: released, or not yet."""
    if is_on_index(root):
        return places_before_release(root)
    advice = re.compile(r"gossamer[-_]crawl\[|pip install ['\"]?gossamer", re.IGNORECASE)
    read = [
        *(path for folder in ("src", "docs", "examples", "deploy", "fakeweb") for path in (root / folder).rglob("*")),
        *(root / name for name in ("README.md", "CONTRIBUTING.md")),
    ]
    kinds = (".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt")
    texts = (path for path in read if path.suffix in kinds or path.name == "Dockerfile")
    return [str(path.relative_to(root)) for path in texts if advice.search(path.read_text())]


def test_the_advice_of_all_texts_fits_the_state() -> None:
    assert wrong_advice(ROOT) == []


def test_before_the_first_release_no_page_may_advise_the_index(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "CONTRIBUTING.md").touch()
    (tmp_path / "README.md").write_text("It is not on the\npackage index yet.\n")
    page = tmp_path / "docs/page.md"
    page.write_text("pip install '/path/to/the/checkout[text]'\n")
    assert wrong_advice(tmp_path) == []
    page.write_text("pip install 'gossamer-crawl[text]'\n")
    assert wrong_advice(tmp_path) == ["docs/page.md"]


def test_pages_changed_as_a_release_demands_are_right_unless_one_was_forgotten(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("images"))
    shutil.copy(ROOT / "README.md", tmp_path)
    for page in tmp_path.rglob("*.md"):
        text = re.sub(r"not\s+on\s+the\s+package\s+index\s+yet", "on the package index", page.read_text())
        page.write_text(re.sub(r"/path/to/the/checkout(?!/)", "gossamer-crawl", text))
    page = tmp_path / "docs/howto/text.md"
    assert "pip install 'gossamer-crawl[text]'" in page.read_text()
    assert wrong_advice(tmp_path) == []
    page.write_text("pip install '/path/to/the/checkout[text]'\n")
    assert wrong_advice(tmp_path) == ["docs/howto/text.md:1"]


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
        ({"url": "file://{}/a wheel.whl", "archive_info": {}}, "pip install '{}/a wheel.whl[text]'"),
        ({"url": "file://{}/gone.whl", "archive_info": {}}, "pip install '/path/to/the/checkout[text]'"),
        ({"url": "https://git.example/gossamer"}, "pip install '/path/to/the/checkout[text]'"),
        (None, "pip install '/path/to/the/checkout[text]'"),
    ],
)
def test_the_advice_follows_how_gossamer_was_installed(
    origin: dict[str, object] | None, advice: str, tmp_path: Path
) -> None:
    checkout = tmp_path / "a check-out"
    said = advised(tmp_path, checkout, origin, "install_advice('text')")
    assert said == advice.format(checkout)


RELEASED = "Project-URL: Repository, https://git.example/gossamer\n"


@pytest.mark.parametrize(
    ("origin", "metadata", "advice"),
    [
        ({"url": "file://{}", "dir_info": {}}, "", "pip install '{}/native'"),
        ({"url": "file://{}/a wheel.whl", "archive_info": {}}, "", "pip install /path/to/the/checkout/native"),
        (None, "", "pip install /path/to/the/checkout/native"),
        (None, RELEASED, "pip install gossamer-native==1.2.3"),
    ],
)
def test_the_advice_for_the_extension_follows_it_too(
    origin: dict[str, object] | None, metadata: str, advice: str, tmp_path: Path
) -> None:
    said = advised(tmp_path, tmp_path / "a check-out", origin, "extension_advice('1.2.3')", metadata=metadata)
    assert said == advice.format(tmp_path / "a check-out")


def test_the_index_is_advised_only_for_a_release(tmp_path: Path) -> None:
    said = advised(tmp_path, tmp_path / "a check-out", None, "install_advice('text')", metadata=RELEASED)
    assert said == "pip install 'gossamer-crawl[text]'"


@pytest.mark.parametrize(
    ("file", "extra", "extension"),
    [
        (
            "uv-receipt.toml",
            "uv tool install '{0}[text]' --with '{0}/native'",
            "uv tool install '{0}' --with '{0}/native'",
        ),
        (
            "pipx_metadata.json",
            "pipx runpip gossamer-crawl install '{0}[text]'",
            "pipx runpip gossamer-crawl install '{0}/native'",
        ),
    ],
)
def test_the_advice_follows_the_tool_that_manages_the_environment(
    file: str, extra: str, extension: str, tmp_path: Path
) -> None:
    checkout = tmp_path / "a check-out"
    (tmp_path / file).touch()
    origin = {"url": "file://{}", "dir_info": {}}
    for call, advice in (
        ("install_advice('text')", extra),
        ("extension_advice('1.2.3')", extension),
        ("checkout_advice('native')", extension),
        ("package_advice('setuptools<81')", extension.replace("{0}/native", "setuptools<81")),
    ):
        said = advised(tmp_path, checkout, origin, call, prefix=tmp_path)
        assert said == advice.format(checkout)


def advised(
    folder: Path,
    checkout: Path,
    origin: dict[str, object] | None,
    call: str,
    *,
    metadata: str = "",
    prefix: Path | None = None,
) -> str:
    """Return the advice of an installation that came from `origin`, in which `{}` is the checkout."""
    installed = folder / "installed" / "gossamer_crawl-0.1.0.dist-info"
    for path in (checkout, installed):
        path.mkdir(parents=True, exist_ok=True)
    (checkout / "pyproject.toml").touch()
    (checkout / "a wheel.whl").touch()
    (installed.parent / "gossamer_native.py").touch()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: gossamer-crawl\nVersion: 0.1.0\n{metadata}")
    if origin is not None:
        url = quote(str(origin["url"]).replace("{}", str(checkout)), safe=":/")
        (installed / "direct_url.json").write_text(json.dumps({**origin, "url": url}))
    code = f"import sys; sys.prefix = {str(prefix or sys.prefix)!r}; from gossamer.extras import *; print({call})"
    paths = {"PYTHONPATH": f"{installed.parent}:{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **paths}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def test_a_job_names_the_extra_where_the_environment_of_its_project_has_no_gossamer() -> None:
    """The runner of jobs is a file that such an environment runs."""
    runner = ROOT / "src/gossamer_platform/node/runner.py"
    program = "import runpy, sys; runpy.run_path(sys.argv[1])['share_frontier']({})"
    alone = [sys.executable, "-I", "-S", "-c", program, str(runner)]
    done = subprocess.run(alone, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"pip install .*'/path/to/the/checkout\[scrapy\]'", done.stderr), done.stderr


_WITHOUT = """
import sys

MISSING = sys.argv[1].split(",")

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
_SERVICE = "fastapi,fastapi_swagger,h11,jsonschema_rs,pydantic,pydantic_core,starlette,uvicorn"


def _without_service(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT + code, _SERVICE, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def test_every_command_can_be_listed_and_completed_without_an_extra(tmp_path: Path) -> None:
    code = "from gossamer.cli.commands.completion import completion_scripts\nprint(len(completion_scripts()))"
    done = _without_service(code, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_service_names_its_extra_before_it_starts_anything(command: str, tmp_path: Path) -> None:
    code = "sys.argv = ['gossamer', *sys.argv[2:]]\nfrom gossamer.__main__ import main\nmain()"
    done = _without_service(code, command, cwd=tmp_path)
    assert done.returncode == 2
    assert "a crawl service needs " in done.stderr
    assert install_advice("service") in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_messages_names_the_extra(tmp_path: Path) -> None:
    code = "from gossamer.model.messages.reader import MessageReader\nMessageReader()"
    done = _without_service(code, cwd=tmp_path)
    assert f"messages of a crawl service need jsonschema-rs: {install_advice('service')}" in done.stderr
