"""A kind of request that an installed package adds."""

import os
from pathlib import Path

import httpx

from tests.servers.service import up

_PLUGIN = """
class Echo:
    schema = {
        "type": "object",
        "properties": {"appid": {"type": "string"}, "echo": {"type": "string"}},
        "required": ["appid", "echo"],
        "additionalProperties": False,
    }
    rank = 50

    async def handle(self, request, *, format_1_0):
        return [{"appid": request["appid"], "echoed": request["echo"]}]
"""


def test_an_installed_request_type_is_answered(tmp_path: Path) -> None:
    package = tmp_path / "package"
    described = package / "echo_requests-1.dist-info"
    described.mkdir(parents=True)
    (package / "echo_requests.py").write_text(_PLUGIN)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-requests\nVersion: 1\n")
    (described / "entry_points.txt").write_text("[gossamer.requests]\necho = echo_requests:Echo\n")
    folder = tmp_path / "service"
    folder.mkdir()
    path = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
    with up(folder, "--port", "0", environment={"PYTHONPATH": path}) as service:
        answer = httpx.post(f"{service.api}/feed", json={"appid": "app", "echo": "hello"}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"]["echoed"] == "hello"
