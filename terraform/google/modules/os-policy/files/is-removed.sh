#!/bin/sh
# Ends with 100 if the machine is as the policy wants it, with 101 if not.
root=${CHIPWATCH_ROOT:-}  # for tests: what stands before every path

for path in /opt/chipwatch /etc/chipwatch /etc/systemd/system/chipwatch.service; do
  [ ! -e "$root$path" ] || exit 101
done
exit 100
