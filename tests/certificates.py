"""Certificates for tests: an authority, and what it has signed."""

import datetime as dt
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
    "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
DAY = dt.timedelta(days=1)


class Authority:
    """Signs certificates for 127.0.0.1; its own is `ca.pem` in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self.file = self._write("ca", self._name, self._key, DAY, is_authority=True)

    def sign(self, name: str, lasts: dt.timedelta = DAY, *, hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """Return the files of a certificate, for `hosts` too, and its key; it ends after `lasts`, which may be negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        private = self.folder / f"{name}.key"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        private.chmod(0o600)
        return self._write(name, subject, key, lasts, hosts=hosts), private

    def _write(self, name, subject, key, lasts, *, is_authority=False, hosts=()) -> Path:
        now = dt.datetime.now(dt.UTC)
        names = [x509.IPAddress(IPv4Address("127.0.0.1")), *map(x509.DNSName, hosts)]
        uses = dict.fromkeys(USES, False) | {"digital_signature": True, "key_cert_sign": is_authority}
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 7 * DAY)
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.KeyUsage(**uses), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        file = self.folder / f"{name}.pem"
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return file
