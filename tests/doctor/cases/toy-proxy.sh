# vLLM's example of a proxy, in front of a pair of which only prefill is shown.
pip install vllm==0.20.1
vllm serve m --host 127.0.0.1 --kv-transfer-config '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'
python3 toy_proxy_server.py --prefiller-hosts localhost --prefiller-ports 8100 --decoder-hosts localhost --decoder-ports 8200
