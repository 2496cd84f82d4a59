"""Seeds of a crawl, the URLs that it starts from: gathers them, and finds hosts that are not on the public internet.

Seeds are given, or listed in files, at URLs or on standard input. Private hosts are refused before the start, unless
the person who starts the crawl permits them. The check here only spares that person a wait: every host is checked again
when it is fetched. Fixed: the order of the URLs, which is that of the sources.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from gossamer.errors import BadInput, BlockedAddress, DnsFailed, FetchError
from gossamer.fetch.exchange import FetchRequest, redirect_location
from gossamer.fetch.faults import ResponseFault
from gossamer.fetch.proxies import first_proxy
from gossamer.net.guard import host_address, refusal_reason
from gossamer.net.resolve import Resolver
from gossamer.option_names import named
from gossamer.policy.urls import canonical, from_user_input, host, redirect_target
from gossamer.settings import Settings
from gossamer.wiring.worker import make_clients
from gossamer.worker.attempt import MAX_HOPS

_MAX_SEED_BYTES = 256 * 1024 * 1024
"""Largest list of seeds. The list is held in memory, and takes several times its size there."""


async def gather_seeds(
    settings: Settings, resolver: Resolver, urls: Sequence[str], sources: Sequence[str]
) -> list[str]:
    """Return `urls` as they are, then the URLs of all `sources` (files, URLs, or `-` for standard input), in canonical
    form and in the order of the lists.

    Raises BadInput for a source that cannot be read or holds no URL, and for `urls` that are probably no URLs.
    """
    for url in urls:
        _check_no_file(url)
        check_host(url)
    found = list(urls)
    for source in sources:
        if source.startswith(("http://", "https://")):
            found += _lines(await _fetch_seeds(settings, resolver, source), source)
        elif source == "-":
            found += _lines(sys.stdin.buffer.read(_MAX_SEED_BYTES + 1), "standard input")
        else:
            found += _lines(_read_seeds(source), source)
    return found


def _check_no_file(text: str) -> None:
    """Raise BadInput for the name of a file in the place of a URL."""
    if "://" not in text and os.path.isfile(text):  # not Path.is_file, which fails for a very long text
        site = "" if "/" in text else f" A site of that name is http://{text}"
        raise BadInput(
            f"{text} is a file here; write {named('seeds')} {shlex.quote(text)} to crawl the URLs in it.{site}"
        )


_WORD = re.compile(r"(?!localhost(?:/|$))(?!\d+(?:/|$))([\w-]+)(?:/.*)?", re.IGNORECASE | re.DOTALL)
"""A text whose host is a single word, other than `localhost` and a number (an address): `true` or `shop/cart`, but not
`shop.test/cart` or `2130706433`. May match less, but nothing that a person may mean as a URL."""


def check_host(text: str) -> str:
    """Return the canonical URL of a person's input. Raises BadInput for what is no URL, or probably not meant as one: a
    single word, such as the value of an option, or a row of a table with commas."""
    url = from_user_input(text)
    if word := _WORD.fullmatch(text.strip()):
        raise BadInput(
            f"{word[1]!r:.100} is one word: which site is meant? Write its whole name, such as {word[1]:.60}.com, or "
            f"http://{word[1]:.60} for a host of your network. Options like {named('fresh', True)} take no value."
        )
    if "," in host(url):
        raise BadInput(f"{text.strip()!r:.200} has a comma in the name of the host. Write one URL, without commas.")
    return url


def _read_seeds(source: str) -> bytes:
    """Return the content of a file, up to one byte more than the limit, by which `_lines` sees that it is too long."""
    try:
        with Path(source).open("rb") as file:
            return file.read(_MAX_SEED_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{source} cannot be read: {error.strerror}. Name a file with URLs.", option="seeds") from None


def _lines(content: bytes, source: str) -> list[str]:
    """Return the canonical URLs of a list, one per line; empty lines and those that begin with # are skipped.

    Raises BadInput for the first line that is no URL, and names the others.
    """
    if len(content) > _MAX_SEED_BYTES:
        raise BadInput(
            f"{source} is longer than {_MAX_SEED_BYTES // 2**20} MiB. Split it into several crawls.", option="seeds"
        )
    urls: list[str] = []
    faults: dict[int, BadInput] = {}
    for number, line in enumerate(_text(content, source).splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            try:
                urls.append(check_host(text))
            except BadInput as error:
                faults[number] = error
    if faults:
        (first, fault), *others = faults.items()
        raise BadInput(
            f"{source}, line {first}: {str(fault).rstrip('.')}.{_other_lines([line for line, _ in others])}",
            option="seeds",
        )
    if not urls:
        raise BadInput(f"{source} holds no URL. Write one URL per line.", option="seeds")
    return urls


def _text(content: bytes, source: str) -> str:
    """Return the text of a list of seeds. Raises BadInput for a web page, and for what is no UTF-8 text."""
    begin = content[:_SNIFFED_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if begin.startswith(b"<"):
        if re.search(rb"<(?:\w+:)?(?:urlset|sitemapindex|rss|feed)[\s>]", begin):
            raise BadInput(f"{source} holds a sitemap, no list. Give its URL as a seed itself.", option="seeds")
        found = "XML" if begin.startswith(b"<?xml") else "a web page"
        raise BadInput(f"{source} holds {found}, no list. Write one URL per line.", option="seeds")
    if content.startswith(b"\x1f\x8b"):
        raise BadInput(
            f"{source} is compressed. Unpack a list before; give the URL of a sitemap as a seed itself.", option="seeds"
        )
    try:
        if b"\0" not in content:
            return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise BadInput(f"{source} holds no UTF-8 text. Save it as UTF-8, with one URL per line.", option="seeds")


_SNIFFED_BYTES = 1024
"""Bytes of a list that tell a web page."""
_LINES_SHOWN = 5
"""Numbers of faulty lines after the first that a message shows."""


def _other_lines(numbers: Sequence[int]) -> str:
    """Return a sentence on the other faulty lines, with a space before; empty: there are none."""
    if not numbers:
        return ""
    shown = ", ".join(map(str, numbers[:_LINES_SHOWN]))
    more = len(numbers) - _LINES_SHOWN
    if more > 0:
        shown += f" and {more:,} more"
    return f" Also faulty: {'line' if len(numbers) == 1 else 'lines'} {shown}."


async def _fetch_seeds(settings: Settings, resolver: Resolver, source: str) -> bytes:
    """Return the body of a URL, after its redirects."""
    clients = make_clients(settings, resolver, body_bytes=_MAX_SEED_BYTES)
    url = canonical(source)
    private_host = host(url) if settings.crawl.allow_private else ""
    headers = (("User-Agent", settings.fetch.full_user_agent), ("Accept", "text/plain,*/*;q=0.5"))
    try:
        for _ in range(MAX_HOPS + 1):
            fetched = await clients.fetch(
                FetchRequest(
                    url,
                    headers=headers,
                    proxy=first_proxy(settings.fetch.proxy),
                    insecure=settings.crawl.insecure,
                    allow_private=host(url) == private_host,  # as for a seed: its own host, not where it redirects
                )
            )
            target = redirect_location(fetched.status, fetched.headers)
            if target is None:
                break
            next_url = redirect_target(url, target)
            if next_url is None:
                raise BadInput(
                    f"{source} cannot be fetched: it redirects to {target[:200]!r}, no web page", option="seeds"
                )
            url = next_url
    except FetchError as error:
        raise BadInput(f"{source} cannot be fetched: {error}", option="seeds") from None
    finally:
        await clients.close()
    if fetched.status != 200 or fetched.truncated:
        if not fetched.truncated or fetched.status != 200:
            reason = f"the response was {fetched.status} {fetched.reason}"
        elif ResponseFault.BODY in fetched.faults:
            reason = "it arrived damaged or incomplete"
        else:
            reason = f"it is longer than {_MAX_SEED_BYTES // 2**20} MiB"
        raise BadInput(f"{source} cannot be fetched: {reason}", option="seeds")
    return fetched.body


_NOT_PUBLIC = ("localhost", "test", "example", "invalid", "local", "internal")
"""Top levels of names that are not on the public internet."""


def has_public_host(settings: Settings, seeds: Sequence[str], private_hosts: Sequence[str]) -> bool:
    """Return whether some of the first seeds seem to be on the public internet, whose owners may want to reach the
    person who crawls.

    `private_hosts`: hosts that were found to be private. A host to which a setting of --resolve gives an address counts
    as private, too.
    """
    for name in dict.fromkeys(map(host, seeds[:_NAMES_CHECKED])):
        is_local = name in private_hosts or name.rpartition(".")[2] in _NOT_PUBLIC
        if not is_local and not any(fnmatchcase(name, pattern) for pattern in settings.fetch.resolve):
            return True
    return False


_NAMES_CHECKED = 1000
"""Maximum number of host names that are looked up before the start. More make a start slower. The rest is checked when
it is fetched, as every link is. With --allow-private all names are looked up, because the crawl has to know which hosts
are private."""

_SLOW_LOOKUP_SECONDS = 3.0
"""Time after which a person is told that names are still looked up. Together with the start of the command it should
stay below 5 seconds."""
_LOOKUPS_AT_ONCE = 32
"""Number of parallel look-ups. May be lower, but not higher than the resolver's number of threads (`threads` in
`net/resolve.py`): a look-up that waits for a thread could time out."""


async def find_private_hosts(
    resolver: Resolver,
    seeds: Iterable[str],
    *,
    allowed: bool,
    look_up_names: bool = True,
    say: Callable[[str], None] | None = None,
) -> tuple[str, ...]:
    """Return the seeds' hosts that have only addresses outside the public internet, IP addresses before names.

    `allowed` False: the result is empty, because such a host raises BadInput. `allowed` True: the person permits them.
    A name that does not resolve is neither refused nor returned: the crawl records its failure.

    `look_up_names` False: a proxy resolves the names, so this function looks none up. It checks the IP addresses as
    usual, and refuses no name; with `allowed`, it returns all names, because any of them may be private.

    `say` shows the user a sentence if there are many look-ups, or if they take long.
    """
    hosts = list(dict.fromkeys(map(host, seeds)))
    addresses = [name for name in hosts if host_address(name) is not None]
    names = [name for name in hosts if host_address(name) is None]
    private = await _private_addresses(resolver, addresses, allowed=allowed)
    if not look_up_names:
        return (*private, *names) if allowed else ()
    if not allowed:
        names = names[:_NAMES_CHECKED]
    elif len(names) > _NAMES_CHECKED and say is not None:
        say(
            f"Looking up {len(names):,} hosts: {named('allow_private', True)} needs to know which have private "
            "addresses."
        )
    looking_up = asyncio.ensure_future(_private_names(resolver, names, allowed=allowed))
    try:
        await asyncio.wait((looking_up,), timeout=_SLOW_LOOKUP_SECONDS)
        if not looking_up.done() and say is not None:
            more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
            say(
                f"Looking up {names[0]}{more} takes long: the name servers of this machine do not answer. Ctrl-C stops."
            )
        return (*private, *await looking_up)
    finally:
        looking_up.cancel()


async def _private_addresses(resolver: Resolver, addresses: Sequence[str], *, allowed: bool) -> list[str]:
    """Return the private ones of these IP addresses. Raises BadInput for the first of them unless `allowed`."""
    found: list[str] = []
    for address in addresses:
        # The resolver decides, because the setting allow_networks may permit the address. `refusal_reason` has the
        # words for a person.
        reason = refusal_reason(host_address(address) or "")
        if reason is not None and await _refusal(resolver, address):
            if not allowed:
                raise BadInput(
                    f"{address} is not on the public internet ({reason}). To crawl it, add "
                    f"{named('allow_private', True)}, which permits the hosts of the given URLs."
                )
            found.append(address)
    return found


async def _private_names(resolver: Resolver, names: Sequence[str], *, allowed: bool) -> list[str]:
    """Return the names that only have private addresses. Raises BadInput for the first of them unless `allowed`."""
    found: list[str] = []
    for start in range(0, len(names), _LOOKUPS_AT_ONCE):
        batch = names[start : start + _LOOKUPS_AT_ONCE]
        refusals = await asyncio.gather(*(_refusal(resolver, name) for name in batch))
        for name, refusal in zip(batch, refusals, strict=True):
            if refusal and not allowed:
                raise BadInput(
                    f"{refusal}: not on the public internet. To crawl it, add {named('allow_private', True)}, which "
                    f"permits the hosts of the given URLs, or {named('resolve', name)}, which permits this one."
                )
            if refusal:
                found.append(name)
    return found


async def _refusal(resolver: Resolver, name: str) -> str:
    """Return why the host may not be fetched; empty where it may, or does not resolve."""
    try:
        await resolver.addresses(name, 0)  # any port: the resolver does not use it
    except BlockedAddress as error:
        return error.detail
    except DnsFailed:
        pass
    return ""
