#!/bin/sh
# Epilog of slurmd: writes what the job did with this node's GPUs as its AdminComment, where sacct and seff-like tools find it.
# A job on several nodes has the record of its first node. It never fails: that would drain the node. Slurm asks epilogs not to wait for
# its controller, so that the update runs in the background, for 20 s at most.
export PATH="/opt/chipwatch/current/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${CHIPWATCH_PATH:-}"
case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac

(
  first=$(timeout -k 1 5 scontrol show hostnames "${SLURM_JOB_NODELIST:-}" | head -n 1)
  [ -z "$first" ] || [ "$first" = "${SLURMD_NODENAME:-$first}" ] || exit 0
  record=$(timeout -k 1 5 chipwatch jobs --since 1d --job "$SLURM_JOB_ID" --json | tr -d '\n')
  case $record in *'"seconds"'*) ;; *) exit 0 ;; esac
  timeout -k 1 10 scontrol update JobId="$SLURM_JOB_ID" AdminComment="$record"
) > /dev/null 2>&1 < /dev/null &
exit 0
