"""Settings of fetching pages."""

from typing import Annotated, Literal

from gossamer import __version__
from gossamer.fetch.proxies import read_app_proxies, read_proxies
from gossamer.fetch.request import contact_address
from gossamer.model.record import RefusalKind
from gossamer.settings.groups import SettingGroup, field_of, integers, numbers
from gossamer.settings.options import EXTRACT, REQUESTS, SettingOption, overrides
from gossamer.settings.ranges import CENTURY_SECONDS, Bytes, MessageBytes, Seconds, SecondsOrZero

DEFAULT_USER_AGENT = f"gossamer/{__version__}"
"""Fixed: the word before the slash, which sites name in robots.txt."""


class FetchSettings(SettingGroup):
    """HTTP requests, their limits, and the egress: the public address from which they come."""

    robots: Literal["obey", "allow-override", "ignore"] = field_of(
        "obey",
        "How the workers of a service treat robots.txt. obey: always; allow-override: except for requests"
        " with ignore_robots; ignore: never fetch it",
    )
    robots_patience: Annotated[float, numbers(0, 24 * 3600)] | None = field_of(
        None,
        "Seconds for which requests wait for a robots.txt that a site answers with 5xx or not at all. "
        "Unset: 300; a day for the workers of a service",
        option=SettingOption(REQUESTS, "SECONDS"),
    )
    user_agent: str = field_of(
        DEFAULT_USER_AGENT,
        "User-Agent header, and the name that selects the rules of robots.txt",
        option=SettingOption(REQUESTS, "TEXT", of="requests"),
    )
    contact: str = field_of(
        "",
        "URL or e-mail address at which sites reach you, such as https://example.org/bot, added to the "
        "User-Agent header. Empty: none",
        prepare=contact_address,
        option=SettingOption(REQUESTS, "URL|E-MAIL", of="requests"),
    )
    timeout: Seconds = field_of(
        120.0,
        "Seconds for a complete request and response",
        option=SettingOption(REQUESTS, "SECONDS", of="requests", field="timeout"),
    )
    connect_timeout: Seconds = field_of(10.0, "Seconds to connect, including TLS")
    first_byte_timeout: Seconds = field_of(30.0, "Seconds from the end of the request to the first byte of a response")
    retries: Annotated[int, integers(0, 100)] = field_of(
        3, "Further attempts after a temporary failure", option=SettingOption(REQUESTS, "N", field="retries")
    )
    retry_base: SecondsOrZero = field_of(
        10.0, "Seconds before the first retry (approximate). The pause doubles with each retry, up to 10 minutes"
    )
    proxy: str = field_of(
        "",
        "One proxy as the option has it, several with spaces between, or a file of them. Empty: none. A "
        "request to a service may name others, at addresses that it could also crawl",
        prepare=read_proxies,
        option=SettingOption(
            REQUESTS,
            "URL|FILE",
            of="requests",
            many=True,
            help="Send all requests through this proxy: http://, https://, socks5:// or socks5h://, then "
            "[USER:PASSWORD@]HOST:PORT; or through those of a file, one a line. Several take turns. May be "
            "repeated.",
            python_type="Texts",
            python=("Proxy as an http://, https://, socks5:// or socks5h:// URL, a file of them, or several"),
        ),
    )
    app_proxies: dict[str, str] = field_of(
        {},
        "Proxies of single applications of a service, by appid, each written like proxy. Their crawls use these "
        "instead of proxy",
        prepare=read_app_proxies,
    )
    proxy_budget: Literal["shared", "address"] = field_of(
        "shared",
        "Of several proxies: shared: the rate of a domain holds for all together; address: for each address, if the "
        "policy of the domain has the scope ip",
    )
    proxy_sticky: bool = field_of(
        False,
        "Of several proxies, fetch each domain through the same one while that is usable",
    )
    proxy_rest: Seconds = field_of(
        10.0,
        "Seconds for which one of several proxies is not used after a failure, doubled with each further "
        "one: for all sites if it cannot be reached, else for the site",
    )
    proxy_longest_rest: Seconds = field_of(600.0, "Longest of these rests in seconds")
    proxy_ban_statuses: tuple[Annotated[int, integers(100, 599)], ...] = field_of(
        (403, 429),
        "Statuses after which the request is retried through another one of several proxies. Empty: none",
    )
    egress_url: str = field_of(
        "",
        "URL of a service that returns the address it is called from, for budgets per address. Empty: the"
        " address that egress names",
    )
    egress_pattern: str = field_of(
        r"[0-9A-Fa-f:.]{3,}",
        "Regular expression of the address in the response of egress_url. If it has groups, the first one counts",
    )
    egress_timeout: Seconds = field_of(10.0, "Seconds for the response of egress_url")
    egress_refresh: Annotated[float, numbers(1, CENTURY_SECONDS)] = field_of(
        3600.0, "Seconds between two calls of egress_url"
    )
    resolve: dict[str, str] = field_of(
        {},
        "Address to use for a host instead of looking it up, as HOST:ADDRESS. It may be private. HOST may be *.suffix "
        "or *",
        option=SettingOption(
            REQUESTS,
            "HOST:ADDRESS",
            of="requests",
            convert=overrides,
            python_type="Mapping[str, str] | Texts",
            python=('Address to use for a host instead of looking it up: `{"a.test": "10.0.0.7"}`'),
        ),
    )
    ca_file: str = field_of(
        "",
        "PEM file of certificates to trust in addition to the system's",
        option=SettingOption(REQUESTS, "FILE", of="requests", python_type="PathLike"),
    )
    backend: str = field_of(
        "",
        "Name of a fetcher that another package has installed, which sends the requests of pages. Empty: Gossamer's "
        "own client",
        option=SettingOption(REQUESTS, "NAME", of="requests"),
    )
    http2: Literal["never", "auto", "prefer"] = field_of(
        "auto",
        "When HTTP/2 is spoken. never: not at all; auto: with sites that fail with HTTP/1.1 and not with "
        "HTTP/2; prefer: with each site that speaks it, which takes several times the CPU time. Needs the"
        " extra http2; without it, auto is never",
        option=SettingOption(REQUESTS, "never|auto|prefer", of="requests"),
    )
    refusal_rules: str = field_of(
        "",
        "File of rules, in YAML, JSON or TOML, that find more refusals by sites than Gossamer's own rules",
        option=SettingOption(REQUESTS, "FILE", of="requests", python_type="PathLike"),
    )
    accept_refused: tuple[RefusalKind, ...] = field_of(
        (),
        "Kinds of refusals that are taken for pages: challenge, captcha, denied, login, consent, same, not_found or "
        "empty",
        option=SettingOption(REQUESTS, "KIND,KIND", of="requests"),
    )
    max_body: Bytes = field_of(
        5 * 1024 * 1024,
        "Largest body in bytes, decompressed. A longer one is cut and marked truncated. Of sitemaps, up "
        "to 50 MB are read",
    )
    max_asset: Bytes = field_of(
        20 * 1024 * 1024,
        "Largest asset in bytes, decompressed. A longer one is not kept, and its reason is too_large",
        option=SettingOption(EXTRACT, "BYTES", name="assets_max_bytes"),
    )
    max_header: MessageBytes = field_of(64 * 1024, "Largest header of a response in bytes")
    bodies_in_flight: Bytes = field_of(
        32 * 1024 * 1024,
        "Bytes of bodies that one process holds at once",
    )

    @property
    def full_user_agent(self) -> str:
        """The User-Agent header: the user agent, with the contact if there is one."""
        if not self.contact:
            return self.user_agent
        return f"{self.user_agent} (+{self.contact if '://' in self.contact else f'mailto:{self.contact}'})"
