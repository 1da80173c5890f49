of() { systemctl show --value --property "$1" chipwatch; }
wait_for() { n=0; until [ "$(of "$1")" = "$2" ] || [ $n -ge 300 ]; do sleep 1; n=$((n + 1)); done; }
group=/sys/fs/cgroup/system.slice/chipwatch.service
wait_for ActiveState active
sleep 20
echo "REPORT kind $(stat -f -c %T /sys/fs/cgroup)"
echo "REPORT limit $(cat $group/memory.max)"
echo "REPORT peak $(cat $group/memory.peak)"
echo "REPORT kills $(sed -n 's/^oom_kill //p' $group/memory.events)"
touch /opt/eat
systemctl restart --no-block chipwatch
wait_for Result oom-kill
echo "REPORT result $(of Result)"
rm /opt/eat
wait_for NRestarts 1
wait_for ActiveState active
sleep 20
echo "REPORT state $(of ActiveState)"
echo "REPORT restarts $(of NRestarts)"
echo "REPORT command $(tr '\0' ' ' < "/proc/$(of MainPID)/cmdline")"
systemctl poweroff
