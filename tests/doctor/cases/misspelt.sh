# Roles, connectors and backends that nobody knows, and one that only the shell knows.
pip install vllm==0.20.1
vllm serve m --host 127.0.0.1 --kv-transfer-config '{"kv_connector":"NixlConector","kv_role":"kv_both"}'
vllm serve m --host 127.0.0.1 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"producer"}'
vllm serve m --host 127.0.0.1 --kv-transfer-config '{"kv_connector":"OurOwnConnector","kv_role":"kv_both"}'
vllm serve m --host 127.0.0.1 --kv-transfr-config '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
vllm serve m --host 127.0.0.1 --kv-transfer-config "$KV_CONFIG"
sglang serve m --host 127.0.0.1 --disaggregation-mode $MODE --disaggregation-transfer-backend mooncak --disaggregation-new-flag 3
