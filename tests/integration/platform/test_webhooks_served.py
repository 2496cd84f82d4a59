"""Webhooks of a running server: from their creation to a signed event, and who may do what."""

from pathlib import Path

from cryptography.fernet import Fernet

from gossamer_platform.delivery.sending import signature_of
from tests.servers.receiver import receiver
from tests.servers.scrapyd import egg, scrapyd, spider, until


def test_a_failed_job_reaches_the_receiver_signed(tmp_path: Path) -> None:
    environment = {
        "GOSSAMER_SECRET_KEYS": Fernet.generate_key().decode(),
        "GOSSAMER_WEBHOOK_NETWORKS": "127.0.0.0/8,::1/128",
    }
    with receiver() as received, scrapyd(tmp_path, environment=environment) as server:
        assert server.deploy(egg(spider("broken", "os._exit(5)")))["status"] == "ok"
        wanted = {"project": "shop", "url": received.url, "events": ["job.failed", "version.broken"]}
        created = server.client.post("/v1/webhooks", json=wanted)
        assert created.status_code == 201, created.text
        secret = created.json()["secret"]
        assert "secret" not in server.client.get("/v1/webhooks").json()[0]

        assert server.deploy(egg("import nothing_of_this_name"), version="2")["status"] == "error"
        server.client.post("/v1/jobs", json={"project": "shop", "spider": "broken", "name": "x"})
        until(lambda: len(received.events) == 2, what=server.said)
        broken, failed = sorted(received.events, key=lambda event: str(event.body["type"]), reverse=True)
        assert broken.body["type"] == "version.broken"
        assert "nothing_of_this_name" in broken.body["data"]["version"]["reason"]
        assert failed.body["data"]["job"]["reason"] == "exit_code: 5"
        headers = failed.headers
        signature = signature_of(secret, headers["webhook-id"], int(headers["webhook-timestamp"]), failed.raw)
        assert headers["webhook-signature"] == signature

        def sent() -> list[str]:
            page = server.client.get("/v1/webhooks/1/deliveries", params={"state": "sent"}).json()
            return [each["event"] for each in page["deliveries"]]

        until(lambda: len(sent()) == 2, what=server.said)
        renewed = server.client.post("/v1/webhooks/1/secret")
        assert renewed.status_code == 201
        assert renewed.json()["secret"] not in ("", secret)
        assert server.client.post("/v1/webhooks/1/test").status_code == 202
        until(lambda: len(received.events) == 3, what=server.said)
        headers, raw = received.events[2].headers, received.events[2].raw
        signed = [
            signature_of(each, headers["webhook-id"], int(headers["webhook-timestamp"]), raw)
            for each in (secret, renewed.json()["secret"])
        ]
        assert [each == headers["webhook-signature"] for each in signed] == [False, True]
        changed = server.client.patch("/v1/webhooks/1", json={"paused": True})
        assert (changed.status_code, changed.json()["paused"]) == (200, True)
        other = server.client.post("/v1/tokens", json={"name": "a", "scope": "admin", "project": "other"}).json()
        theirs = {"Authorization": f"Bearer {other['token']}"}
        assert server.client.get("/v1/webhooks", headers=theirs).json() == []
        assert server.client.get("/v1/webhooks/1", headers=theirs).status_code == 404
        everything = {**wanted, "project": ""}
        assert server.client.post("/v1/webhooks", json=everything, headers=theirs).status_code == 404
        bad = server.client.post("/v1/webhooks", json={**wanted, "url": "ftp://x/"})
        assert (bad.status_code, "https://example.com/hook" in bad.json()["detail"]) == (400, True)
        assert server.client.delete("/v1/webhooks/1").status_code == 204
        assert server.client.get("/v1/webhooks").json() == []
