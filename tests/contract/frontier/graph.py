"""A web in a few lines: which pages a page links to, the same in every process."""

import random

PAGES = 1200
DOMAINS = 25
LINKS = 4


def url(page: int) -> tuple[str, str]:
    """A page's domain and path."""
    return f"d{page % DOMAINS}.test", str(page)


def links(page: int) -> list[int]:
    """Where a page leads: to the next (so that all are reachable) and to some others."""
    chance = random.Random(page)
    return [(page * 2 + 1) % PAGES, (page * 2 + 2) % PAGES, *(chance.randrange(PAGES) for _ in range(LINKS - 2))]


def begins_rendered(page: int) -> bool:
    """Whether links to a page ask for it to be rendered, where there are two lanes."""
    return page % 3 == 1


def ends_rendered(page: int) -> bool:
    """Whether a page is rendered in the end, where there are two lanes: others than begin so, and fewer."""
    return page % 2 == 1


def reachable(seed: int) -> set[int]:
    """Every page that a crawl from this one finds."""
    found, coming = {seed}, [seed]
    while coming:
        for page in links(coming.pop()):
            if page not in found:
                found.add(page)
                coming.append(page)
    return found
