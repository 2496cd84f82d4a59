"""Secrets of the platform from variables and files."""

from pathlib import Path

import pytest

from gossamer.errors import BadInput
from gossamer.platform_client.http import Credentials
from gossamer.platform_client.secret_variables import SCRAPYD_SECRETS, SECRET_VARIABLES, read_secret
from gossamer.platform_client.targets import DeployTarget, with_credentials
from gossamer_platform.link import Artefact
from gossamer_platform.node.surroundings import environment_of
from gossamer_platform.scrapyd.config import load


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """Path of a file with the secret `p@ss/word`, as container platforms write it."""
    path = tmp_path / "secret"
    path.write_text("p@ss/word\n")
    return str(path)


def test_a_secret_comes_from_its_variable_or_its_file(secret: str) -> None:
    assert read_secret({}, "A") == ""
    assert read_secret({"A": "x"}, "A") == "x"
    assert read_secret({"A_FILE": secret}, "A") == "p@ss/word"


def test_a_secret_that_is_given_twice_or_cannot_be_read_is_refused(tmp_path: Path, secret: str) -> None:
    with pytest.raises(BadInput, match="A and A_FILE are both set"):
        read_secret({"A": "x", "A_FILE": secret}, "A")
    with pytest.raises(BadInput, match=r"A_FILE: cannot read .*nothing: No such file"):
        read_secret({"A_FILE": str(tmp_path / "nothing")}, "A")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_secret({"A_FILE": str(tmp_path / "bytes")}, "A")


@pytest.mark.parametrize("variable", SCRAPYD_SECRETS)
def test_each_secret_of_a_server_may_be_in_a_file(variable: str, secret: str) -> None:
    config = load([], {f"{variable}_FILE": secret})
    assert getattr(config, variable.removeprefix("SCRAPYD_").lower()) == "p@ss/word"
    assert secret in config.private_files


def test_a_client_gets_the_servers_password_from_the_environment(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    target = DeployTarget("", "http://server.test:6800", Credentials())
    monkeypatch.setenv("GOSSAMER_PLATFORM_PASSWORD_FILE", secret)
    with pytest.raises(BadInput, match="GOSSAMER_PLATFORM_USERNAME is not"):
        with_credentials(target)
    monkeypatch.setenv("GOSSAMER_PLATFORM_USERNAME", "me")
    assert with_credentials(target).credentials == Credentials("", "me", "p@ss/word")
    monkeypatch.setenv("GOSSAMER_PLATFORM_URL", "http://another.test:6800")
    assert not with_credentials(target).credentials.header()


def test_jobs_get_no_secret_of_the_server(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, secret)
    assert not set(environment_of(Artefact("shop", "1", "digest", 1, ""))) & SECRET_VARIABLES
