"""Parquet, FTP and S3: what waits in a spool arrives once, whoever was killed and whenever the other end was away."""

import subprocess
import sys

import pytest

from gossamer.errors import BadInput, SinkError
from gossamer.extras import install_advice
from gossamer.model.record import ItemRecord, Output
from gossamer.sinks.base import Fanout
from gossamer.sinks.open import check_outputs, open_sinks
from tests.integration.sink_writer import page
from tests.integration.test_sinks_killed import ids_in
from tests.servers.ftp import FTP_SERVER

S3_SERVER = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


class Server:
    """A server in a process of its own; `port` is known when it listens."""

    def __init__(self, code, *arguments):
        command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def ftp(tmp_path):
    pytest.importorskip("fsspec")
    pytest.importorskip("pyftpdlib")
    (tmp_path / "ftp").mkdir()
    server = Server(FTP_SERVER, tmp_path / "ftp", 0)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def s3():
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    server = Server(S3_SERVER)
    yield server
    server.stop()


async def crawl(url, spool, *ids):
    """What one run does."""
    sink = Fanout(open_sinks([str(url)], spool_dir=spool))
    if ids:
        await sink.write([page(name) for name in ids])
    await sink.close()


@pytest.mark.parametrize(
    "name",
    ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.warc.gz", "a.warc", "a.parquet", "a.csv", "a.json", "a.sqlite"],
)
async def test_ftp_gets_the_file_and_a_second_run_adds_to_it(ftp, tmp_path, name):
    url = f"ftp://user:secret@127.0.0.1:{ftp.port}/new/folder/{name}"
    check_outputs([url])
    await crawl(url, tmp_path / "spool", "r1", "r2")
    check_outputs([url])
    await crawl(url, tmp_path / "spool", "r3")
    await crawl(url, tmp_path / "spool")
    folder = tmp_path / "ftp" / "new" / "folder"
    assert ids_in(folder / name) == {"r1": 1, "r2": 1, "r3": 1}
    assert [entry.name for entry in folder.iterdir()] == [name]
    assert not list((tmp_path / "spool").rglob("spool.*"))


async def test_an_ftp_server_that_goes_away_is_waited_for_by_the_next_run(ftp, tmp_path):
    url = f"ftp://user:secret@127.0.0.1:{ftp.port}/a.jsonl"
    sink = Fanout(open_sinks([url], spool_dir=tmp_path / "spool"))
    await sink.write([page("r1")])
    ftp.stop()
    with pytest.raises(SinkError, match="run the same command again") as caught:
        await sink.close()
    assert "secret" not in str(caught.value)
    with pytest.raises(BadInput, match="cannot be reached"):
        check_outputs([url])
    again = Server(FTP_SERVER, tmp_path / "ftp", ftp.port)
    try:
        await crawl(url, tmp_path / "spool", "r2")
    finally:
        again.stop()
    assert ids_in(tmp_path / "ftp" / "a.jsonl") == {"r1": 1, "r2": 1}


async def test_a_spool_that_arrived_before_the_crash_is_not_added_again(ftp, tmp_path):
    url = f"ftp://user:secret@127.0.0.1:{ftp.port}/a.jsonl.gz"
    sink = Fanout(open_sinks([url], spool_dir=tmp_path / "spool"))
    await sink.write([page("r1")])
    (spool,) = (tmp_path / "spool").rglob("spool.*")
    kept = spool.read_bytes()
    await sink.close()
    spool.write_bytes(kept)  # as if the process had died between the upload and the removal
    await crawl(url, tmp_path / "spool")
    assert ids_in(tmp_path / "ftp" / "a.jsonl.gz") == {"r1": 1}


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.parquet"])
async def test_s3_gets_the_file_and_a_second_run_adds_to_it(s3, tmp_path, monkeypatch, name):
    endpoint = f"http://127.0.0.1:{s3.port}"
    for key, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(BadInput, match="no bucket missing"):
        check_outputs([f"s3://missing/{name}"])
    import boto3

    client = boto3.client("s3")
    bucket = name.replace(".", "-")
    client.create_bucket(Bucket=bucket)
    url = f"s3://{bucket}/crawls/{name}"
    check_outputs([url])
    await crawl(url, tmp_path / "spool", "r1", "r2")
    check_outputs([url])
    await crawl(url, tmp_path / "spool", "r3")
    client.download_file(bucket, f"crawls/{name}", str(tmp_path / name))
    assert ids_in(tmp_path / name) == {"r1": 1, "r2": 1, "r3": 1}


async def test_a_parquet_file_shows_when_it_is_whole(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "pages.parquet"
    one, two = (Fanout(open_sinks([str(path)], spool_dir=tmp_path / "spool")) for _ in range(2))
    await one.write([page("r1")])
    item = ItemRecord(
        appid="a",
        crawlid="c",
        spiderid="s",
        request_id="r2",
        attempt=1,
        url="u",
        attrs={"step": 1},
        timestamp="",
        item={"price": 3},
    )
    await two.write([Output(record=item)])
    await one.close()
    assert not path.exists()  # somebody still writes
    await two.close()
    rows = {row["request_id"]: row for row in pq.read_table(path).to_pylist()}
    assert (rows["r1"]["type"], rows["r1"]["status_code"], rows["r1"]["item"]) == ("page", 200, None)
    assert (rows["r2"]["type"], rows["r2"]["status_code"]) == ("item", None)
    assert (rows["r2"]["item"], rows["r2"]["attrs"]) == ('{"price":3}', '{"step":1}')


async def test_a_parquet_spool_merged_before_the_crash_is_not_merged_again(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "pages.parquet"
    sink = Fanout(open_sinks([str(path)], spool_dir=tmp_path / "spool"))
    await sink.write([page("r1")])
    (spool,) = (tmp_path / "spool").rglob("spool.*")
    kept = spool.read_bytes()
    await sink.close()
    spool.write_bytes(kept)
    await crawl(path, tmp_path / "spool")
    assert ids_in(path) == {"r1": 1}
    await crawl(path, tmp_path / "spool", "r2")
    assert ids_in(path) == {"r1": 1, "r2": 1}


def test_without_the_extras_the_error_says_what_to_install(tmp_path):
    """A Python that sees the core only."""
    hide = (
        "import sys; sys.modules.update(pyarrow=None, fsspec=None);"
        "from gossamer.sinks.open import check_outputs; check_outputs([sys.argv[1]])"
    )
    for output, extra in [("a.parquet", "parquet"), ("ftp://h/a.jsonl", "fsspec"), ("s3://b/a.jsonl", "s3")]:
        done = subprocess.run([sys.executable, "-c", hide, output], capture_output=True, text=True, cwd=tmp_path)
        assert install_advice(extra) in done.stderr
        assert extra == "parquet" or f"needs the package fsspec (extra {extra}): " in done.stderr
