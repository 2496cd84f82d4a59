"""What `gossamer up` and `gossamer serve` say first."""

import shlex

from gossamer import __version__
from gossamer.bus.open import STREAMS
from gossamer.settings import Settings, TopicSettings


def greeting(settings: Settings, address: str, topic: str, *, with_workers: bool) -> str:
    """Where things are, and commands that work as they stand in another terminal of the same folder.

    `address` is the API's, `topic` the one with all pages. `settings.bus` is set.
    """
    where = "streams in the frontier" if settings.bus == STREAMS else settings.bus
    known = _named(settings)
    lines = [
        f"Gossamer {__version__} is up.",
        f"  REST     {address}   ({address}/docs)",
        f"  bus      {where}, topics {settings.topics.prefix}.*",
        f"  frontier {settings.frontier or settings.data_dir}",
    ]
    if with_workers:
        processes = settings.worker.processes
        many = "es" if processes > 1 else ""
        lines.append(f"  workers  {processes} process{many}, {settings.worker.concurrency} requests at once each")
    else:
        # Without --bus a worker writes files: those who wait for pages on the bus would see none.
        bus = f" --bus {STREAMS}" if settings.bus == STREAMS else ""
        lines.append(f"  workers  none of its own; start some: gossamer worker{known}{bus}")
    lines += [
        "Try, in another terminal here:",
        """  gossamer feed '{"appid": "mine", "crawlid": "first", "url": "https://example.com"}'""" + known,
        f"  gossamer dump {topic} --from-beginning --no-body{known}",
        "Ctrl-C stops it in good order.",
    ]
    return "\n".join(lines)


def _named(settings: Settings) -> str:
    """The options by which other commands find this cluster; nothing for what they assume by themselves."""
    own = settings.data_dir != Settings.model_fields["data_dir"].default
    prefix = settings.topics.prefix
    flags = {
        "--frontier": settings.frontier,
        "--data-dir": str(settings.data_dir) if own and not settings.frontier else "",
        "--bus": settings.bus if settings.bus != STREAMS else "",
        "--prefix": prefix if prefix != TopicSettings.model_fields["prefix"].default else "",
    }
    return "".join(f" {flag} {shlex.quote(value)}" for flag, value in flags.items() if value)
