"""Words for people: why requests failed or were skipped and what to do about it; and numbers, sizes and times.

Records and counters carry a reason as one word (`reason`); here each word has a title and advice. A word without a row
is shown as it is. Advice may name only options of `gossamer crawl`, in
braces (see option_names.py); a title completes "Cannot fetch URL: …", where
`fetch_error` writes "The" and "It" in lower case. Fixed: the words; that the title of a FetchError's `kind` is its
message in errors.py, because `fetch_error` removes it from the text of the error; and that every such kind, every
DropReason and every reason that the fetcher (worker/fetcher.py) or a spider gives has a row (a test compares).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gossamer.option_names import OptionNames, RequestNames, named, reader
from gossamer.policy.urls import host, registered_domain


class Explanation(NamedTuple):
    """A reason in words."""

    title: str
    """The event, in a few words."""
    advice: str = ""
    """Sentence on what a person can do; empty where nothing is to be done."""


TLS_HANDSHAKE_ENDED = "the server ended the tls handshake"
"""Text, in lower case, of the error of a connection that was closed while TLS was being established."""

# By reason.
_EXPLANATIONS = {
    "logged_out": Explanation(
        "The page looks as to a visitor who is not logged in, although the account is",
        "The account may not see it. If it is a page for all, logged_out_when in the session file is too wide.",
    ),
    # Kinds of FetchError (errors.py). The titles are their messages.
    "fetch": Explanation("The page could not be fetched"),
    "blocked_address": Explanation(
        "The address is not on the public internet",
        "If the server is your own: {allow_private=True} permits the hosts of the given URLs, {resolve=HOST} any.",
    ),
    "dns": Explanation(
        "The host name could not be resolved",
        "Look for a typing error, check your network, or name its address with {resolve=HOST}.",
    ),
    "connect": Explanation("The server did not accept the connection", "Check whether it is running."),
    "connect_timeout": Explanation("The connection was not made in time", "A firewall may drop connections."),
    "tls": Explanation(
        "The secure connection could not be established",
        "The field exception of its record has the cause. Where it is the certificate, {ca_file} names an authority of "
        "your own, and {insecure=True} accepts any.",
    ),
    "proxy": Explanation("The proxy could not be used", "Check its address and password."),
    "first_byte_timeout": Explanation("The response did not begin in time", "The server may be overloaded."),
    "idle_timeout": Explanation("The response stopped in the middle", "The server may be overloaded."),
    "total_timeout": Explanation("The whole response took too long", "A larger {timeout} waits for it."),
    "not_sent_in_time": Explanation("The request was not sent in time"),
    "connection_lost": Explanation("The connection ended before the response was complete"),
    "http2_needed": Explanation(
        "The site seems to speak only HTTP/2",
        "Install the extra http2 where it is missing: INSTALL_HTTP2. Leave out {http2=never}.",
    ),
    "bad_response": Explanation("The response is not HTTP"),
    "headers_too_large": Explanation("The headers of the response exceed the limit"),
    "decode": Explanation("The compression of the response is broken"),
    "login_unanswered": Explanation("The site does not answer the login at present", "It may be overloaded."),
    "browser": Explanation("The browser could not render the page"),
    "browser_refused": Explanation("The browser refused a command"),
    "browser_crashed": Explanation("The browser, or the page in it, has crashed"),
    "browser_not_started": Explanation("The browser did not start"),
    "browser_hung": Explanation("The browser, or the page in it, does not answer"),
    "decode_bomb": Explanation("The response expands beyond the limits of size or ratio"),
    # Reasons of the worker.
    "bad_redirect": Explanation("It redirects to something that is no web page"),
    "too_many_redirects": Explanation("Too many redirects"),
    "redirect_loop": Explanation("It redirects in a circle"),
    "bad_request": Explanation("The request cannot be sent"),
    "bad_entry": Explanation("The entry of the queue cannot be read"),
    "spider_error": Explanation("The spider failed on this page", "The field exception of its record has the error."),
    "robots_unreachable": Explanation(
        "robots.txt could not be fetched, so nothing of the site may be fetched",
        "A longer {robots_patience} waits for it. {ignore_robots=True} is for sites of your own.",
    ),
    "worker_died": Explanation("Workers died with this page", "Its size or content may have used up their memory."),
    "wrong_type": Explanation("The response is not the image or other file that was expected"),
    "incomplete": Explanation("The file arrived damaged or incomplete"),
    "too_large": Explanation("The file is too large", "{assets_max_bytes} keeps larger ones."),
    "record_too_large": Explanation(
        "No message of the application's topic can hold the record", "Raise the topic's max.message.bytes."
    ),
    "internal_error": Explanation(
        "An error in Gossamer", "Please report it with the error, the field exception of its record."
    ),
    "refused_challenge": Explanation(
        "The site has sent a challenge for browsers in place of the page",
        "Ask its operator to let this crawler in, and crawl with a lower {rate}.",
    ),
    "refused_captcha": Explanation(
        "The site has sent a captcha in place of the page",
        "Ask its operator to let this crawler in, and crawl with a lower {rate}.",
    ),
    "refused_denied": Explanation(
        "A firewall of the site refuses the page", "Ask its operator to let this crawler in."
    ),
    "refused_login": Explanation(
        "The site has sent its login in place of the page", "{session=FILE} logs in; {cookie} sends what you have."
    ),
    "refused_consent": Explanation(
        "The site has sent a question for consent in place of the page",
        "Answer it in a browser, and send the cookie that it has set with {cookie}.",
    ),
    "refused_same": Explanation(
        "The site has sent the same page for many URLs",
        "Look at one of them: it may be a refusal without words. The setting fetch.accept_refused keeps such pages.",
    ),
    "refused_not_found": Explanation("The page says that it was not found, although its status is 200"),
    "refused_empty": Explanation(
        "The page is empty until scripts have built it", "{render=auto} lets a browser build such pages."
    ),
    # Pages whose links were not all read (Tally.unread).
    "truncated": Explanation(
        "The end of the page is missing",
        "It is longer than GOSSAMER_FETCH__MAX_BODY (bytes), or its compression is damaged.",
    ),
    "not_html": Explanation(
        "It looks like HTML, but its Content-Type says otherwise", "Browsers do not show it as a page, either."
    ),
    "no_sitemap": Explanation("It is no sitemap, although robots.txt or an index names it as one"),
    "sitemap_broken": Explanation("The sitemap ends early or is damaged", "What could be read of it was used."),
    "sitemap_too_long": Explanation(
        "The sitemap exceeds the limits of 50 MB and 50,000 URLs", "The rest was left out."
    ),
    "sitemap_nested": Explanation(
        "An index of sitemaps that another index names is not read", "To read it, start from its URL."
    ),
    "sitemap_refused": Explanation(
        "robots.txt names a sitemap that is not fetched",
        "Its URL is not valid, or {deny} or a limit of pages refuses it.",
    ),
    # Dropped on purpose (DropReason). Links that are not followed are only counted, without a title: where a title says
    # "redirects" or "leads", a request is dropped for this reason only because of where it was redirected.
    "duplicate": Explanation("It redirects to a page that was found before"),
    "offsite": Explanation("It redirects out of the crawl's scope", "{allow_domain} adds a domain."),
    "depth": Explanation("Deeper than the crawl's limit"),
    "robots": Explanation("robots.txt does not allow it", "{ignore_robots=True} is for sites of your own."),
    "budget": Explanation("A limit of pages was reached"),
    "max_assets": Explanation("The limit of assets was reached", "A larger {max_assets} fetches more."),
    "stopped": Explanation("The crawl was stopped"),
    "expired": Explanation("The time of the crawl was over, or the window of the visit"),
    "blacklisted": Explanation("The domain is blacklisted"),
    "extension": Explanation("It redirects to a file type that is not fetched"),
    "pattern": Explanation(
        "It is one of too many alike", "A larger {pattern_max_pages} or {path_repeats} follows more."
    ),
    "filtered": Explanation("It redirects to a URL that {allow} or {deny} refuses"),
    "unknown_spider": Explanation("No worker has its spider"),
    "nofollow": Explanation("The page asks not to follow its links"),
    "scheme": Explanation("It leads to neither http nor https"),
    "bad_url": Explanation("It leads to an invalid URL"),
    "sitemap_limit": Explanation("It is beyond the limits of a sitemap"),
    "moved": Explanation("It continues under another domain"),
    "lost": Explanation(
        "The frontier's server lost it, with a part of its append-only file",
        "Valkey 9.1.2 or newer does not lose requests in this way. {fresh=True} fetches everything.",
    ),
}

_ACCEPT_ANY = " {insecure=True} accepts any certificate."
_NO_TLS = "The server does not speak TLS on this port: try http:// in place of https://."
_OLD_TLS = "The server has only versions of TLS before 1.2, which browsers refuse, too."
# Advice on `tls` by a part of the error's text, in lower case: OpenSSL's words for the cause, or those of an alert that
# the server has sent. The first that is found counts.
_TLS_ADVICE = {
    "certificate has expired": "The certificate has expired: the site's operator must renew it." + _ACCEPT_ANY,
    "not yet valid": "The certificate is valid from a later time on: check the clock of this machine." + _ACCEPT_ANY,
    "certificate in certificate chain": (
        "The authority of the certificate is not trusted here: {ca_file} names a file with it." + _ACCEPT_ANY
    ),
    "self-signed certificate": (
        "The server has signed its certificate itself: {ca_file} names a file with it." + _ACCEPT_ANY
    ),
    "issuer certificate": (
        "The authority of the certificate is not trusted here, or the server does not send its intermediate "
        "certificates: {ca_file} names a file with the missing ones." + _ACCEPT_ANY
    ),
    "verify the first certificate": (
        "The server does not send its intermediate certificates: {ca_file} names a file with the missing ones."
        + _ACCEPT_ANY
    ),
    "mismatch": "The certificate is that of other names: look for a typing error in the URL." + _ACCEPT_ANY,
    "revoked": "The certificate was revoked: the site's operator must replace it." + _ACCEPT_ANY,
    "too weak": "The key or signature of the certificate is too weak. {insecure=True} accepts it.",
    "too small": "A key of the server is too small. {insecure=True} accepts it.",
    "certificate purpose": "The certificate is not meant for servers." + _ACCEPT_ANY,
    "certificate required": "The server wants a certificate of the client, and Gossamer sends none.",
    "wrong version number": _NO_TLS,
    "http request": _NO_TLS,
    "record layer failure": _NO_TLS,
    "unknown protocol": _NO_TLS,
    "protocol version": _OLD_TLS,
    "unsupported protocol": _OLD_TLS,
    "application protocol": "The server speaks neither HTTP/1.1 nor HTTP/2.",
    "unrecognized name": "The server has no site of this name: look for a typing error in the URL.",
    "handshake failure": (
        "The server has no cipher, curve or signature that this machine accepts, or wants a certificate of the client. "
        "{insecure=True} accepts old ciphers."
    ),
    "legacy renegotiation": "The server lacks secure renegotiation (RFC 5746). {insecure=True} connects nevertheless.",
    "wrong signature type": "The server signs with SHA-1 or an unknown method. {insecure=True} accepts old ones.",
    "internal error": "The server has ended the handshake with an error of its own.",
    "alert": "The server has refused the handshake with this alert.",
    "certificate": "The certificate is not valid." + _ACCEPT_ANY,
}

_CONNECT_ADVICE = {
    TLS_HANDSHAKE_ENDED: "The server may be overloaded, have no site of this name, or refuse this client.",
}

_HTTP2_ADVICE = {
    "not installed": "Install the extra http2: INSTALL_HTTP2.",
    "never": "Leave out {http2=never}: the default tries HTTP/2 with such a site.",
}
_CAUSES = {"tls": _TLS_ADVICE, "connect": _CONNECT_ADVICE, "http2_needed": _HTTP2_ADVICE}
"""Advice by reason, and by a part of the error's text."""

# Advice by HTTP status, for those where something can be done.
_HTTP_ADVICE = {
    401: "The server asks for a login: {session=FILE} logs in; {header} or {cookie} sends what you have.",
    403: "The server refuses these pages to this crawler.",
    429: "The server asks for fewer requests: crawl with a lower {rate}.",
    503: "The server may be overloaded: crawl with a lower {rate}.",
}


def names_for(pool: str) -> OptionNames:
    """Return the names of options for those who submit the crawls of a pool of workers: of a service, fields of
    requests. Empty: as the reader of messages knows them."""
    if not pool:
        return reader.get()
    from gossamer.model.crawl import SHARED_POOL, workers_of  # imported late: every command loads this module

    return RequestNames() if workers_of(pool) == SHARED_POOL else reader.get()


def explain(reason: str, *, pool: str = "") -> Explanation:
    """Return a reason in words. `http_404` becomes `404 Not Found`. `pool`: the crawl's group of workers, for the names
    of options."""
    names = names_for(pool)
    prefix, _, code = reason.partition("_")
    if prefix == "http" and code.isdecimal():
        status = int(code)
        return Explanation(f"{status} {status_phrase(status)}".strip(), _worded(_HTTP_ADVICE.get(status, ""), names))
    found = _EXPLANATIONS.get(reason)
    return Explanation(*(_worded(text, names) for text in found)) if found else Explanation(reason or "Unknown")


def _worded(template: str, names: OptionNames) -> str:
    """Return a text with these names of options, and the command in place of INSTALL_HTTP2."""
    text = template.format_map(names) if "{" in template else template
    if "INSTALL_HTTP2" in text:
        from gossamer.extras import install_advice  # imported late: most messages need no command

        text = text.replace("INSTALL_HTTP2", install_advice("http2"))
    return text


def cause_advice(reason: str, detail: str) -> str:
    """Return the advice on a failure with this text; empty: there is none. Unlike that of `explain`, it is about the
    cause that the text names."""
    parts = _CAUSES.get(reason, {})
    # Behind the name of the host, in which any word may be.
    cause = detail.rpartition(": ")[2].lower().replace("_", " ").replace("self signed", "self-signed")
    return next(
        (_worded(words, reader.get()) for part, words in parts.items() if part in cause), explain(reason).advice
    )


CANNOT_FETCH = "Cannot fetch "
"""Beginning of the text of `fetch_error`. May be worded freely, but no other sentence may begin so: the Python API
recognises the text by it (`_Control` in crawling/python.py)."""
RETRYING = "Retrying for up to "
"""Beginning of the sentence on retries in that text, by which the Python API recognises it, too. May be worded freely,
under the same condition."""


def fetch_error(url: str, reason: str, detail: str = "", *, advice: str = "", retrying_seconds: float = 0.0) -> str:
    """Return why a URL could not be fetched and what to do, in a few sentences.

    `detail`: text of the error, with or without the message of its class at the beginning. `advice`: replaces the
    reason's own. `retrying_seconds`: longest time for which the request is repeated; 0: it is not.
    """
    title = explain(reason).title
    usual_advice = cause_advice(reason, detail)
    if detail.startswith(title):  # the text of a FetchError: its message, which is the title, ": " and what it adds
        detail = detail.removeprefix(title).removeprefix(".").removeprefix(": ")
    begin = title[0].lower() + title[1:] if title.startswith(("The ", "It ")) else title
    parts = [f"{CANNOT_FETCH}{url}: {begin}" + (f" ({detail})." if detail else "."), advice or usual_advice]
    if retrying_seconds:
        parts.append(f"{RETRYING}{max(1.0, retrying_seconds):,.0f} s; Ctrl-C stops.")
    return " ".join(filter(None, parts))


def follow_advice(target: str) -> str:
    """Return the advice for a URL that redirects to this target, out of the crawl's scope."""
    return f"To follow it, add {named('allow_domain', registered_domain(host(target)))}, or start from there."


def status_phrase(status: int) -> str:
    """Return the standard's phrase for a status; empty if it has none."""
    from http import HTTPStatus  # imported late: only sentences about failures need it

    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


# --- numbers ----------------------------------------------------------------------------------------------------------


def counted(count: int, word: str) -> str:
    """Return `1 page`, `2,000 pages`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def reason_counts(counts: Mapping[str, int]) -> str:
    """Return `http_404 12, dns 3`, the most frequent first, without reasons whose count is 0. Empty: no counts."""
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{reason} {count:,}" for reason, count in ordered if count)


REPAIRED: Final = "The frontier's server lost a part of its writes meanwhile: some pages may be missing."
"""Sentence about a crawl with wrong counts that were repaired."""


def retries_text(later: int, retried: Mapping[str, int]) -> str:
    """Return `, 3 of them for a retry (connect 4 so far)` for requests that wait, with the attempts by reason. Empty:
    none waits for a retry."""
    reasons = f" ({reason_counts(retried)} so far)" if retried else ""
    return f", {later:,} of them for a retry{reasons}" if later else ""


def browser_command(pool: str) -> str:
    """Return the command that starts a worker with a browser for a pool."""
    from gossamer.model.crawl import SHARED_POOL, workers_of  # imported late: every command loads this module

    return "gossamer worker --render" if workers_of(pool) == SHARED_POOL else f"gossamer worker --render --pool {pool}"


def browser_text(count: int, pool: str) -> str:
    """Return sentences about requests that are to be rendered while no worker of their pool has a browser. Empty: there
    are none."""
    if not count:
        return ""
    requests = f"{counted(count, 'request')} {'waits' if count == 1 else 'wait'}"
    return f"{requests} for a worker with a browser, and there is none. Start one: {browser_command(pool)}"


def bytes_text(count: float, *, is_label: bool = False) -> str:
    """Return a number of bytes: `3.4 MB`. `is_label`: a round number has no decimals: `3 MB` instead of `3.0 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            is_short = unit == "B" or (is_label and count == int(count))
            return f"{count:.0f} {unit}" if is_short else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def duration_text(seconds: float) -> str:
    """Return a duration: `4.2 s`, `12 min 5 s`, `3 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def short_time(seconds: float) -> str:
    """Return the time of a response: `45 ms`, `2.1 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration_text(seconds)
