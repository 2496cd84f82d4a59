"""`gossamer new spider`: writes a spider to start from. It overwrites no file, and the spider runs as it is."""

import keyword
import re
import shlex
from pathlib import Path
from typing import Annotated

from gossamer.cli import terminal
from gossamer.cli.parser import CommandGroup, argument
from gossamer.errors import BadInput

_NEW_HELP = "Write a spider to start from into a new file."
new = CommandGroup(help=_NEW_HELP)

_SPIDER = '''"""The spider {name}: reads fields from the pages of a site, and follows their links.

Crawl with it:      gossamer crawl https://example.com --spider {file} -o {name}.csv
Try selectors:      gossamer shell https://example.com
"""

from gossamer import Spider


class {class_name}(Spider):
    def parse(self, page):
        # An item: the fields that you want of this page. Each becomes a row of the output.
        yield {{
            "title": page.css("title::text").get(),
            "heading": page.css("h1::text").get(default=""),
            # "price": page.css(".price::text").re_first(r"[0-9.]+"),
            # "image": page.css("img.main::attr(src)").get(),
        }}

        # Links to follow. The crawl keeps to its scope (--scope), and fetches no page twice.
        for link in page.links:
            yield page.follow(link)
        # Or only some of them:
        # for link in page.css("a.next"):
        #     yield page.follow(link)
'''


@new.command("spider")
def spider(
    name: Annotated[
        str, argument(metavar="NAME", help="Name of the spider, or of its file: shop, or spiders/shop.py.")
    ],
) -> None:
    """Write a small spider that runs at once, to NAME.py.

    gossamer new spider shop

    Exit code: 0 written; 2 the name cannot be used, or the file exists.
    """
    path = Path(name if name.endswith(".py") else f"{name}.py")
    class_name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", path.stem))
    if not class_name.isidentifier() or keyword.iskeyword(class_name) or path.name.startswith("."):
        raise BadInput(f"NAME: {name!r} makes no name of a class. Begin with a letter, for example: shop")
    if not name.isprintable():  # such a name would break the lines of the file, or could not be written into it
        raise BadInput(f"NAME: {name!r} has characters that cannot be shown. Use others, for example: shop")
    quoted = shlex.quote(str(path))
    in_docstring = quoted.replace("\\", "\\\\").replace('"', '\\"')
    content = _SPIDER.format(name=class_name.lower(), file=in_docstring, class_name=class_name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise BadInput(f"{path} exists, and is left as it is. Use another name.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    terminal.print_result(
        f"The spider {class_name.lower()} is in {path}. Crawl with it:\n"
        f"  gossamer crawl https://example.com --spider {quoted}"
    )
