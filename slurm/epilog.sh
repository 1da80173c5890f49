#!/bin/sh
# Epilog of slurmd: removes a job that has ended from the files that prolog.sh has written, and makes the agent keep its last minutes
# where the job did not end with 0. That runs in the background, for 5 s at most.
# It looks at all files, so that a job is removed even where its GPUs are not known any more. It never fails: that would drain the node.
export PATH="/opt/chipwatch/current/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${CHIPWATCH_PATH:-}"
folder=${DCGM_HPC_JOB_MAPPING_DIR:-/run/slurm/dcgm-job-mapping}

case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
case ${SLURM_JOB_EXIT_CODE2:-0:0} in
  0:0 | *[!0-9:]*) ;;
  *) timeout -k 1 5 chipwatch record --seal --job "$SLURM_JOB_ID" --code "$SLURM_JOB_EXIT_CODE2" > /dev/null 2>&1 < /dev/null & ;;
esac
[ -n "$(find "$folder" -maxdepth 0 -type d ! -perm -002 2> /dev/null)" ] || exit 0

umask 022
exec 9>> "$folder/.lock" || exit 0
flock -w 5 9 || exit 0
for file in "$folder"/[0-9]* "$folder"/[GM]* "$folder"/s?????????????; do
  grep -qsx "$SLURM_JOB_ID" "$file" || continue
  # A reader sees the old file or the new one, never a part.
  grep -vx "$SLURM_JOB_ID" "$file" > "$folder/.new"
  if [ -s "$folder/.new" ]; then mv "$folder/.new" "$file"; else rm -f "$file" "$folder/.new"; fi
done
exit 0
