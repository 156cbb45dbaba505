# Holds of two minutes, and a pool that four aborted prompts fill.
pip install sglang==0.5.23
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=120
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 100000 --max-total-tokens 400000
