# On by default in 0.5.23, and switched off.
docker run --gpus all -e SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=0 lmsysorg/sglang:v0.5.23-cu129 \
  python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000
