"""Kubernetes and compose files: the launches of containers and services."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from quiesce.doctor.documents import Document
from quiesce.doctor.fleet import Engine, Member, Placed, line_of
from quiesce.doctor.launches import Launch, Program, find_program, image_version, members_of
from quiesce.doctor.shell import commands, unknown
from quiesce.doctor.trees import Tree, trees_of


def read_manifest(document: Document) -> list[Member]:
    """The launches of each container, or of each compose service. Raises UsageError for what is no YAML, or too big."""
    found: list[Member] = []
    trees = trees_of(document)
    ports = _service_ports(trees)
    for tree in trees:
        for launch in _launches(tree, document.name, ports):
            found += members_of(launch)
    return found


def _as_map(tree: Tree) -> dict[str, Tree]:
    return tree if isinstance(tree, dict) else {}


def _as_list(tree: Tree) -> list[Tree]:
    return tree if isinstance(tree, list) else []


def _launches(tree: Tree, source: str, ports: Mapping[str, list[str]]) -> Iterator[Launch]:
    for name, service in _as_map(_as_map(tree).get("services")).items():
        yield from _of_service(str(name), _as_map(service), source)
    for labels, pod in _pods(tree, {}):
        published = [port for label in labels for port in ports.get(label, [])]
        if str(pod.get("hostNetwork", "")).lower() == "true":
            published.append(Placed("hostNetwork", line_of(pod["hostNetwork"])))
        for container in [*_as_list(pod.get("containers")), pod.get("mainContainer")]:
            yield from _of_container(_as_map(container), source, published)


def _pods(tree: Tree, around: Mapping[str, Tree]) -> Iterator[tuple[list[str], dict[str, Tree]]]:
    """Every pod specification, however deep an object has it, and the labels that stand beside it."""
    if isinstance(tree, list):
        for part in tree:
            yield from _pods(part, {})
    elif isinstance(tree, dict):
        if isinstance(tree.get("containers"), list) or isinstance(tree.get("mainContainer"), dict):
            labels = _as_map(_as_map(around.get("metadata")).get("labels"))
            yield [f"{name}={value}" for name, value in labels.items()], tree
        for name, part in tree.items():
            if name not in ("containers", "mainContainer"):
                yield from _pods(part, tree)


def _of_container(container: dict[str, Tree], source: str, published: list[str]) -> Iterator[Launch]:
    environment = _variables(_as_list(container.get("env")))
    whole = "envFrom" not in container
    host = [*_texts(_as_list(container.get("ports")), "hostPort")]
    words = [_filled(word, environment) for part in ("command", "args") for word in _words(container.get(part))]
    name = str(container.get("name", "?"))
    yield from _launch(words, container, environment, source, name, whole, [*published, *host])


def _variables(given: list[Tree]) -> dict[str, str]:
    """Of `env`; what comes from elsewhere (`valueFrom`) is not known."""
    found: dict[str, str] = {}
    for variable in map(_as_map, given):
        name, value = variable.get("name"), variable.get("value")
        if isinstance(name, str):
            found[str(name)] = value if isinstance(value, str) else Placed("$(valueFrom)", line_of(name))
    return found


def _texts(maps: list[Tree], name: str) -> Iterator[str]:
    """The texts that maps of a list have under a name."""
    return (text for entry in map(_as_map, maps) if isinstance(text := entry.get(name), str))


_REFERENCE = re.compile(r"\$\(([A-Za-z_]\w{0,200})\)")


def _filled(word: Placed, environment: Mapping[str, str]) -> Placed:
    """Kubernetes puts a container's variables in the place of `$(NAME)`; those that are not known stay."""
    return Placed(_REFERENCE.sub(lambda match: environment.get(match[1], match[0]), word), word.line)


def _of_service(name: str, service: dict[str, Tree], source: str) -> Iterator[Launch]:
    given = _as_list(service.get("ports"))
    ports = [*(port for port in given if isinstance(port, str)), *_texts(given, "published")]
    if str(service.get("network_mode", "")) == "host":
        ports.append(Placed("network_mode: host", line_of(service["network_mode"])))
    words = [*_words(service.get("entrypoint")), *_words(service.get("command"))]
    environment = _service_environment(service.get("environment"))
    yield from _launch(words, service, environment, source, name, "env_file" not in service, ports)


def _service_environment(given: Tree) -> dict[str, str]:
    """A list of `NAME=value`, or a map."""
    if isinstance(given, dict):
        return {str(name): value for name, value in given.items() if isinstance(value, str)}
    return dict(_exports([word for word in _as_list(given) if isinstance(word, Placed)]))


def _words(tree: Tree) -> list[Placed]:
    """A list of words as it is; one text is read as a shell would."""
    if isinstance(tree, str):
        return [word for command in commands(tree, unknown, line_of(tree) or 1) for word in command]
    return [word for word in _as_list(tree) if isinstance(word, Placed)]


def _launch(
    words: list[Placed],
    container: dict[str, Tree],
    environment: dict[str, str],
    source: str,
    name: str,
    whole: bool,
    ports: list[str],
) -> Iterator[Launch]:
    image = container.get("image", "")
    version = image_version(image) if isinstance(image, str) else None
    for part in _scripts(words, environment):
        found = find_program(part) or _image_program(image)
        if found:
            program, begin = found
            assigned = dict(_exports(part[:begin]))
            at = line_of(part[0]) if part else line_of(image)
            yield Launch(
                program,
                part[begin:],
                environment | assigned,
                source,
                at,
                name,
                version,
                whole,
                tuple(ports),
                "manifest",
            )


def _scripts(words: list[Placed], environment: Mapping[str, str]) -> Iterator[list[Placed]]:
    """`sh -c TEXT` is the commands of TEXT; what they export holds for those that follow."""
    at = next((i for i, word in enumerate(words) if word in ("-c", "-lc", "-ec", "-exc")), None)
    if at is None or at + 1 >= len(words):
        yield words
        return
    exported: list[Placed] = []
    text = words[at + 1].replace("$$", "$")  # compose's way to write what a shell is to see
    known = dict(environment)
    for command in commands(text, known.get, line_of(words[at + 1]) or 1):
        known |= dict(_exports(command))
        if command[0] == "export":
            exported += command[1:]
        else:
            yield [*exported, *command]


def _exports(words: list[Placed]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, equal, value = word.partition("=")
        if equal and name.isidentifier():
            yield name, Placed(value, line_of(word))


def _image_program(image: Tree) -> tuple[Program, int] | None:
    """vLLM's image starts its server without being told to."""
    if isinstance(image, str) and "vllm-openai" in image:
        return Program(Engine.VLLM), 0
    return None


def _service_ports(trees: list[Tree]) -> dict[str, list[str]]:
    """Ports that a Kubernetes Service shows to the world, by each label that it selects."""
    found: dict[str, list[str]] = {}
    for tree in trees:
        for item in [_as_map(tree), *map(_as_map, _as_list(_as_map(tree).get("items")))]:
            spec = _as_map(item.get("spec"))
            if str(item.get("kind", "")) != "Service" or str(spec.get("type", "")) not in ("NodePort", "LoadBalancer"):
                continue
            ports = [_target(_as_map(port)) for port in _as_list(spec.get("ports"))]
            for name, value in _as_map(spec.get("selector")).items():
                found.setdefault(f"{name}={value}", []).extend(ports)
    return found


def _target(port: dict[str, Tree]) -> str:
    target = port.get("targetPort", port.get("port", ""))
    return target if isinstance(target, Placed) else Placed("")
