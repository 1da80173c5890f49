#!/bin/sh
# Takes chipwatch off this machine: the service, the program, its configuration and what it still owed to a cloud.
# What stays: the journal's lines, and a Python that was installed for it, as others may use that by now.
set -eu
root=${CHIPWATCH_ROOT:-}

main() {
  [ -n "$root" ] || [ "$(id -u)" = 0 ] || { echo 'chipwatch: only root can uninstall it' >&2; exit 1; }
  exec 9> "$root/run/chipwatch-install.lock"
  flock -n 9 || { echo 'chipwatch: an installation of it runs' >&2; exit 1; }
  systemctl disable --now --quiet chipwatch.service 2> /dev/null || true
  systemctl clean --what=all chipwatch.service 2> /dev/null || true
  rm -rf "$root"/etc/systemd/system/chipwatch.service* "$root"/etc/systemd/system/*.wants/chipwatch.service "$root"/run/chipwatch-install.lock
  systemctl daemon-reload
  systemctl reset-failed chipwatch.service 2> /dev/null || true
  command=$root/usr/local/bin/chipwatch
  case $(readlink "$command" || true) in /opt/chipwatch/*) rm "$command" ;; esac
  for folder in opt etc run var/lib var/lib/private; do
    rm -rf "$root/$folder/chipwatch"
  done
  echo 'chipwatch: it is gone'
  exit
}

main  # read whole before it runs, as this file goes too
