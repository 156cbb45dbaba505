# MORI with proofs, whose writes have no limit of time; with one that is longer than the hold; and well.
pip install sglang==0.5.23
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT=90
sglang serve m --disaggregation-mode decode --disaggregation-transfer-backend mori --context-length 32768 --max-total-tokens 400000
SGLANG_MORI_TRANSFER_TIMEOUT_MS=120000 sglang serve m --disaggregation-mode decode --disaggregation-transfer-backend mori --context-length 32768 --max-total-tokens 400000
SGLANG_MORI_TRANSFER_TIMEOUT_MS=30000 sglang serve m --disaggregation-mode decode --disaggregation-transfer-backend mori --context-length 32768 --max-total-tokens 400000
