"""Settings of the browser that builds pages."""

from typing import Annotated, Literal

from gossamer.model.rendering import ExtraKind
from gossamer.settings.groups import SettingGroup, field_of, integers, numbers
from gossamer.settings.options import WHAT, SettingOption
from gossamer.settings.ranges import Bytes, Count, Seconds


class BrowserSettings(SettingGroup):
    """The browser that builds pages, and the limits of what a page may load and take."""

    program: str = field_of(
        "",
        "Chromium or Chrome, as a path or a name on PATH. Empty: the first that is installed, chromium-headless-shell "
        "before the others",
    )
    user: str = field_of(
        "",
        "User as whom the browser runs if Gossamer runs as root. Empty: the one without rights (65534)",
    )
    sandbox: bool = field_of(
        True,
        "Confine pages by the sandbox of the browser. no: only where a container or a machine of its own confines them",
    )
    processes: Annotated[int, integers(1, 64)] = field_of(1, "Browsers of each worker process")
    tabs: Annotated[int, integers(1, 64)] = field_of(4, "Pages that one browser builds at once")
    seconds: Annotated[float, numbers(0, 600, above=True)] = field_of(
        30.0,
        "Seconds in which a page is rendered. The document is then taken as it is",
        option=SettingOption(WHAT, "SECONDS", of="requests", name="render_seconds", field="render_seconds"),
    )
    quiet: Annotated[float, numbers(0.01, 60)] = field_of(
        0.25,
        "Seconds without a change after which a rendered document is complete",
        option=SettingOption(WHAT, "SECONDS", of="requests", name="render_quiet", field="render_quiet"),
    )
    max_requests: Annotated[int, integers(0, 100_000)] = field_of(
        200, "Largest number of requests that a page may make, besides its own"
    )
    max_bytes: Bytes = field_of(
        20 * 1024 * 1024, "Largest number of bytes that these requests of a page may receive, and that they may send"
    )
    host_requests: Annotated[int, integers(1, 1000)] = field_of(
        4,
        "Largest number of requests to one host at once that rendered pages of a worker process make",
        option=SettingOption(
            WHAT,
            "N",
            name="render_host_requests",
        ),
    )
    other_sites: Literal["none", "scripts", "all"] = field_of(
        "scripts",
        "Requests to other registered domains that rendered pages may make. scripts: scripts, style "
        "sheets and data, but neither frames nor known trackers; none: nothing; all: everything",
        option=SettingOption(
            WHAT,
            "none|scripts|all",
            of="requests",
            name="render_other_sites",
        ),
    )
    load: tuple[ExtraKind, ...] = field_of(
        (),
        "Kinds that a rendered page also loads: images, fonts, media, trackers. A screenshot has images "
        "and fonts in any case",
        option=SettingOption(
            WHAT,
            "images|fonts|media|trackers",
            of="requests",
            name="render_load",
        ),
    )
    cache: Bytes = field_of(32 * 1024 * 1024, "Bytes of the cache that the pages of a worker process share")
    retire_pages: Count = field_of(500, "Pages after which a browser is replaced by a new one")
    retire_seconds: Seconds = field_of(1800.0, "Age at which a browser is replaced")
    retire_memory: Annotated[int, integers(128 * 2**20, 2**40, unit="bytes")] = field_of(
        768 * 2**20, "Memory of a browser in bytes at which it is replaced"
    )
