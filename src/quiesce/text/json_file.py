"""JSON files that come with a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quiesce.errors import ConfigurationError


def read_json(path: Path, required: bool = True) -> dict[str, Any]:
    """The object in a file; empty when it is not `required` and not there. Raises ConfigurationError."""
    if not required and not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError([f"{path} cannot be read: {error}"]) from error
    if not isinstance(content, dict):
        raise ConfigurationError([f"{path} holds no JSON object"])
    return content
