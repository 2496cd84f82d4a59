"""A sitemap as a page: what it lists are links, what it names are more sitemaps."""

from dataclasses import dataclass, field

from gossamer.model.request import Batch
from gossamer.worker.journey import Journey


@dataclass(slots=True)
class Listed:
    """The sitemap's entries as batches, and what was left out, by reason."""

    batches: list[Batch] = field(default_factory=list)
    drops: dict[str, int] = field(default_factory=dict)


def is_sitemap(journey: Journey, content_type: str, body: bytes) -> bool:
    return journey.payload.sitemap


def sitemap_links(journey: Journey, body: bytes) -> Listed:
    return Listed()
