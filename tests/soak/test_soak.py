"""A soak of a minute's thousandth, and that its verdict sees a leak, a lost page and a complaint."""

from collections.abc import Callable
from pathlib import Path

from tests.scale.sampling import Sample
from tests.soak.__main__ import described, write
from tests.soak.run import Soaked, soak
from tests.soak.verdict import NOISE_BYTES, SEEN_BYTES_A_PAGE, TELLING_PAGES, faults, growth

PAGES = 120_000


def test_a_short_soak(tmp_path: Path) -> None:
    soaked = soak(600, page_bytes=2000, every_seconds=0.1, output_bytes=100_000)
    assert faults(soaked) == []
    assert soaked.samples[-1].figures["pages"] <= soaked.pages + 2  # robots.txt, and itself
    write(soaked, tmp_path)
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
    assert "bytes a page" in described(soaked)


def test_memory_that_levels_off_is_flat() -> None:
    assert growth(_soaked(lambda pages: min(pages, PAGES / 4) * 1000)) == []


def test_memory_that_grows_with_the_pages_is_seen() -> None:
    noise = NOISE_BYTES / (PAGES * 2 / 3)
    assert growth(_soaked(lambda pages: pages * (noise - 1))) == []
    (fault,) = growth(_soaked(lambda pages: pages * (noise + 2)))
    assert "the worker's memory grew by 4.1 MiB" in fault
    assert len(growth(_soaked(lambda pages: pages * (noise + SEEN_BYTES_A_PAGE + 2)))) == 2


def test_a_run_too_short_to_tell_tells_nothing() -> None:
    soaked = _soaked(lambda pages: pages * 1000)
    soaked.pages = TELLING_PAGES - 1
    assert growth(soaked) == []


def test_faults_are_named() -> None:
    soaked = _soaked(lambda pages: 0)
    assert faults(soaked) == []
    soaked.urls -= 1
    soaked.complaints = "a warning"
    soaked.summary["failed"] = {"timeout": 1}
    assert len(faults(soaked)) == 3


def _soaked(memory: Callable[[int], float]) -> Soaked:
    samples = [
        Sample(pages / 1000, {"pages": pages, "worker_memory": memory(pages), "valkey_memory": memory(pages)})
        for pages in range(0, PAGES, 1000)
    ]
    return Soaked(PAGES, samples, {}, 0, "", PAGES, PAGES, [], 0)
