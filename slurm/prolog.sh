#!/bin/sh
# Prolog of slurmd: writes which job has which GPU, as dcgm-exporter's --hpc-job-mapping-dir reads it too.
# A file for each GPU, named by its index or UUID, and one for the job's SLUID, with a job's id on each line. It never fails: a failed prolog drains the node.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
folder=${DCGM_HPC_JOB_MAPPING_DIR:-/run/slurm/dcgm-job-mapping}
mig=${CHIPWATCH_PROC:-/proc}/driver/nvidia/capabilities

case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
umask 022
mkdir -p "$folder" || exit 0
# Where any user may write, a link could lead root's writes elsewhere.
[ -z "$(find "$folder" -maxdepth 0 -perm -002)" ] || exit 0
exec 9>> "$folder/.lock" || exit 0
flock -w 5 9 || exit 0

write() {
  grep -qsx "$SLURM_JOB_ID" "$folder/$1" || printf '%s\n' "$SLURM_JOB_ID" >> "$folder/$1"
}

# From Slurm 26.05 on, the job's cgroup has this name instead of the job's number.
case ${SLURM_JOB_SLUID:-} in *[!0-9A-Zs]*) ;; s?????????????) write "$SLURM_JOB_SLUID" ;; esac

# With MIG, Slurm numbers the instances of all GPUs, which are not the names that DCGM has for them: their UUIDs are used.
for instance in "$mig"/gpu*/mig/gi*; do
  [ -e "$instance" ] || break
  for device in $(printf '%s' "${CUDA_VISIBLE_DEVICES:-}" | tr ',' ' '); do
    case $device in *[!0-9a-fGIMPU-]*) ;; MIG-?* | GPU-?*) write "$device" ;; esac
  done
  exit 0
done

for part in $(printf '%s' "${SLURM_JOB_GPUS:-}" | tr ',' ' '); do
  case $part in *[!0-9-]* | -* | *- | *-*-*) continue ;; esac
  for gpu in $(seq "${part%-*}" "${part#*-}"); do
    write "$gpu"
  done
done
exit 0
