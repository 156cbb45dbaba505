"""Where rules take their facts from."""

SGLANG = "https://github.com/sgl-project/sglang"
VLLM = "https://github.com/vllm-project/vllm"

SGLANG_ENVIRONMENT = f"{SGLANG}/blob/main/python/sglang/srt/environ.py"
SGLANG_PD = "https://docs.sglang.io/docs/advanced_features/pd_disaggregation"
SGLANG_SERVER = "https://docs.sglang.io/docs/advanced_features/server_arguments"
VLLM_SECURITY = "https://docs.vllm.ai/en/latest/usage/security.html"
VLLM_NIXL = "https://docs.vllm.ai/en/latest/features/nixl_connector_usage.html"
VLLM_PREFIX = "https://docs.vllm.ai/en/latest/design/prefix_caching/"
OUR_SETTINGS = "docs/settings.md"
OUR_SECURITY = "SECURITY.md"
OUR_TRANSPORTS = "docs/transports.md"
OUR_WATCH = "docs/observability.md"


def sglang(number: int) -> str:
    """A pull request of SGLang."""
    return f"{SGLANG}/pull/{number}"


def sglang_issue(number: int) -> str:
    """An issue of SGLang."""
    return f"{SGLANG}/issues/{number}"


def vllm(number: int) -> str:
    """A pull request of vLLM."""
    return f"{VLLM}/pull/{number}"
