# Healthy: one SGLang process, no hand-off.
pip install sglang==0.4.9
python3 -m sglang.launch_server --model-path m --context-length 1048576 --port 30000
