#!/bin/sh
# One idea: eight GPUs, and each job has one that no other job uses.
#
#   examples/gpu-pool.sh ./train.sh
#
# The slot of the lease is the number of the GPU. What writes results for a GPU can compare the fencing token per
# slot. To drain the pool for maintenance: latchgate run gpus -- ./maintain.sh
set -eu
exec latchgate run gpus --limit "${GPUS:-8}" -- sh -c '
    export CUDA_VISIBLE_DEVICES="$LATCHGATE_SLOT"
    echo "on GPU $CUDA_VISIBLE_DEVICES"
    exec "$@"
' sh "$@"
