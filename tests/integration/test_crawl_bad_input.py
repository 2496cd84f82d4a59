"""Bad input: one line that says what is wrong and what would be right, exit code 2, nothing started."""

import gzip
import json
from pathlib import Path

import pytest

from gossamer import crawl as gossamer_crawl
from gossamer.cli.app import parse_and_run
from gossamer.errors import GossamerError
from gossamer.sinks.jsonl import read_records
from tests.servers.crawling import gossamer

SEED = "https://192.0.2.1/"

CASES: dict[str, tuple[list[str], str]] = {
    "no URL": (["crawl"], "no URL is given"),
    "another scheme": (["crawl", "ftp://example.com/"], "http and https"),
    "no host": (["crawl", "http://"], "http"),
    "a path": (["crawl", "/etc/no/file"], "https://host/path"),
    "a rate": (["crawl", SEED, "--rate", "fast"], "HITS/SECONDS"),
    "no hits": (["crawl", SEED, "--rate", "0/1"], "HITS/SECONDS|at least 1 hit"),
    "a regex": (["crawl", SEED, "--allow", "("], "--allow expression '('"),
    "a size": (["crawl", SEED, "--assets-max-bytes", "5MB"], "Write a whole number of bytes from 1 up."),
    "a value of a flag": (["crawl", SEED, "--fresh", "true"], "'true' is one word: which site is meant?"),
    "a word as a page": (["fetch", "true"], "'true' is one word: which site is meant?"),
    "kinds of requests": (
        ["crawl", SEED, "--render-load", "pdfs"],
        "--render-load: cannot use 'pdfs'. Write a list of images, fonts, media or trackers.",
    ),
    "kinds with commas": (
        ["crawl", SEED, "--accept-refused", "same,nothing"],
        "--accept-refused: cannot use 'same', 'nothing'. Write a list of challenge,",
    ),
    "a scope": (["crawl", SEED, "--scope", "galaxy"], "--scope: cannot use 'galaxy'. Write domain, host, path or any."),
    "a depth": (
        ["crawl", SEED, "--depth", "-1"],
        "--depth: cannot use '-1'. Write a whole number from 0 to 1,000,000.",
    ),
    "a time": (["crawl", SEED, "--expires", "yesterday"], "90m, 12h, 3d"),
    "a time that has passed": (["crawl", SEED, "--expires", "2001-01-01"], "has passed"),
    "attrs": (["crawl", SEED, "--attrs", "[1]"], "JSON object"),
    "no JSON": (["crawl", SEED, "--attrs", "{"], "cannot read JSON"),
    "a header": (["crawl", SEED, "--header", "no colon"], "NAME:VALUE"),
    "a spider": (["crawl", SEED, "--spider", "tarantula"], "installed are"),
    "an override": (["crawl", SEED, "--resolve", "nonsense"], "--resolve: cannot read 'nonsense'"),
    "an override's address": (["crawl", SEED, "--resolve", "a.test:nowhere"], "not an IP address"),
    "an output's ending": (["crawl", SEED, "-o", "pages.docx"], "--output: the output pages.docx has an"),
    "an output twice": (["crawl", SEED, "-o", "a.jsonl", "-o", "./a.jsonl"], "named twice"),
    "a folder as output": (
        ["crawl", SEED, "-o", "."],
        ". is a folder, not a file. Name a file in it: ./pages.jsonl",
    ),
    "a new folder as output": (["crawl", SEED, "-o", "d/"], "d/ is a folder, not a file. Name a file in it: d/pages"),
    "seeds that are not there": (["crawl", "--seeds", "missing.txt"], "cannot be read"),
    "a config that is not there": (["crawl", SEED, "--config", "missing.toml"], "missing.toml"),
    "a range of numbers": (["crawl", SEED, "--robots-patience", "x"], "Write a number from 0 to 86,400."),
    "an allowed expression": (["crawl", SEED, "--allow", "("], "--allow expression '('"),
    "a denied expression": (["crawl", SEED, "--deny", "("], "--deny expression '('"),
    "a crawl id": (["crawl", SEED, "--crawl-id", "two words"], "no spaces"),
    "a domain": (["crawl", SEED, "--allow-domain", "http://x/"], "--allow-domain: 'http://x/' is not a domain"),
    "a domain for a cookie": (
        ["crawl", SEED, "--headers-for", "http://x/"],
        "--headers-for: 'http://x/' is not a domain",
    ),
    "an extension": (["crawl", SEED, "--deny-extension", "/"], "--deny-extension: '/' is not a file extension"),
    "a frontier's address": (
        ["crawl", "http://example.invalid/", "--frontier", "http://x"],
        "--frontier: server address http://x: unknown scheme 'http'; expected one of unix://",
    ),
    "a frontier's address of another command": (
        ["crawls", "show", "x", "--frontier", "redis:/x"],
        "--frontier: server address redis:/x: no host",
    ),
    "a data directory": (["crawl", SEED, "--data-dir", "/proc/x"], "--data-dir: /proc may not be written ("),
    "a data directory that is a file": (
        ["crawl", SEED, "--data-dir", "/etc/passwd"],
        "--data-dir: /etc/passwd is no folder",
    ),
    "a data directory of a worker": (
        ["up", "--data-dir", "/etc/passwd"],
        "--data-dir: the data directory /etc/passwd cannot",
    ),
    "a guard of tables without a table": (
        ["crawl", SEED, "--csv-guard"],
        "--csv-guard: no output is a CSV file. Name one",
    ),
    "a guard of another format": (
        ["export", "/dev/null", "x.json", "--csv-guard"],
        "--csv-guard: x.json is no CSV file. Name one",
    ),
    "too much at once": (["crawl", SEED, "--processes", "0"], "--processes: cannot use"),
    "a proxy's scheme": (["crawl", SEED, "--proxy", "ftp://x"], "--proxy: cannot use ftp://x. Write http://"),
    "a proxy without a host": (
        ["crawl", SEED, "--proxy", "http://"],
        "--proxy: cannot use http://. Write http://, https://, socks5:// or socks5h:// with host and port",
    ),
    "authorities that are not there": (
        ["crawl", SEED, "--ca-file", "/nope.pem"],
        "--ca-file: /nope.pem cannot be read: No such",
    ),
    "authorities that are none": (
        ["crawl", SEED, "--ca-file", "/etc/passwd"],
        "--ca-file: /etc/passwd has no certificates",
    ),
    "a line end in a cookie": (["crawl", SEED, "--cookie", "a\r\nX-Inj: y"], "'Cookie' contains invalid"),
    "a line end in the agent": (["crawl", SEED, "--user-agent", "a\r\nX: y"], "'User-Agent' contains invalid"),
    "a line end in a header": (["crawl", SEED, "--header", "X: a\rb"], "'X' contains invalid"),
    "bytes that are no text": (["crawl", SEED, "--cookie", "\udcff"], "UTF-8"),
    "half a character in attrs": (["crawl", SEED, "--attrs", '{"a": "\\ud800"}'], "UTF-8"),
    "half a character as a name": (["crawl", SEED, "--attrs", '{"a": [{"\\ud800": 1}]}'], "UTF-8"),
    "a long integer in attrs": (["crawl", SEED, "--attrs", '{"a": 123456789012345678901234567890}'], "64 bits"),
    "attrs nested too deep": (["crawl", SEED, "--attrs", '{"a":' * 2000 + "1" + "}" * 2000], "100 levels"),
    "no number in attrs": (["crawl", SEED, "--attrs", '{"a": NaN}'], "JSON has no nan"),
    "too many pages": (["crawl", SEED, "--max-pages", "9" * 20], "--max-pages: cannot use"),
    "too many retries": (["crawl", SEED, "--retries", "9" * 20], "--retries: cannot use"),
    "no end of patience": (["crawl", SEED, "--timeout", "inf"], "--timeout: cannot use"),
    "the client's own header": (["crawl", SEED, "--header", "Host: x"], "by the client itself"),
    "an encoding of one's own": (["crawl", SEED, "--header", "Accept-Encoding: x"], "by the client itself"),
    "an empty crawl id": (["crawl", SEED, "--crawl-id", ""], "1 to 40 characters"),
    "an output in memory": (["crawl", SEED, "-o", "memory://x.jsonl"], "gone with this process"),
    "any place and one place": (["crawl", SEED, "--scope", "any", "--allow-domain", "x.test"], "contradict"),
    "a page by no proxy": (["fetch", SEED, "--proxy", "ftp://x"], "socks5://"),
    "a page with two lines of cookie": (["fetch", SEED, "--cookie", "a\nb"], "'Cookie' contains invalid"),
    "why no web page": (["why", "javascript:1"], "http"),
    "why without a crawl": (["why", "https://example.com"], "no crawl was started"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_line_and_nothing_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, words = CASES[name]
    with pytest.raises(GossamerError) as caught:
        parse_and_run(arguments)
    said = str(caught.value)
    assert "\n" not in said
    assert any(word in said for word in words.split("|")), said
    assert list(tmp_path.iterdir()) == []


def test_wrong_input_is_named_first_without_words_before_it(tmp_path: Path) -> None:
    result = gossamer("crawl", SEED, "--rate", "5x", cwd=tmp_path)
    assert result.stderr.startswith("gossamer: --rate: cannot read '5x'")


PRIVATE = (
    "http://localhost/", "http://127.0.0.1/", "http://127.1/", "http://0x7f.1/", "http://2130706433/", "http://017700000001/",
    "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://１２７.０.０.１/", "http://10.0.0.8/",
    "http://192.168.1.1:8080/admin", "http://169.254.169.254/latest/meta-data/", "http://0/", "127.0.0.1:6379", "http://100.64.0.1/",
    "http://[fe80::1]/", "http://[fd00::1]/",
)  # fmt: skip


@pytest.mark.parametrize("url", PRIVATE)
def test_a_private_seed_is_refused_with_the_flag_that_allows_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GossamerError) as caught:
        parse_and_run(["crawl", url])
    assert "--allow-private" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_itself_exits_with_2_and_says_one_line(tmp_path: Path) -> None:
    result = gossamer("crawl", "http://127.0.0.1/", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("gossamer: ")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--scop", "No such option: --scop. Did you mean --scope? See gossamer crawl --help."),
        ("--max", "No such option: --max. Did you mean --max-pages or --max-assets? See"),
        ("--robots", "Did you mean --robots-patience? See"),
        ("--dpeth", "Did you mean --depth? See"),
        ("--output-file", "No such option: --output-file. See"),
        ("--asets-to", "Did you mean --assets-to? See"),
        ("--quite", "Did you mean --quiet? See"),
        ("-z", "No such option: -z. See"),
    ],
)
def test_an_unknown_option_is_answered_with_the_one_that_is_meant(typed: str, said: str, tmp_path: Path) -> None:
    result = gossamer("crawl", "https://example.com", typed, "1", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


def test_a_frontier_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    result = gossamer("crawl", SEED, "--allow-private", "--frontier", f"unix://{tmp_path}/none.sock", cwd=tmp_path)
    assert result.returncode == 4
    assert "frontier" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "flags", "reason"),
    [
        ("http://refused.test:1/", ("--resolve", "refused.test:127.0.0.1"), "connect"),
        ("http://no-such-host.invalid/", (), "dns"),
    ],
)
def test_a_dead_host_ends_with_a_record(tmp_path: Path, url: str, flags: tuple[str, ...], reason: str) -> None:
    """It is not waited for as if only its robots.txt were away."""
    ended = gossamer("crawl", url, *flags, "--retries", "0", "--json", cwd=tmp_path)
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["failed"] == {reason: 1}
    [output] = tmp_path.glob("*.jsonl")
    [record] = list(read_records(output))
    assert (record.success, record.reason) == (False, reason)


def test_a_faulty_seed_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_text(
        "https://a.test/\n\n# a comment\nht!tp://b.test\nhttps://c.test/\nmailto:d@e.test\n"
    )
    result = gossamer("crawl", "--seeds", "seeds.txt", cwd=tmp_path)
    assert result.returncode == 2
    assert "--seeds: seeds.txt, line 4: " in result.stderr
    assert "'ht!tp://b.test'" in result.stderr
    assert "Also faulty: line 6." in result.stderr


FAULTY_LISTS: dict[str, tuple[bytes, str]] = {
    "a text that is no URL": (
        b"https://a.test/\nnot a url\n",
        "line 2: This is not an http or https URL: 'not a url'.",
    ),
    "many faults": (b"no url\n" * 8, "Also faulty: lines 2, 3, 4, 5, 6 and 2 more."),
    "a table": (b"url,name\nhttps://a.test/,A\n", "line 1: 'url,name' has a comma in the name of the host."),
    "a title": (b"url\nhttps://a.test/\n", "line 1: 'url' is one word"),
    "UTF-16": ("https://a.test/".encode("utf-16"), "seeds.txt holds no UTF-8 text."),
    "UTF-16 without a mark": ("https://a.test/".encode("utf-16-le"), "seeds.txt holds no UTF-8 text."),
    "bytes": (bytes(range(128, 256)), "seeds.txt holds no UTF-8 text."),
    "a web page": (b"\n<!DOCTYPE html>\n<p>Text\n", "seeds.txt holds a web page, no list."),
    "XML": (b"<?xml version='1.0'?>\n<list>", "seeds.txt holds XML, no list."),
    "a sitemap": (
        b"<?xml version='1.0'?>\n<urlset>",
        "seeds.txt holds a sitemap, no list. Give its URL as a seed itself.",
    ),
    "a compressed list": (gzip.compress(b"https://a.test/\n"), "seeds.txt is compressed. Unpack a list before;"),
}


@pytest.mark.parametrize("name", FAULTY_LISTS)
def test_a_list_that_is_none_is_refused_with_what_it_is(name: str, tmp_path: Path) -> None:
    content, words = FAULTY_LISTS[name]
    (tmp_path / "seeds.txt").write_bytes(content)
    result = gossamer("crawl", "--seeds", "seeds.txt", cwd=tmp_path)
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_in_the_place_of_a_url_is_refused_with_the_option_for_it(tmp_path: Path) -> None:
    (tmp_path / "my seeds.txt").write_text("https://a.test/\n")
    result = gossamer("crawl", "my seeds.txt", cwd=tmp_path)
    assert result.returncode == 2
    assert "my seeds.txt is a file here; write --seeds 'my seeds.txt'" in result.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('rate = "abc"', "gossamer: gossamer.toml: crawl.rate: cannot read 'abc'. Write HITS/SECONDS"),
        ("rate = 0", "gossamer: gossamer.toml: crawl.rate: 0 is no rate. Write requests per second"),
        ("rate = true", "gossamer: gossamer.toml: crawl.rate: cannot use True. Write HITS/SECONDS"),
    ],
)
def test_a_rate_in_the_file_is_not_blamed_on_an_option(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "gossamer.toml").write_text(f"[crawl]\n{line}\n")
    result = gossamer("crawl", SEED, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('expires = "yesterday"', "crawl.expires: cannot read 'yesterday'. Write 90m"),
        ('extract = "none.yaml"', "crawl.extract: cannot read none.yaml: No such file"),
        ('extract = {fields = {a = "p @prize"}}', "crawl.extract: fields.a: "),
        ('each = ".x"', "crawl.each: there is no --field that it could be for"),
        ("chunk = 1000", "crawl.chunk: there is no text to put there. Add --markdown or --text."),
        ('output = "pages.docx"', "crawl.output: the output pages.docx has an unknown ending"),
        ('report = "report.txt"', "crawl.report: report.txt does not end with .html"),
        ('assets = ["pictures"]', "crawl.assets: there is no kind 'pictures'"),
        ('[fetch]\nresolve = {"a.test" = "x"}', "fetch.resolve: 'x' is not an IP address of 'a.test'"),
        ('[fetch]\nproxy = "ftp://x"', "fetch.proxy: cannot use ftp://x. Write http://"),
        ('allow = ["("]', "crawl.allow expression '('"),
        (
            'scope = "any"\nallow_domain = ["a.test"]',
            "crawl.scope any and gossamer.toml: crawl.allow_domain contradict",
        ),
    ],
)
def test_a_value_in_the_file_is_not_blamed_on_an_option(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "gossamer.toml").write_text(line if line.startswith("[") else f"[crawl]\n{line}\n")
    result = gossamer("crawl", SEED, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"gossamer: gossamer.toml: {said}")
    assert not (tmp_path / ".gossamer").exists()


def test_a_value_is_blamed_on_the_place_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option if it is typed, else the variable before the file."""
    (tmp_path / "own.toml").write_text('[crawl]\nexpires = "in the file"\n')
    command = ("crawl", SEED, "--config", "own.toml")
    assert gossamer(*command, cwd=tmp_path).stderr.startswith("gossamer: own.toml: crawl.expires: cannot read 'in the")
    monkeypatch.setenv("GOSSAMER_CRAWL__EXPIRES", "set")
    assert gossamer(*command, cwd=tmp_path).stderr.startswith("gossamer: GOSSAMER_CRAWL__EXPIRES: cannot read 'set'")
    typed = gossamer(*command, "--expires", "typed", cwd=tmp_path)
    assert typed.stderr.startswith("gossamer: --expires: cannot read 'typed'")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GossamerError, match=r"^GOSSAMER_CRAWL__EXPIRES: cannot read 'set'"):
        gossamer_crawl(SEED)
    with pytest.raises(GossamerError, match=r"^expires: cannot read 'given'"):
        gossamer_crawl(SEED, expires="given")


def test_a_guard_of_tables_in_the_file_is_for_any_output(tmp_path: Path) -> None:
    """It is a default for all crawls, also for those without a table."""
    (tmp_path / "gossamer.toml").write_text('[crawl]\ncsv_guard = true\nscope = "galaxy"\n')
    result = gossamer("crawl", SEED, cwd=tmp_path)
    assert result.stderr.startswith("gossamer: gossamer.toml: crawl.scope: cannot use 'galaxy'")
    with pytest.raises(GossamerError, match=r"^csv_guard: no output is a CSV file"):
        gossamer_crawl(SEED, csv_guard=True, output=tmp_path / "x.jsonl")


def test_an_option_before_the_command_is_told_its_place(tmp_path: Path) -> None:
    result = gossamer("-v", "crawl", SEED, cwd=tmp_path)
    assert result.returncode == 2
    assert "Write options after the command: gossamer crawl -v." in result.stderr


@pytest.mark.parametrize("contact", ["me", "ftp://a.test/", "https://a.test/)(", "a@b", "me@example.org\nX: y"])
def test_a_contact_must_be_a_url_or_an_address(contact: str, tmp_path: Path) -> None:
    result = gossamer("crawl", SEED, "--contact", contact, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("gossamer: --contact: cannot use ")
    assert not (tmp_path / ".gossamer").exists()
