# 0.5.20 with the switch on both sides, and neither a longer hold nor a batch cap.
pip install 'sglang[all]==0.5.20'
export SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1
sglang serve zai-org/GLM-5.2-FP8 --disaggregation-mode=prefill --host 10.20.0.11 --api-key $KEY --context-length 681280 --max-total-tokens 681280
sglang serve zai-org/GLM-5.2-FP8 --disaggregation-mode=decode --host 10.20.0.12 --api-key $KEY --context-length 681280 --max-total-tokens 681280
