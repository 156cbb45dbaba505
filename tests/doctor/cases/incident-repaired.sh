#!/bin/bash
# The same pair, repaired.
pip install sglang==0.5.23
MODEL=zai-org/GLM-5.2-FP8

export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=120
export SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES=1024

python3 -m sglang.launch_server --model-path $MODEL --disaggregation-mode prefill \
  --host 10.20.0.11 --port 30000 --api-key "$KEY" --disaggregation-bootstrap-port 8998 \
  --context-length 681280 --max-total-tokens 681280 --page-size 64 --tp-size 8 &

python3 -m sglang.launch_server --model-path $MODEL --disaggregation-mode decode \
  --host 10.20.0.12 --port 30001 --api-key "$KEY" \
  --context-length 681280 --max-total-tokens 681280 --page-size 64 --tp-size 8 &

wait
