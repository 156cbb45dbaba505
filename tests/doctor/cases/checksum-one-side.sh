# A checksum on prefill alone, and pages of another size.
pip install sglang==0.5.23
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90
python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill --context-length 32768 --max-total-tokens 400000 --disaggregation-enable-kv-checksum --page-size 64
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000 --page-size 32
