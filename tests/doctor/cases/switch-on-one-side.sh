# The switch is set for decode alone.
python -m sglang.launch_server --model-path m --disaggregation-mode prefill --context-length 32768 --max-total-tokens 400000
SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1 SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90 \
  python -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000
