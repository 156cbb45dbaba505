"""Pairs whose halves lay their pages out differently, or of which one alone checks what arrives."""

from __future__ import annotations

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, label
from quiesce.doctor.fleet import Engine, Field, Fleet, Member
from quiesce.doctor.rules.links import SGLANG_PD, VLLM_NIXL, sglang

_LAYOUT = (Field.PAGE_SIZE, Field.KV_DTYPE)


def _unlike(prefill: Member, decode: Member, *fields: Field) -> list[Field]:
    """Fields that both tell, and differently."""
    found = []
    for field in fields:
        ours, theirs = prefill.told(field), decode.told(field)
        if ours is not None and theirs is not None and ours.value != theirs.value:
            found.append(field)
    return found


def _checksum_one_side(fleet: Fleet) -> Seen:
    for prefill, decode in fleet.pairs():
        if prefill.engine is Engine.VLLM:
            continue
        ours, theirs = prefill.known(Field.CHECKSUM, False), decode.known(Field.CHECKSUM, False)
        if ours and theirs and ours.value != theirs.value:
            flag = "--payload-digest" if prefill.engine is Engine.QUIESCE else "--disaggregation-enable-kv-checksum"
            yield Hit(
                (ours.evidence, theirs.evidence),
                f"{label(prefill if ours.value else decode)} has checksums, {label(decode if ours.value else prefill)} "
                "has none.",
                f"Give {flag} to both halves, or to none.",
            )


def _checksum_unlike(fleet: Fleet) -> Seen:
    for prefill, decode in fleet.pairs(Engine.SGLANG):
        fields = _unlike(prefill, decode, *_LAYOUT, Field.TP_SIZE)
        if fields and prefill.is_on(Field.CHECKSUM) and decode.is_on(Field.CHECKSUM):
            yield Hit(
                (*prefill.places(*fields), *decode.places(*fields)),
                f"{label(prefill)} and {label(decode)} compare checksums over pages that are laid out differently: "
                f"{', '.join(field.words for field in fields)}.",
                "Give both the same page size, KV type and tensor parallel size, or leave the checksum out.",
            )


def _layouts(fleet: Fleet) -> Seen:
    for prefill, decode in fleet.pairs():
        for field in _unlike(prefill, decode, *_LAYOUT):
            yield Hit(
                (*prefill.places(field), *decode.places(field)),
                f"{label(prefill)} and {label(decode)} differ in {field.words}.",
                "Give both the same value.",
            )


RULES = (
    Rule(
        id="checksum-one-side",
        severity=Severity.HANG,
        title="A checksum on one side only",
        why="The checksum is one more field of what the halves exchange. One alone makes them read each other wrongly, "
        "or nothing is checked.",
        sources=(sglang(39500), sglang(39229)),
        check=_checksum_one_side,
    ),
    Rule(
        id="checksum-unlike-layouts",
        severity=Severity.HANG,
        title="Checksums over unlike layouts",
        why="The halves digest different bytes for the same context, so that every transfer looks corrupted.",
        sources=(sglang(39500),),
        check=_checksum_unlike,
    ),
    Rule(
        id="layouts-differ",
        severity=Severity.HANG,
        title="The halves lay their pages out differently",
        why="Pages are moved as bytes. With another page size or type the same bytes mean something else.",
        sources=(SGLANG_PD, VLLM_NIXL),
        check=_layouts,
    ),
)
