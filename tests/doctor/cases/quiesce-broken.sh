# Everything that should not be.
QUIESCE_HOLD_DEADLINE_S=5s quiesce serve --host 0.0.0.0 --api-key one-key --api-key another-key --unsafe-release-on-timeout \
  --allow-small-pool --decode-pool-tokens 2048 --prefill-pool-tokens 8192 --context-length 4096 --quarantine-budget 1.0 \
  --fronts 9000 --front-host 0.0.0.0 --trust-network --transport tcp --data-host 0.0.0.0
