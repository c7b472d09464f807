#!/usr/bin/env bash
# A run over several GPU hosts: one process a host, brought together by jax.distributed, which reads Slurm's
# own variables. Every host needs the project installed ('.[cuda12]') and the folder of --out shared.
# Sweeps and other work of independent parts go on Dask workers instead: --cluster (docs/start/cluster.md).
#   sbatch --nodes=2 tpu_configs/slurm.sh mnist --teachers 1000 --out /shared/runs/mnist
#SBATCH --job-name=pate
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=04:00:00
#SBATCH --output=pate-%j.log
set -euo pipefail
if [ "$#" -eq 0 ]; then
    echo "usage: sbatch --nodes=N $0 DATASET [flags of pate run]" >&2
    exit 2
fi
# The first host alone writes the run; the others end when the votes are counted, which is no failure.
srun --kill-on-bad-exit=1 pate run "$@" --topology gpu-8 --processes "${SLURM_JOB_NUM_NODES:-1}"
