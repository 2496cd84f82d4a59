"""What requests wait for: said once, shown while it lasts, bounded."""

from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.worker.robots import RobotsWaits


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def shown(waits: RobotsWaits) -> list[str]:
    tally = Tally()
    waits.show(tally)
    return list(tally.waits)


def test_it_is_said_when_the_first_begins_and_when_the_last_ends() -> None:
    said: list[str] = []
    waits = RobotsWaits(Troubles(said.append), now=Clock())
    waits.begin("http://a.test", "503", 1060, 1300)
    waits.begin("http://b.test", "429", 1030, 1300)
    waits.begin("http://a.test", "503", 1120, 1300)
    assert shown(waits) == ["http://b.test", "http://a.test"], "the next to be asked comes first"
    waits.end("http://b.test")
    waits.end("http://c.test")
    assert said == [
        "The robots.txt of http://a.test cannot be fetched (503), so the site's pages wait. They fail if it still "
        "cannot in 5 min (--robots-patience)."
    ]
    waits.end("http://a.test")
    assert said[1:] == ["No request waits for a robots.txt any more."]
    assert shown(waits) == []


def test_what_another_worker_has_taken_over_is_forgotten() -> None:
    said: list[str] = []
    clock = Clock()
    waits = RobotsWaits(Troubles(said.append), now=clock)
    waits.begin("http://a.test", "503", 1060, 87_400)
    clock.seconds = 1119
    assert shown(waits) == ["http://a.test"]
    clock.seconds = 1121
    assert shown(waits) == []
    assert len(said) == 2


def test_thousands_of_origins_are_bounded() -> None:
    waits = RobotsWaits(Troubles(), now=Clock())
    for number in range(20_000):
        waits.begin(f"http://a{number}.test", "503", 1060, 1300)
    assert len(shown(waits)) == 20
