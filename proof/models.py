"""The models, by name."""

from __future__ import annotations

from proof.model import Model
from proof.pull.model import PULL
from proof.push.model import PUSH
from proof.staged.model import STAGED

MODELS: dict[str, Model] = {each.name: each for each in (PUSH, PULL, STAGED)}
