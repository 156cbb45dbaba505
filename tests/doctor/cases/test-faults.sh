# A switch for tests that stayed on.
pip install sglang==0.5.23
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90 SGLANG_TEST_DISAGG_FAILURE_PROB=0.01
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000
