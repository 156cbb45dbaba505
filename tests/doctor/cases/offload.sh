# Decode offload, and decode's prefix cache with it.
pip install sglang==0.5.23
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000 \
  --disaggregation-decode-enable-offload-kvcache --hicache-storage-backend file --disaggregation-decode-enable-radix-cache
