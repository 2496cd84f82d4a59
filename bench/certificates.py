"""A certificate for each host, self-signed: no crawler of the comparison verifies, as stock Scrapy does not."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def write_certificates(folder: Path, hosts: Iterable[str]) -> None:
    """`HOST.crt` for every host, and one `key.pem` (ECDSA P-256) for all, into a folder that the caller deletes."""
    key = ec.generate_private_key(ec.SECP256R1())
    folder.joinpath("key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    now = datetime.now(UTC)
    for host in hosts:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        folder.joinpath(f"{host}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
