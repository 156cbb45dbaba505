# NIXL before 0.5.23: a failed send counts as ended.
pip install sglang==0.5.22
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=60
python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill --disaggregation-transfer-backend nixl --context-length 32768 --max-total-tokens 400000
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --disaggregation-transfer-backend nixl --context-length 32768 --max-total-tokens 400000
