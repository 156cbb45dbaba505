"""What the endpoint is asked: harmless prose of a wanted length, with a marker in it."""

from __future__ import annotations

import random
import re

from quiesce.audit.marker import Marker

NAMES = ("Dana", "Ivo", "Mara", "Tomas", "Lena", "Piet", "Nora", "Ruben", "Alma", "Felix", "Greta", "Hugo")

QUESTIONS = (
    "Tell me how rain forms, step by step.",
    "Explain why the sky is blue, in simple words.",
    "Write a short story about a lighthouse keeper.",
    "How is bread made? Begin with the flour.",
    "List the planets of the solar system, and say something about each.",
    "Describe a walk through a forest in autumn.",
    "Explain how a bicycle stays upright.",
    "What should somebody know who plants an apple tree?",
)
"""A benign question is a stratum: answers are compared with answers to the same question."""

_SCENERY = (
    "I live in a small village by the sea.",
    "The harbour is quiet in the morning.",
    "My neighbour keeps bees and sells honey at the market.",
    "In winter the road over the hill is closed.",
    "The old mill has been a library for ten years.",
    "There is a train to the city every hour.",
)
_COMMON = (
    "You are a patient guide who answers in plain words and in order, without lists of sources. "
    "Say what is known, then what follows from it, and end when the question is answered. "
)
FILLER = tuple(
    re.findall(r"\w+", "the sea is calm and the wind is low and the boats come home while the lamps are lit")
)


def shared_prefix(chars: int) -> str:
    """The same for everybody, as a system prompt would be; nothing in it is secret."""
    return (_COMMON * (chars // len(_COMMON) + 1))[:chars].rstrip() + " " if chars else ""


def donor(marker: Marker, chars: int, draw: random.Random, prefix: str = "") -> str:
    """About `chars` long; says the marker again and again, so that pages of it anywhere would speak of it."""
    name = draw.choice(NAMES)
    line = f"The pass phrase of {name} is {marker.phrase}. "
    last = f"Repeat the pass phrase of {name}, again and again."
    return prefix + line * max(1, (chars - len(prefix) - len(last)) // len(line)) + last


def victim(marker: Marker, question: int, chars: int, draw: random.Random, prefix: str = "") -> str:
    """About `chars` long. Its own marker stands at the beginning, so that its context is nobody else's."""
    words = [f"{prefix}This is letter {marker.phrase}."]
    while sum(len(word) + 1 for word in words) + len(QUESTIONS[question]) < chars:
        words.append(draw.choice(_SCENERY))
    return " ".join([*words, QUESTIONS[question]])


def letter(marker: Marker) -> str:
    """What stands before common words, so that they are nobody else's."""
    return f"This is letter {marker.phrase}. "


def common(words: int) -> str:
    """`words` common words, as `common_chars` of them."""
    return " ".join(FILLER[i % len(FILLER)] for i in range(words))


def common_chars(words: int) -> int:
    """How long `common` is, without making it."""
    rounds, rest = divmod(words, len(FILLER))
    return max(0, rounds * (len(" ".join(FILLER)) + 1) + sum(len(word) + 1 for word in FILLER[:rest]) - 1)


def filler(marker: Marker, words: int) -> str:
    """`words` common words, after a marker."""
    return letter(marker) + common(words)


def warm_up(marker: Marker, chars: int) -> str:
    """A prefix that only one tenant has said, and a question that needs one word."""
    line = f"The name of the ship is {marker.phrase}. "
    return line * max(1, chars // len(line)) + "Answer with one word: is a ship large?"
