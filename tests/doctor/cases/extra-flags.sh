# Flags that only the caller knows: nothing is taken as default.
pip install sglang==0.5.23
python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill --context-length 32768 $EXTRA
