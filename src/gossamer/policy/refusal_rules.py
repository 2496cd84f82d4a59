"""Rules by which a response is a refusal and no page: challenges, captchas, denials of firewalls, walls of logins and
of consent, pages that say that there is no such page, and shells without content.

The rules are data. Each one describes what a product documents, or shows to its users, and needs signs of several kinds
together: a word alone, such as the script of a captcha in a contact form, or an article about a firewall, is none.
Fixed: the kinds, which are in records and reasons; and VERSION grows with each change of a rule, because records name
it.
"""

from typing import Final

import msgspec

from gossamer.model.record import RefusalKind

VERSION: Final = 8
"""Version of the rules, which records of refused pages name."""

MOST_BYTES: Final = 48 * 1024
"""Largest body of a refusal, unless its rule has another size. Refusals are small: they have no content. A larger value
makes larger pages cost the search."""
LARGEST_BYTES: Final = 256 * 1024
"""Largest body of a refusal that is known by its title. Such pages have the menus and scripts of their site around
them."""
SHORTEST_BYTES: Final = 4096
"""Largest page that is looked at because it has next to nothing but scripts."""
BY_SITE: Final = frozenset(("challenge", "captcha", "denied", "login", "consent", "same"))
"""Kinds by which a site refuses this client, or visitors of its kind. The others say that there is nothing to read."""


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
    any_source: tuple[str, ...] = ()
    """Texts of which the source has one at least."""
    lacks: tuple[str, ...] = ()
    """Texts of which the source has none."""
    headings: tuple[str, ...] = ()
    """Headings, of which the first `<h1>` of the page is one, or one of its parts as in titles."""
    ends: tuple[str, ...] = ()
    """Ends of texts. The title, or a part of it, ends with one of them, and so does the first `<h1>`."""
    says: tuple[str, ...] = ()
    """Texts of which the page shows one at least to its reader."""
    most_bytes: int | None = None
    most_links: int | None = None
    most_text: int | None = None
    """Largest number of characters that the page shows beside its links."""
    most_fields: int | None = None
    """Largest number of fields that a reader fills in. A form of a contact has some, a wall has none."""
    is_shell: bool = False
    """The page shows its reader next to nothing, and no link, and has scripts that may build the rest. Not for pages
    that a browser builds, or has built."""
    is_script: bool = False
    """The first text of `source` is in a small page that has scripts, and few links and paragraphs."""
    redirects_to_consent: bool = False
    """The request was redirected from an ordinary URL to one where consent is asked for."""
    spares: tuple[str, ...] = ()
    """Words of paths. A request for a path with one of them, or for the root of the site, is for what it gets."""
    redirects_to_login: bool = False
    """The request was redirected from an ordinary path to one of a login."""
    leads_back: bool = False
    """The page, or its URL, names the requested URL as the place to return to after the login."""


_TITLES_OF_CAPTCHA: Final = (
    "captcha", "security check", "verify you are human", "human verification", "are you a robot?", "are you human?",
    "attention required!", "bot verification", "please verify you are a human", "verify that you are human",
    "verifying you are human", "robot check", "just a quick check", "security verification", "captcha challenge",
)  # fmt: skip
_TITLES_OF_LOGIN: Final = (
    "log in", "login", "sign in", "signin", "please log in", "please sign in", "log in to continue",
    "sign in to continue", "login required", "log in to your account", "sign in to your account",
    "anmelden", "anmeldung", "connexion", "se connecter", "iniciar sesión", "accedi",
)  # fmt: skip

_TITLES_OF_DENIED: Final = (
    "access denied", "403 forbidden", "forbidden", "403", "403 access denied", "error 403", "you have been blocked",
    "sorry, you have been blocked", "request blocked", "your request has been blocked", "blocked", "access blocked",
    "zugriff verweigert", "accès refusé", "acceso denegado", "accesso negato", "доступ запрещен", "доступ запрещён",
)  # fmt: skip
_SENTENCES_OF_DENIED: Final = (
    "been blocked", "is blocked", "was blocked", "don't have permission", "do not have permission", "not authorized",
    "not allowed to access", "access is denied", "access to this", "contact the administrator",
    "contact the site", "contact the owner", "contact support", "security service", "security reasons",
    "wurde gesperrt", "wurde blockiert", "keine berechtigung", "pas autorisé", "no tiene permiso",
    "non hai il permesso",
)  # fmt: skip

_NOT_FOUND: Final = (
    "not found", "page not found", "file not found", "page cannot be found", "the page cannot be found",
    "this page could not be found", "page could not be found", "that page can't be found", "this page can't be found",
    "page does not exist", "this page does not exist", "page doesn't exist", "this page doesn't exist",
    "page no longer exists", "page unavailable", "page not available", "this page isn't available",
    "we can't find that page", "we couldn't find that page", "we can't find the page you're looking for",
    "product not found", "article not found", "item not found", "document not found", "content not found",
    "seite nicht gefunden", "die seite wurde nicht gefunden", "diese seite existiert nicht", "nicht gefunden",
    "page non trouvée", "page introuvable", "cette page n'existe pas", "página no encontrada", "no encontrado",
    "pagina non trovata", "página não encontrada", "pagina niet gevonden", "sidan hittades inte",
    "siden blev ikke fundet", "siden ble ikke funnet", "sivua ei löytynyt", "strona nie została znaleziona",
    "nie znaleziono strony", "stránka nenalezena", "az oldal nem található", "sayfa bulunamadı",
    "страница не найдена", "сторінку не знайдено", "ページが見つかりません", "页面不存在", "找不到页面",
    "找不到網頁", "페이지를 찾을 수 없습니다",
)  # fmt: skip
"""Texts by which pages say that there is no such page, in titles and headings."""
_TITLES_OF_NOT_FOUND: Final = (
    "404", "404 error", "error 404", "http 404", "http error 404", "error 404 (not found)",
    *(
        form.format(text)
        for text in _NOT_FOUND
        for form in (
            "{}", "404 {}", "404: {}", "404, {}", "error 404: {}", "{} (404)", "{} 404", "oops! {}", "sorry, {}",
        )
    ),
)  # fmt: skip
_CLEAR_HEADINGS: Final = tuple(text for text in _TITLES_OF_NOT_FOUND if text not in ("404", "not found"))
"""Those that are no names of roads or books, which a page would have as title and heading."""
_ENDS_OF_NOT_FOUND: Final = (
    "not found", "could not be found", "couldn't be found", "cannot be found", "can't be found", "no longer available",
    "no longer exists", "does not exist", "doesn't exist", "not available", "nicht gefunden", "nicht vorhanden",
    "nicht mehr verfügbar", "nicht verfügbar", "existiert nicht", "introuvable", "non trouvé", "non trouvée",
    "n'existe pas", "n'existe plus", "no encontrado", "no encontrada", "no existe", "no disponible", "non trovato",
    "non trovata", "non esiste", "não encontrado", "não encontrada", "não existe", "niet gevonden", "bestaat niet",
    "не найден", "не найдена", "не найдено", "не существует", "не знайдено", "見つかりません", "不存在", "未找到",
    "찾을 수 없습니다", "bulunamadı", "nie znaleziono", "nenalezen", "nenalezena", "hittades inte", "ikke fundet",
    "ikke funnet",
)  # fmt: skip
"""Ends of titles and headings of pages about something that is not there: a product, a job."""
_DIRECTIONS: Final = (
    *(
        f"{noun} you {verb}"
        for noun in (
            "page", "product", "item", "article", "document", "file", "job", "position", "content", "resource",
            "listing", "link", "address", "url", "site",
        )
        for verb in (
            "are looking for", "were looking for", "requested", "have requested", "tried", "are trying", "want",
        )
    ),
    *(f"{noun} you're looking for" for noun in ("page", "product", "item", "article", "job")),
    "requested page", "requested url", "requested resource", "mistyped", "typed incorrectly", "typed the address",
    "check the address", "check the url", "check the spelling", "back to the home", "return to the home",
    "go to the home", "go to our home", "back to home", "go home", "me home", "return home",
    "to our homepage", "to the homepage", "to homepage", "to the start page", "zur startseite", "gesuchte",
    "angeforderte", "aufgerufene seite", "que vous cherchez", "que vous recherchez", "demandée", "à l'accueil",
    "page d'accueil", "que buscas", "que busca", "solicitada", "al inicio", "richiesta", "alla home", "que procura",
    "opgevraagde", "naar de home", "запрошенн", "запрашиваем", "на главную", "お探し", "ホームへ", "返回首页", "홈으로",
)  # fmt: skip
"""Texts that tell a visitor of a missing page about the request, or where to go. No book or road has them."""
_SENTENCES_OF_NOT_FOUND: Final = (
    *_DIRECTIONS, "was not found", "we could not find", "we couldn't find", "we can't find", "could not be found",
    "cannot be found", "can't be found", "couldn't be found", "no longer exist", "does not exist", "doesn't exist",
    "did not exist", "been removed", "been moved", "moved or deleted", "moved or removed", "wurde nicht gefunden",
    "existiert nicht", "gibt es nicht", "n'existe pas", "n'existe plus", "a été déplacée", "no existe",
    "no se ha encontrado", "no encontramos", "non esiste", "non è stata trovata", "não existe", "não foi encontrada",
    "bestaat niet", "nie istnieje", "не существует",
)  # fmt: skip
_SPARED_BY_NOT_FOUND: Final = ("404", "410", "not-found", "not_found", "notfound", "error", "missing")
_OF_QUESTIONS_ASKED: Final = ("faq", "help", "kb", "support", "troubleshooting", "docs")
"""Words of paths of pages that may be about a message, such as that something was not found."""
_OF_ARTICLES: Final = (
    "<article",
    "<time",
    "<pre",
    "<code",
    "<blockquote",
    "<textarea",
    "property=article:",
    "itemprop=headline",
)
"""Elements of pages that have been written for readers: posts, comments, handbooks."""

_TITLES_OF_CONSENT: Final = (
    "before you continue", "before you continue to google", "before you continue to google search",
    "before you continue to youtube", "bevor sie fortfahren", "bevor sie zu google weitergehen", "avant de continuer",
    "antes de continuar", "prima di continuare", "voordat je verdergaat", "cookie consent",
    "consent required", "we need your consent", "privacy gate", "dpg media privacy gate", "cookie wall", "cookiewall",
    "cookies required", "we value your privacy", "we care about your privacy", "your privacy is important to us",
    "zustimmung", "zustimmung erforderlich", "ihre zustimmung", "einwilligung", "wir respektieren ihre privatsphäre",
    "ihre privatsphäre ist uns wichtig", "weiter mit werbung", "weiterlesen mit werbung", "votre vie privée",
    "le respect de votre vie privée est notre priorité", "nous respectons votre vie privée", "su privacidad",
    "valoramos su privacidad", "valoramos tu privacidad", "la tua privacy", "rispettiamo la tua privacy",
    "wij respecteren je privacy", "uw privacy",
)  # fmt: skip
_SAYING_CONSENT: Final = (
    "accept all", "reject all", "accept and continue", "agree and continue", "i agree", "i accept", "accept cookies",
    "consent to", "manage options", "manage preferences", "our partners", "einverstanden",
    "alle akzeptieren", "alles akzeptieren",
    "akzeptieren", "zustimmen", "einwilligen", "tout accepter", "tout refuser", "accepter", "aceptar", "accetta",
    "accepteren", "akkoord", "aceitar", "zaakceptuj", "accepterar", "godkänn",
)  # fmt: skip
_ABOUT_CONSENT: Final = (
    *_SAYING_CONSENT,
    "cookie",
    "tracking",
    "consent",
    "partner",
    "werbung",
    "publicité",
    "privacy",
)
_OF_QUESTIONS: Final = ("<form", "<button", "role=button", "type=submit", "<iframe")
_SPARED_BY_CONSENT: Final = (
    "consent",
    "cookie",
    "privacy",
    "datenschutz",
    "zustimmung",
    "einwilligung",
    "confidentialite",
)

_OF_SHELLS: Final = (
    "id=root", "id=app", "id=__next", "id=__nuxt", "id=___gatsby", "id=svelte", "id=q-app", "id=react-root",
    "id=react-app", "id=main-app", "id=app-root", "id=application", "id=mount", "<app-root", "data-reactroot",
    "ng-app", "ng-version", "data-v-app", "enable javascript", "javascript enabled", "javascript is required",
    "requires javascript", "javascript is disabled", "without javascript", "turn on javascript", "need javascript",
    "needs javascript", "javascript to run", "javascript aktivieren", "aktivieren sie javascript",
    "activer javascript", "activez javascript", "habilite javascript", "habilita javascript",
)  # fmt: skip
_OF_SHOWS: Final = (
    "<canvas", "<video", "<audio", "<object", "<embed", "<frameset", "<input", "<textarea", "<select",
    "http-equiv=refresh",
)  # fmt: skip
"""Elements of pages that have something without a text."""

RULES: Final = (
    # --- challenges: a script, or a wait, stands between the client and the page
    RefusalRule(
        name="cloudflare_mitigated", kind="challenge", statuses=(403, 429, 503), header=("cf-mitigated", "challenge")
    ),
    RefusalRule(
        name="cloudflare_challenge",
        kind="challenge",
        statuses=(200, 403, 429, 503),
        titles=("just a moment...", "please wait...", "attention required!"),
        source=("/cdn-cgi/challenge-platform/",),
        most_links=5,
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
        lacks=("<title",),
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
    RefusalRule(
        name="f5_script",
        kind="challenge",
        statuses=(200, 403),
        source=("/tspd/", "please enable javascript to view the page content"),
        lacks=("<title>", "<pre", "<code"),
        most_links=0,
    ),
    RefusalRule(
        name="imunify360",
        kind="challenge",
        statuses=(200, 403, 415, 429, 503),
        titles=("one moment, please...", "please wait", "captcha"),
        header=("server", "imunify360"),
        most_bytes=16384,
    ),
    RefusalRule(
        name="fastly_challenge",
        kind="challenge",
        statuses=(200, 403, 406, 429),
        titles=("client challenge",),
        source=("/_fs-ch-",),
    ),
    # --- captchas: a person is asked for
    RefusalRule(
        name="imperva_interruption",
        kind="captcha",
        statuses=(200, 403, 405, 416, 456),
        titles=("pardon our interruption",),
        any_source=(
            "made us think you were a bot",
            "made us think that you might be a bot",
            "distil_",
            "you were a bot",
        ),
        most_links=5,
    ),
    RefusalRule(
        name="radware",
        kind="captcha",
        statuses=(200, 403, 429),
        titles=("radware captcha page", "radware bot manager captcha", "bot manager captcha", "shieldsquare captcha"),
        any_source=("perfdrive.com", "shieldsquare"),
    ),
    RefusalRule(
        name="captcha_wall_of_others",
        kind="captcha",
        statuses=(200, 403, 405, 429, 503),
        titles=_TITLES_OF_CAPTCHA,
        any_source=(
            "<div id=px-captcha",
            "<div class=frc-captcha",
            "friendly-challenge",
            "initgeetest",
            "gt_captcha",
            "mtcaptcha",
            "arkoselabs.com",
            "funcaptcha",
            "captcha.awswaf.com",
            "captcha-delivery.com/c.js",
            "<div class=mtcaptcha",
            "<altcha-widget",
            "<div class=smart-captcha",
        ),
        says=("robot", "human", "captcha", "unusual", "automated", "bot"),
        most_bytes=16384,
        most_links=8,
    ),
    RefusalRule(name="aws_captcha", kind="captcha", statuses=(405,), header=("x-amzn-waf-action", "captcha")),
    RefusalRule(
        name="datadome", kind="captcha", statuses=(403, 429), source=("captcha-delivery.com", "var dd="), most_links=2
    ),
    RefusalRule(
        name="datadome_page",
        kind="captcha",
        statuses=(200,),
        source=("captcha-delivery.com", "var dd="),
        lacks=_OF_ARTICLES,
        is_script=True,
        most_links=2,
        most_text=200,
    ),
    RefusalRule(name="human", kind="captcha", statuses=(403, 429), source=("id=px-captcha", "_pxappid"), most_links=5),
    RefusalRule(
        name="human_page",
        kind="captcha",
        statuses=(200,),
        titles=("access to this page has been denied", "access to this page has been denied."),
        source=("px-captcha",),
        most_links=5,
    ),
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
            titles=_TITLES_OF_CAPTCHA,
            source=(f"class={widget}", "data-sitekey="),
            most_bytes=16384,
            most_links=5,
            most_fields=0,
        )
        for widget in ("g-recaptcha", "h-captcha", "cf-turnstile")
    ),
    # --- denials of firewalls
    RefusalRule(
        name="cloudflare_denied",
        kind="denied",
        statuses=(200, 403, 429),
        titles=("attention required!", "access denied"),
        source=("id=cf-error-details",),
        lacks=_OF_ARTICLES,
    ),
    RefusalRule(
        name="akamai",
        kind="denied",
        statuses=(200, 403, 503),
        titles=("access denied",),
        source=("you don't have permission to access",),
        any_source=("errors.edgesuite.net", "errors&#46;edgesuite&#46;net", "reference&#32;&#35;", "reference #"),
        lacks=_OF_ARTICLES,
        most_bytes=4096,
    ),
    RefusalRule(
        name="akamai_edgesuite",
        kind="denied",
        statuses=(403,),
        titles=("access denied",),
        any_source=("errors.edgesuite.net", "errors&#46;edgesuite&#46;net"),
        most_bytes=4096,
    ),
    RefusalRule(
        name="denied_title_and_heading",
        kind="denied",
        statuses=(200,),
        titles=_TITLES_OF_DENIED,
        headings=_TITLES_OF_DENIED,
        says=_SENTENCES_OF_DENIED,
        lacks=_OF_ARTICLES,
        most_bytes=8192,
        most_links=3,
        most_text=600,
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
        name="login_redirect",
        kind="login",
        redirects_to_login=True,
        source=("<form", "type=password"),
        most_links=60,
    ),
    *(
        RefusalRule(  # the name is asked for first, and the password on the next page
            name=f"login_redirect_{sign}",
            kind="login",
            redirects_to_login=True,
            titles=_TITLES_OF_LOGIN if sign == "title" else (),
            headings=_TITLES_OF_LOGIN if sign == "heading" else (),
            source=("<form",),
            any_source=("type=email", "name=email", "name=username", "name=identifier", "name=login"),
            lacks=_OF_ARTICLES,
            most_links=60,
            most_text=700,
        )
        for sign in ("title", "heading")
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
    # --- walls of consent: the question for it comes in place of the page
    RefusalRule(
        name="consent_redirect",
        kind="consent",
        redirects_to_consent=True,
        any_source=_OF_QUESTIONS,
        says=_ABOUT_CONSENT,
        most_links=60,
    ),
    *(
        RefusalRule(
            name=f"consent_{name}",
            kind="consent",
            statuses=(200, 401, 403),
            titles=_TITLES_OF_CONSENT if name == "title" else (),
            headings=_TITLES_OF_CONSENT if name == "heading" else (),
            any_source=_OF_QUESTIONS,
            says=_SAYING_CONSENT,
            lacks=_OF_ARTICLES,
            most_links=12,
            most_text=4000,
            spares=_SPARED_BY_CONSENT,
        )
        for name in ("title", "heading")
    ),
    # --- pages with the status 200 that say that there is none: two of title, heading and sentence
    *(
        RefusalRule(
            name=f"not_found_{name}",
            kind="not_found",
            statuses=(200,),
            titles=_TITLES_OF_NOT_FOUND if "title" in name else (),
            headings=() if "heading" not in name else _CLEAR_HEADINGS if "title" in name else _TITLES_OF_NOT_FOUND,
            says=_SENTENCES_OF_NOT_FOUND if "sentence" in name else (),
            lacks=_OF_ARTICLES,
            most_bytes=LARGEST_BYTES if "title" in name else None,
            most_text=700,
            spares=_SPARED_BY_NOT_FOUND,
        )
        for name in ("title_and_heading", "title_and_sentence", "heading_and_sentence")
    ),
    RefusalRule(
        name="not_found_something",
        kind="not_found",
        statuses=(200,),
        ends=_ENDS_OF_NOT_FOUND,
        says=_DIRECTIONS,
        lacks=_OF_ARTICLES,
        most_bytes=LARGEST_BYTES,
        most_text=700,
        spares=(*_SPARED_BY_NOT_FOUND, *_OF_QUESTIONS_ASKED),
    ),
    # --- shells: scripts would build the page
    RefusalRule(
        name="shell",
        kind="empty",
        statuses=(200,),
        is_shell=True,
        any_source=_OF_SHELLS,
        lacks=_OF_SHOWS,
    ),
    RefusalRule(
        name="scripts_alone",
        kind="empty",
        statuses=(200,),
        is_shell=True,
        lacks=(*_OF_SHOWS, "<img", "<svg"),
        most_bytes=SHORTEST_BYTES,
        most_text=0,
    ),
)
