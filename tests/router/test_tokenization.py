from __future__ import annotations

from typing import Any

import pytest

from quiesce import __version__

from .asking import error_of
from .conftest import Deployment


async def test_text_to_tokens_and_back(deployment: Deployment) -> None:
    """No worker is needed for it."""
    deployment.workers = []
    client = await deployment.start(ready=False)
    told = (await client.post("/tokenize", json={"prompt": "hé", "return_token_strs": True})).json()
    assert told == {
        "tokens": [104, 0xC3, 0xA9],
        "count": 3,
        "max_model_len": 1 << 20,
        "token_strs": ["h", "\ufffd", "\ufffd"],
    }
    assert (await client.post("/detokenize", json={"tokens": told["tokens"]})).json() == {"prompt": "hé"}
    assert (await client.post("/detokenize", json={"tokens": []})).json() == {"prompt": ""}


@pytest.mark.parametrize(("generation", "end"), [(True, "<|im_start|>assistant\n"), (False, "hi<|im_end|>\n")])
async def test_a_chat_to_tokens(deployment: Deployment, generation: bool, end: str) -> None:
    client = await deployment.start()
    body = {"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": generation}
    told = (await client.post("/tokenize", json=body)).json()
    assert told["token_strs"] is None
    assert told["max_model_len"] == 4096
    text = (await client.post("/detokenize", json={"tokens": told["tokens"]})).json()["prompt"]
    assert text.endswith(end)


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "hi"}]}, 400, "prompt"),
        ("/tokenize", {"prompt": "x" * 5000}, 400, "prompt"),
        ("/tokenize", {"prompt": "x", "model": "gpt-9"}, 404, "model"),
        ("/tokenize", {"prompt": 5}, 400, "prompt"),
        ("/detokenize", {"tokens": [259]}, 400, "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [1] * 4097}, 400, "tokens"),
        ("/detokenize", {}, 400, "tokens"),
    ],
)
async def test_refusals(deployment: Deployment, path: str, body: Any, status: int, param: str) -> None:
    client = await deployment.start()
    assert error_of(await client.post(path, json=body), status)["param"] == param


async def test_they_need_the_key_and_the_version_does_not(deployment: Deployment) -> None:
    client = await deployment.start(api_key=("k",))
    for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})):
        error_of(await client.post(path, json=body), 401)
    assert (await client.get("/version")).json() == {"version": __version__}
