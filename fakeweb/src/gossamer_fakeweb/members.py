"""A site for members only: a login with a CSRF token, sessions that end after some pages, and a link that logs out.

A new login of an account ends its session before. Fixed: hosts, paths and accounts, which examples and tests name.
"""

import re
from urllib.parse import parse_qs, urlsplit

import msgspec
from markupsafe import escape

from gossamer.fakeweb.answer import Answer, html, plain, redirect
from gossamer.fakeweb.spec import MEMBERS

HOST = "members.test"
ACCOUNTS = MEMBERS
CAREFUL_USER, CAREFUL_PASSWORD = "carol", "twice"
"""An account whose login asks for a second factor, which no client of the tests has."""
SESSION_PAGES = 50
"""Pages after which a session ends."""

_HEAD = "<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1>"
_LOGIN = (
    '<form id="login" method="post" action="/login"><input type="hidden" name="csrf" value="{token}">'
    '<input name="user"><input type="password" name="password">{captcha}<button name="go" value="1">Enter</button>'
    "</form><a href=/help>Help</a></body></html>"
)
_SHELL = """<!DOCTYPE html><html><head><title>Members</title></head><body><script>
const token = document.cookie.match(/token=(\\d+)/);
fetch('/api' + location.pathname + '?token=' + (token && token[1])).then(answer => answer.text()).then(page => {
  document.body.innerHTML = page + '<p>' + document.cookie + '</p>';
});
</script></body></html>"""
_CODE = '<form method="post" action="/code"><input name="code" autocomplete="one-time-code"></form></body></html>'


class Visit(msgspec.Struct, frozen=True):
    """One page that a member got."""

    user: str
    session: int
    """Number of the login."""
    path: str


class _Session(msgspec.Struct):
    user: str
    number: int
    left: int
    """Pages until it ends."""


class Members:
    """The site. `pages` pages are behind the login."""

    wants_bodies = True

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self.reset()

    def reset(self) -> None:
        """Forget sessions and visits."""
        self._sessions: dict[str, _Session] = {}
        self._tokens: dict[str, str] = {}
        self._count = 0
        self.greets = False
        """True: the first page is for all, and begins a session."""
        self.busy = 0
        """Number of logins that are answered with 503."""
        self.forbidden = ""
        """Path that no member may see: it leads to the login. Empty: none."""
        self.has_scripts = False
        """True: pages are built by a script, which sends back a cookie that it can read."""
        self.session_names: list[str] = []
        """Values of the cookies of all sessions."""
        self.visitors: list[str] = []
        """Values of the cookies of all forms."""
        self.visits: list[Visit] = []
        self.logins: list[str] = []
        """Users, in the order of their logins."""
        self.logouts = 0

    def serves(self, host: str) -> bool:
        """Return whether the host is the site."""
        return host == HOST

    def answer(self, host: str, target: str, *, method: str, body: bytes, cookie: str) -> Answer:
        """Return the answer to one request."""
        parts = urlsplit(target)
        cookies = dict(re.findall(r"([^=;\s]+)=([^;\s]*)", cookie))
        if parts.path == "/robots.txt":
            return plain("User-agent: *\nDisallow:\n")
        if parts.path == "/help":
            return html(_HEAD.format(title="Help") + "<p>Ask a member.</p></body></html>")
        if parts.path == "/login":
            return self._submit(body, cookies) if method == "POST" else self._form("captcha" in parts.query)
        session = self._sessions.get(cookies.get("sid", ""))
        if self.greets and session is None and parts.path == "/":
            [name] = self.begin_sessions("guest")
            page = self._page(parts.path, self._sessions[name])
            return Answer(headers=(*page.headers, ("Set-Cookie", f"sid={name}")), body=page.body)
        if parts.path == "/logout":
            self.logouts += 1
            self._sessions.pop(cookies.get("sid", ""), None)
            return redirect("/help")
        if session is None or not session.left or parts.path == self.forbidden:
            return redirect(f"/login?next={parts.path}")
        if self.has_scripts and not parts.path.startswith("/api/"):
            return html(_SHELL)
        if self.has_scripts and parts.query != f"token={session.number}":
            return html("<p>The script does not know the token.</p>", status=403)
        return self._page(parts.path.removeprefix("/api"), session)

    def _page(self, path: str, session: _Session) -> Answer:
        """Return a page for a member."""
        found = re.fullmatch(r"/(?:p/(\d{1,7}))?", path)
        number = int(found[1] or 0) if found else self._pages
        if number >= self._pages:
            return html(_HEAD.format(title="Not found") + "</body></html>", status=404)
        session.left -= 1
        self.visits.append(Visit(session.user, session.number, path))
        links = [each for each in (2 * number + 1, 2 * number + 2, number - 1) if 0 < each < self._pages]
        return html(
            _HEAD.format(title=f"Page {number}")
            + f"<p id=member>{escape(session.user)}</p><p id=visit>{len(self.visits)}</p>"
            + "<a href=/>Home</a> <a href=/logout>Log out</a> "
            + " ".join(f"<a href=/p/{each}>{each}</a>" for each in links)
            + "</body></html>"
        )

    def _form(self, has_captcha: bool, message: str = "") -> Answer:
        """Return the login, with a token that only the holder of its cookie may use."""
        self._count += 1
        visitor, token = f"v{self._count * 1000003}", f"t{self._count * 7919}"
        self._tokens[visitor] = token
        self.visitors.append(visitor)
        captcha = '<div class="h-captcha" data-sitekey="x"></div>' if has_captcha else ""
        page = _HEAD.format(title="Enter") + message + _LOGIN.format(token=token, captcha=captcha)
        return html(page, headers=(("Set-Cookie", f"visitor={visitor}; HttpOnly"),))

    def begin_sessions(self, *users: str) -> list[str]:
        """Begin a session of each user, and return the values of their cookies."""
        for user in users:
            self._count += 1
            self.session_names.append(f"s{self._count * 104729}")
            self._sessions[self.session_names[-1]] = _Session(user, self._count, SESSION_PAGES)
        return self.session_names[-len(users) :]

    def _submit(self, body: bytes, cookies: dict[str, str]) -> Answer:
        """Return the answer to a login."""
        if self.busy:
            self.busy -= 1
            return plain("Busy.\n", status=503)
        fields = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        token = self._tokens.pop(cookies.get("visitor", ""), None)
        if token is None or fields.get("csrf") != token or fields.get("go") != "1":
            return html("<p>This form was not from here.</p>", status=403)
        user, password = fields.get("user", ""), fields.get("password", "")
        if (user, password) == (CAREFUL_USER, CAREFUL_PASSWORD):
            return html(_HEAD.format(title="Your code") + _CODE)
        if ACCOUNTS.get(user) != password:
            return self._form(False, "<p>Wrong user or password.</p>")
        for name in [name for name, one in self._sessions.items() if one.user == user]:
            del self._sessions[name]
        [name] = self.begin_sessions(user)
        self.logins.append(user)
        return Answer(
            status=303,
            headers=(
                ("Location", "/"),
                ("Set-Cookie", f"sid={name}; Path=/; HttpOnly; SameSite=Lax"),
                ("Set-Cookie", f"token={self._count}; Path=/"),
                ("Set-Cookie", "visitor=; Max-Age=0"),
            ),
        )
