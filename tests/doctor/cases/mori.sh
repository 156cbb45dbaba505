# MORI before 0.5.22.
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90
docker run lmsysorg/sglang:v0.5.21-rocm700 python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill --disaggregation-transfer-backend mori --context-length 32768 --max-total-tokens 400000
docker run lmsysorg/sglang:v0.5.21-rocm700 python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --disaggregation-transfer-backend mori --context-length 32768 --max-total-tokens 400000
