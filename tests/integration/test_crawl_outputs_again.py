"""Outputs of a command that is repeated, through the real command: what was never made, what --fresh must keep, what is
refused by the guard of private addresses, and the words for what was exported."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_crawl_again import FLAGS, Site, a_site, crawl, redirecting
from tests.servers.crawling import command, gossamer, records_of
from tests.servers.ftp import ftp_server
from tests.servers.program import until


def printed(folder: Path, *arguments: str, code: int = 0) -> str:
    """The summary of `gossamer crawl` for a person."""
    done = subprocess.run(command("crawl", *arguments, *FLAGS), cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


# --- outputs without a record -----------------------------------------------------------------------------------------


def test_an_output_without_a_record_is_an_empty_file(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        flags = (f"{site.url}/a", "--field", "a=h9", "-o", "t.jsonl", "--items", "-o", "p.jsonl", "--pages")
        said = printed(tmp_path, *flags)
        assert "\n  pages are in p.jsonl\n  no items were found: t.jsonl is empty\n" in said
        said = printed(tmp_path, *flags)
        assert "is already finished" in said
        assert "\n  no items were found: t.jsonl is empty\n" in said
        summary, _ = crawl(tmp_path, *flags, "--fresh")
        assert summary["outputs"] == ["t.jsonl", "p.jsonl"]
        assert (tmp_path / "t.jsonl").read_bytes() == b""
        (tmp_path / "p.jsonl").unlink()
        assert "  p.jsonl is gone; crawl again with --fresh.\n" in printed(tmp_path, *flags, code=1)


def test_a_table_with_fixed_columns_and_no_item_has_its_header(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        flags = (f"{site.url}/a", "--field", "b=h1", "--field", "a=h9", "-o", "t.csv")
        for more in ((), (), ("--fresh",)):  # the second finds the crawl finished
            assert "\n  no items were found: t.csv has only its header\n" in printed(tmp_path, *flags, *more)
            assert (tmp_path / "t.csv").read_text() == "page_url,b,a\n"
        (tmp_path / "t.csv").unlink()
        assert "  t.csv is gone; crawl again with --fresh.\n" in printed(tmp_path, *flags, code=1)


def test_a_table_whose_columns_no_item_gave_has_the_column_of_every_item(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from gossamer import Spider\n\n\nclass Shop(Spider):\n    def parse(self, page):\n        return None\n"
    )
    with a_site(a="<p>a") as site:
        flags = (f"{site.url}/a", "--spider", "shop.py", "-o", "t.csv")
        for _ in range(2):
            assert "\n  no items were found: t.csv has only its header\n" in printed(tmp_path, *flags)
        assert (tmp_path / "t.csv").read_text() == "page_url\n"


def test_an_output_that_could_not_be_opened_is_not_gone_later(tmp_path: Path) -> None:
    """A folder takes the name of the output after the checks at the start; what is to be written changes later."""
    (tmp_path / "shop.py").write_text(
        "from pathlib import Path\n\nfrom gossamer import Spider\n\n\nclass Shop(Spider):\n"
        "    def parse(self, page):\n        if Path('broken').exists():\n"
        "            Path('t.jsonl').mkdir(exist_ok=True)\n            yield {'a': 1}\n"
    )
    with a_site(a="<p>a") as site:
        flags = (f"{site.url}/a", "--spider", "shop.py", "-o", "t.jsonl", "--items")
        (tmp_path / "broken").touch()
        with subprocess.Popen(
            command("crawl", *flags, *FLAGS), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert any("t.jsonl: Is a directory" in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            process.stderr.read()
        assert process.returncode == 130
        (tmp_path / "broken").unlink()
        (tmp_path / "t.jsonl").rmdir()
        assert "\n  no items were found: t.jsonl is empty\n" in printed(tmp_path, *flags)
        assert "is gone" not in printed(tmp_path, *flags)


# --- --fresh keeps what the crawl did not write -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["items.csv", "items.json"])
def test_fresh_refuses_a_table_with_rows_that_the_crawl_was_let_add_to(tmp_path: Path, name: str) -> None:
    table = tmp_path / name
    foreign = "http://elsewhere.example/"
    table.write_text(
        f"page_url,a\n{foreign},x\n" if name == "items.csv" else f'[\n{{"page_url":"{foreign}","a":"x"}}\n]\n'
    )
    with a_site(a="<h1>a</h1>") as site:
        flags = (f"{site.url}/a", "--field", "a=h1", "-o", name)
        crawl(tmp_path, *flags, "--append")
        before = table.read_text()
        assert foreign in before
        assert f"{site.url}/a" in before
        for _ in range(2):  # the refusal forgets nothing
            _, said = crawl(tmp_path, *flags, "--fresh", code=2)
            assert f"{name} also holds rows that this crawl did not write; --fresh would delete them." in said
            assert "Name another output, add --append to keep what it holds, or delete it." in said
            assert table.read_text() == before
        assert site.requests == {"/a": 1}
        crawl(tmp_path, *flags, "--fresh", "--append")
        assert table.read_text().count(f"{site.url}/a") == 2
        crawl(tmp_path, *flags, "--fresh", code=2)
        table.unlink()  # as it says
        crawl(tmp_path, *flags, "--fresh")
        crawl(tmp_path, *flags, "--fresh")
        assert foreign not in table.read_text()
        assert table.read_text().count(f"{site.url}/a") == 1


def test_fresh_refuses_a_table_to_which_a_crawl_of_another_url_added(tmp_path: Path) -> None:
    with a_site(a="<h1>a</h1>", b="<h1>b</h1>") as site:
        flags = ("--field", "a=h1", "-o", "items.csv")
        crawl(tmp_path, f"{site.url}/a", *flags)
        second, _ = crawl(tmp_path, f"{site.url}/b", *flags, "--append")
        before = (tmp_path / "items.csv").read_text()
        _, said = crawl(tmp_path, f"{site.url}/a", *flags, "--fresh", code=2)
        assert f"items.csv holds the records of another crawl, {second['crawl_id']}." in said
        assert (tmp_path / "items.csv").read_text() == before


# --- private addresses ------------------------------------------------------------------------------------------------


def test_what_the_guard_refused_is_retried_only_under_other_options(tmp_path: Path) -> None:
    with a_site(x="<p>x", bad="<p>bad") as site:
        private = f"http://localhost:{site.port}/x"
        site.answers["/"] = (200, f'<a href="{private}">x</a><a href="/bad">b</a>')
        site.answers["/bad"] = (503, "")
        flags = (site.url, "--scope", "any", "-o", "out.jsonl")
        said = printed(tmp_path, *flags)
        assert "\n  The same command retries the 1 failed URL.\n" in said
        assert "\n  1 URL leads to a private address. If the servers are your own, add --resolve HOST:ADDRESS" in said
        for times in (2, 3):
            summary, said = crawl(tmp_path, *flags)
            assert "retrying 1 failed URL." in said
            assert (summary["dropped"], site.requests["/bad"]) == ({"blocked_address": 1}, times)
        site.answers["/bad"] = (200, "<p>bad")
        crawl(tmp_path, *flags)
        summary, said = crawl(tmp_path, *flags)
        assert summary["already_finished"] is True
        assert "retrying" not in said
        summary, said = crawl(tmp_path, *flags, "--resolve", "localhost:127.0.0.1")
        assert "retrying 1 failed URL." in said
        assert (summary["pages"], summary["dropped"], site.requests["/x"]) == (1, {}, 1)
        urls = [record.url for record in records_of(tmp_path / "out.jsonl")]
        assert urls.count(private) == 2  # refused, then fetched


def test_a_network_that_is_allowed_later_lets_the_refused_be_retried(tmp_path: Path) -> None:
    with a_site(x="<p>x") as site:
        site.answers["/"] = (200, f'<a href="http://127.0.0.2:{site.port}/x">x</a>')
        flags = (site.url, "--scope", "any", "-o", "out.jsonl")
        assert crawl(tmp_path, *flags)[0]["dropped"] == {"blocked_address": 1}
        (tmp_path / "gossamer.toml").write_text('allow_networks = ["127.0.0.2/32"]\n')
        for retried in (True, False):  # refused no more, but nothing listens at that address
            summary, said = crawl(tmp_path, *flags)
            assert "retrying 1 failed URL." in said, retried
            assert summary["failed"] == {"connect": 1}


def test_the_advice_for_a_private_target_of_a_redirect_names_no_option_that_would_not_help(tmp_path: Path) -> None:
    with a_site() as site, redirecting(site, f"http://localhost:{site.port}/x"):
        summary, said = crawl(tmp_path, site.url, "-o", "out.jsonl", "--scope", "any", code=1)
        assert summary["dropped"]["blocked_address"] == 1  # type: ignore[index]
        assert "If the server is your own, --resolve localhost:ADDRESS permits it." in said
        assert "--allow-private" not in said


# --- the name of a crawl ----------------------------------------------------------------------------------------------


def test_a_crawl_that_is_not_named_after_the_first_url_says_which_it_was(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        urls = [f"http://{name}.example:{site.port}/a" for name in ("shop", "art")]
        flags = ("--resolve", "*.example:127.0.0.1", "-o", "out.jsonl")
        said = printed(tmp_path, *urls, *flags)
        name = said.split()[2]
        assert name.startswith("art.example-")
        assert said.startswith(f"The crawl {name} is finished.\n  begun at {urls[0]} and 1 more\n")
        said = printed(tmp_path, *reversed(urls), *flags)  # the same crawl, whose name begins with the first host
        assert said.startswith(f"The crawl {name} is already finished.\n")
        assert "begun at" not in said


# --- exports ----------------------------------------------------------------------------------------------------------


def test_the_words_for_an_export_fit_what_was_exported(tmp_path: Path) -> None:
    with a_site(a="<h1>a</h1>", b="<h1>b</h1>") as site:
        site.answers["/"] = (200, '<a href="/a">1</a><a href="/b">2</a><a href="/gone">3</a>')
        crawl(tmp_path, site.url, "--field", "a=h1", "-o", "t.csv")
        said = printed(tmp_path, site.url, "--field", "a=h1", "-o", "h.warc.gz")
        assert "\n  items are in t.csv, h.warc.gz\n" in said
        assert "pages are in" not in said
        assert "\n  Exported 2 items from t.csv to h.warc.gz.\n" in said
        crawl(tmp_path, site.url, "--field", "a=h1", "-o", "all.jsonl", "--crawl-id", "two")
        done = gossamer("export", "all.jsonl", "copy.jsonl", cwd=tmp_path)
        assert done.stdout == "Exported 3 pages, 1 failed request and 2 items from all.jsonl to copy.jsonl.\n"
        assert gossamer("export", "h.warc.gz", "t.jsonl", cwd=tmp_path).stdout.startswith("Exported 2 items from")


# --- links that earlier records do not have ---------------------------------------------------------------------------


def test_links_of_a_crawl_that_was_fetched_without_them_are_said_to_be_missing(tmp_path: Path) -> None:
    with a_site(a='<p>a<a href="/b">B</a>', b="<p>b") as site:
        flags = (f"{site.url}/a", "-o", "p.jsonl")
        crawl(tmp_path, *flags)
        for more in (("--links",), ("--links", "-o", "later.jsonl"), ("--links", "--quiet")):
            done = gossamer("crawl", *flags, *more, *FLAGS, cwd=tmp_path)
            assert done.returncode == 0
            assert done.stderr.startswith("gossamer: The 2 pages of ")
            assert done.stderr.endswith(
                " were fetched without --links, so the records have no links. To get them, repeat the command with "
                "--fresh.\n"
            )
        assert gossamer("crawl", *flags, *FLAGS, cwd=tmp_path).stderr == ""
        for more in (("--links", "--fresh"), ("--links",), ("--links", "-o", "last.jsonl"), ()):
            assert gossamer("crawl", *flags, *more, *FLAGS, cwd=tmp_path).stderr == ""
        [first] = [record for record in records_of(tmp_path / "last.jsonl") if record.url.endswith("/a")]
        assert [link.text for link in first.links] == ["B"]


def test_links_from_the_middle_of_a_crawl_on_are_said_to_be_incomplete(tmp_path: Path) -> None:
    with a_site(**{f"p{number}": "<p>x" for number in range(40)}) as site:
        slow = [*command("crawl", site.url, "-o", "out.jsonl", *FLAGS), "--rate", "20/1", "--domain-concurrency", "1"]
        process = subprocess.Popen(slow, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until(lambda: sum(site.requests.values()) > 10, "some pages")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        flags = (site.url, "-o", "out.jsonl", "--links")
        said = crawl(tmp_path, *flags)[1]
        assert (
            "without --links, so the records have no links. Pages fetched from now on do. To get all, let the" in said
        )
        said = crawl(tmp_path, *flags, "-o", "later.jsonl")[1]
        assert "Some pages of " in said
        assert "To get them, repeat the command with --fresh." in said


def test_an_output_that_cannot_be_made_is_explained_to_programs_as_well(tmp_path: Path) -> None:
    with a_site(a="<p>a") as site:
        assert gossamer("crawl", f"{site.url}/a", "-o", "-", "-q", *FLAGS, cwd=tmp_path).returncode == 0
        summary, _ = crawl(tmp_path, f"{site.url}/a", "-o", "later.jsonl", code=1)
        assert summary["notes"] == [
            "later.jsonl is not made: standard output cannot be read again",
            "To crawl it again, repeat the command with --fresh.",
        ]


# --- outputs that are not built yet, and that the next command does not name ------------------------------------------


@contextmanager
def slow_crawl(folder: Path, site: Site) -> Iterator[tuple[list[str], "subprocess.Popen[bytes]"]]:
    """A crawl that has records for all.json, and its arguments but the output."""
    flags = [site.url, "--crawl-id", "mine", *FLAGS]
    arguments = command("crawl", *flags, "-o", "all.json", "--rate", "20/1")
    with subprocess.Popen(arguments, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: any(path.stat().st_size for path in folder.rglob("spool.*")), "records in the spool")
        yield flags, process


def test_what_a_killed_command_left_for_another_output_is_added_to_that(tmp_path: Path) -> None:
    paths = [f"p{number}" for number in range(20)]
    with a_site(**{path: f"<p>{path}" for path in paths}) as site:
        with slow_crawl(tmp_path, site) as (flags, process):
            process.kill()
        said = gossamer("crawl", *flags, "-o", "rest.jsonl", cwd=tmp_path).stderr
        assert f"gossamer: {tmp_path}/all.json has got the records that an earlier command left for it.\n" in said
        first = {record["url"] for record in json.loads((tmp_path / "all.json").read_text())}
        rest = {record.url for record in records_of(tmp_path / "rest.jsonl")}
        assert first | rest == {f"{site.url}/{path}" for path in ("", *paths)}
        assert list(tmp_path.rglob("spool.*")) == []


def test_records_of_an_output_that_cannot_be_built_are_named(tmp_path: Path) -> None:
    with a_site(**{f"p{number}": f"<p>{number}" for number in range(20)}) as site:
        with slow_crawl(tmp_path, site) as (flags, process):
            process.kill()
        (tmp_path / "all.json").mkdir()
        [spool] = tmp_path.rglob("spool.*")
        place = str(spool.relative_to(tmp_path))
        for _ in range(2):  # it goes on without it, and tries again each time
            done = gossamer("crawl", *flags, "-o", "rest.jsonl", cwd=tmp_path)
            assert done.returncode == 1
            said = " ".join(done.stdout.split())
            assert f"all.json: Is a directory); its records are safe in {place}; run the same" in said
            assert "to finish it, or move that file away to go on without it" in said
        assert records_of(tmp_path / "rest.jsonl")
        said = gossamer("crawls", "delete", "mine", "--yes", cwd=tmp_path).stdout
        assert f"Records that are not in {tmp_path}/all.json yet are in {place}." in said


def test_a_fresh_crawl_leaves_an_output_that_cannot_be_built_alone(tmp_path: Path) -> None:
    with a_site(**{f"p{number}": f"<p>{number}" for number in range(20)}) as site:
        with slow_crawl(tmp_path, site) as (flags, _):
            (tmp_path / "all.json").mkdir()
        done = gossamer("crawl", *flags, "-o", "anew.jsonl", "--fresh", cwd=tmp_path)
        assert (done.returncode, "all.json" in done.stdout + done.stderr) == (0, False)
        assert len(records_of(tmp_path / "anew.jsonl")) == 21


# --- remote files -----------------------------------------------------------------------------------------------------


def test_fresh_says_that_it_replaces_a_remote_file_of_another_crawl(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("pyftpdlib")
    with ftp_server(tmp_path / "ftp") as ftp, a_site(a="<p>a", b="<p>b") as site:

        def replaced(page: str) -> bool:
            output = ("-o", f"{ftp}/p.jsonl", "--crawl-id", page, "--fresh")
            done = gossamer("crawl", f"{site.url}/{page}", *output, *FLAGS, cwd=tmp_path)
            assert done.returncode == 0, done
            assert "secret" not in done.stderr
            assert [record.url for record in records_of(tmp_path / "ftp/p.jsonl")] == [f"{site.url}/{page}"]
            return "p.jsonl exists, and this crawl is not known to have written it: --fresh replaces it" in done.stderr

        assert not replaced("a")  # there is no file yet
        assert not replaced("a")  # its own
        assert replaced("b")


def test_a_finished_crawl_replaces_no_remote_file(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("pyftpdlib")
    with ftp_server(tmp_path / "ftp") as ftp, a_site(a="<p>a") as site:
        (tmp_path / "ftp/t.csv").write_text("url\nkept\n")
        flags = (f"{site.url}/a", "-o", "p.jsonl")
        printed(tmp_path, *flags)
        said = printed(tmp_path, *flags, "-o", f"{ftp}/t.csv", code=1)
        assert "t.csv is not made: the file exists. Name another one, or delete it." in said
        assert (tmp_path / "ftp/t.csv").read_text() == "url\nkept\n"
        said = printed(tmp_path, *flags, "-o", f"{ftp}/u.csv")
        assert "/u.csv" in said
        assert f"{site.url}/a" in (tmp_path / "ftp/u.csv").read_text()
