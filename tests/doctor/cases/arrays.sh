#!/usr/bin/env bash
# Flags that come from arrays and from variables.
set -euo pipefail
IMAGE=lmsysorg/sglang:v0.5.18
SIZES="--context-length 1048576 --max-total-tokens 681280"
COMMON=(--model-path m --api-key "$KEY"
        --page-size 64)
COMMON+=(--tp 8)
export SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES
SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES=1024
if [[ "${ROLE:-decode}" == decode ]]; then
  docker run -p 30001:30001 "$IMAGE" python3 -m sglang.launch_server "${COMMON[@]}" $SIZES --disaggregation-mode decode
fi
