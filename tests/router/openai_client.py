"""OpenAI's own client."""

from __future__ import annotations

import openai

from .conftest import Deployment


def openai_client(deployment: Deployment) -> openai.AsyncOpenAI:
    """Towards a router that was started."""
    assert deployment.server is not None
    base_url = f"http://127.0.0.1:{deployment.server.port}/v1"
    http = openai.DefaultAsyncHttpxClient(trust_env=False)
    return openai.AsyncOpenAI(base_url=base_url, api_key="none", http_client=http)
