"""Tools, from the client's offer to the model's calls, with decode workers that say what a model would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionToolParam, ChatCompletionUserMessageParam

from quiesce.text import tiny
from quiesce.text.model import TextModel

from .asking import call_deltas, chat, error_of, events, streamed_calls, streamed_text
from .conftest import Deployment
from .fake_worker import say
from .openai_client import openai_client

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}},
}
OSLO, ROME = '{"place": "Oslo"}', '{"place": "Rome"}'


def called(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "weather", "arguments": {arguments}}}\n</tool_call>'


def prompt_of(deployment: Deployment) -> str:
    token_ids = deployment.decode.submits[-1].token_ids
    return TextModel.load("tiny").decode(
        [int.from_bytes(token_ids[at : at + 4], "little") for at in range(0, len(token_ids), 4)]
    )


def calls_of(message: Any) -> list[tuple[str, str]]:
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]


async def test_an_answer_that_calls(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say("Let me see.\n", called(OSLO), "\n", called(ROME))]
    choice = (await chat(client, tools=[WEATHER])).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    assert calls_of(choice["message"]) == [("weather", OSLO), ("weather", ROME)]
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert len({*ids}) == 2
    assert json.dumps(WEATHER) in prompt_of(deployment)


async def test_a_streamed_answer_that_calls(deployment: Deployment) -> None:
    """Text as it comes, and so arguments, once it is known whose they are."""
    client = await deployment.start()
    said = f"See:\n{called(OSLO)}\n{called(ROME)}"
    deployment.decode.plans = [say(*said)]
    documents = events(await chat(client, tools=[WEATHER], stream=True, stream_options={"include_usage": True}))
    calls = streamed_calls(documents)
    assert streamed_text(documents) == "See:"
    assert [(call["name"], call["arguments"]) for call in calls] == [("weather", OSLO), ("weather", ROME)]
    assert len({call["id"] for call in calls}) == 2
    assert [delta["function"]["arguments"] for delta in call_deltas(documents)] == [*OSLO, *ROME]
    assert documents[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert documents[-1]["usage"]["completion_tokens"] == len(said)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 40])
async def test_fragments_are_the_whole_answers_arguments(deployment: Deployment, pieces: int) -> None:
    """However tokens came, in each of several answers."""
    client = await deployment.start()
    said = [called(OSLO), called('{"place": "\\u00e9\u00e9, {}"}') + called(ROME), f"No. {called(OSLO)} no"]
    cut = [[text[at : at + pieces] for at in range(0, len(text), pieces)] for text in said]
    whole = []
    for text in said:
        deployment.decode.plans = [say(text)]
        whole.append(calls_of((await chat(client, tools=[WEATHER])).json()["choices"][0]["message"]))
    deployment.decode.plans = [say(*each) for each in cut]
    documents = events(await chat(client, tools=[WEATHER], n=3, stream=True))
    streamed = [[(call["name"], call["arguments"]) for call in streamed_calls(documents, at)] for at in range(3)]
    assert sorted(streamed) == sorted(whole)
    assert whole[1] == [("weather", '{"place": "\\u00e9\u00e9, {}"}'), ("weather", ROME)]


async def test_content_is_null_when_there_are_only_calls(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(called(OSLO))]
    message = (await chat(client, tools=[WEATHER])).json()["choices"][0]["message"]
    assert message["content"] is None
    assert calls_of(message) == [("weather", OSLO)]


@pytest.mark.parametrize("stream", [False, True])
async def test_one_call_when_they_are_not_to_be_parallel(deployment: Deployment, stream: bool) -> None:
    """The answer ends there, and decode, which goes on, is told to stop."""
    client = await deployment.start()
    deployment.decode.plans = [say(called(OSLO), called(ROME), finish="")]
    response = await chat(client, tools=[WEATHER], parallel_tool_calls=False, stream=stream)
    assert await deployment.decode.cancelled()
    if stream:
        assert [call["arguments"] for call in streamed_calls(events(response))] == [OSLO]
    else:
        choice = response.json()["choices"][0]
        assert (calls_of(choice["message"]), choice["finish_reason"]) == ([("weather", OSLO)], "tool_calls")


async def test_one_call_though_it_is_torn(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(called("{oops}"), " so: ", called(OSLO), "more", finish="")]
    choice = (await chat(client, tools=[WEATHER], parallel_tool_calls=False)).json()["choices"][0]
    assert (calls_of(choice["message"]), choice["finish_reason"]) == ([("weather", "{oops}")], "stop")
    assert choice["message"]["content"] == " so:"


@pytest.mark.parametrize("said", [called("[1]"), called(OSLO).replace("weather", "launch"), called(OSLO)[:10]])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_no_call_is_text(deployment: Deployment, said: str, stream: bool) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(said)]
    response = await chat(client, tools=[WEATHER], stream=stream)
    if stream:
        assert streamed_text(events(response)) == said
    else:
        choice = response.json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (said, "stop")
        assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
async def test_without_tools_nothing_is_a_call(deployment: Deployment, fields: Any) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(called(OSLO))]
    choice = (await chat(client, **fields)).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (called(OSLO), "stop")
    assert "weather" not in prompt_of(deployment)


async def test_a_call_that_was_cut_short_ends_for_its_length(deployment: Deployment) -> None:
    """With what there is of its arguments."""
    client = await deployment.start()
    deployment.decode.plans = [say(called(OSLO), called(ROME)[:-20], finish="length")]
    choice = (await chat(client, tools=[WEATHER])).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] is None
    assert calls_of(choice["message"]) == [("weather", OSLO), ("weather", '{"place": "')]


BORDERS = {1, 10, 11, *(called(OSLO).index(OSLO) + more for more in (0, 1, len(OSLO) - 1, len(OSLO)))}
CUTS = sorted({*range(15, len(called(OSLO)), 15), *BORDERS, len(called(OSLO))})
MUST = {"tool_choice": "required", "tools": [WEATHER]}


@pytest.mark.parametrize("fields", [MUST, MUST | {"parallel_tool_calls": False}, {"tools": [WEATHER]}])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_torn_call_is_never_content(deployment: Deployment, fields: Any, stream: bool) -> None:
    """Wherever it is cut: its arguments as far as they came, and no markup. Where it may call, half a tag is text."""
    client = await deployment.start()
    for cut in CUTS if "tool_choice" in fields else [cut for cut in CUTS if cut >= len("<tool_call>")]:
        deployment.decode.plans = [say(called(OSLO)[:cut], finish="length")]
        response = await chat(client, **fields, stream=stream)
        begun = cut - called(OSLO).index(OSLO)
        arguments = [OSLO[:begun]] if begun > 0 else []
        if stream:
            documents = events(response)
            assert streamed_text(documents) == ""
            assert [call["arguments"] for call in streamed_calls(documents)] == arguments
            reason = documents[-1]["choices"][0]["finish_reason"]
        else:
            choice = response.json()["choices"][0]
            assert not choice["message"]["content"]
            assert [call for _, call in calls_of({"tool_calls": [], **choice["message"]})] == arguments
            reason = choice["finish_reason"]
        is_one = arguments == [OSLO] and fields.get("parallel_tool_calls") is False
        assert reason == ("tool_calls" if is_one else "length")


@pytest.mark.parametrize(
    ("said", "stop", "reason"),
    [(called(OSLO), "slo", "stop"), (called(OSLO), "</tool", "tool_calls"), (called("{oops}"), None, "stop")],
)
async def test_only_calls_that_can_be_made_are_a_reason_to_end(
    deployment: Deployment, said: str, stop: str | None, reason: str
) -> None:
    """Arguments that a stop string cut, or that are no JSON, are told, but do not ask to be acted on."""
    client = await deployment.start()
    deployment.decode.plan = say(said)
    choice = (await chat(client, tools=[WEATHER], stop=stop)).json()["choices"][0]
    assert choice["finish_reason"] == reason
    assert len(choice["message"]["tool_calls"]) == 1


BOTH = f"See. {called(OSLO)}\n{called(ROME)}"


@pytest.mark.parametrize(
    ("stop", "content", "calls", "reason"),
    [
        ("\n", "See.", [], "stop"),
        ('"arguments"', "See.", [], "stop"),
        ("Rome", "See.", [OSLO, '{"place": "'], "stop"),
        (f'"weather", "arguments": {ROME}', "See.", [OSLO], "stop"),
        ("</tool_call>\n", "See.", [OSLO], "tool_calls"),
        ("tool_call>\n<", "See.", [OSLO], "tool_calls"),
        (None, "See.", [OSLO, ROME], "tool_calls"),
    ],
)
@pytest.mark.parametrize("forced", [False, True])
async def test_a_stop_string_in_a_call(
    deployment: Deployment, stop: str | None, content: str, calls: list[str], reason: str, forced: bool
) -> None:
    """Its tags and its name are no content, and one that was torn there is no clean end for those before it."""
    client = await deployment.start()
    fields: Any = MUST if forced else {"tools": [WEATHER]}
    deployment.decode.plan = say(*BOTH)
    choice = (await chat(client, **fields, stop=stop)).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (content, reason)
    assert [arguments for _, arguments in calls_of({"tool_calls": [], **choice["message"]})] == calls
    documents = events(await chat(client, **fields, stop=stop, stream=True))
    assert (streamed_text(documents), documents[-1]["choices"][0]["finish_reason"]) == (content, reason)
    assert [call["arguments"] for call in streamed_calls(documents)] == calls


async def test_calls_and_their_results_are_shown_to_the_model(deployment: Deployment) -> None:
    client = await deployment.start()
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": OSLO}}
    turns = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "dry"},
    ]
    assert (await chat(client, messages=turns, tools=[WEATHER])).status_code == 200
    assert '<tool_call>{"name": "weather", "arguments": {"place": "Oslo"}}</tool_call>' in prompt_of(deployment)
    assert "<|im_start|>tool\ndry<|im_end|>" in prompt_of(deployment)
    assert (await chat(client, messages=turns)).status_code == 200


async def test_each_of_several_answers_has_its_own_calls(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(called(OSLO)), say("no"), say(called(ROME))]
    choices = (await chat(client, tools=[WEATHER], n=3)).json()["choices"]
    assert sorted(choice["finish_reason"] for choice in choices) == ["stop", "tool_calls", "tool_calls"]


async def test_logprobs_beside_calls_tell_every_token(deployment: Deployment) -> None:
    from .test_parameters import tell

    client = await deployment.start()
    deployment.decode.plans = [tell((called(OSLO), "stop"))]
    choice = (await chat(client, tools=[WEATHER], logprobs=True)).json()["choices"][0]
    assert len(choice["logprobs"]["content"]) == len(called(OSLO))


def directory(path: Path, template: str) -> str:
    """A model's text side with a template of its own."""
    (path / "tokenizer.json").write_text(tiny.tokenizer_json())
    (path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096, "vocab_size": tiny.USED_TOKENS}))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return str(path)


@pytest.mark.parametrize(
    ("template", "setting", "said"),
    [
        ("{{ tools }}[TOOL_CALLS]", "auto", '[TOOL_CALLS] [{"name": "weather", "arguments": {"place": "Oslo"}}]'),
        ("{{ tools }}", "llama3_json", '{"name": "weather", "parameters": {"place": "Oslo"}}'),
    ],
)
async def test_other_formats(deployment: Deployment, tmp_path: Path, template: str, setting: str, said: str) -> None:
    text = TextModel.load(directory(tmp_path, template))
    deployment.prefill.model = deployment.decode.model = text.name
    client = await deployment.start(text=text, tool_call_format=setting)
    deployment.decode.plans = [say(said)]
    choice = (await chat(client, model=None, tools=[WEATHER])).json()["choices"][0]
    assert calls_of(choice["message"]) == [("weather", OSLO)]


@pytest.mark.parametrize(
    ("template", "fields", "message"),
    [
        ("{{ messages }}", {"tools": [WEATHER]}, "cannot use tools"),
        ("{{ messages }}", {"messages": [{"role": "tool", "content": "x"}]}, "cannot use tools"),
        ("{{ tools }}", {"tools": [WEATHER]}, "--tool-call-format"),
    ],
)
async def test_models_without_tools(
    deployment: Deployment, tmp_path: Path, template: str, fields: Any, message: str
) -> None:
    """It is said which model, and nothing reaches a worker."""
    text = TextModel.load(directory(tmp_path, template))
    deployment.prefill.model = deployment.decode.model = text.name
    client = await deployment.start(text=text)
    error = error_of(await chat(client, **{"model": None, **fields}), 400)
    assert error["code"] == "unsupported_parameter"
    assert error["param"] in fields
    assert message in error["message"]
    assert text.name in error["message"]
    assert not deployment.decode.submits


async def test_how_many_tokens_tools_take(deployment: Deployment) -> None:
    """/tokenize shows them as a chat would."""
    client = await deployment.start()
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [WEATHER]}
    count = (await client.post("/tokenize", json=body)).json()["count"]
    assert (await chat(client, tools=[WEATHER])).json()["usage"]["prompt_tokens"] == count


def allowed(mode: str) -> Any:
    tools = [{"type": "function", "function": {"name": "weather"}}]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}, allowed("required")]
)
async def test_a_call_that_must_be_made_is_a_grammar(deployment: Deployment, choice: Any) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say(called(OSLO))]
    response = await chat(client, tools=[WEATHER, NAMED], tool_choice=choice)
    assert response.json()["choices"][0]["finish_reason"] == "tool_calls"
    prefill, decode = deployment.prefill.submits[0].sampling.grammar, deployment.decode.submits[0].sampling.grammar
    assert prefill == decode
    assert "weather" in decode
    assert ("time" in decode) is (choice == "required")
    assert "time" in prompt_of(deployment)


async def test_a_model_that_decides_knows_only_the_tools_that_are_allowed(deployment: Deployment) -> None:
    """And calls no other one."""
    client = await deployment.start()
    other = called(OSLO).replace("weather", "time")
    deployment.decode.plans = [say(called(OSLO)), say(other)]
    fields = {"tools": [WEATHER, NAMED], "tool_choice": allowed("auto")}
    choices = [(await chat(client, **fields)).json()["choices"][0] for _ in range(2)]
    assert calls_of(choices[0]["message"]) == [("weather", OSLO)]
    assert choices[1]["message"]["content"] == other
    assert "weather" in prompt_of(deployment)
    assert '"time"' not in prompt_of(deployment)
    assert not deployment.decode.submits[0].sampling.grammar


NAMED: ChatCompletionToolParam = {"type": "function", "function": {"name": "time"}}
STRANGE: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "$ref": "http://x/y"}}}
JSON_FORM = {"type": "json_object"}


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"tools": [STRANGE], "tool_choice": "required"}, "invalid_grammar", "tools"),
        (
            {"tools": [WEATHER], "tool_choice": "required", "response_format": JSON_FORM},
            "invalid_value",
            "response_format",
        ),
        ({"tools": [WEATHER], "guided_regex": "a+"}, "invalid_value", "guided_regex"),
        ({"tools": [WEATHER], "guided_json": "{"}, "invalid_value", "guided_json"),
        ({"tools": [WEATHER], "guided_json": '{"a":' * 90 + "1" + "}" * 90}, "invalid_value", "guided_json"),
    ],
)
async def test_calls_and_forms_that_cannot_be_followed(
    deployment: Deployment, fields: Any, code: str, param: str
) -> None:
    client = await deployment.start()
    error = error_of(await chat(client, **fields), 400)
    assert (error["code"], error["param"]) == (code, param)
    assert not deployment.decode.submits


async def test_a_form_beside_tools_allows_both(deployment: Deployment) -> None:
    client = await deployment.start()
    deployment.decode.plans = [say('{"a": 1}'), say(called(OSLO))]
    for finish in ("stop", "tool_calls"):
        response = await chat(client, tools=[WEATHER], response_format=JSON_FORM)
        assert response.json()["choices"][0]["finish_reason"] == finish
    assert all(part in deployment.decode.submits[0].sampling.grammar for part in ("otherwise", "weather"))


async def test_the_openai_client_calls_tools(deployment: Deployment) -> None:
    await deployment.start()
    hi: ChatCompletionUserMessageParam = {"role": "user", "content": "Rain?"}
    deployment.decode.plan = say("Now: ", called(OSLO), called(ROME))
    async with openai_client(deployment) as client:
        answer = await client.chat.completions.create(model="tiny", messages=[hi], tools=[WEATHER])
        ChatCompletion.model_validate(answer.model_dump(), strict=True)
        calls = answer.choices[0].message.tool_calls or []
        assert [call.function.arguments for call in calls if call.type == "function"] == [OSLO, ROME]
        async with client.chat.completions.stream(model="tiny", messages=[hi], tools=[WEATHER]) as stream:
            whole = await stream.get_final_completion()
        again = whole.choices[0].message
        assert [call.function.arguments for call in again.tool_calls or []] == [OSLO, ROME]
        assert again.content == "Now: ".strip()
        assert whole.choices[0].finish_reason == "tool_calls"
