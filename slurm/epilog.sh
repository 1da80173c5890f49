#!/bin/sh
# Epilog of slurmd: removes a job that has ended from the files that prolog.sh has written.
# It looks at all files, so that a job is removed even where its GPUs are not known any more. It never fails: that would drain the node.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
folder=${DCGM_HPC_JOB_MAPPING_DIR:-/run/slurm/dcgm-job-mapping}

case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
[ -d "$folder" ] || exit 0

umask 022
exec 9> "$folder/.lock" || exit 0
flock -w 5 9 || exit 0
for file in "$folder"/[0-9]* "$folder"/[GM]* "$folder"/s?????????????; do
  grep -qsx "$SLURM_JOB_ID" "$file" || continue
  # A reader sees the old file or the new one, never a part.
  grep -vx "$SLURM_JOB_ID" "$file" > "$folder/.new"
  if [ -s "$folder/.new" ]; then mv "$folder/.new" "$file"; else rm -f "$file" "$folder/.new"; fi
done
exit 0
