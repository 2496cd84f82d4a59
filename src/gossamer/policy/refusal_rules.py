"""Rules by which a response is a refusal and no page: challenges, captchas, denials of firewalls, walls of logins.

The rules are data. Each one describes what a product documents, or shows to its users, and needs signs of several kinds
together: a word alone, such as the script of a captcha in a contact form, or an article about a firewall, is none.
Fixed: the kinds, which are in records and reasons; and VERSION grows with each change of a rule, because records name
it.
"""

from typing import Final

import msgspec

from gossamer.model.record import RefusalKind

VERSION: Final = 2
"""Version of the rules, which records of refused pages name."""

MOST_BYTES: Final = 48 * 1024
"""Largest body that is looked at. Refusals are small: they have no content. A larger value makes larger pages cost the
search."""


class RefusalRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of refusal: all signs that are given must be there. Texts are in lower case and without quotes."""

    name: str
    kind: RefusalKind
    statuses: tuple[int, ...] = ()
    """Statuses of the response. Empty: those of a page, 200 to 299."""
    header: tuple[str, str] | None = None
    """Name of a header, and a part of its value; an empty part: any value."""
    titles: tuple[str, ...] = ()
    """Titles, of which the page's is one, or one of its parts between `|`, ` - ` and similar."""
    source: tuple[str, ...] = ()
    """Texts that the source of the page has, all of them. The first one is searched in small pages without a title."""
    most_bytes: int | None = None
    most_links: int | None = None
    redirects_to_login: bool = False
    """The request was redirected from an ordinary path to one of a login."""
    leads_back: bool = False
    """The page, or its URL, names the requested URL as the place to return to after the login."""


_TITLES_OF_LOGIN: Final = (
    "log in", "login", "sign in", "signin", "please log in", "please sign in", "log in to continue",
    "sign in to continue", "login required", "log in to your account", "sign in to your account",
    "anmelden", "anmeldung", "connexion", "se connecter", "iniciar sesión", "accedi",
)  # fmt: skip

RULES: Final = (
    # --- challenges: a script, or a wait, stands between the client and the page
    RefusalRule(
        name="cloudflare_mitigated", kind="challenge", statuses=(403, 429, 503), header=("cf-mitigated", "challenge")
    ),
    RefusalRule(
        name="cloudflare_challenge",
        kind="challenge",
        statuses=(403, 429, 503),
        titles=("just a moment...", "please wait...", "attention required!"),
        source=("/cdn-cgi/challenge-platform/",),
    ),
    RefusalRule(
        name="cloudflare_checking",
        kind="challenge",
        statuses=(403, 429, 503),
        titles=("just a moment...",),
        source=("_cf_chl_opt",),
    ),
    RefusalRule(name="aws_challenge", kind="challenge", statuses=(202,), header=("x-amzn-waf-action", "challenge")),
    RefusalRule(name="siteground_header", kind="captcha", statuses=(202,), header=("sg-captcha", "challenge")),
    RefusalRule(
        name="siteground", kind="captcha", statuses=(202,), source=("/.well-known/sgcaptcha/", "http-equiv=refresh")
    ),
    RefusalRule(
        name="vercel_challenge", kind="challenge", statuses=(403, 429), header=("x-vercel-mitigated", "challenge")
    ),
    RefusalRule(
        name="ddos_guard",
        kind="challenge",
        statuses=(403, 429, 503),
        header=("server", "ddos-guard"),
        source=("/.well-known/ddos-guard/",),
    ),
    RefusalRule(
        name="anubis",
        kind="challenge",
        statuses=(200, 401, 403),
        titles=("making sure you're not a bot!", "making sure you&#39;re not a bot!"),
        source=("id=anubis_challenge",),
    ),
    RefusalRule(
        name="sucuri_script",
        kind="challenge",
        statuses=(200, 307, 403, 503),
        titles=("you are being redirected...",),
        source=("sucuri_cloudproxy_js",),
        most_bytes=8192,
    ),
    RefusalRule(
        name="imperva",
        kind="challenge",
        statuses=(200, 403),
        source=("_incapsula_resource?", "<iframe", "incapsula incident id"),
        most_bytes=4096,
        most_links=0,
    ),
    RefusalRule(name="kasada", kind="challenge", statuses=(429,), header=("x-kpsdk-ct", ""), source=("/ips.js",)),
    RefusalRule(
        name="akamai_challenge",
        kind="challenge",
        statuses=(403, 428, 429),
        source=("sec-if-cpt-container", "/_sec/cp_challenge/"),
        most_links=2,
    ),
    # --- captchas: a person is asked for
    RefusalRule(name="aws_captcha", kind="captcha", statuses=(405,), header=("x-amzn-waf-action", "captcha")),
    RefusalRule(
        name="datadome", kind="captcha", statuses=(403, 429), source=("captcha-delivery.com", "var dd="), most_links=2
    ),
    RefusalRule(name="human", kind="captcha", statuses=(403, 429), source=("id=px-captcha", "_pxappid"), most_links=5),
    RefusalRule(
        name="google_sorry",
        kind="captcha",
        statuses=(429, 503),
        source=("unusual traffic from your computer", "captcha"),
    ),
    RefusalRule(
        name="amazon_robot_check",
        kind="captcha",
        statuses=(200, 503),
        titles=("robot check", "amazon.com", "bot check"),
        source=("action=/errors/validatecaptcha", "name=amzn"),
        most_bytes=16384,
    ),
    RefusalRule(
        name="yandex_smartcaptcha",
        kind="captcha",
        statuses=(200, 403, 429),
        titles=("are you not a robot?", "вы не робот?"),
        source=("/checkcaptcha",),
    ),
    *(
        RefusalRule(
            name=f"captcha_wall_{widget}",
            kind="captcha",
            statuses=(200, 403, 429, 503),
            titles=(
                "captcha",
                "security check",
                "verify you are human",
                "human verification",
                "are you a robot?",
                "are you human?",
                "attention required!",
                "bot verification",
                "please verify you are a human",
            ),
            source=(f"class={widget}", "data-sitekey="),
            most_bytes=16384,
            most_links=5,
        )
        for widget in ("g-recaptcha", "h-captcha", "cf-turnstile")
    ),
    # --- denials of firewalls
    RefusalRule(
        name="cloudflare_denied",
        kind="denied",
        statuses=(403, 429),
        titles=("attention required!", "access denied"),
        source=("cf-error-details",),
    ),
    RefusalRule(
        name="akamai",
        kind="denied",
        statuses=(403,),
        titles=("access denied",),
        source=("you don't have permission to access", "reference"),
        header=("server", "akamaighost"),
        most_bytes=4096,
    ),
    *(
        RefusalRule(
            name=name, kind="denied", statuses=(403,), titles=("access denied",), source=(source,), most_bytes=4096
        )
        for name, source in (
            ("akamai_edgesuite", "errors.edgesuite.net"),
            ("akamai_edgesuite_encoded", "errors&#46;edgesuite&#46;net"),
        )
    ),
    RefusalRule(
        name="cloudfront",
        kind="denied",
        statuses=(403,),
        titles=("error: the request could not be satisfied",),
        source=("request blocked.", "generated by cloudfront"),
    ),
    RefusalRule(
        name="azure_front_door",
        kind="denied",
        statuses=(403,),
        header=("x-azure-ref", ""),
        source=("the request is blocked.",),
        most_bytes=4096,
    ),
    RefusalRule(
        name="f5",
        kind="denied",
        statuses=(200, 403),
        titles=("request rejected",),
        source=("the requested url was rejected", "your support id is"),
        most_bytes=4096,
    ),
    RefusalRule(
        name="fortiweb",
        kind="denied",
        statuses=(200, 403, 500),
        titles=("web page blocked", "web page blocked!"),
        source=("attack id",),
        most_bytes=16384,
    ),
    RefusalRule(
        name="sucuri",
        kind="denied",
        statuses=(403,),
        titles=("sucuri website firewall", "sucuri cloudproxy"),
        source=("access denied",),
    ),
    RefusalRule(
        name="wordfence",
        kind="denied",
        statuses=(403, 503),
        source=("your access to this site has been limited", "generated by wordfence"),
    ),
    RefusalRule(
        name="modsecurity",
        kind="denied",
        statuses=(403, 406),
        titles=("not acceptable!", "403 forbidden", "406 not acceptable"),
        source=("mod_security",),
        most_bytes=4096,
    ),
    RefusalRule(name="vercel_denied", kind="denied", statuses=(403,), header=("x-vercel-mitigated", "deny")),
    # --- walls of logins
    RefusalRule(
        name="login_redirect", kind="login", redirects_to_login=True, source=("<form", "type=password"), most_links=60
    ),
    RefusalRule(
        name="login_form",
        kind="login",
        statuses=(200, 401, 403),
        titles=_TITLES_OF_LOGIN,
        source=("<form", "type=password"),
        most_links=60,
        leads_back=True,
    ),
)
