# Sizes that only a shell knows, and flags of which it is not known what they are.
source /etc/sglang.sh
python3 -m sglang.launch_server --model-path m --disaggregation-mode decode --context-length $CONTEXT --max-total-tokens ${POOL}
