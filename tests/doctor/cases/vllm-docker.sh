# The image in a shell, with everything in one line.
docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.20.0 --model m --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
