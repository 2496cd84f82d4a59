"""A real site: the HTML of Debian's python3.11-doc behind nginx, beside what an independent recursive fetch finds."""

import subprocess
from pathlib import Path

from tests.servers.crawling import crawl
from tests.servers.nginx import run_nginx
from tests.servers.program import require, require_path

PAGES = Path("/usr/share/doc/python3.11/html")


async def test_every_reachable_page_is_fetched_once_and_they_are_those_that_wget_finds(tmp_path: Path) -> None:
    require_path(str(PAGES / "index.html"))
    wget = require("wget")
    (tmp_path / "state").mkdir()
    with run_nginx(PAGES, tmp_path / "state") as nginx:
        seed = f"http://127.0.0.1:{nginx.port}/index.html"
        found = _found_by_wget(wget, seed, tmp_path / "wget")
        crawled = await crawl(tmp_path, [seed], crawl__allow_private=True, crawl__domain_concurrency=64)
    assert len(crawled.by_url()) == len(crawled.pages)
    pages = {page.url.removeprefix(f"http://127.0.0.1:{nginx.port}/") for page in crawled.pages if page.success}
    pages = {path for path in pages if path.endswith(".html")}
    assert len(pages) > 400
    assert pages == found


def _found_by_wget(wget: str, seed: str, folder: Path) -> set[str]:
    folder.mkdir()
    done = subprocess.run(
        [wget, "-r", "-l", "inf", "-nv", "-nH", "--no-proxy", "-e", "robots=on", "-A", "html", "-P", str(folder), seed],
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, 8), done.stderr.decode()[-2000:]  # 8: some link led to an error page
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix == ".html"}
