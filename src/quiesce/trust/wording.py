"""What went wrong with TLS, in words of people who run processes: whose certificate, and what is the matter with it."""

from __future__ import annotations

import ssl

_ALERTS = {
    "CERTIFICATE_EXPIRED": "the other side says that this process's certificate has expired",
    "UNKNOWN_CA": "the other side does not know the CA that signed this process's certificate",
    "BAD_CERTIFICATE": "the other side refuses this process's certificate",
    "CERTIFICATE_UNKNOWN": "the other side refuses this process's certificate",
    "UNSUPPORTED_CERTIFICATE": "the other side refuses this kind of certificate",
    "CERTIFICATE_REVOKED": "the other side says that this process's certificate was revoked",
    "CERTIFICATE_REQUIRED": "the other side wants a certificate, and this process showed none",
}
"""By the end of OpenSSL's name for what the other side told: its beginning differs among versions."""

_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side showed no certificate",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "HTTP_REQUEST": "the other side speaks HTTP without TLS",
    "UNSUPPORTED_PROTOCOL": "the other side does not speak TLS 1.3",
    "PEM_LIB": "not PEM, or damaged, or the key has a password",
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
}

_UNSIGNED = frozenset({18, 19, 20, 21})
"""X509_V_ERR_*: self-signed, or no way from it to a CA that is trusted here."""
_VERIFIED = {
    9: "is not valid yet, by this host's clock",
    10: "has expired, by this host's clock",
    **dict.fromkeys(_UNSIGNED, "is not signed by the CA of this process's --tls-ca"),
}


def in_words(error: OSError) -> str:
    """What `error` says, without OpenSSL's names where it is one that operators meet."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _VERIFIED.get(error.verify_code) or f"cannot be verified: {error.verify_message}"
        return f"the other side's certificate {why}"
    if isinstance(error, ssl.SSLEOFError):
        return "the other side hung up within TLS"
    reason = str(getattr(error, "reason", None) or "")
    if "PEM lib" in str(error):  # it has no reason
        reason = "PEM_LIB"
    known = _ALERTS.get(reason.rpartition("ALERT_")[2]) if "ALERT_" in reason else _REASONS.get(reason)
    return known or str(error.strerror or error)
