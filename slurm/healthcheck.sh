#!/bin/sh
# HealthCheckProgram of slurmd: drains this node, with the reason, where `chipwatch verdict` finds it not fit for work.
# It drains for nothing else: not for a wrong option, an agent that is not there, or anything that could not be determined.
# CHIPWATCH_EXPECT, also in /etc/chipwatch/healthcheck, is what this node should have: gpus=8,rdma=8x400.
export PATH="/opt/chipwatch/current/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${CHIPWATCH_PATH:-}"
# shellcheck disable=SC1091
[ -r /etc/chipwatch/healthcheck ] && . /etc/chipwatch/healthcheck

line=$(timeout -k 1 20 chipwatch verdict --for slurm ${CHIPWATCH_EXPECT:+--expect "$CHIPWATCH_EXPECT"} 2> /dev/null | head -n 1)
case $line in 'NOT FIT: '*) ;; *) exit 0 ;; esac
node=${SLURMD_NODENAME:-$(hostname -s)}
case $(scontrol show node -o "$node" 2> /dev/null) in *State=*DRAIN* | *State=*DOWN* | '') exit 0 ;; esac
reason=$(printf 'chipwatch: %.200s' "${line#NOT FIT: }")
scontrol update NodeName="$node" State=DRAIN Reason="$reason"
exit 0
