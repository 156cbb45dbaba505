# Prefill may write for two minutes, decode holds for 90 seconds.
pip install sglang==0.5.23
MC_TRANSFER_TIMEOUT=120 sglang serve m --disaggregation-mode prefill --context-length 32768 --max-total-tokens 400000
SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90 sglang serve m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000
python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://127.0.0.1:30000 --decode http://127.0.0.1:30001 --request-timeout-secs 60
