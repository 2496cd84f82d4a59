"""`gossamer shell`: a Python prompt with one page. The prompt is IPython's where that is installed, else Python's own.

People know the names at the prompt: `page`, `css`, `xpath`, `fetch`, `view`.
"""

import ast
import code as python_prompt
import contextlib
import mimetypes
import re
import signal
import tempfile
import traceback
import webbrowser
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from markupsafe import escape

from gossamer import __version__
from gossamer.cli import options, terminal
from gossamer.cli.parser import argument, option
from gossamer.crawling.background import BackgroundTask
from gossamer.crawling.single import fetch_page, for_one_page, read_page
from gossamer.errors import BadInput, GossamerError
from gossamer.extract.page import Page
from gossamer.extract.selection import SelectorList
from gossamer.settings import Settings

_HEAD = re.compile(r"<head[^>]*>", re.IGNORECASE)


@options.takes(
    *options.REQUEST_OPTIONS,
)  # fmt: skip
def shell(
    target: Annotated[
        str | None,
        argument(
            metavar="URL|FILE", help="Page to fetch, or HTML file to read. Unset: none; call fetch.", show_default=False
        ),
    ] = None,
    *,
    command: Annotated[
        str | None,
        option(
            "--command",
            "-c",
            metavar="CODE",
            help="Run this Python code instead of a prompt; the value of an expression is printed.",
            show_default=False,
        ),
    ] = None,
    render: options.Render = False,
    base_url: Annotated[
        str,
        option("--base-url", metavar="URL", help="URL of the page in FILE, against which its links are resolved."),
    ] = "",
    **given: Any,
) -> None:
    """Try selectors on one page, at a Python prompt.

    The page is fetched as a crawl would fetch it. At the prompt: page, css("h1::text"), xpath("//h1/text()"),
    fetch("https://…") for another page, view() to see the page in a browser. With IPython installed the prompt
    completes names.

    gossamer shell https://example.com

    gossamer shell --render https://example.com

    gossamer shell page.html -c 'css("h1::text").get()'

    Exit code: 0 done; 1 the page was not fetched, or the code of -c failed; 2 bad input.
    """
    settings = for_one_page(options.load_settings(given), render=render, typed=given)
    # A prompt shows where a redirect leads, wherever that is, also while the spider of a settings file is broken.
    prompt = Prompt(settings.copy(crawl=settings.crawl.copy(scope="any", spider="link")))
    if target is not None:
        try:
            prompt.open(target, base_url)
        except BadInput:
            raise
        except GossamerError as error:
            terminal.say(str(error))
            raise SystemExit(1) from None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C stops what runs at the prompt, not the prompt
    if command is not None:
        raise SystemExit(prompt.run(command))
    prompt.interact()


class Prompt:
    """Names of the prompt, and the page that they work on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.names: dict[str, Any] = {
            "page": None,
            "css": self.css,
            "xpath": self.xpath,
            "fetch": self.fetch,
            "view": self.view,
        }

    def open(self, target: str, base_url: str = "") -> None:
        """Set the page to a URL or a file. Raises GossamerError."""
        if target.startswith("file://"):
            target = url2pathname(urlsplit(target).path)
        path = Path(target)
        is_url = "://" in target
        if not is_url and (path.is_file() or path.suffix.lower() in _FILE_ENDINGS):
            self.names["page"] = read_page(path, url=base_url)
            return
        task = BackgroundTask(fetch_page(self._settings, target), name="gossamer-shell")
        try:
            found = task.result()
        except BaseException:
            task.stop()
            raise
        if found.page is None:
            assert found.error is not None
            found.error.args = (found.failure,)
            raise found.error
        self.names["page"] = found.page

    def _page(self) -> Page:
        page = self.names["page"]
        if not isinstance(page, Page):
            raise BadInput('there is no page yet. Write: fetch("https://example.com")')
        return page

    # --- names at the prompt ------------------------------------------------------------------------------------------

    def css(self, selector: str) -> SelectorList:
        """Return what a CSS selector matches in the page."""
        return self._page().css(selector)

    def xpath(self, expression: str) -> SelectorList:
        """Return what an XPath expression matches in the page."""
        return self._page().xpath(expression)

    def fetch(self, url: str) -> Page | None:
        """Fetch another page, or read a file; `page` is that page then. None: it was not fetched."""
        try:
            with contextlib.suppress(BadInput):
                url = self._page().urljoin(url)
            self.open(url)
        except GossamerError as error:
            terminal.say(str(error))
            return None
        return self._page()

    def view(self) -> str:
        """Show the page in a browser, as it was fetched, and return the file that it is in."""
        page = self._page()
        ending = (
            ".html" if page.is_html else mimetypes.guess_extension(page.record.content_type.split(";")[0]) or ".txt"
        )
        content = page.body
        if page.is_html:  # so that the page's images and styles are found
            base = f'<base href="{escape(page.url)}">'
            text = page.text
            head = _HEAD.search(text)
            content = (f"{text[: head.end()]}{base}{text[head.end() :]}" if head else base + text).encode()
        with tempfile.NamedTemporaryFile(prefix="gossamer-", suffix=ending, delete=False) as file:
            file.write(content)
        webbrowser.open(Path(file.name).as_uri())
        return file.name

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, command: str) -> int:
        """Run code, print the value of an expression, and return the exit code."""
        is_expression = True
        try:
            ast.parse(command, mode="eval")
        except SyntaxError:
            is_expression = False
        try:
            if is_expression:
                value = eval(compile(command, "<-c>", "eval"), self.names)  # noqa: S307  # the user's own code
                if value is not None:
                    terminal.print_result(str(value))
            else:
                exec(compile(command, "<-c>", "exec"), self.names)  # noqa: S102
        except GossamerError as error:
            terminal.say(str(error))
            return 1
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else 1
        except Exception as error:
            trace = error.__traceback__.tb_next if error.__traceback__ else None
            terminal.print_stderr("".join(traceback.format_exception(type(error), error, trace)).rstrip())
            return 1
        return 0

    def interact(self) -> None:
        """Show the prompt until the user leaves it."""
        banner = self._banner()
        try:
            from IPython import start_ipython
            from IPython.terminal.ipapp import load_default_config
        except ImportError:
            pass  # the plain prompt below is outside this handler, or every error there would show the ImportError too
        else:
            config = load_default_config()  # type: ignore[no-untyped-call]
            config.TerminalInteractiveShell.banner1 = ""
            config.TerminalInteractiveShell.banner2 = f"{banner}\n"
            config.TerminalIPythonApp.display_banner = True
            config.TerminalInteractiveShell.confirm_exit = False
            start_ipython(argv=[], user_ns=self.names, config=config)
            return
        with contextlib.suppress(ImportError):  # completion by the tabulator key, where Python has readline
            import readline
            import rlcompleter

            readline.set_completer(rlcompleter.Completer(self.names).complete)
            readline.parse_and_bind("tab: complete")
        python_prompt.interact(banner, local=self.names, exitmsg="")

    def _banner(self) -> str:
        """Return what the prompt begins with: the names that it has."""
        page = self.names["page"]
        lines = [f"Gossamer {__version__}. " + (f"page is {page!r}" if page else 'No page yet: fetch("https://…")')]
        lines += [
            '  css("h1::text").get()     first match of a CSS selector; getall() for all',
            '  xpath("//h1/text()")      the same by XPath',
            "  page.links, page.jsonld   links with url and text; JSON-LD",
            '  fetch("/next")            another page, also relative to this one',
            "  view()                    the page in a browser",
        ]
        return "\n".join(lines)


_FILE_ENDINGS = (".html", ".htm", ".xhtml", ".json", ".xml", ".txt")
"""Endings by which a target that does not exist is reported as a missing file, not as a host."""
