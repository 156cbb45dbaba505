"""What went wrong with TLS, in words of people who run processes: whose certificate, and what is the matter with it."""

from __future__ import annotations

import ssl

_RENEW_OURS = "renew --tls-cert here; no restart is needed"
_ONE_CA = "give both sides certificates of one CA, and that CA as --tls-ca"
_ASK_THERE = "the log of the other side says why"
_IN_COMMON = "the two sides speak no version of TLS in common: Quiesce wants 1.3. Update whichever does not have it"

_ALERTS = {
    "CERTIFICATE_EXPIRED": f"the other side says that this process's certificate has expired: {_RENEW_OURS}",
    "UNKNOWN_CA": f"the other side does not know the CA that signed this process's certificate: {_ONE_CA}",
    "BAD_CERTIFICATE": f"the other side refuses this process's certificate: {_ASK_THERE}",
    "CERTIFICATE_UNKNOWN": f"the other side refuses this process's certificate: {_ASK_THERE}",
    "UNSUPPORTED_CERTIFICATE": "the other side refuses this kind of certificate: it has to be good for servers and for "
    "clients (extended key usage)",
    "CERTIFICATE_REVOKED": f"the other side says that this process's certificate was revoked: {_RENEW_OURS}",
    "CERTIFICATE_REQUIRED": "the other side wants a certificate, and this process showed none: give it --tls-cert and "
    "--tls-key",
    "PROTOCOL_VERSION": _IN_COMMON,
}
"""By the end of OpenSSL's name for what the other side told: its beginning differs among versions."""

_NO_TLS = "does that port belong to something else, or was the other side started without certificates?"
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side showed no certificate: give it --tls-cert and --tls-key",
    "WRONG_VERSION_NUMBER": f"the other side does not speak TLS: {_NO_TLS}",
    "HTTP_REQUEST": f"the other side speaks HTTP without TLS: {_NO_TLS}",
    "UNSUPPORTED_PROTOCOL": _IN_COMMON,
    "PEM_LIB": "not PEM, empty, half written or damaged, or the key has a password",
    "NO_CERTIFICATE_OR_CRL_FOUND": "no certificate is in it: it is empty, half written or not PEM, and nothing of it "
    "took effect. Write it whole beside, and rename it to this name",
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
}

_VERIFIED = {
    9: "is not valid yet, by this host's clock: set the clock that is wrong",
    10: "has expired, by this host's clock: renew it there",
    **dict.fromkeys((18, 19, 20, 21), f"is not signed by the CA of this process's --tls-ca: {_ONE_CA}"),
    **dict.fromkeys((26,), "is not for this use: it has to be good for servers and for clients (extended key usage)"),
    **dict.fromkeys((62, 64), "is not for the host that was dialled: renew it with that name or address"),
}
"""By X509_V_ERR_*. 18 to 21: self-signed, or no way from it to a CA that is trusted here."""


def in_words(error: Exception) -> str:
    """What `error` says: of TLS what happened, whose it is to mend and how, and then what OpenSSL calls it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _VERIFIED.get(error.verify_code, "cannot be verified")
        return f"the other side's certificate {why} [{error.reason}: {error.verify_message}]"
    reason = str(getattr(error, "reason", None) or "")
    if isinstance(error, ssl.SSLEOFError):
        return f"the other side hung up within TLS [{reason or error}]"
    if "PEM lib" in str(error):  # it has no reason
        reason = "PEM_LIB"
    known = _ALERTS.get(reason.rpartition("ALERT_")[2]) if "ALERT_" in reason else _REASONS.get(reason)
    return f"{known} [{reason}]" if known else str(getattr(error, "strerror", None) or error)
