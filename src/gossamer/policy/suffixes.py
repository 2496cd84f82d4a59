"""Public suffixes: the part of a host name below which anybody can register (https://publicsuffix.org).

The list is the one inside the `tldextract` package, which keeps it current. It is read here without that package's
code, whose imports (an HTTP library among them) and tree of suffixes would cost every process a tenth of a second.
"""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec

_PACKAGE = "tldextract"
_LIST = ".tld_set_snapshot"
_END = "===END ICANN DOMAINS==="


def suffix_labels(labels: list[str]) -> int:
    """How many of a host name's last labels are its public suffix; at least one, as an unknown top level counts (`*`).

    `labels` as in a canonical URL: lower case, not ASCII ones as `xn--`. The list's ICANN section only.
    """
    rules = _rules()
    count = len(labels)
    for start in range(count):
        name = ".".join(labels[start:])
        if name in rules:
            return count - start
        if f"!{name}" in rules:
            return count - start - 1
        if start + 1 < count and f"*{name[len(labels[start]) :]}" in rules:
            return count - start
    return 1


@cache
def _rules() -> frozenset[str]:
    text = _snapshot()
    if text is None:
        # A release of the package that keeps its list elsewhere.
        from tldextract import TLDExtract

        # No addresses and no folder: the list inside the package is used, never the network, never a cache on disk.
        return frozenset(map(_ascii, TLDExtract(suffix_list_urls=(), cache_dir=None).tlds))
    return frozenset(_ascii(rule) for rule in _lines(text[: text.index(_END)]))


def _snapshot() -> str | None:
    spec = find_spec(_PACKAGE)
    if spec is None or spec.loader is None or not spec.submodule_search_locations:
        return None
    read = getattr(spec.loader, "get_data", None)
    if read is None:
        return None
    try:
        text = str(read(f"{spec.submodule_search_locations[0]}/{_LIST}"), "utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if _END in text else None


def _lines(text: str) -> Iterable[str]:
    for line in text.splitlines():
        rule = line.partition(" ")[0].strip()
        if rule and not rule.startswith("//"):
            yield rule


def _ascii(rule: str) -> str:
    """The list has labels in Unicode, normalised; hosts of canonical URLs have them as IDNA's ASCII form."""
    if rule.isascii():
        return rule
    labels = (
        label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii") for label in rule.split(".")
    )
    return ".".join(labels)
