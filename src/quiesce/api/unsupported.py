"""Parameters that this server knows by name and does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Only(msgspec.Struct, frozen=True):
    """The values that ask for what happens anyway; null always does."""

    values: tuple[Any, ...] = ()

    def accepts(self, value: Any) -> bool:
        """Whether `value` is one of them. 0 is not false, nor is 1 true, but 1.0 is 1."""
        return value is None or any(value == one and _sort(value) is _sort(one) for one in self.values)

    def refusal(self, name: str) -> str:
        """What to say of another value of the parameter `name`."""
        shown = " or ".join(msgspec.json.encode(value).decode() for value in self.values)
        return f"{name}: only {shown} is supported." if shown else f"{name} is not supported; leave it out."


def _sort(value: Any) -> type:
    return float if type(value) is int else type(value)


_NONE = Only()
_EMPTY = Only(([], {}, ""))
_NO, _YES = Only((False,)), Only((True,))
_ZERO, _ONE = Only((0,)), Only((1,))

UNSUPPORTED: Mapping[str, Only] = {
    # how many answers, and what they hold
    "best_of": _ONE, "echo": _NO, "suffix": Only(("",)), "top_logprobs": _ZERO,
    "prompt_logprobs": _NONE, "return_token_ids": _NO, "return_tokens_as_token_ids": _NO,
    "return_hidden_states": _NO, "return_logprob": _NO, "top_logprobs_num": _ZERO, "include_stop_str_in_output": _NO,
    "no_stop_trim": _NO, "skip_special_tokens": _YES, "spaces_between_special_tokens": _YES, "detokenize": _YES,
    "modalities": Only((["text"],)), "audio": _NONE, "verbosity": Only(("medium",)),
    # how tokens are drawn
    "repeat_penalty": _ONE,
    "repeat_last_n": _NONE, "length_penalty": _ONE, "encoder_repetition_penalty": _ONE, "no_repeat_ngram_size": _ZERO,
    "min_new_tokens": _ZERO, "min_length": _ZERO, "top_a": _ZERO, "tfs": _ONE,
    "tfs_z": _ONE, "typical_p": _ONE, "typical": _ONE, "epsilon_cutoff": _ZERO, "eta_cutoff": _ZERO,
    "top_n_sigma": _NONE, "mirostat": _ZERO, "mirostat_mode": _ZERO, "mirostat_tau": _NONE, "mirostat_eta": _NONE,
    "xtc_probability": _ZERO, "xtc_threshold": _NONE, "dry_multiplier": _ZERO, "dynatemp_range": _ZERO,
    "smoothing_factor": _ZERO, "penalty_alpha": _ZERO, "guidance_scale": _ONE,
    "bad_words": _EMPTY, "allowed_token_ids": _NONE, "use_beam_search": _NO, "num_beams": _ONE,
    "num_beam_groups": _ONE, "early_stopping": _NO, "do_sample": _YES, "num_return_sequences": _ONE,
    "logits_processors": _EMPTY, "logits_processor": _NONE, "custom_logit_processor": _NONE,
    # where it stops
    "stop_regex": _NONE, "max_time": _NONE, "max_tool_calls": _NONE, "stopping_criteria": _NONE,
    # its form
    "tools": _EMPTY, "tool_choice": Only(("none", "auto")), "functions": _EMPTY,
    "function_call": Only(("none", "auto")), "guided_whitespace_pattern": _NONE, "structural_tag": _NONE,
    "grammar": Only(("",)), "format": Only(("",)), "prediction": _NONE, "web_search_options": _NONE,
    # reasoning
    "reasoning_effort": _NONE, "reasoning": _NONE, "thinking": _NONE, "enable_thinking": _NONE,
    "thinking_budget": _NONE, "thinking_token_budget": _NONE,
    # the prompt
    "chat_template": _NONE, "chat_template_kwargs": Only(({},)), "documents": _EMPTY, "add_generation_prompt": _YES,
    "continue_final_message": _NO, "add_special_tokens": _NONE, "truncate_prompt_tokens": _NONE,
    "prompt_embeds": _NONE, "input_embeds": _NONE, "prompt_template": _NONE, "images": _EMPTY, "image_data": _NONE,
    "mm_processor_kwargs": _NONE,
    # the server
    "lora_path": _NONE, "lora_name": _NONE, "adapter_id": _NONE, "vllm_xargs": _NONE,
    "background": _NO, "previous_response_id": _NONE, "conversation": _NONE, "include": Only(([],)),
    "truncation": Only(("disabled",)),
}  # fmt: skip
"""Each with the values that change nothing."""

_LENGTH, _STOP, _PROMPT, _TOP = "max_tokens", "stop", "prompt (or messages)", "its fields at the top level of the body"

INSTEAD: Mapping[str, str] = {
    "best_of": "n with logprobs, and choose among the answers",
    **dict.fromkeys(
        ("max_new_tokens", "max_output_tokens", "max_length", "max_gen_len", "n_predict", "num_predict"), _LENGTH
    ),
    **dict.fromkeys(("maxtokens", "maxoutputtokens", "max_tokens_to_sample", "max_completion_length"), _LENGTH),
    **dict.fromkeys(("stop_sequences", "stopsequences", "stop_words", "stop_strings", "stop_strs"), _STOP),
    **dict.fromkeys(("stop_regex", "stopping_criteria"), "stop, which takes plain strings"),
    **dict.fromkeys(("eos_token_id", "stop_tokens", "stop_ids"), "stop_token_ids"),
    **dict.fromkeys(("input", "inputs", "input_text", "text", "instruction", "query", "question"), _PROMPT),
    **dict.fromkeys(("input_ids", "prompt_token_ids", "prompt_ids"), "prompt, which takes token ids as well"),
    **dict.fromkeys(("sampling_params", "parameters", "options", "generation_config", "extra_body"), _TOP),
    **dict.fromkeys(("system", "system_prompt", "instructions"), "a message with the role system"),
    **dict.fromkeys(("random_seed", "sampling_seed", "randomseed"), "seed"),
    **dict.fromkeys(("timeout_s", "request_timeout", "max_time"), "timeout, in seconds"),
    **dict.fromkeys(("temp",), "temperature"),
    **dict.fromkeys(("topp", "nucleus"), "top_p"),
    **dict.fromkeys(("topk",), "top_k"),
    "grammar": "guided_grammar",
    "format": "response_format",
    **dict.fromkeys(("do_sample",), "temperature; 0 is greedy"),
    **dict.fromkeys(("streaming",), "stream"),
    **dict.fromkeys(("ignore_eos_token", "ban_eos_token"), "ignore_eos"),
    **dict.fromkeys(("model_name", "engine", "model_id"), "model"),
    "functions": "tools",
    **dict.fromkeys(("previous_response_id", "conversation"), "input, with all turns: no response is kept here"),
    "function_call": "tool_choice",
    "messages": "prompt, or ask /v1/chat/completions",
    "prompt": "messages, or ask /v1/completions",
    "max_completion_tokens": _LENGTH,
}
"""Names from elsewhere, in lower case, and what they are called here."""

_RENAMED = {_LENGTH: "max_output_tokens", _PROMPT: "input"}
_CHATS = "/v1/chat/completions, which has it"

INSTEAD_IN_RESPONSES: Mapping[str, str] = {
    **{name: _RENAMED.get(instead, instead) for name, instead in INSTEAD.items()},
    **dict.fromkeys(("messages", "prompt"), "input"),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_output_tokens"),
    **dict.fromkeys(("system", "system_prompt"), "instructions"),
    **dict.fromkeys(("response_format", "format", "json_schema", "guided_json"), "text.format"),
    **dict.fromkeys(("n", "best_of"), "/v1/chat/completions, which has n"),
    **dict.fromkeys(("logprobs", "top_logprobs", "structured_outputs", "guided_regex", "guided_choice"), _CHATS),
    **dict.fromkeys(("guided_grammar", "regex", "ebnf"), _CHATS),
}
"""The same for `/v1/responses`."""

HARMLESS = frozenset(
    {
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
        "parallel_tool_calls", "include_reasoning", "separate_reasoning", "stream_reasoning", "reasoning_format",
        "cache_prompt", "guided_decoding_backend", "guided_decoding_disable_any_whitespace", "return_progress",
        "timings_per_token", "logprob_start_len", "log_metrics", "keep_alive",
    }
)  # fmt: skip
"""Parameters that change neither the answer nor who gets it, whatever their value."""
