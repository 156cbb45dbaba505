# P2pNcclConnector with random ids, twice the same role, and a remote store.
export LMCACHE_REMOTE_URL=redis://:secret@10.9.9.9:6379
vllm serve m --host 127.0.0.1 --kv-transfer-config '{"kv_connector":"P2pNcclConnector","kv_role":"kv_producer","kv_port":21001}'
vllm serve m --host 127.0.0.1 --port 8001 --kv-transfer-config '{"kv_connector":"P2pNcclConnector","kv_role":"kv_producer","kv_ip":"0.0.0.0"}'
