"""How command lines are read: options and arguments in any order, in every spelling, and what is wrong with one."""

from pathlib import Path
from typing import Annotated, Any

import pytest

from gossamer.cli.app import command_in
from gossamer.cli.help import help_of
from gossamer.cli.parser import HelpWanted, ProgramCommand, UsageError, argument, option
from gossamer.errors import BadInput

READ = {
    "http://a.test/": {"urls": ["http://a.test/"]},
    "http://a.test/ http://b.test/ --rate 5/1 --depth=3 -o x.jsonl -o y.csv --items --output z.jsonl": {
        "urls": ["http://a.test/", "http://b.test/"], "rate": "5/1", "depth": "3",
        "output": ["x.jsonl", ("y.csv", "items"), "z.jsonl"],
    },
    "--seeds - --seeds urls.txt --fresh --append --json -q -v --crawl-id name": {
        "seeds": ["-", "urls.txt"], "fresh": True, "append": True, "json": True, "quiet": True, "verbose": True,
        "crawl_id": "name",
    },
    "--data-dir data --config other.toml --allow a --allow=b --retries 0 --timeout 2.5 --processes 2": {
        "data_dir": "data", "config": Path("other.toml"), "allow": ["a", "b"], "retries": "0", "timeout": "2.5",
        "processes": "2",
    },
    "-o - http://a.test/ --header A:B --header=C:D --attrs {} --ignore-robots --links --rate=": {
        "output": ["-"], "urls": ["http://a.test/"], "header": ["A:B", "C:D"], "attrs": "{}", "ignore_robots": True,
        "links": True, "rate": "",
    },
    "--resolve *:127.0.0.1 --field a=b --field=c=d@e --quiet": {
        "resolve": ["*:127.0.0.1"], "field": ["a=b", "c=d@e"], "quiet": True,
    },
    "-qv http://a.test/": {"quiet": True, "verbose": True, "urls": ["http://a.test/"]},
    "-ox.jsonl": {"output": ["x.jsonl"]},
    "URL -qo=/data/x.jsonl": {"urls": ["URL"], "quiet": True, "output": ["/data/x.jsonl"]},
    "-oa=b": {"output": ["a=b"]},
    "--depth -1": {"depth": "-1"},
    "--fresh -- http://a.test/ -o=a": {"fresh": True, "urls": ["http://a.test/", "-o=a"]},
    "-": {"urls": ["-"]},
    "--items": {"items": True},
}  # fmt: skip
NOT_GIVEN = {"verbose": False, "fresh": False, "append": False, "json": False, "quiet": False}


@pytest.mark.parametrize("words", READ)
def test_a_crawl_gets_what_was_typed_and_nothing_for_the_rest(words: str) -> None:
    command, rest = command_in(["crawl", *words.split()])
    values = command.read(rest)
    given = {name: value for name, value in values.items() if value != NOT_GIVEN.get(name)}
    assert given == READ[words]
    assert NOT_GIVEN.keys() <= values.keys()


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("jobs start SPIDER -a=tag=x -aa=b -s=LOG_LEVEL=INFO", {"tag=x", "a=b", "LOG_LEVEL=INFO"}),
        ("schedules add S -a=tag=x", {"tag=x"}),
    ],
)
def test_an_equals_sign_after_a_short_option_is_no_part_of_its_value(typed: str, read: set[str]) -> None:
    command, rest = command_in(typed.split())
    lists = [value for value in command.read(rest).values() if isinstance(value, list)]
    assert {one for value in lists for one in value} == read


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("crawl --unknown", "No such option: --unknown."),
        ("crawl --depth", "Option '--depth' requires an argument."),
        ("crawl --fresh=1", "Option '--fresh' does not take a value."),
        ("crawl -q=b", "Option '-q' does not take a value."),
        ("crawl -qx=1", "No such option: -x."),
        ("fetch", "Missing argument 'URL'."),
        ("fetch a b c", "Got unexpected extra arguments (b c)."),
        ("migrate scrapy-redis", "Missing option '--spider'."),
        ("crawls lst", "No such command 'lst'. Did you mean 'list'?"),
        ("crawls --all", "No such option: --all."),
        ("fetc", "No such command 'fetc'. Did you mean 'fetch'?"),
    ],
)
def test_a_mistake_is_named(typed: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        _read(typed)
    assert str(caught.value) == said


@pytest.mark.parametrize("typed", ["crawl --help", "crawl http://a.test -h", "crawl -qh", "migrate", "crawls list -h"])
def test_the_help_is_asked_for(typed: str) -> None:
    with pytest.raises(HelpWanted):
        _read(typed)


@pytest.mark.parametrize(
    ("typed", "usage"),
    [
        ("crawl", "gossamer crawl [OPTIONS] [URL...]"),
        ("monitor", "gossamer monitor [OPTIONS] [TARGET]..."),
        ("deploy", "gossamer deploy [OPTIONS] [TARGET]"),
        ("export", "gossamer export [OPTIONS] FROM TO"),
        ("completion", "gossamer completion [OPTIONS] bash|zsh|fish"),
    ],
)
def test_the_usage_has_brackets_once_around_what_may_be_left_out(typed: str, usage: str) -> None:
    assert help_of(command_in([typed])[0]).splitlines()[1] == f" Usage: {usage}"


@pytest.mark.parametrize("group", ["crawls", "domains", "jobs", "nodes", "projects", "schedules", "tokens", "versions"])
def test_a_group_that_is_named_alone_lists(group: str) -> None:
    assert command_in([group])[0].path == f"gossamer {group} list"
    assert command_in([group, "--json"])[1] == ["--json"]


def _read(typed: str) -> dict[str, Any]:
    command, rest = command_in(typed.split())
    return command.read(rest)


def _many(
    first: Annotated[str, argument(metavar="FIRST", help="The first.")],
    more: Annotated[list[Path], argument(metavar="MORE...", help="More.")],
    last: Annotated[str, argument(metavar="LAST", help="The last.")],
    size: Annotated[int, option("--size", min=1, max=9, help="A size.")] = 5,
    even: Annotated[bool | None, option("--even/--odd", help="Which.")] = None,
) -> int:
    """Return what it got."""
    return 7


def test_an_argument_that_may_be_repeated_leaves_what_the_ones_behind_it_need() -> None:
    command = ProgramCommand("gossamer many", _many)
    read = {"first": "a", "more": [Path("b"), Path("c")], "last": "d", "size": 5, "even": None}
    assert command.read(["a", "b", "c", "d"]) == read
    assert command.read(["a", "b", "--odd", "c", "--size=9", "d"]) == {**read, "size": 9, "even": False}
    assert command.run(["a", "b", "c"]) == 7
    with pytest.raises(UsageError, match=r"Missing argument 'MORE...'."):
        command.read(["a", "b"])


@pytest.mark.parametrize("text", ["0", "10", "x", "1.5", ""])
def test_a_number_out_of_its_range_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--size: cannot use .* Write a whole number"):
        ProgramCommand("gossamer many", _many).read(["a", "b", "c", "--size", text])
