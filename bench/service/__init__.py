"""The third table: the service as other programs meet it, on both buses, with real servers and real processes."""

from collections.abc import Iterator

from bench.progress import say
from bench.results import Figure
from bench.service.buses import Place, buses
from bench.service.info import measure_info
from bench.service.intake import measure_intake
from bench.service.latency import measure_latency
from bench.service.pages import measure_pages
from gossamer.cli.running import run


def measure_service(*, quick: bool) -> Iterator[Figure]:
    """Each figure as soon as it is known; blocks for a minute when quick, minutes else. Tunes this process as the
    service tunes its own."""
    with buses() as places:
        for place in places:
            yield from run(measure_intake(place, requests=5_000 if quick else 50_000))
        for place in places:
            yield from run(measure_latency(place, rounds=30 if quick else 300))
        yield from measure_pages(_kafka(places), quick=quick)
    yield from run(measure_info(queued=50_000 if quick else 1_000_000, domains=1_000 if quick else 10_000))


def _kafka(places: list[Place]) -> list[Place]:
    found = [place for place in places if place.servers]
    if not found:
        say("service: there is no Kafka; tests/servers/install gets it")
    return found
