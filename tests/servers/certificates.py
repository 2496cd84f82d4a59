"""A certificate authority for one test run, and certificates for whatever a test wants to show."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Chain:
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs P-256 certificates into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        now = datetime.now(UTC)
        certificate = (
            self._builder(self._name, now - timedelta(days=1), now + timedelta(days=1))
            .public_key(self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / "ca.pem"
        """What a client has to trust."""
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, host: str, *, expired: bool = False, early: bool = False, rsa_bits: int = 0) -> Chain:
        """A certificate for `host`. `early`: it is not valid yet. `rsa_bits`: an RSA key of this length, not P-256."""
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = ec.generate_private_key(ec.SECP256R1())
        if rsa_bits:
            key = rsa.generate_private_key(65537, rsa_bits)
        now = datetime.now(UTC)
        begins = now + timedelta(hours=1) if early else now - timedelta(days=1)
        ends = now - timedelta(hours=1) if expired else now + timedelta(days=1)
        certificate = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), begins, ends)
            .public_key(key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        stem = f"{host}{'-expired' if expired else ''}{'-early' if early else ''}{rsa_bits or ''}"
        chain = Chain(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        chain.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(key, chain.key)
        return chain

    def own_chain(self) -> Chain:
        """Its own certificate, which it has signed itself, as that of a server."""
        key = self._folder / "ca.key"
        _write_key(self._key, key)
        return Chain(self.ca, key)

    def _builder(self, subject: x509.Name, begins: datetime, ends: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
        )


def _write_key(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, path: Path) -> None:
    pem = serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
