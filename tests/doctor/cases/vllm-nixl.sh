# Healthy: vLLM's own example on two machines, with keys.
pip install vllm==0.20.1
export VLLM_NIXL_SIDE_CHANNEL_HOST=10.1.0.5
vllm serve m --port 8100 --host 10.1.0.5 --api-key $KEY --max-model-len 131072 --kv-transfer-config \
  '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_load_failure_policy":"fail"}'
VLLM_NIXL_SIDE_CHANNEL_HOST=10.1.0.6 vllm serve m --port 8200 --host 10.1.0.6 --api-key $KEY --max-model-len 131072 --kv-transfer-config '{
    "kv_connector": "NixlConnector",
    "kv_role": "kv_consumer"
  }'
