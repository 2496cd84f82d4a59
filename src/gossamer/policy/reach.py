"""Compares how far two submissions follow links."""

from collections.abc import Collection

from gossamer.model.crawl import Terms
from gossamer.policy.extensions import DENIED_EXTENSIONS


def covers(old: Terms, new: Terms) -> bool:
    """Return whether every link that is followed under `new` is followed under `old`, too, from the same seed.

    Compares what the terms say, not all that they could mean: an `allow_regex` that is written in another way counts as
    another one.
    """
    if new.maxdepth == 0:
        return True
    return (
        (old.maxdepth is None or (new.maxdepth is not None and new.maxdepth <= old.maxdepth))
        and _domains_cover(old.allowed_domains, new.allowed_domains)
        and old.allowed_hosts == new.allowed_hosts
        and old.allowed_prefixes == new.allowed_prefixes
        and _contains(old.allow_regex, new.allow_regex)
        and set(old.deny_regex or ()) <= set(new.deny_regex or ())
        and _denied(old) <= _denied(new)
        and (old.follow_nofollow or not new.follow_nofollow)
        and (old.sitemaps or not new.sitemaps)
    )


def _contains(old: Collection[str] | None, new: Collection[str] | None) -> bool:
    """Of lists where None permits everything."""
    return not old or (bool(new) and set(new or ()) <= set(old))


def _domains_cover(old: Collection[str] | None, new: Collection[str] | None) -> bool:
    """The same of domains, each with its subdomains."""
    if not old or not new:
        return not old
    return all(any(name == domain or name.endswith(f".{domain}") for domain in old) for name in new)


def _denied(terms: Terms) -> frozenset[str]:
    given = terms.deny_extensions
    return DENIED_EXTENSIONS if given is None else frozenset(name.lower().lstrip(".") for name in given)
