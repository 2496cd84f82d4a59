"""A certificate authority of the fake web's own, and a certificate for each host name, made when first asked for.

Nothing here outlives the process. Clients that check certificates (names, dates, key usage, authority identifiers) must
accept them
"""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import FakeWebFailed
from gossamer.extras import package_advice
from gossamer.fakeweb.site import ADDRESS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, Name

CONTEXTS = 4096
"""Host names whose certificate is kept ready; beyond that the oldest is made anew when it is asked for again. More take
memory."""

_LONGEST_COMMON_NAME = 64
"""Limit of X.509 (ub-common-name): fixed. Clients compare the alternative name, which is complete."""


class Authority:
    """Signs ECDSA P-256 certificates. The keys exist only in memory and in `folder`, which the caller deletes.

    Raises `FakeWebFailed` when the `cryptography` package is missing.
    """

    def __init__(self, folder: Path, *, serves: Callable[[str], bool]) -> None:
        """`serves` decides which host names get a certificate; others are refused in the handshake."""
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.x509.oid import NameOID
        except ImportError as missing:
            raise FakeWebFailed(f"TLS needs the package cryptography: {package_advice('cryptography')}") from missing
        self._folder = folder
        self._serves = serves
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._key: EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())
        self._host_key: EllipticCurvePrivateKey = ec.generate_private_key(ec.SECP256R1())
        # The number in the name keeps the authorities of several fake webs apart in one trust store.
        name = f"Fake web authority {x509.random_serial_number():x}"
        self._name: Name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign_self()
        self.ca_path = folder / "ca.pem"
        """The authority's certificate (PEM): what a client must trust."""
        self.ca_path.write_bytes(_pem(self._certificate))
        self._key_pem = self._encode_key()
        self.context = self._context(ADDRESS)
        """The server's context. It picks the certificate by SNI; without SNI it is one for 127.0.0.1."""
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        """Set the context for the server name of the handshake. Returns a TLS alert for a name that is not served."""
        if name is None or name == ADDRESS:  # RFC 6066, 3 forbids addresses as server names, but some clients send them
            return None
        host = name.lower()
        context = self._contexts.get(host)
        if context is None:
            if not self._serves(host):
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
            context = self._contexts[host] = self._context(host)
            if len(self._contexts) > CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
        connection.context = context
        return None

    def _context(self, host: str) -> ssl.SSLContext:
        """Return a TLS context with a new certificate for this host."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        chain = self._folder / "chain.pem"  # `ssl` reads certificates from files only
        chain.write_bytes(self._key_pem + _pem(self._sign(host)))
        context.load_cert_chain(chain)
        return context

    def _sign_self(self) -> "Certificate":
        """Return the authority's own certificate."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.now(UTC)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _sign(self, host: str) -> "Certificate":
        """Return a certificate for a host name or an IP address."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        now = datetime.now(UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:_LONGEST_COMMON_NAME])]))
            .issuer_name(self._name)
            .public_key(self._host_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=90))
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def _encode_key(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._host_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pem(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)
