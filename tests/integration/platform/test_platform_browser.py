"""The dashboard of a real server in a real Chromium: hostile projects run no script, and every page can be used by all,
in light and dark, on a phone and on a large screen."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.servers.browser import Browser, beyond_the_keyboard, beyond_the_sides, browser, unusable
from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider, until

EVIL = "<img src=x onerror=alert(1)>"
WORSE = "\"'><script>alert(2)</script>{{7*7}}\u202e\u0000"
_SPIDERS = f"""
class Evil(scrapy.Spider):
    name = {EVIL!r}
    async def start(self):
        for number in range(60):
            self.logger.error("%s %s", {EVIL!r}, "</pre>" + {WORSE!r})
            print({EVIL!r}, "\\x1b]0;title\\x07", flush=True)
            yield {{"title": {EVIL!r}, {WORSE!r}: {EVIL!r}, "url": "javascript:alert(3)", "many": [{EVIL!r}]}}
        raise ValueError({EVIL!r} + "\\n" + {WORSE!r})

class Endless(scrapy.Spider):
    name = "endless"
    async def start(self):
        number = 0
        while True:
            for _ in range(500):
                number += 1
                self.logger.info("line %d of an endless log %s", number, {EVIL!r})
            if number % 3000 == 0:
                print("x" * 1_500_000, end="", flush=True)
            await asyncio.sleep(0.05)
            while number > 3000 and not os.path.exists(self.quick):
                await asyncio.sleep(0.1)
        yield {{}}
"""


def _post(server: Scrapyd, path: str, body: Any) -> Any:
    answer = server.client.post(f"/v1/{path}", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    """A server with a project whose author means harm, and with an endless job, which goes on while the file `quick`
    exists."""
    with scrapyd(tmp_path_factory.mktemp("hostile")) as found:
        name = "shop <b onmouseover=alert(4)>"
        assert found.deploy(egg(_SPIDERS), project=name)["status"] == "ok"
        job = {"project": name, "spider": EVIL, "arguments": {EVIL: EVIL}, "settings": {"X": EVIL}, "tags": [EVIL]}
        number = _post(found, "jobs", {**job, "name": f"{EVIL} name"})["id"]
        endless = {"project": name, "spider": "endless", "arguments": {"quick": str(found.folder / "quick")}}
        _post(found, "jobs", endless)
        schedule = {"project": name, "spider": EVIL, "name": EVIL, "cron": "@daily", "arguments": {EVIL: EVIL}}
        _post(found, "schedules", schedule)
        _post(found, "groups", {"project": name, "spider": EVIL, "processes": 2})
        _post(found, "tokens", {"name": EVIL})
        found.client.put(f"/v1/projects/{quote(name, safe='')}/variables/A", json={"value": EVIL})
        until(lambda: found.client.get(f"/v1/jobs/{number}").json()["state"] == "failed", what=found.said)
        until(lambda: found.client.get("/v1/jobs/2/log").text.count("line") > 2000, what=found.said)
        yield found


def pages() -> list[str]:
    """Addresses of every page with something on it."""
    project = urlencode({"project": "shop <b onmouseover=alert(4)>"})
    with_id = ("job", "job/log", "job/items", "schedule", "schedule/edit", "group")
    return ["", "jobs", "jobs/new", f"jobs/new?{project}", "projects", f"project?{project}", "schedules",
            f"schedules/new?{project}", "groups", "nodes", "tokens", "audit", "login", "nothing",
            *(f"{path}?id=1" for path in with_id), f"jobs?{urlencode({'tag': EVIL, 'spider': EVIL})}",
            f"job/log?id=1&{urlencode({'contains': EVIL})}",
            f"job/items?id=1&{urlencode({'filter': EVIL})}"]  # fmt: skip


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


# Colours do not depend on the width.
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1280, "light"), (1920, "dark")])
def test_every_page_can_be_used_and_runs_no_script_of_others(
    server: Scrapyd, chromium: Browser, width: int, scheme: str
) -> None:
    chromium.size(width)
    chromium.scheme(scheme)
    wrong: list[Any] = []
    for path in pages():
        chromium.open(f"http://127.0.0.1:{server.port}/ui/{path}")
        faults = [fault for fault in chromium.faults() if path != "nothing" or "404" not in fault]
        too_wide = chromium.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        found, hidden = unusable(chromium), beyond_the_sides(chromium)
        if faults or found or too_wide > 0 or hidden:
            wrong.append((path, faults, found, too_wide, hidden))
        if (width, scheme) == (1280, "light"):
            chromium.size(640)  # as at 200 % zoom
            if chromium.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                wrong.append((path, "too wide at 200 %"))
            chromium.size(width)
            if found := beyond_the_keyboard(chromium):
                wrong.append((path, found))
        assert not chromium.evaluate("document.querySelector('main img, main script, main [onmouseover]')"), path
    assert wrong == []


def test_a_log_that_grows_quickly_is_followed_in_bounded_memory(server: Scrapyd, chromium: Browser) -> None:
    chromium.open(f"http://127.0.0.1:{server.port}/ui/job/log?id=2")
    last = "Number([...document.getElementById('log').textContent.matchAll(/line (\\d+) of/g)].at(-1)?.[1])"
    chromium.wait(f"{last} > 0")
    first = chromium.evaluate(last)
    chromium.evaluate("""
        window.most = {lines: 0, characters: 0};
        new MutationObserver(() => {
            const text = document.getElementById('log').textContent;
            window.most.lines = Math.max(window.most.lines, text.split('\\n').length);
            window.most.characters = Math.max(window.most.characters, text.length);
        }).observe(document.getElementById('log'), {childList: true, subtree: true}); 0
    """)
    (server.folder / "quick").touch()
    chromium.wait(f"{last} > {first + 9000}")  # with lines of a megabyte and more between them
    most = chromium.evaluate("window.most")
    assert most["lines"] <= 5001
    assert most["characters"] <= 2**20 + 2**16
    chromium.evaluate("document.getElementById('follow').click()")
    chromium.evaluate("new Promise(done => setTimeout(done, 1000))")  # a part that was asked for before comes
    stopped = chromium.evaluate(last)
    chromium.evaluate("document.getElementById('follow').click()")
    chromium.wait(f"{last} > {stopped}")
    (server.folder / "quick").unlink()
    assert chromium.faults() == []


def test_a_person_finds_why_a_job_failed_and_runs_it_again(server: Scrapyd, chromium: Browser) -> None:
    chromium.size(1280)
    chromium.open(f"http://127.0.0.1:{server.port}/ui/")
    chromium.evaluate("document.querySelector('.notices a[href$=\"id=1\"]').click()")
    chromium.wait("location.pathname === '/ui/job' && document.querySelector('#cause')")
    assert "ValueError" in chromium.evaluate("document.querySelector('main').textContent")
    chromium.evaluate("document.querySelector('form[action$=\"/job/again\"] button').click()")
    chromium.wait("location.search === '?id=5' && document.querySelector('#facts')")
    assert server.client.get("/v1/jobs/5").json()["spider"] == EVIL
    assert chromium.faults() == []


def test_a_newcomer_deploys_runs_schedules_and_shares_a_project(chromium: Browser, tmp_path: Path) -> None:
    """From an empty server to items in a file and a token for a colleague, with the pages alone. PICTURES=docs/images
    makes the picture of the documentation."""
    items = "\n".join(
        f"yield {{'title': 'Running shoe {n}', 'price': {49.9 + n}, 'url': 'https://shop.example/shoes/{n}'}}"
        for n in range(40)
    )
    file = tmp_path / "shop.egg"
    file.write_bytes(egg(spider("prices", items) + spider("broken", "raise ValueError('price: no number')\nyield {}")))
    (tmp_path / "server").mkdir()
    with scrapyd(tmp_path / "server") as server:
        root = f"http://127.0.0.1:{server.port}/ui"
        chromium.size(1280, 800)
        chromium.scheme("light")
        chromium.open(f"{root}/projects")
        for field, value in (("project", "shop"), ("artefact", str(file))):  # the time names the version
            chromium.fill(f"[name={field}]", value)
        chromium.click("form[enctype] button", "location.pathname === '/ui/project'")
        for name in ("broken", "prices"):
            chromium.open(f"{root}/jobs/new?project=shop&spider={name}")
            chromium.click("main form[method=post] button", "location.pathname === '/ui/job'")
        chromium.wait("document.querySelector('.state.finished')")
        chromium.click("nav.tabs a:last-child", "document.querySelectorAll('.items tbody tr').length === 40")
        csv = chromium.evaluate("fetch(document.querySelector('.exports a').href).then(answer => answer.text())")
        assert csv.splitlines()[1] == '"Running shoe 0",49.9,"https://shop.example/shoes/0"'
        chromium.open(f"{root}/job?id=1")
        chromium.wait("document.querySelector('#cause')")
        cause = chromium.evaluate("document.querySelector('.fault > pre').textContent")
        assert cause.splitlines()[1:] == ["ValueError: price: no number"]
        chromium.keep_picture("dashboard-job.png")
        chromium.open(f"{root}/schedules/new?project=shop&spider=prices")
        chromium.fill("#f-name", "nightly")
        chromium.click("main form[method=post] button", "document.querySelector('.fault')")
        assert "the cron line, the minutes" in chromium.evaluate("document.querySelector('.fault').textContent")
        chromium.fill("#f-cron", "30 2 * * *")
        chromium.click("main form[method=post] button", "document.querySelectorAll('.times li').length === 5")
        chromium.click("a[href*='/schedule/edit']", "document.querySelector('#times li')")
        coming = "document.querySelector('#times').textContent"
        before = chromium.evaluate(coming)
        chromium.fill("#f-cron", "0 4 * * *")
        chromium.wait(f"{coming} !== {json.dumps(before)}")
        preview = chromium.evaluate(coming)
        chromium.click("button.primary:not(header *)", "location.pathname === '/ui/schedule'")
        chromium.wait(f"{json.dumps(preview)}.includes(document.querySelector('.times').textContent)")  # in its zone
        assert server.client.get("/v1/schedules/1").json()["rule"] == "0 4 * * *"
        chromium.open(f"{root}/tokens")
        chromium.fill("[name=name]", "Anna")
        chromium.click("form[action$='/tokens/make'] button", "document.querySelector('#secret')")
        secret = chromium.evaluate("document.querySelector('#secret').textContent")
        chromium.wait("!document.querySelector('[data-copy]').hidden")  # by the script that listens to it
        # A browser lets a page copy only when a person clicks, on a page that has the focus: Tab has left it before.
        chromium.call("Emulation.setFocusEmulationEnabled", enabled=True)
        chromium.call("Runtime.evaluate", expression="document.querySelector('[data-copy]').click()", userGesture=True)
        chromium.wait("document.querySelector('[data-copy]').textContent === 'Copied'")
        assert chromium.evaluate("getSelection().toString()") == secret
        assert chromium.faults() == []
        headers = {"Authorization": f"Bearer {secret}"}
        assert server.client.get("/v1/jobs", headers=headers).status_code == 200
        assert server.client.post("/v1/jobs/1/cancel", headers=headers).status_code == 403
        chromium.open(f"{root}/")
        assert chromium.faults() == []
