"""A page that tries every way out of the browser. Canaries on this machine listen where no crawl may connect.

The browser's own word does not count here: what counts is that no canary is spoken to.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, html, redirect, serve
from tests.servers.crawling import FAST_FLAGS, gossamer

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

WAYS = """
<!doctype html><title>ways out</title>
<link rel=preconnect href="//TARGET"><link rel=dns-prefetch href="//TARGET">
<link rel=prefetch href="http://TARGET/prefetch">
<link rel=preload as=fetch crossorigin href="http://TARGET/preload"><link rel=modulepreload href="http://TARGET/module">
<link rel=stylesheet href="http://TARGET/style"><link rel=icon href="http://TARGET/icon">
<link rel=manifest href="http://TARGET/m">
<script type=speculationrules>
{"prerender": [{"urls": ["http://TARGET/prerender"]}],
"prefetch": [{"urls": ["http://TARGET/spec"]}]}</script>
<style>@import "http://TARGET/import"; @font-face {font-family: f; src:
url(http://TARGET/font)}
body {background: url(http://TARGET/background); font-family: f}</style>
<img src="http://TARGET/img"><img src="/redirected"><iframe src="http://TARGET/frame"></iframe>
<iframe src="/redirected"></iframe>
<video src="http://TARGET/video"></video><audio src="http://TARGET/audio" autoplay></audio>
<object data="http://TARGET/object"></object><embed src="http://TARGET/embed">
<script src="http://TARGET/script"></script><script src="/redirected"></script>
<svg><image href="http://TARGET/svg"/></svg><form id=form action="http://TARGET/form" target=frame><input name=a></form>
<iframe name=frame></iframe><iframe srcdoc="<img src='http://TARGET/srcdoc'>"></iframe>
<iframe src="file:///etc/passwd"></iframe><a id=ping href="#" ping="http://TARGET/ping">x</a>
<script>
const ways = [
  () => fetch('http://TARGET/fetch'), () => fetch('http://TARGET/opaque', {mode: 'no-cors'}),
  () => fetch('http://TARGET/kept', {keepalive: true, method: 'POST', body: 'x'}), () => fetch('/redirected'),
  () => navigator.sendBeacon('http://TARGET/beacon', 'x'), () => new EventSource('http://TARGET/events'),
  () => new WebSocket('ws://TARGET/socket'), () => new Worker('http://TARGET/worker'),
  () => new Worker(URL.createObjectURL(new Blob(["importScripts('http://TARGET/imported')"]))),
  () => new Worker(URL.createObjectURL(new Blob(
      ["new WebSocket('ws://TARGET/in-a-worker'); fetch('http://TARGET/worker')"]))),
  () => new SharedWorker('http://TARGET/shared'), () => navigator.serviceWorker.register('/worker.js'),
  () => { const x = new XMLHttpRequest(); x.open('GET', 'http://TARGET/xhr'); x.send() },
() => import('http://TARGET/import'),
  () => new WebTransport('https://TARGET/transport'), () => window.open('http://TARGET/popup'),
  () => document.getElementById('form').submit(), () => document.getElementById('ping').click(),
  () => { const p = new RTCPeerConnection({iceServers: [{urls: ['stun:TARGET', 'stun:UDP']},
      {urls: ['turn:TARGET?transport=tcp', 'turn:UDP'], username: 'a', credential: 'b'}]});
    p.createDataChannel('x'); p.createOffer().then(offer => p.setLocalDescription(offer)) },
  () => fetch('http://TARGET@TARGET/'), () => fetch('http://shop.test@TARGET/user'),
() => fetch('http:\\\\\\\\TARGET\\\\@shop.test/'),
  () => { document.createElement('img').src = 'http://TARGET/late' },
  () => document.write('<script src="http://TARGET/written"><\\/script>'),
];
for (const way of ways) { try { Promise.resolve(way()).catch(() => 0) } catch {} }
</script>
"""
SPELLINGS = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "localhost",
    "0.0.0.0",
    "[::ffff:127.0.0.1]",
    "[::1]",
)


class Canary:
    """Sockets on loopback to which nothing may speak."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.others = [self.tcp, self.udp]
        with contextlib.suppress(OSError):
            self.others.append(socket.create_server(("::1", self.port), family=socket.AF_INET6))
        for one in self.others:
            one.setblocking(False)

    @property
    def udp_port(self) -> int:
        """Port of the UDP socket."""
        return int(self.udp.getsockname()[1])

    def visits(self) -> list[str]:
        """What has come: connections and datagrams."""
        found = []
        for one in self.others:
            with contextlib.suppress(BlockingIOError):
                if one is self.udp:
                    found.append(f"datagram {one.recv(2000)!r}")
                else:
                    connection, address = one.accept()
                    connection.setblocking(True)
                    connection.settimeout(1)
                    with contextlib.suppress(OSError), connection:
                        found.append(f"{address}: {connection.recv(2000)!r}")
        return found


@pytest.fixture
def canary() -> Iterator[Canary]:
    made = Canary()
    yield made
    for one in made.others:
        one.close()


@pytest.mark.parametrize("option", ["scripts", "all"])
async def test_no_way_leads_out(tmp_path: Path, canary: Canary, option: str) -> None:
    """`all`: also with everything of other sites permitted, only the address guard decides."""
    (tmp_path / "gossamer.toml").write_text(
        f'[browser]\nseconds = 4.0\nother_sites = "{option}"\nmax_requests = 2000\ntabs = 3\n'
    )
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        links = "".join(f"<a href='/way/{number}'>x</a>" for number in range(len(SPELLINGS)))
        web.mount("shop.test", "/", html(f"<h1>ways</h1>{links}"))
        for number, spelling in enumerate(SPELLINGS):
            page = WAYS.replace("TARGET", f"{spelling}:{canary.port}").replace("UDP", f"127.0.0.1:{canary.udp_port}")
            web.mount("shop.test", f"/way/{number}", html(page))
        web.mount("shop.test", "/redirected", redirect(f"http://127.0.0.1:{canary.port}/redirected"))
        web.mount("shop.test", "/worker.js", html("fetch('/')", headers=(("Content-Type", "text/javascript"),)))
        run = await asyncio.to_thread(
            gossamer,
            *("crawl", f"http://shop.test:{web.port}/", "--resolve", "shop.test:127.0.0.1", *FAST_FLAGS),
            *("--render", "always", "--retries", "0", "-o", "pages.jsonl"),
            cwd=tmp_path,
        )
        asked = {record.path for record in web.log()}
    assert run.returncode == 0, run.stderr
    assert {f"/way/{number}" for number in range(len(SPELLINGS))} <= asked
    assert "/redirected" in asked, "the pages were not rendered"
    assert canary.visits() == []


LOOKED_UP = """
<!doctype html><title>names</title><link rel=dns-prefetch href="//prefetch.canary.test">
<link rel=preconnect href="https://preconnect.canary.test"><script>
(async () => {
  const p = new RTCPeerConnection({iceServers: [{urls: 'stun:stun.canary.test'},
    {urls: ['turn:turn.canary.test?transport=tcp', 'turns:turns.canary.test'], username: 'a', credential: 'b'}]});
  const q = new RTCPeerConnection();
  p.createDataChannel('x');
  await p.setLocalDescription(await p.createOffer());
  await q.setRemoteDescription(p.localDescription);
  await q.setLocalDescription(await q.createAnswer());
  await p.setRemoteDescription(q.localDescription);
  for (const how of ['udp', 'tcp']) await p.addIceCandidate({sdpMid: '0', candidate:
    `candidate:1 1 ${how} 2122260223 candidate.canary.test 54321 typ host${how == 'tcp' ? ' tcptype passive' : ''}`});
  document.title = 'names were used';
})();
new WebSocket('wss://socket.canary.test/'); new WebTransport('https://transport.canary.test/');
const r = new RTCPeerConnection({iceServers: [{urls: 'stun:192.0.2.1'}, {urls: ['turn:192.0.2.1',
  'turn:192.0.2.1?transport=tcp'], username: 'a', credential: 'b'}]});
r.onicecandidate = event => document.body.append(`[${event.candidate?.candidate}]`);
r.createDataChannel('x');
r.createOffer().then(offer => r.setLocalDescription(offer));
new WebSocket('ws://192.0.2.1/'); new WebTransport('https://192.0.2.1/');
</script>
"""
"""Page whose scripts need the addresses of names, and speak to an address by what no proxy sees. A look-up is a way
out, too: the name may be a message."""


LISTENER = """
import os, select, socket, sys
parent, log = os.getppid(), open(sys.argv[1], "ab", buffering=0)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
log.write(b"ready")
while os.getppid() == parent:
    for one in select.select([server, packets], [], [], 0.2)[0]:
        data, sender = one.recvfrom(4096)
        # Other packets of IPv6 are those of the system itself, which looks for neighbours.
        if one is server or sender[0] != "lo" and (sender[1] == 0x800 or sender[1] == 0x86DD and data[6] in (6, 17)):
            log.write(data)
"""
ISOLATED = """#!/bin/sh
exec unshare --map-root-user --net --mount sh -c '
  ip link set lo up && ip link add out type veth peer name far && ip link set far up && ip link set out up &&
  ip address add 192.0.2.2/24 dev out && ip neighbour add 192.0.2.1 lladdr 02:00:00:00:00:01 dev out nud permanent &&
  ip route add default via 192.0.2.1 && mount --bind FOLDER/resolv.conf /etc/resolv.conf || exit 1
  PYTHON FOLDER/server.py FOLDER/asked & exec chromium-headless-shell "$@"' sh "$@"
"""
"""Browser in a network of its own with a way out. A listener beside it, which ends with it, is the only name server,
and writes down each question and each packet that leaves."""


def has_namespaces() -> bool:
    """Return whether a user may make a network of its own."""
    command = ("unshare", "--map-root-user", "--net", "--mount", "ip", "link", "add", "out", "type", "veth")
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def isolated() -> Iterator[Path]:
    """Folder with the program `browser`, and the file `asked` once that has run."""
    folder = Path(tempfile.mkdtemp())  # which the user of the browser reaches
    folder.chmod(0o777)
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (folder / "server.py").write_text(LISTENER)
    program = folder / "browser"
    program.write_text(ISOLATED.replace("FOLDER", str(folder)).replace("PYTHON", "/usr/bin/env python3"))
    program.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(not has_namespaces(), reason="this system permits no network of its own")
async def test_no_name_is_looked_up_and_no_packet_leaves(tmp_path: Path, isolated: Path) -> None:
    (tmp_path / "gossamer.toml").write_text(
        f'[browser]\nprogram = "{isolated}/browser"\nsandbox = false\nseconds = 6.0\nquiet = 3.0\n'
    )
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("shop.test", "/", html(LOOKED_UP))
        run = await asyncio.to_thread(
            gossamer,
            *("crawl", f"http://shop.test:{web.port}/", "--resolve", "shop.test:127.0.0.1", *FAST_FLAGS),
            *("--render", "always", "--retries", "0", "-o", "pages.jsonl"),
            cwd=tmp_path,
        )
    assert run.returncode == 0, run.stderr
    body = json.loads((tmp_path / "pages.jsonl").read_text())["body"]
    assert "<title>names were used</title>" in body
    assert "192.0.2.2" not in body, "the page has found an address of this machine"
    assert (isolated / "asked").read_bytes() == b"ready"
