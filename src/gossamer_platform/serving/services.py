"""Services of a manager, alone or with a node in one process: every interface, and what runs in the background."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from starlette.types import ASGIApp

from gossamer.dashboard.app import beside_dashboard
from gossamer.net.guard import Network
from gossamer.web.bodies import BodyLimit
from gossamer.web.connections import ConnectionLimits
from gossamer.web.rates import RateLimit
from gossamer.web.server import ServerOptions, serve
from gossamer_platform.cloud.app import CloudApp
from gossamer_platform.dashboard.gate import PlatformGate
from gossamer_platform.dashboard.section import crawls_section, own_section
from gossamer_platform.delivery.addresses import WebhookAddresses
from gossamer_platform.delivery.crawls import CrawlService, CrawlSubmitter
from gossamer_platform.delivery.sending import WebhookSender
from gossamer_platform.manager.files import JobFiles
from gossamer_platform.manager.watching import watch_jobs
from gossamer_platform.schedules.firing import fire_schedules
from gossamer_platform.scrapyd.app import ScrapydApp
from gossamer_platform.v1.app import answer_limit, longest_body
from gossamer_platform.v1.context import PRINCIPAL

_LIMITS: Final = ConnectionLimits(per_client=800)
"""Limits of connections. Many nodes may have one address, and each has a connection on which it waits for work."""
_REQUESTS_PER_SECOND: Final = 1000.0
"""Limit for one client address; bursts may have twice as many."""
_DRAIN_SECONDS: Final = 5
"""Time that running requests have at the end."""


def start_services(
    group: asyncio.TaskGroup,
    scrapyd: ScrapydApp,
    files: JobFiles,
    listening: list[socket.socket],
    stopping: asyncio.Event,
) -> None:
    """Start the services in tasks of the group, which end once `stopping` is set."""
    config, manager = scrapyd.config, scrapyd.manager
    database = manager.database
    sender = WebhookSender(database, manager.vault, WebhookAddresses.of(os.environ))
    submitter = CrawlSubmitter(database, CrawlService.of(config.crawl_service, config.crawl_service_token))
    group.create_task(serve_platform(scrapyd, files, listening, stopping))
    group.create_task(fire_schedules(database, manager.wake_nodes, stopping))
    group.create_task(watch_jobs(database, stopping))
    group.create_task(sender.run(stopping))
    group.create_task(submitter.run(stopping))


def platform_app(app: CloudApp, scrapyd: ScrapydApp) -> ASGIApp:
    """Return the application with every interface of the platform, and the dashboard. `app`: all but the dashboard."""
    config, manager = scrapyd.config, scrapyd.manager
    sections = [own_section(scrapyd.v1, PRINCIPAL)]
    if config.crawl_service:
        service = CrawlService.of(config.crawl_service, config.crawl_service_token)
        sections.insert(0, crawls_section(service.url, service.token, manager))
    gate = PlatformGate(manager.database, scrapyd.access)
    return beside_dashboard(app, gate, sections, prefix_header=config.prefix_header)


async def serve_platform(
    scrapyd: ScrapydApp, files: JobFiles, listening: list[socket.socket], stopping: asyncio.Event
) -> None:
    """Serve every interface of the platform, and the dashboard, until `stopping` is set."""
    app = CloudApp(scrapyd, scrapyd.manager, files)
    proxies = scrapyd.config.trusted_proxies
    served = platform_app(app, scrapyd)
    await serve_within_limits(served, listening, stopping, on_stopping=app.stop_streams, trusted_proxies=proxies)


async def serve_within_limits(
    app: ASGIApp,
    listening: list[socket.socket],
    stopping: asyncio.Event,
    *,
    on_stopping: Callable[[], None],
    trusted_proxies: Sequence[Network] = (),
) -> None:
    """Serve an application within the platform's limits for clients, until `stopping` is set. `on_stopping` ends its
    streams. `trusted_proxies`: proxies whose X-Forwarded-For names the client."""
    limited = BodyLimit(app, longest=longest_body, answer=answer_limit)
    slowed = RateLimit(limited, per_second=_REQUESTS_PER_SECOND, monotonic=time.monotonic)
    limits = replace(_LIMITS, trusted_proxies=trusted_proxies)
    options = ServerOptions(limits=limits, drain_seconds=_DRAIN_SECONDS, on_stopping=on_stopping)
    await serve(slowed, listening, stopping, options)
