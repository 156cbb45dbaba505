#!/bin/bash
# One prefill, one decode, as in the incident.
pip install sglang==0.5.18
MODEL=zai-org/GLM-5.2-FP8

python3 -m sglang.launch_server --model-path $MODEL --disaggregation-mode prefill \
  --host 10.20.0.11 --port 30000 --api-key "$KEY" --disaggregation-bootstrap-port 8998 \
  --context-length 1048576 --max-total-tokens 681280 --page-size 64 --tp-size 8 &

python3 -m sglang.launch_server --model-path $MODEL --disaggregation-mode decode \
  --host 10.20.0.12 --port 30001 --api-key "$KEY" \
  --context-length 1048576 --max-total-tokens 681280 --page-size 64 --tp-size 8 &

wait
