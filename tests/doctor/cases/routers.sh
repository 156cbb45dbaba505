# A load balancer for tests in front of an old pair; it gives requests up after a minute.
pip install sglang==0.5.14
python3 -m sglang.launch_server --model-path m --disaggregation-mode prefill --context-length 32768 --max-total-tokens 400000
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length 32768 --max-total-tokens 400000
python3 -m sglang.srt.disaggregation.mini_lb --prefill http://127.0.0.1:30000 --decode http://127.0.0.1:30001 --host 127.0.0.1 --request-timeout-secs 60
