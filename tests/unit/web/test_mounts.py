"""Applications with pages beside an API, and their files."""

from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.web.mounts import STRICT_POLICY, MountedApp, MountedApps
from gossamer.web.static import StaticFiles


async def _api(scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse("api")(scope, receive, send)


async def _pages(scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope, receive)
    body = await request.body()
    page = HTMLResponse(f"{scope['root_path']} {request.url.path} {len(body)}")
    await page(scope, receive, send)


def client(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_a_path_belongs_to_its_application_and_all_others_to_the_api() -> None:
    async with client(MountedApps(_api, {"/ui": MountedApp(_pages)})) as http:
        assert (await http.get("/ui")).text == "/ui /ui 0"
        assert (await http.get("/ui/jobs/1")).text == "/ui /ui/jobs/1 0"
        for path in ("/", "/uix", "/v1/ui", "/UI"):
            answer = await http.get(path)
            assert answer.json() == "api"
            assert "content-security-policy" not in answer.headers


async def test_every_page_has_a_strict_policy_and_is_not_kept() -> None:
    async with client(MountedApps(_api, {"/ui": MountedApp(_pages)})) as http:
        headers = (await http.get("/ui/x")).headers
    assert headers["content-security-policy"] == STRICT_POLICY
    assert "unsafe" not in STRICT_POLICY
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


async def test_bodies_to_pages_are_limited_and_odd_addresses_refused() -> None:
    async with client(MountedApps(_api, {"/ui": MountedApp(_pages, longest_body=10)})) as http:
        assert (await http.post("/ui/", content=b"x" * 10)).status_code == 200
        assert (await http.post("/ui/", content=b"x" * 11)).status_code == 413
        assert (await http.get("/ui/%00")).status_code == 400


async def test_files_are_kept_for_a_year_under_a_name_of_their_content(tmp_path: Path) -> None:
    (tmp_path / "page.css").write_text("a {}")
    files = StaticFiles(tmp_path, "/ui/static")
    (tmp_path / "page.css").write_text("b {}")
    changed = StaticFiles(tmp_path, "/ui/static")
    assert files.address("page.css") != changed.address("page.css")
    async with client(MountedApps(_api, {"/ui/static": MountedApp(files), "/ui": MountedApp(_pages)})) as http:
        answer = await http.get(files.address("page.css"))
        assert (answer.text, answer.headers["content-type"]) == ("a {}", "text/css; charset=utf-8")
        assert "immutable" in answer.headers["cache-control"]
        assert (await http.post(files.address("page.css"))).status_code == 405
        for path in ("/ui/static/page.css", "/ui/static/%2e%2e/page.css", "/ui/static", changed.address("page.css")):
            assert (await http.get(path)).status_code == 404


def test_a_file_of_an_unknown_kind_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "page.exe").write_text("")
    with pytest.raises(KeyError):
        StaticFiles(tmp_path, "/ui/static")
