"""`/v1/responses`: one answer as items, whole and as events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseFunctionToolCall
from pydantic import TypeAdapter

from quiesce.protocol.dispatch import Tokens
from quiesce.protocol.messages import Fault

from .asking import error_of, until_said
from .conftest import Deployment
from .fake_worker import fail, say, words
from .openai_client import openai_client
from .test_tools import OSLO, ROME, called, prompt_of

RESPONSES = "/v1/responses"
RAIN = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


async def respond(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(RESPONSES, json={"model": "tiny", "input": "hi"} | fields)


def told(response: httpx.Response) -> list[Any]:
    """The stream's events, whose names and numbers are checked."""
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in response.text.split("\n\n") if block]
    assert all(len(block) == 2 for block in blocks)
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [event["type"] for event in events] == [name.removeprefix("event: ") for name, _ in blocks]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def without_ids(value: Any) -> Any:
    """What is new each time, left out."""
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key not in ("id", "call_id", "created_at")}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


async def test_a_response_in_one_document(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("he", "llo", cached=3)]
    response = await respond(
        client, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5, max_output_tokens=9
    )
    answer = response.json()
    (message,) = answer["output"]
    assert message["id"].startswith("msg_")
    assert without_ids(message) == {
        "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
    }  # fmt: skip
    assert answer["id"].startswith("resp_")
    assert (answer["object"], answer["status"], answer["store"]) == ("response", "completed", False)
    assert (answer["instructions"], answer["metadata"], answer["temperature"]) == ("Be brief.", {"a": "b"}, 0.5)
    assert answer["max_output_tokens"] == 9
    prompt = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt_of(deployment) == prompt
    input_tokens = answer["usage"]["input_tokens"]
    assert answer["usage"] == {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + 5,
    }


async def test_the_events_of_a_text(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("he", "llo")]
    response = await respond(client, stream=True)
    events = told(response)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["delta"] for event in events[4:6]] == ["he", "llo"]
    assert events[6]["text"] == events[7]["part"]["text"] == "hello"
    (message,) = events[-1]["response"]["output"]
    assert events[8]["item"] == message
    assert {event["item_id"] for event in events if "item_id" in event} == {message["id"]}
    assert events[0]["response"]["status"] == events[1]["response"]["status"] == "in_progress"
    assert events[0]["response"]["id"] == events[-1]["response"]["id"]
    assert events[0]["response"]["usage"] is None
    assert events[-1]["response"]["usage"]["output_tokens"] == 5
    assert "[DONE]" not in response.text


SAID = [
    "hello", "", f"See:\n{called(OSLO)}\n{called(ROME)}", called(OSLO), f"{called(OSLO)} and so", called("["),
    called("{oops}"), called(OSLO)[:20], called(OSLO)[:-25], called(OSLO) + called(ROME)[:-25],
]  # fmt: skip


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_the_last_event_is_the_whole_document(deployment: Deployment, said: str, finish: str) -> None:
    """However the tokens come, and each item is the sum of its events."""
    client = await deployment.start()
    deployment.decode.plans = [say(said, finish=finish), say(*said or ("",), finish=finish)]
    whole = (await respond(client, tools=[RAIN])).json()
    events = told(await respond(client, tools=[RAIN], stream=True))
    last = events[-1]["response"]
    assert without_ids(last) == without_ids(whole)
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == last["output"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == list(range(len(last["output"])))
    for item in last["output"]:
        deltas = "".join(event["delta"] for event in events if event.get("item_id") == item["id"] and "delta" in event)
        assert deltas == (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_are_items(deployment: Deployment, stream: bool) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(f"See:\n{called(OSLO)}\n{called(ROME)} so")]
    response = await respond(client, tools=[RAIN], stream=stream)
    answer = told(response)[-1]["response"] if stream else response.json()
    assert [item["type"] for item in answer["output"]] == ["message", "function_call", "function_call", "message"]
    assert [item["arguments"] for item in answer["output"][1:3]] == [OSLO, ROME]
    assert [item["content"][0]["text"] for item in answer["output"][::3]] == ["See:", " so"]
    assert (answer["status"], answer["tools"][0]["name"]) == ("completed", "weather")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_was_cut_short(deployment: Deployment, stream: bool) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("hel", finish="length")]
    response = await respond(client, max_output_tokens=3, stream=stream)
    events = told(response) if stream else []
    answer = events[-1]["response"] if stream else response.json()
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["status"] == "incomplete"
    assert [event["type"] for event in events[-1:]] == ["response.incomplete"] * stream


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_was_cut_short(deployment: Deployment, stream: bool) -> None:
    """What there is of its arguments; before there are some, nothing."""
    client = await deployment.start()
    deployment.decode.plans = [say(called(OSLO)[:cut], finish="length") for cut in (-25, 20)]
    answers = []
    for _ in range(2):
        response = await respond(client, tools=[RAIN], tool_choice="required", stream=stream)
        answers.append(told(response)[-1]["response"] if stream else response.json())
    assert [answer["status"] for answer in answers] == ["incomplete"] * 2
    (call,), (message,) = (answer["output"] for answer in answers)
    assert (call["status"], call["name"], call["arguments"]) == ("incomplete", "weather", '{"plac')
    assert message["content"][0]["text"] == ""


async def test_deltas_come_as_tokens_come(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("first", finish="")]
    async with client.stream("POST", RESPONSES, json={"input": "hi", "stream": True}) as response:
        lines = response.aiter_lines()
        await until_said(lines, "first")
        submit = await deployment.decode.submitted()
        deployment.decode.send(Tokens(submit.request, words("second"), "stop"))
        assert any("second" in line for line in [line async for line in lines])


async def test_a_stream_that_fails_ends_with_an_error_event(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("first", finish="")]
    asked = asyncio.ensure_future(respond(client, stream=True))
    submit = await deployment.decode.submitted()
    deployment.decode.fail(submit.request, Fault.DECODE)
    *_, before, error = told(await asked)
    assert before["type"] == "response.output_text.delta"
    assert {"type": "error", "code": "boom", "message": "It went boom.", "param": None}.items() <= error.items()


async def test_a_failure_before_the_stream_is_a_document(deployment: Deployment) -> None:
    client = await deployment.start(retries=0)
    deployment.decode.plans = [fail()]
    assert error_of(await respond(client, stream=True), 500)["code"] == "boom"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"store": True}, 400, "store"),
        ({"previous_response_id": "resp_1"}, 400, "previous_response_id"),
        ({"input": "x" * 5000}, 400, "input"),
        ({"max_output_tokens": 4096}, 400, "input"),
        ({"model": "other"}, 404, "model"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, 400, "input[0].content"),
    ],
)
async def test_errors_have_openais_shape(deployment: Deployment, fields: Any, status: int, param: str) -> None:
    client = await deployment.start()
    assert error_of(await respond(client, **fields), status)["param"] == param
    assert not deployment.decode.submits


async def test_the_openai_client(deployment: Deployment) -> None:
    """Its types are checked against what came, not merely filled; a conversation goes on with what came back."""
    await deployment.start()
    weather: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": True}
    deployment.decode.plan = say("Now: ", called(OSLO))
    async with openai_client(deployment) as client:
        answer = await client.responses.create(model="tiny", input="Rain?", tools=[weather], store=False)
        TypeAdapter(Response).validate_python(answer.model_dump(by_alias=True, warnings="error"))
        assert answer.output_text == "Now:"
        call = answer.output[1]
        assert isinstance(call, ResponseFunctionToolCall)
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "dry"}
        turns: Any = [{"role": "user", "content": "Rain?"}, *[item.model_dump() for item in answer.output], result]
        again = await client.responses.create(model="tiny", input=turns, tools=[weather])
        assert again.status == "completed"
        assert '<tool_call>{"name": "weather", "arguments": {"place": "Oslo"}}</tool_call>' in prompt_of(deployment)
        async with client.responses.stream(model="tiny", input="Rain?", tools=[weather]) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert final.output_text == "Now:"
        with pytest.raises(openai.BadRequestError, match="no response is kept"):
            await client.responses.create(model="tiny", input="hi", previous_response_id="resp_1")
