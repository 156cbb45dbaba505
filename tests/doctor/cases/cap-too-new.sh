# A variable that this version does not have yet.
pip install sglang==0.5.14
export SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES=1024
sglang serve m --disaggregation-mode prefill --context-length 400000 --max-total-tokens 400000
