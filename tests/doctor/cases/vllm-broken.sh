# A short lease, everything open, and development endpoints.
pip install vllm==0.14.0
export VLLM_NIXL_SIDE_CHANNEL_HOST=0.0.0.0 VLLM_SERVER_DEV_MODE=1
vllm serve m --port 8100 --max-model-len 32768 --kv-transfer-config \
  '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_load_failure_policy":"recompute","kv_connector_extra_config":{"kv_lease_duration":5}}'
VLLM_NIXL_ABORT_REQUEST_TIMEOUT=1 vllm serve m --port 8200 --max_model_len 16K --kv-transfer-config.kv_connector MooncakeConnector --kv-transfer-config.kv_role kv_consumer
python3 toy_proxy_server.py --port 8192
