"""Keys and certificates by which the parties of a vote know one another.

Each party makes its own certificate and signs it itself. The agreement holds all of them, so nobody else has
to vouch for anyone, and a connection with any other certificate is closed.
"""

from __future__ import annotations

import datetime
import hashlib
from typing import NamedTuple

from pate_jax.errors import PateError

YEARS = 10  # a vote among hospitals is planned for months; the agreement can be made anew at any time


class Identity(NamedTuple):
    """A party's secret key and its public certificate, both in PEM."""

    key: str
    certificate: str


def make(name: str) -> Identity:
    """Make a new key and its certificate for the party of this name.

    >>> one = make("north")
    >>> one.certificate.splitlines()[0], len(fingerprint(one.certificate))
    ('-----BEGIN CERTIFICATE-----', 64)
    """
    needs_the_extra()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(secret.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode())


def fingerprint(certificate: str, owner: str = "a party") -> str:
    """The SHA-256 of a certificate's bytes, in hexadecimal digits."""
    import ssl

    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()
    except (ValueError, TypeError, AttributeError) as error:
        raise PateError(f"the certificate of {owner} is not in PEM: take the file that it made") from error


def sign(key: str, content: bytes) -> bytes:
    """A signature over some bytes, with the key of a party's certificate.

    >>> one = make("north")
    >>> verify(one.certificate, b"answers", sign(one.key, b"answers")), verify(one.certificate, b"x", b"y")
    (True, False)
    """
    needs_the_extra()
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    secret = serialization.load_pem_private_key(key.encode(), None)
    if not isinstance(secret, ec.EllipticCurvePrivateKey):
        raise PateError("the key is of another kind than the package makes: make a new certificate")
    return secret.sign(content, ec.ECDSA(hashes.SHA256()))


def verify(certificate: str, content: bytes, signature: bytes) -> bool:
    """Whether the owner of a certificate signed these bytes."""
    needs_the_extra()
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        return False
    try:
        public.verify(signature, content, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def needs_the_extra() -> None:
    """Say in one sentence which part of the installation is missing."""
    import importlib.util

    missing = [name for name in ("mpyc", "gmpy2", "cryptography") if importlib.util.find_spec(name) is None]
    if missing:
        raise PateError(f"votes among parties need {missing[0]}: pip install 'pate-jax[parties]'")
