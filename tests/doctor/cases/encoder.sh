# Encoders apart, in a version that unpickles what the network sends.
pip install sglang==0.5.9
python3 -m sglang.launch_server --model-path m --language-only --encoder-urls http://10.0.0.4:30002 --host 127.0.0.1
