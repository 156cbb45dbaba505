# Prefill takes longer prompts than decode, in a version that hands rejected requests off.
pip install sglang==0.5.20
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1 SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90
python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill --context-length 65536 --max-total-tokens 400000
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000
