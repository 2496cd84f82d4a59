"""References to spiders: what a file may be, and what is said about one that is faulty."""

import os
import sys
from pathlib import Path

import pytest

from gossamer.errors import BadSpider
from gossamer.model.crawl import CrawlId
from gossamer.worker.loading import SpiderSet, find_spider, identity, make_spider

NOT_UTF8 = (
    "Non-UTF-8 code starting with" if sys.version_info >= (3, 14) else "(unicode error) 'utf-8' codec can't decode byte"
)
"""Python's words for a file in another encoding."""
SHOP = """
from gossamer import Spider

class Shop(Spider):
    def parse(self, page):
        yield {}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def refusal(file: str, content: str | bytes, reference: str = "") -> str:
    """Return what is said about a file with this content."""
    Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadSpider) as raised:
        make_spider(find_spider(reference or file))
    return str(raised.value)


def test_the_name_is_the_class_name_in_lower_case(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP)
    assert find_spider("shop.py").name == "shop"
    (folder / "named.py").write_text(SHOP + '    name = "lamps"\n')
    assert find_spider("named.py").name == "lamps"


def test_a_class_that_others_are_derived_from_is_not_meant(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP + "\nclass Sale(Shop):\n    pass\n\nclass _Helper(Shop):\n    pass\n")
    assert find_spider("shop.py").name == "sale"
    assert find_spider("shop.py:Shop").name == "shop"
    assert find_spider("shop.py").siblings == ("shop.py:Shop", "shop.py:_Helper")


def test_an_imported_spider_is_not_the_files_own(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP + "\nfrom gossamer.worker.spider import LinkSpider\n")
    assert find_spider("shop.py").name == "shop"


def test_a_file_may_import_those_beside_it_and_hides_no_module(folder: Path) -> None:
    (folder / "prices_of_shop.py").write_text("FACTOR = 3\n")
    (folder / "csv.py").write_text("raise RuntimeError('not this one')\n")
    (folder / "json.py").write_text("import csv\nimport prices_of_shop\n" + SHOP)
    assert find_spider("json.py").name == "shop"
    import json

    assert json.loads("1") == 1
    assert not (folder / "__pycache__" / "json.cpython-311.pyc").exists()


def test_a_corrected_file_is_loaded_again_at_once(folder: Path) -> None:
    """Even within the resolution of its time of change."""
    file = folder / "shop.py"
    file.write_text(SHOP.replace("{}", "{'a': 1}"))
    os.utime(file, ns=(1, 1))
    first = find_spider("shop.py")
    assert find_spider("shop.py").make is first.make
    file.write_text(SHOP.replace("{}", "{'a': 12}"))
    os.utime(file, ns=(1, 1))
    assert find_spider("shop.py").make is not first.make


def test_dataclasses_of_the_file_work(folder: Path) -> None:
    """They look up their module by its name."""
    (folder / "shop.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass, KW_ONLY\n"
        "@dataclass\nclass Item:\n    _: KW_ONLY\n    a: int\n" + SHOP
    )
    make_spider(find_spider("shop.py"))


def test_the_identity_is_that_of_file_and_class(folder: Path) -> None:
    (folder / "sub").mkdir()
    for name in ("shop.py", "sub/shop.py", "copy.py"):
        (folder / name).write_text(SHOP)
    assert identity(find_spider("shop.py")) == "shop.py:shop"
    assert identity(find_spider("shop.py:Shop")) == "shop.py:shop"
    assert identity(find_spider(f"{folder}/sub/shop.py")) == "shop.py:shop"
    assert identity(find_spider("copy.py")) == "copy.py:shop"
    assert identity(find_spider("link")) == "link"


def test_a_set_has_the_spiders_of_its_references(folder: Path) -> None:
    (folder / "shop.py").write_text(SHOP + SHOP.replace("Shop", "Link"))
    spiders = SpiderSet(["shop.py:Shop", "shop.py:Link", "link", "wandering"])
    assert spiders.names == ("shop", "link", "wandering")
    crawl = CrawlId("a", "b")
    assert type(spiders.get(crawl, "link")).__module__.startswith("gossamer_spider_"), "the file's own comes first"
    assert spiders.get(crawl, "shop") is spiders.get(crawl, "shop")
    assert spiders.get(crawl, "shop") is not spiders.get(CrawlId("a", "c"), "shop")
    assert type(spiders.get(crawl, "wandering")).__name__ == "WanderingSpider"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def f(:\n  pass\n", "shop.py, line 1: SyntaxError: invalid syntax\n    def f(:\n          ^"),
        ("x = 1\n  y = 2\n", "shop.py, line 2: IndentationError: unexpected indent\n    y = 2"),
        (b"\xff\xfe\n", f"shop.py, line 1: SyntaxError: {NOT_UTF8}"),
        (b"a = 1\0", "shop.py cannot be read as Python: "),
        ("\n1 / 0\n", "shop.py, line 2: ZeroDivisionError: division by zero\n    1 / 0"),
        ("import nowhere.near\n", f"The Python that runs Gossamer ({sys.executable}) has no module nowhere. If it is"),
        ("import email.near\n", "has no module email.near. If it is the project's own, put it beside the spider's"),
        ("from gossamer import Spidr\n", "line 1: ImportError: cannot import name 'Spidr' from 'gossamer'"),
        ("from gossamer import Spidr\n", "Write: from gossamer import Spider"),
        ("import sys\nsys.exit(3)\n", 'Put that below: if __name__ == "__main__":'),
        ("", "shop.py defines no spider. Write a class in it, for example:"),
        ("class Shop:\n    def parse(self, page): ...\n", "the class Shop is no spider. Write: class Shop(Spider)"),
        ("import scrapy\nclass Shop(scrapy.Spider): ...\n", "line 2: Shop is a spider of Scrapy. Run it"),
        ("from gossamer import Spider\nclass Shop(Spider): ...\n", "line 2: the class Shop has no method parse."),
        (SHOP.replace("self, page", "page"), "line 4: the class Shop has `def parse(page)`. Write: def"),
        (SHOP + "    parse = None\n", "the class Shop has a parse that is no method, but None. Write: def parse("),
        (SHOP + "    parse = property(parse)\n", "the class Shop has a parse that is no method, but <property object"),
        (SHOP.replace("self, page", "self, page, more"), "has `def parse(self, page, more)`"),
        (SHOP + "    def __init__(self, x): ...\n", "shop cannot be made: TypeError: Shop.__init__() missing"),
        (SHOP + "    def __init__(self):\n        1 / 0\n", "division by zero (shop.py, line 8, in __init__)"),
        (SHOP + "    name = 7\n", "its name is 7. Write a text."),
        (SHOP + "    name = 'a|b'\n", "may not contain '|'"),
        (SHOP + SHOP.replace("Shop", "SHOP"), "has 2 spiders: Shop (line 4), SHOP (line 10)"),
    ],
)  # fmt: skip
def test_a_faulty_file_says_where_and_what_to_write(folder: Path, content: str | bytes, message: str) -> None:
    assert message in refusal("shop.py", content)


def test_two_spiders_of_a_file_need_two_names(folder: Path) -> None:
    found = refusal("shop.py", SHOP + SHOP.replace("Shop", "SHOP"), "shop.py:Shop")
    assert "line 10: the spider SHOP has the name of Shop, shop. Write another into the class: name =" in found


def test_an_error_in_a_file_beside_it_names_that_file(folder: Path) -> None:
    (folder / "beside_shop.py").write_text("\n\nraise ValueError('x')\n")
    assert "beside_shop.py, line 3: ValueError: x\n    raise ValueError('x')" in refusal(
        "shop.py", "import beside_shop\n"
    )


def test_ctrl_c_while_a_file_loads_is_ctrl_c(folder: Path) -> None:
    (folder / "shop.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        find_spider("shop.py")


def test_a_folder_is_no_spider(folder: Path) -> None:
    (folder / "shop.py").mkdir()
    with pytest.raises(BadSpider, match=r"shop\.py cannot be read: Is a directory\.$"):
        find_spider("shop.py")
