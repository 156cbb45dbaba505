"""One launch command, its environment and its image, as a member of the fleet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import immutables
import msgspec

from quiesce.doctor.dialects import FLAGS, SWITCHES, VARIABLES, Kind, Way, is_template, read_value
from quiesce.doctor.fleet import (
    Engine,
    Evidence,
    Facts,
    Field,
    Member,
    Misread,
    Part,
    Placed,
    Role,
    Told,
    evidence,
    line_of,
)
from quiesce.doctor.misread import CONNECTOR, MODES, ROLE, misread_flags, misread_values

Pair = tuple[str, str]
"""A setting's name without dashes in front, and its value as text."""

_MODULES: dict[str, tuple[Engine, str]] = {
    "sglang.launch_server": (Engine.SGLANG, ""),
    "dynamo.sglang": (Engine.SGLANG, ""),
    "vllm.entrypoints.openai.api_server": (Engine.VLLM, ""),
    "dynamo.vllm": (Engine.VLLM, ""),
    "sglang_router.launch_router": (Engine.SGLANG, "sglang-router"),
    "sglang-router": (Engine.SGLANG, "sglang-router"),
    "sgl-model-gateway": (Engine.SGLANG, "sglang-router"),
    "smg": (Engine.SGLANG, "sglang-router"),
    "sglang.srt.disaggregation.mini_lb": (Engine.SGLANG, "mini_lb"),
    "sglang.srt.disaggregation.launch_lb": (Engine.SGLANG, "mini_lb"),
    "dynamo.frontend": (Engine.SGLANG, "dynamo"),
    "toy_proxy_server.py": (Engine.VLLM, "toy proxy"),
    "disagg_proxy_demo.py": (Engine.VLLM, "toy proxy"),
    "disagg_prefill_proxy_server.py": (Engine.VLLM, "toy proxy"),
}
_COMMANDS: dict[tuple[str, str], Engine] = {
    ("sglang", "serve"): Engine.SGLANG,
    ("vllm", "serve"): Engine.VLLM,
    **{("quiesce", role): Engine.QUIESCE for role in ("serve", "router", "prefill", "decode", "aggregated")},
}
_IMAGE = re.compile(r"(?:^|/)(sglang|vllm-openai|vllm)(?::|@)(?P<tag>v?\d[\w.+-]{0,80})")
_PIN = re.compile(r"(sglang|vllm)(?:\[[\w,-]{0,80}\])?==(?P<version>\d[\w.+-]{0,80})")
_FAULTS = re.compile(r"SGLANG_TEST_\w+")


class Program(msgspec.Struct, frozen=True):
    """What is started. `router` names the kind of router, "" for an engine; `role` is Quiesce's word."""

    engine: Engine
    router: str = ""
    role: str = ""


class Launch(msgspec.Struct, frozen=True):
    """`words` follow the program. `environment` is in full when `whole_environment`."""

    program: Program
    words: Sequence[str]
    environment: Mapping[str, str]
    source: str
    line: int
    name: str
    version: Placed | None = None
    whole_environment: bool = True
    ports: Sequence[str] = ()
    kind: str = "launch"


def find_program(words: Sequence[str]) -> tuple[Program, int] | None:
    """The program that a command starts, and where its own words begin."""
    for index, word in enumerate(words):
        base = word if word in _MODULES else word.rsplit("/", 1)[-1]
        if base in _MODULES:
            engine, router = _MODULES[base]
            return Program(engine, router), index + 1
        if "vllm-openai:" in word:  # the image starts the server by itself
            return Program(Engine.VLLM), index + 1
        if index + 1 < len(words) and (base, words[index + 1]) in _COMMANDS:
            return Program(_COMMANDS[base, words[index + 1]], "", str(words[index + 1])), index + 2
    return None


def guess_program(words: Sequence[str]) -> Program | None:
    """Whose flags these are, when only flags are given."""
    names = {name for name, _value in pairs_of(words, None)}
    if "disaggregation-mode" in names or any(name.startswith("disaggregation-") for name in names):
        return Program(Engine.SGLANG)
    if "pd-disaggregation" in names:
        return Program(Engine.SGLANG, "sglang-router")
    if "kv-transfer-config" in names or "max-model-len" in names:
        return Program(Engine.VLLM)
    ours = {"decode-pool-tokens", "prefill-pool-tokens", "hold-deadline-s", "unsafe-release-on-timeout", "fence-policy"}
    return Program(Engine.QUIESCE, "", "serve") if names & ours else None


def image_version(image: str) -> Placed | None:
    """`lmsysorg/sglang:v0.5.19-cu129` is version 0.5.19. None for `latest` and for other images."""
    match = _IMAGE.search(image[:500])
    return Placed(match["tag"], line_of(image)) if match else None


def pinned_version(words: Iterable[str]) -> Placed | None:
    """Of `pip install sglang==0.5.19`."""
    for word in words:
        if match := _PIN.match(word[:500]):
            return Placed(match["version"], line_of(word))
    return None


def members_of(launch: Launch) -> Iterator[Member]:
    """The processes of a launch: one, except for `quiesce serve`, which starts a router and its workers."""
    pairs = list(pairs_of(launch.words, FLAGS[launch.program.engine]))
    if launch.program.engine is Engine.QUIESCE and launch.program.role == "serve":
        yield from _served(launch, pairs)
        return
    member = _member(launch, pairs, _role(launch, pairs))
    yield member


def member_of_pairs(
    engine: Engine, pairs: Iterable[Pair], source: str, name: str, role: Role, kind: str, shown: Iterable[Part] = ()
) -> Member:
    """A member that names and values tell of: keys of a JSON answer, of a log line or of a TOML file."""
    pairs = list(pairs)
    facts, unreadable = read_pairs(pairs, FLAGS[engine], source, prefix="")
    place = Evidence(source, 0, "")
    misread = tuple(misread_values(engine, pairs, source))
    return Member(engine, role, name, place, facts, frozenset(shown), unreadable, frozenset({kind}), misread)


def read_pairs(
    pairs: Iterable[Pair], ways: Mapping[str, Way], source: str, prefix: str = "--"
) -> tuple[Facts, frozenset[Field]]:
    """Facts from names and values, and the fields whose values cannot be read."""
    facts: dict[Field, Told] = {}
    unreadable: set[Field] = set()
    keys = 0
    for name, text in pairs:
        if name not in ways:
            continue
        field, kind = ways[name]
        value = read_value(kind, text)
        if value is None:
            unreadable.add(field)
            continue
        shown = f"{prefix}{name}" if kind in SWITCHES and text == "true" else f"{prefix}{name} {_shown(kind, text)}"
        facts[field] = Told(value, evidence(source, line_of(text) or line_of(name), shown))
        keys += field is Field.API_KEY
        if keys > 1:
            facts[Field.API_KEYS] = Told(keys, facts[field].evidence)
    return immutables.Map(facts), frozenset(unreadable - facts.keys())


def pairs_of(words: Sequence[str], ways: Mapping[str, Way] | None) -> Iterator[Pair]:
    """Flags and their values; a switch, and a flag that is followed by another one, has the value "true"."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        name = _flag_name(word)
        if name is None:
            continue
        if "=" in word:
            yield name, Placed(word.partition("=")[2], line_of(word))
        elif index < len(words) and _flag_name(words[index]) is None and not _is_switch(name, ways):
            yield name, words[index]
            index += 1
        else:
            off = name.startswith("no-") and name not in (ways or {})
            yield (
                Placed(name.removeprefix("no-") if off else name, line_of(word)),
                Placed(str(not off).lower(), line_of(word)),
            )


def _flag_name(word: str) -> str | None:
    """`--kv_transfer_config=...` is kv-transfer-config; -tp is tp; a negative number is no flag."""
    bare = word.partition("=")[0]
    if bare.startswith("--") and len(bare) > 2:
        return Placed(bare[2:].replace("_", "-"), line_of(word))
    if len(bare) > 1 and bare[0] == "-" and bare[1].isalpha():
        return Placed(bare[1:], line_of(word))
    return None


def _is_switch(name: str, ways: Mapping[str, Way] | None) -> bool:
    return name in (ways or {}) and (ways or {})[name][1] in SWITCHES


def _shown(kind: Kind, text: str) -> str:
    return "..." if kind is Kind.SECRET and text else text


def _member(launch: Launch, pairs: Sequence[Pair], role: Role) -> Member:
    engine = launch.program.engine
    pairs = [*pairs, *_connector_pairs(pairs)] if engine is Engine.VLLM else pairs
    ways = {} if launch.program.router else VARIABLES[engine]
    variables, unread = read_pairs(launch.environment.items(), ways, launch.source, prefix="")
    flags, unreadable = read_pairs(pairs, FLAGS[engine], launch.source)
    facts = dict(variables) | dict(flags) | dict(_others(launch))
    shown = {Part.FLAGS, Part.ENVIRONMENT} if launch.whole_environment else {Part.FLAGS}
    if _may_hold_flags(launch.words) or "config" in dict(pairs):
        shown.discard(Part.FLAGS)
    place = evidence(launch.source, launch.line, f"starts {launch.program.router or engine}")
    misread = tuple(_misread(launch, pairs))
    unclear = {word.decides for word in misread}
    if role is Role.AGGREGATED and unclear & {ROLE, CONNECTOR}:
        role = Role.UNKNOWN
    missing = (unread | unreadable | ({Field.CONNECTOR} if CONNECTOR in unclear else set())) - facts.keys()
    kinds = frozenset({launch.kind})
    return Member(engine, role, launch.name, place, immutables.Map(facts), frozenset(shown), missing, kinds, misread)


def _misread(launch: Launch, pairs: Sequence[Pair]) -> Iterator[Misread]:
    """Our own command line refuses what it does not know; a router has no role of a worker."""
    if launch.program.engine is not Engine.QUIESCE:
        yield from misread_flags(pairs, launch.source)
    if not launch.program.router:
        yield from misread_values(launch.program.engine, pairs, launch.source)


def _may_hold_flags(words: Sequence[str]) -> bool:
    """Whether a word that is no flag's value is still to be replaced: `$EXTRA_ARGS` may hold anything."""
    before: str = ""
    for word in words:
        if is_template(word) and not word.startswith("-") and not before.startswith("-"):
            return True
        before = word if "=" not in word else ""
    return False


def _others(launch: Launch) -> Iterator[tuple[Field, Told]]:
    """What is neither a flag nor a variable of the table."""
    if launch.version and not is_template(launch.version):
        version = evidence(launch.source, line_of(launch.version), f"version {launch.version}")
        yield Field.VERSION, Told(str(launch.version), version)
    if launch.program.router:
        place = evidence(launch.source, launch.line, f"starts {launch.program.router}")
        yield Field.ROUTER_KIND, Told(launch.program.router, place)
        yield from _named_halves(launch)
    if launch.ports:
        place = evidence(launch.source, line_of(launch.ports[0]), f"publishes {', '.join(launch.ports)}")
        yield Field.PUBLISHED_PORTS, Told(",".join(launch.ports), place)
    for name, value in launch.environment.items():
        if _FAULTS.fullmatch(name) and read_value(Kind.ON_OFF, value) is True:
            yield Field.FAULTS, Told(True, evidence(launch.source, line_of(value), f"{name}={value}"))


_NAMES_HALF = {
    **dict.fromkeys(("prefill", "prefiller-host", "prefiller-hosts"), Field.NAMED_PREFILL),
    **dict.fromkeys(("decode", "decoder-host", "decoder-hosts"), Field.NAMED_DECODE),
}


def _named_halves(launch: Launch) -> Iterator[tuple[Field, Told]]:
    """The workers that a router's flags name; the last one of each role."""
    for name, text in pairs_of(launch.words, None):
        if name in _NAMES_HALF:
            where = text.rpartition("@")[2]  # without a password
            place = evidence(launch.source, line_of(name) or line_of(text), f"--{name} {where}")
            yield _NAMES_HALF[name], Told(where, place)


def _connector_pairs(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """What `--kv-transfer-config` holds, as JSON or with dots."""
    for name, text in pairs:
        if name == "kv-transfer-config":
            yield from connector_pairs(text)
        elif name.startswith("kv-transfer-config."):
            yield Placed(name.rpartition(".")[2], line_of(name)), text


def connector_pairs(text: str) -> Iterator[Pair]:
    """The keys of a KV transfer configuration, its extra configuration included; none of what is no JSON."""
    try:
        config = msgspec.json.decode(str(text), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return
    extra = config.get("kv_connector_extra_config")
    for name, value in [*config.items(), *(extra.items() if isinstance(extra, dict) else ())]:
        if isinstance(value, (str, int, float)):
            yield Placed(str(name).replace("_", "-"), line_of(text)), Placed(str(value), line_of(text))


def _role(launch: Launch, pairs: Sequence[Pair]) -> Role:
    if launch.program.router:
        return Role.ROUTER
    given = dict(pairs)
    if launch.program.engine is Engine.SGLANG:
        return sglang_role(given.get("disaggregation-mode", "null"))
    if launch.program.engine is Engine.VLLM:
        mode = given.get("disaggregation-mode")  # Dynamo's
        return sglang_role(mode) if mode else vllm_role({**given, **dict(_connector_pairs(pairs))})
    return Role(launch.program.role)


def sglang_role(mode: str) -> Role:
    """Of `--disaggregation-mode`."""
    if mode in ("prefill", "decode"):
        return Role(str(mode))
    return Role.UNKNOWN if mode == "encode" or mode not in MODES else Role.AGGREGATED


def vllm_role(settings: Mapping[str, str]) -> Role:
    """Of `kv_role`; `kv_both` may be either, as the proxy decides."""
    roles = {"kv_producer": Role.PREFILL, "kv_consumer": Role.DECODE, "kv_both": Role.UNKNOWN}
    if "kv-transfer-config" in settings and "kv-role" not in settings:
        return Role.UNKNOWN
    return roles.get(settings.get("kv-role", ""), Role.AGGREGATED)


_ROUTERS = frozenset(
    {"host", "port", "api-key", "admin-key", "tenants", "console-key", "fronts", "front-host", "front-open"}
)


def _served(launch: Launch, pairs: Sequence[Pair]) -> Iterator[Member]:
    """The members that `quiesce serve` starts, each with the settings that are its own."""
    prefix = "QUIESCE_"
    said = {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in launch.environment.items()
        if name.startswith(prefix)
    }
    mode = dict(pairs).get("mode", said.get("mode", "pd"))
    roles = [Role.AGGREGATED] if mode == "aggregated" else [Role.PREFILL, Role.DECODE]
    mine = [(name, value) for name, value in pairs if name in _ROUTERS]
    router = msgspec.structs.replace(launch, name=f"{launch.name} router")
    yield _member(router, mine, Role.ROUTER)
    for role in roles:
        pool = "prefill-pool-tokens" if role is Role.PREFILL else "decode-pool-tokens"
        size = [(Placed("pool-tokens"), value) for name, value in [*said.items(), *pairs] if name == pool]
        others = [(name, value) for name, value in pairs if name not in _ROUTERS and name != "pool-tokens"]
        yield _member(msgspec.structs.replace(launch, name=f"{launch.name} {role}"), [*others, *size], role)
