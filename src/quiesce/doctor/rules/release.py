"""Which release of SGLang a process is, for the rules that depend on it."""

from __future__ import annotations

from quiesce.doctor.findings import Unknown, untold
from quiesce.doctor.fleet import Field, Member
from quiesce.doctor.versions import Release, release_of

VERSION_REMEDY = "Tell it with --tell version=0.5.23, or give the image's tag or the running server."


def release(member: Member) -> Release | None:
    told = member.told(Field.VERSION)
    return release_of(str(told.value)) if told else None


def before(member: Member, limit: Release) -> bool | None:
    """Whether it is older than `limit`, None when its version is not known."""
    mine = release(member)
    return None if mine is None else mine < limit


def unversioned(member: Member) -> Unknown:
    return untold(member, Field.VERSION, VERSION_REMEDY)
