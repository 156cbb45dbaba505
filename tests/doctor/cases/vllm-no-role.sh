pip install vllm==0.20.1
vllm serve m --host 127.0.0.1 --max-model-len 8192 --block-size 64 --no-enable-prefix-caching --kv-transfer-config '{"kv_connector":"NixlConnector"}'
