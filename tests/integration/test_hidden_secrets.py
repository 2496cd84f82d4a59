"""Whatever address a command is given, its password is not shown, however carelessly it was written."""

from pathlib import Path

import pytest

from tests.servers.crawling import gossamer

SECRET = "Qz7SeCret"
DEAD = "127.0.0.1:1"
"""Nothing listens there. No address here has a name, which would be looked up."""


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("crawl", "-o", "s3://KEY:{}@bucket/x.jsonl"), "the output s3://KEY:***@bucket/x.jsonl has a password"),
        (("crawl", "-o", "s3://KEY:{}/+@bucket/x.jsonl"), "the output s3://KEY:***@bucket/x.jsonl has a password"),
        (("crawl", "-o", "ftp://u:{}/x@" + DEAD + "/x.jsonl"), f"ftp://u:***@{DEAD}/x.jsonl"),
        (("crawl", "-o", "ftp://u:{} x@" + DEAD + "/x.jsonl"), f"ftp://u:***@{DEAD}/x.jsonl"),
        (("crawl", "-o", "postgresql://u:{}/1@" + DEAD + "/d"), f"postgresql://u:***@{DEAD}/d"),
        (("crawl", "-o", "postgresql://u@" + DEAD + "/d?passwd={}"), "passwd=***"),
        (("crawl", "-o", "pages.jsonl", "--proxy", "http://u:{}/1@" + DEAD), "cannot read the proxy's URL"),
        (("crawl", "-o", "pages.jsonl", "--proxy", "http://u:1/{}@" + DEAD), f"http://***@{DEAD}"),
        (("crawl", "-o", "pages.jsonl", "--proxy", "u:{}/1@" + DEAD), f"***@{DEAD} is neither a file"),
        (
            ("crawl", "-o", "pages.jsonl", "--frontier", "redis://u:{}/Bb8b@" + DEAD),
            f"server address redis://u:***@{DEAD}",
        ),
        (
            ("crawl", "-o", "pages.jsonl", "--frontier", "redis://u:1/{}@" + DEAD),
            f"server address redis://u:***@{DEAD}",
        ),
        (("crawls", "list", "--frontier", "redis://u:1#{}@" + DEAD), f"redis://u:***@{DEAD}"),
        (("up", "--bus", "kafkaa://u:{}@" + DEAD), f"kafkaa://u:***@{DEAD}"),
        (("fetch", "http://u:{}/@" + DEAD), f"http://***@{DEAD}"),
        (("export", "s3://KEY:{}@bucket/x.jsonl", "x.csv"), "s3://KEY:***@bucket/x.jsonl"),
        (("export", "mysql://u:{}/1@h/d", "x.csv"), "mysql://u:***@h/d is a database"),
        (("jobs", "--target", "http://u:{}/x@" + DEAD), f"http://***@{DEAD} is no address of a server"),
        (("jobs", "--target", "http://u:1/{}@" + DEAD), f"http://***@{DEAD} is no address of a server"),
        (("jobs", "--target", "u:{}@" + DEAD), f"no target '***@{DEAD}'"),
        (("node", "--manager", "http://u:{}/x@" + DEAD), f"--manager: http://***@{DEAD} is no address"),
        (("manager", "--database", "mysql://u:{}@h/d"), "mysql is not supported"),
        (("manager", "--database", "u:{}@h/d"), "'***@h/d' is no address of a database"),
        (("manager", "--database", "sqlite:///s.db", "--store", "s3://KEY:{}/@b"), "s3://KEY:***@b has a password"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_no_command_shows_a_password(words: tuple[str, ...], shown: str, tmp_path: Path) -> None:
    seeds = ["http://127.0.0.1:1/", "--allow-private"] if words[0] == "crawl" else []
    done = gossamer(*(word.format(SECRET) for word in words), *seeds, cwd=tmp_path)
    assert done.returncode not in (0, 1), done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert shown in done.stderr
    assert "Traceback" not in done.stderr
