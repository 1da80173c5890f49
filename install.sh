#!/bin/sh
# Installs chipwatch as a service of systemd, updates it, takes an update back, removes it: sh install.sh --help
# The same text is user-data and cloud-init of EC2, the startup script and the OS policy of Compute Engine.
# shellcheck disable=SC2016,SC2154,SC2317,SC2329  # read_settings assigns given_...; `trap` calls `ended`
set -eu
umask 022

settings() {  # the command line's options win
  cat <<'END_OF_SETTINGS'
version=
extras=
sink=
namespace=
region=
common_dims=
level=
wheelhouse=
sums_sha256=
index_url=
constraints=
wheel_sha256=
END_OF_SETTINGS
}

config() {
  cat <<'END_OF_CONFIG'

END_OF_CONFIG
}

unit() {
  cat <<'END_OF_UNIT'
# For systemd 249 or later. Your changes go into a drop-in: systemctl edit chipwatch
[Unit]
Description=chipwatch, which watches every chip of this machine
# A driver must be loaded first, since DeviceAllow= looks its devices up at the start: restart chipwatch after installing one.
After=network.target systemd-modules-load.service nvidia-persistenced.service
# It is started again without limit: what is missing may come later.
StartLimitIntervalSec=0

[Service]
Type=exec
# Takes back a change of install.sh that was cut off.
ExecStartPre=-+/opt/chipwatch/kept.new/undo
# Exit code 2: a wrong configuration. 1: hardware, credentials or a service is missing, which may come later.
ExecStartPre=/bin/sh -c '/opt/chipwatch/current/bin/agent check --config /etc/chipwatch/chipwatch.toml || test $$? -ne 2'
ExecStart=/opt/chipwatch/current/bin/agent run --config /etc/chipwatch/chipwatch.toml
# An invalid configuration is refused, and the old one stays.
ExecReload=/bin/kill -HUP $MAINPID
# CHIPWATCH_... and AWS_... variables, a proxy.
EnvironmentFile=-/etc/chipwatch/environment
Restart=always
RestartSec=30
# For a reading that hangs in the kernel.
WatchdogSec=60
# Only the main process gets the signal: it ends its children and sends its points.
KillMode=mixed
TimeoutStartSec=90
TimeoutStopSec=20

# Limits, with neuron-monitor. Where memory runs out, this process ends first.
MemoryMax=512M
CPUQuota=50%
CPUWeight=20
TasksMax=256
OOMScoreAdjust=500

# The user exists only while it runs. It can write only its spool, /var/lib/chipwatch.
DynamicUser=yes
StateDirectory=chipwatch
StateDirectoryMode=0700
UMask=0077
ProtectSystem=strict
# Not yes: the disk collector would measure a hidden /home as empty.
ProtectHome=read-only
PrivateTmp=yes
PrivateMounts=yes

# The collectors' devices and no others: NVIDIA, Neuron, AMD (kfd, drm), Intel (drm), Gaudi (habanalabs, accel). Drivers that
# answer by ioctl take rw.
PrivateDevices=no
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
DeviceAllow=char-neuron* rw
DeviceAllow=char-kfd rw
DeviceAllow=char-drm rw
DeviceAllow=char-accel rw
DeviceAllow=char-habanalabs* rw
SupplementaryGroups=video render

# The processes that use a GPU, and those of `pid`, are other users'. fdinfo of AMD and Intel GPUs needs CAP_SYS_PTRACE, which a
# drop-in may add to both lines below.
ProtectProc=default
ProcSubset=all
CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes

# The clouds by IP, nvidia-persistenced by a local socket, the network's interfaces by netlink.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
END_OF_UNIT
}

uninstall() {
  cat <<'END_OF_UNINSTALL'
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
END_OF_UNINSTALL
}

usage() {
  cat <<'END_OF_USAGE'
usage: install.sh --version VERSION --from DIR|URL [--sha256 HEX] [--config FILE] [--dry-run | --print]
       install.sh --rollback | --uninstall
  --from         what `make dist` made: a folder, or its address that begins with https://, s3:// or gs://; or the package
                 chipwatch-VERSION-linux-MACHINE.tar.gz, which needs no Python
  --sha256       of SHA256SUMS there, or of the package; https:// needs it
  --config       configuration of the service; the present one unless given
  --environment  file with variables of the service, such as HTTPS_PROXY; the installation uses them too
  --extras       such as cloudwatch,google; those that the sinks of the configuration need unless given
  --watch        seconds for which an update is watched; the old release comes back if the new one fails in them (60)
  --dry-run      print what would be done
  --print        the same, and the files that would be written: configuration, unit, uninstaller
  --rollback     bring back the release, configuration and unit before the last change
  --uninstall    remove everything, and what was not yet sent
Also --sink, --common-dims, --namespace, --region and --level, which write a small configuration; and for an index of packages
--constraints, --wheel-sha256 and --index-url. Proxies are taken from the environment.
Exit codes: 0 done; 1 failed, and what ran before still runs; 2 wrong options; 3 the new one failed, and the old one is back;
4 the new one failed, and the old one does not start either.
END_OF_USAGE
}

root=${CHIPWATCH_ROOT:-}  # for tests
base=$root/opt/chipwatch
toml=$root/etc/chipwatch/chipwatch.toml
agent=$base/current/bin/agent
pause=${CHIPWATCH_PAUSE:-10}  # seconds
watch=${CHIPWATCH_WATCH:-60}
names='version extras sink namespace region common_dims level wheelhouse sums_sha256 index_url constraints wheel_sha256'
kept='etc/chipwatch/chipwatch.toml etc/chipwatch/environment etc/systemd/system/chipwatch.service opt/chipwatch/uninstall.sh'
quiet='--quiet --disable-pip-version-check --no-input --only-binary :all:'
newline='
'
action=install dry='' show='' cli='' config_file='' environment_file='' wrong=0 work='' release='' switching=''

mask() { sed -E 's#://[^[:space:]]*@#://***@#g; s#(://[^?[:space:]]*)\?[^[:space:]]*#\1?***#g'; }  # no secret gets into the log
say() { printf 'chipwatch: %s\n' "$*" | mask; }
die() { say "$@" >&2; exit 1; }
value() { eval "printf '%s' \"\${given_$1-}\""; }
has() { case ,$(value "$1"), in *,"$2",*) ;; *) return 1 ;; esac; }

masked() {  # COMMAND
  code=0
  "$@" > "$work/output" 2>&1 || code=$?
  mask < "$work/output"
  return "$code"
}

retry() {  # COMMAND: up to five times
  for n in 1 2 4 8; do
    if masked "$@"; then return; fi
    say "${1##*/} failed; again in $((n * pause)) s" >&2
    sleep $((n * pause))
  done
  masked "$@"
}

# -- the variables, all checked first

label() {  # NAME: as it was given
  case $cli$1 in
    yeswheelhouse) echo --from ;;
    yessums_sha256) echo --sha256 ;;
    yes*) echo "--$1" | tr _ - ;;
    *) echo "$1" ;;
  esac
}
refuse() { say "$@" >&2; wrong=1; }
must_be_file() { [ -z "$2" ] || { [ -r "$2" ] && [ ! -d "$2" ]; } || refuse "$1: expected a file that can be read, got '$2'"; }

must_be() {  # NAME REGEX WHAT
  got=''
  case $1 in index_url | constraints) ;; *) got=", got '$(value "$1" | tr -cd '[:print:]')'" ;; esac  # may have a password
  value "$1" | { cat; echo; } | grep -Eqx -- "($2)" || refuse "$(label "$1"): expected $3$got"
}

read_settings() {
  seen=' '
  settings > "$work/settings"
  while IFS= read -r line; do
    name=${line%%=*}
    case " $names " in
      *" $name "*) ;;
      *) refuse "settings: a value has more than one line; its second begins with '$(printf %.20s "$line" | tr -cd '[:print:]')'"; continue ;;
    esac
    case $seen in *" $name "*) refuse "settings: $name is there twice; a value has more than one line" ;; esac
    seen="$seen$name "
    eval "given_$name=\${line#*=}"
  done < "$work/settings"
}

read_options() {
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit ;;
      --dry-run | --print | --rollback | --uninstall) ;;
      *) [ $# -ge 2 ] || { refuse "$1: expected a value after it"; return; }
         case $2 in *"$newline"*) refuse "$1: expected one line" ;; esac ;;
    esac
    cli=yes
    case $1 in
      --dry-run) dry=yes; shift; continue ;;
      --print) dry=yes show=yes; shift; continue ;;
      --rollback | --uninstall)
        [ "$action" = install ] || refuse "$1: --$action was given too"
        action=${1#--}; shift; continue ;;
      --config) config_file=$2 ;;
      --environment) environment_file=$2 ;;
      --watch) watch=$2 ;;
      --from) given_wheelhouse=${2%/} ;;
      --sha256) given_sums_sha256=$2 ;;
      *) name=$(printf %s "${1#--}" | tr - _)
         case " $names " in
           *" $name "*) case $1 in --*) eval "given_$name=\$2" ;; *) refuse "$1: no such option; see --help" ;; esac ;;
           *) refuse "$1: no such option; see --help"; return ;;
         esac ;;
    esac
    shift 2
  done
}

validate() {
  word='[a-z][a-z0-9_]*' extra='(cloudwatch|google|kubernetes|prometheus|tpu|all)' sha='[0-9a-f]{64}'
  path='(file://)?/[A-Za-z0-9._/@+ -]+' bucket='(s3|gs)://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/@+=-]*)?'
  case $cli$given_wheelhouse in yes | yes/* | yes*://*) ;; yes*) given_wheelhouse=$PWD/${given_wheelhouse#./} ;; esac
  must_be version '[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?' 'one version, such as 0.1.0'
  must_be extras "|$extra(,$extra)*" 'cloudwatch, google, kubernetes, prometheus, tpu or all, several with commas'
  must_be_file --config "$config_file"
  must_be_file --environment "$environment_file"
  if [ -n "$config_file" ]; then
    [ -z "$given_sink$given_common_dims$given_namespace$given_region$given_level" ] || refuse '--config: it is the whole configuration; write the other options into it'
  elif [ -n "$given_sink" ] || ! [ -e "$toml" ]; then
    must_be sink "$word([,-]$word)*" "names of sinks, such as cloudwatch, with commas${cli:+; or --config FILE}"
  fi
  case $watch in *[!0-9]* | ?????* | '') refuse "--watch: expected seconds, at most 9999, got '$watch'" ;; esac
  must_be namespace '|[A-Za-z0-9._/#:-]{1,255}' 'up to 255 of A-Z a-z 0-9 . _ / # : -'
  must_be region '|[a-z]{2,}(-[a-z]+)+-[0-9]+' 'a region, such as us-east-1'
  must_be common_dims "|$word(,$word)*" 'words such as instance_id,instance_type, without spaces'
  must_be level '|basic|detailed|all' 'basic, detailed or all'
  must_be wheelhouse "|$path|$bucket|https://[A-Za-z0-9._/@:%+=~-]+" 'https://, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, file:///PATH or /PATH, of letters, digits, spaces and . _ / @ + -'
  must_be sums_sha256 "|$sha" '64 hexadecimal digits'
  must_be index_url '|https://[^[:space:]]+' 'an address that begins with https://'
  must_be constraints "|$path|$bucket|https://[^[:space:]]+" 's3://, gs://, https:// or /PATH'
  must_be wheel_sha256 "|$sha" '64 hexadecimal digits'
  for name in index_url constraints wheel_sha256; do
    [ -z "$given_wheelhouse" ] || [ -z "$(value "$name")" ] || refuse "$(label "$name"): with a wheelhouse no index is asked; give one of the two"
  done
  [ -z "$given_sums_sha256" ] || [ -n "$given_wheelhouse" ] || refuse "$(label sums_sha256): there is no wheelhouse"
  case $given_wheelhouse in https://*) [ -n "$given_sums_sha256" ] || refuse "$(label sums_sha256): required with https://, since anybody may stand between" ;; esac
  [ -z "$given_constraints" ] || [ -n "$given_wheel_sha256" ] || refuse "$(label wheel_sha256): constraints need it, as chipwatch itself is not in them"
  [ -z "$given_wheel_sha256" ] || [ -n "$given_constraints" ] || refuse "$(label constraints): wheel_sha256 alone holds nothing to its hash"
  [ -n "$given_wheelhouse$given_constraints" ] || refuse "$(label wheelhouse): give it, or constraints with wheel_sha256: the agent is not installed by its name alone"
  for name in cloudwatch google; do
    case $cli$given_extras in yes) continue ;; esac  # its sinks say which
    ! has sink "$name" || has extras "$name" || has extras all || refuse "$(label extras): the sink $name needs $name among them"
  done
  case $(unit) in *ExecStart=*) ;; *) refuse 'unit: expected the text of files/chipwatch.service' ;; esac
  case $(uninstall) in '#!'*) ;; *) refuse 'uninstall: expected the text of files/uninstall.sh' ;; esac
}

# -- the files

cli_of() {  # SCHEME NAME: makes sure that the cloud's command is there
  PATH=$PATH:/snap/bin
  case $1 in
    s3) command=aws called='AWS CLI' snap=aws-cli ;;
    *) command=gcloud called='gcloud CLI' snap=google-cloud-cli; export CLOUDSDK_CONFIG="$work/gcloud" CLOUDSDK_CORE_DISABLE_PROMPTS=1 ;;
  esac
  command -v "$command" > /dev/null || { command -v snap > /dev/null && masked snap install "$snap" --classic >&2; } \
    || die "$2: $1:// takes the $called, and $command is not on PATH"
}

get_file() {  # NAME FROM TO
  case $2 in
    s3://*) cli_of s3 "$1"; retry aws s3 cp --only-show-errors "$2" "$3" >&2 || die "$1: $2 cannot be copied" ;;
    gs://*) cli_of gs "$1"; retry gcloud storage cp --no-user-output-enabled "$2" "$3" >&2 || die "$1: $2 cannot be copied" ;;
    https://*)
      command -v curl > /dev/null || die "$1: https:// takes curl, and it is not on PATH"
      retry curl -fsSL --proto '=https' -o "$3" "$2" >&2 || die "$1: the file cannot be fetched: $2" ;;
    *) cp "$2" "$3" || die "$1: $2 cannot be read" ;;
  esac
}

get_wheelhouse() {  # PYTHON: prints a folder whose files are what SHA256SUMS says
  from=${given_wheelhouse#file://} folder=$work/wheelhouse
  case $from in
    s3://*) cli_of s3 wheelhouse; retry aws s3 cp --recursive --only-show-errors "$from" "$folder" >&2 || die "wheelhouse: $from cannot be copied" ;;
    gs://*) cli_of gs wheelhouse; mkdir -p "$folder"; retry gcloud storage rsync --recursive --no-user-output-enabled "$from" "$folder" >&2 || die "wheelhouse: $from cannot be copied" ;;
    https://*) mkdir -p "$folder/wheelhouse"; get_file "$(label wheelhouse)" "$from/SHA256SUMS" "$folder/SHA256SUMS" ;;
    *) folder=$from; [ -d "$folder" ] || die "$(label wheelhouse): there is no folder $folder" ;;
  esac
  cd "$folder"
  if [ -n "$given_sums_sha256" ]; then
    echo "$given_sums_sha256  SHA256SUMS" | sha256sum --check --status \
      || die "$(label sums_sha256): not that of SHA256SUMS in $from, which begins with '$(head -c 40 SHA256SUMS | tr -cd '[:print:]')'"
  fi
  case $from in https://*)
    minor=cp3$("$1" -c 'import sys; print(sys.version_info[1])' 2> /dev/null || true) machine=$(uname -m)
    while read -r _ file; do
      case $file in
        *[!A-Za-z0-9._/+-]* | *..* | /*) die "wheelhouse: SHA256SUMS names '$file'" ;;
        *-linux-"$machine".tar.gz) [ -z "$1" ] || continue ;;
        *-any.whl | *-"$minor"-*_"$machine".whl | *-abi3-*_"$machine".whl | *-none-*_"$machine".whl) [ -n "$1" ] || continue ;;
        *) continue ;;
      esac
      get_file wheelhouse "$from/$file" "$file"
    done < SHA256SUMS ;;
  esac
  if [ -e SHA256SUMS ]; then
    find . -name '*.whl' -o -name '*-linux-*.tar.gz' > "$work/files"
    while IFS= read -r file; do
      grep -qxF -- "$(sha256sum "${file#./}")" SHA256SUMS || die "wheelhouse: ${file#./} is not what SHA256SUMS says"
    done < "$work/files"
  fi
  pwd
}

get_constraints() {
  get_file constraints "${given_constraints#file://}" "$work/constraints.txt"
  printf '\nchipwatch==%s --hash=sha256:%s\n' "$given_version" "$given_wheel_sha256" >> "$work/constraints.txt"
}

find_python() {  # MODULES: prints the first Python 3.11 to 3.14 with them
  for one in python3.14 python3.13 python3.12 python3.11 python3 /opt/pytorch/bin/python3 /opt/conda/bin/python3; do
    if one=$(command -v "$one") && "$one" -c "import sys, $1; sys.exit(not (3, 11) <= sys.version_info < (3, 15))" 2> /dev/null; then
      echo "$one"
      return
    fi
  done
  return 1
}

apt() {  # COMMAND: waits for a held lock, ten minutes at most
  n=0
  while [ "$n" -lt 60 ]; do
    if LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get -q "$@" > /dev/null 2> "$work/apt"; then return; fi
    lock=$(sed -n '/get lock/{s/^E: //p;q;}' "$work/apt")
    [ -n "$lock" ] || { mask < "$work/apt" >&2; return 1; }
    [ "$n" != 0 ] || say "waiting for apt: $lock"
    sleep "$pause"
    n=$((n + 1))
  done
  die "apt is locked for too long: $lock"
}

add_python() {
  for minor in 14 13 12 11; do
    say "installing Python 3.$minor from the distribution"
    if command -v dnf > /dev/null; then
      if masked dnf install -y -q "python3.$minor"; then return; fi
    elif command -v apt-get > /dev/null; then
      [ "$minor" != 14 ] || apt update || true
      if apt install -y --no-install-recommends "python3.$minor-venv"; then return; fi
    fi
  done
}

# -- the program

unpack() {  # PACKAGE FOLDER
  say "installing $given_version from ${1##*/}, which needs no Python"
  rm -rf "$2"
  mkdir -p "$2"
  tar -xzf "$1" -C "$2" --strip-components=1 --no-same-owner || die "${1##*/}: it cannot be unpacked"
  touch "$2/complete"
}

make_release() {  # FOLDER
  new=$1 wheels='' modules='venv, ensurepip' own_pip='' package=''
  case $given_wheelhouse in *.tar.gz)
    get_file "$(label wheelhouse)" "${given_wheelhouse#file://}" "$work/package.tar.gz"
    [ -z "$given_sums_sha256" ] || echo "$given_sums_sha256  $work/package.tar.gz" | sha256sum --check --status || die "$(label sums_sha256): not that of $given_wheelhouse"
    unpack "$work/package.tar.gz" "$new"
    return ;;
  esac
  if [ -n "$given_wheelhouse" ]; then
    wheels=$(get_wheelhouse "$(find_python venv || true)") || exit 1
    own_pip=$(find "$wheels" -name 'pip-*.whl' | head -n 1)
    package=$(find "$wheels" -name "chipwatch-$given_version-linux-$(uname -m).tar.gz")
  fi
  [ -z "$own_pip" ] || modules=venv  # a pip in the wheelhouse does where python3-venv is missing
  if ! python=$(find_python "$modules"); then
    if [ -n "$package" ]; then unpack "$package" "$new"; return; fi
    add_python
    python=$(find_python "$modules") || die \
      "there is no Python 3.11 to 3.14 with venv, and neither dnf nor apt-get has one (Ubuntu 22.04: python3.11-venv of universe); install it in the image, or add the package that needs none"
  fi
  say "installing $given_version with $python"
  rm -rf "$new"
  if [ -n "$own_pip" ]; then
    "$python" -m venv --without-pip "$new"
    pip() { "$new/bin/python" "$own_pip/pip" "$@"; }
  else
    "$python" -m venv "$new"
    pip() { "$new/bin/python" -m pip "$@"; }
  fi
  [ -z "$given_index_url" ] || export PIP_INDEX_URL="$given_index_url"
  [ -z "$given_index_url$given_wheelhouse" ] || export PIP_CONFIG_FILE=/dev/null
  if [ -n "$given_constraints" ]; then
    get_constraints
    # shellcheck disable=SC2086
    retry pip download $quiet --require-hashes --no-deps -r "$work/constraints.txt" --dest "$work/held" || die 'the packages cannot be fetched'
    wheels=$work/held
  fi
  install_from "$wheels" pip install
  touch "$new/complete"
}

install_from() {  # FOLDER PIP_INSTALL
  links=$1
  shift
  # shellcheck disable=SC2086
  set -- "$@" $quiet --no-index --find-links "$links"
  [ -z "$given_wheelhouse" ] || set -- "$@" --find-links "$links/wheelhouse"
  [ -n "$given_extras" ] || given_extras=$(extras_of "$python") || exit 1
  masked "$@" "chipwatch${given_extras:+[$given_extras]}==$given_version" || die 'the packages cannot be installed'
}

extras_of() {  # PYTHON: what the sinks of the configuration need
  "$1" -c 'import sys, tomllib
try: sinks = tomllib.load(open(sys.argv[1], "rb")).get("sink")
except ValueError as error: sys.exit(f"chipwatch: config: it is not TOML, and nothing was changed: {error}")
print(*(name for name in ("cloudwatch", "google") if chr(39) + name in str([sinks])), sep=",")' "$work/chipwatch.toml"
}

write_config() {
  if [ -n "$config_file" ]; then cat "$config_file"; return; fi
  if [ -z "$given_sink" ]; then cat "$toml"; return; fi
  list() { echo "$1 = [\"$2\"]" | sed 's/,/", "/g'; }
  echo '# Written by the installer.'
  list sink "$given_sink"
  [ -z "$given_common_dims" ] || list common_dims "$given_common_dims"
  for name in namespace region level; do
    [ -z "$(value "$name")" ] || echo "$name = \"$(value "$name")\""
  done
  config
}

use_environment() {  # as systemd gives it to the service
  [ -r "$root/etc/chipwatch/environment" ] || [ -n "$environment_file" ] || return 0
  install -m 0600 "${environment_file:-$root/etc/chipwatch/environment}" "$work/environment"
  while IFS= read -r line || [ -n "$line" ]; do
    name=${line%%=*} line=${line#*=}
    case $line in \"*\" | "'"*"'") line=${line#?} line=${line%?} ;; esac
    case $name in
      http_proxy | https_proxy | no_proxy) export "$name=$line" ;;
      PATH | CDPATH | IFS | OPTIND | PPID | *UID | BASH* | SHELLOPTS | [!A-Z]* | *[!A-Z0-9_]* | '') ;;  # they would change this script
      *) export "$name=$line" ;;
    esac
  done < "$work/environment"
}

# -- the switch: all of it, or nothing

active() { systemctl is-active --quiet chipwatch.service; }
healthy() { STATE_DIRECTORY=$root/var/lib/chipwatch "$agent" status --health --config "$toml" > /dev/null 2>&1; }
restarts() { systemctl show --property NRestarts chipwatch.service; }

restart() {
  systemctl daemon-reload
  systemctl enable --quiet chipwatch.service
  systemctl restart chipwatch.service
}

# Of this script, and of the one that takes back a change that was cut off.
functions='put() {  # FROM TO: whole or not at all
  cp -p "$1" "$2.new" || { rm -f "$2.new"; return 1; }
  mv -f "$2.new" "$2"
}

bring() {  # FOLDER: what `keep` copied
  for file in $kept; do
    if [ -e "$1/$file" ]; then put "$1/$file" "$root/$file"; else rm -f "$root/$file"; fi
  done
  link "$(readlink "$1/current")"
}

link() {  # RELEASE
  ln -sfn "$1" "$base/new"
  mv -T "$base/new" "$base/current"
}'
eval "$functions"
undo='exec 9> "$root/run/chipwatch-install.lock"
flock -n 9 || exit 0  # the change goes on
bring "$base/kept.new"
rm -rf "$base/kept.new"
systemctl daemon-reload
echo "chipwatch: a change was cut off, and what ran before it is back"'

keep() {  # copies what an update changes, and the link; whole or not at all
  part=$base/kept.part
  rm -rf "$part"
  for file in $kept; do
    mkdir -p "$part/${file%/*}"
    [ ! -e "$root/$file" ] || cp -p "$root/$file" "$part/$file"
  done
  cp -P "$base/current" "$part/current"
  printf '%s\n' '#!/bin/sh -e' "root='$root' base='$base' kept='$kept'" "$functions" "$undo" > "$part/undo"
  chmod 0755 "$part/undo"
  mv "$part" "$base/kept.new"
}

sweep() {  # removes every release but the present and the previous one
  for one in "$base"/*/; do
    case ${one%/} in
      "$base/kept"* | "$base/current" | "$(readlink "$base/current")" | "$(readlink "$base/kept/current" 2> /dev/null || true)") ;;
      *) rm -rf "${one%/}" ;;
    esac
  done
}

came_back() {  # WHY: after a change that failed
  trap '' INT HUP TERM
  switching=''
  journalctl --unit chipwatch.service --lines 20 --no-pager >&2 || true
  link "$(readlink "$base/kept.new/current")"
  sweep  # makes room
  bring "$base/kept.new"
  rm -rf "$base/kept.new"
  if restart && holds 5 first; then
    say "$1; its last lines are above. $(basename "$(readlink "$base/current")") is back with its configuration" >&2
    exit 3
  fi
  say "$1, and $(basename "$(readlink "$base/current")"), which is back, does not start either" >&2
  exit 4
}

holds() {  # SECONDS KIND: the service runs so long without a restart; a first one only until it is healthy
  n=0 before=$(restarts)
  while active && [ "$(restarts)" = "$before" ]; do
    if [ "$n" -ge "$1" ] || { [ "$2" = first ] && healthy; }; then return; fi
    [ "$pause" = 0 ] || sleep 1
    n=$((n + 1))
  done
  return 1
}

try() {  # WHAT WAS_HEALTHY: starts what is now in place, watches it, and brings back what `keep` copied if it fails
  restart || came_back "$1 does not start"
  holds "$watch" update || came_back "$1 ended within $watch s"
  [ "$2" = no ] || healthy || came_back "$1 is not healthy after $watch s"
  rm -rf "$base/kept"
  mv "$base/kept.new" "$base/kept"
  switching=''
  sweep
}

same() { cmp -s "$1" "$2" || { [ ! -e "$1" ] && [ ! -e "$2" ]; }; }

roll_back() {
  [ -e "$base/kept/current" ] || die '--rollback: there is no previous release'
  previous=$(basename "$(readlink "$base/kept/current")")
  if [ -n "$dry" ]; then say "would bring back $previous with its configuration"; return; fi
  keep
  switching=yes
  bring "$base/kept"
  try "$previous" no
  say "$previous runs again; --rollback undoes this"
}

plan() {
  say "would install $given_version into $release, from $given_wheelhouse$given_constraints"
  python=$(find_python venv) || python=''
  case $given_wheelhouse in
    /*.tar.gz | file://*.tar.gz) [ -r "${given_wheelhouse#file://}" ] || die "$(label wheelhouse): $given_wheelhouse cannot be read" ;;
    '' | *://*) ;;
    *) wheels=$(get_wheelhouse '') || exit 1
       own_pip=$(find "$wheels" -name 'pip-*.whl' | head -n 1)
       if [ -n "$python" ] && [ -n "$own_pip" ]; then
         set -- "$python" "$own_pip/pip" install --dry-run --ignore-installed --target "$work/nothing"
         install_from "$wheels" "$@"
       fi ;;
  esac
  say "Python: ${python:-none from 3.11 to 3.14; the package that needs none, or the distribution}"
  [ ! -e "$base/current" ] || say "in place of $(readlink "$base/current"), which stays for --rollback and comes back if the new one fails within $watch s"
  if same "$work/chipwatch.toml" "$toml"; then say 'the configuration stays'; else say "writes $toml"; fi
  [ -n "$show" ] || return 0
  printf '\n# %s\n' "$toml"
  mask < "$work/chipwatch.toml"
  printf '\n# %s\n%s\n' "$root/etc/systemd/system/chipwatch.service" "$(unit)" "$base/uninstall.sh" "$(uninstall)"
}

report_failure() {
  case ,${given_sink-}, in *,cloudwatch,*) ;; *) return 0 ;; esac
  command -v aws > /dev/null || return 0
  set -- --namespace "${given_namespace:-Chipwatch}" --metric-name agent.install.failed --value 1
  [ -z "$given_region" ] || set -- --region "$given_region" "$@"
  timeout 60 aws cloudwatch put-metric-data "$@" || true
}

ended() {
  code=$?
  [ -z "$switching" ] || came_back 'the change was cut off'
  [ -z "$release" ] || [ -e "$release/complete" ] || rm -rf "$release"
  rm -rf "$work"
  case $code$dry in 0 | 2 | *yes) ;; *) report_failure ;; esac
}

main() {
  work=$(mktemp -d)
  trap ended EXIT
  trap 'exit 1' INT HUP TERM
  read_settings
  read_options "$@"
  [ "$wrong$action" != 0install ] || validate
  [ "$wrong" = 0 ] || exit 2
  [ -n "$root$dry" ] || [ "$(id -u)" = 0 ] || die "only root can $action it"
  [ -n "$root$dry" ] || [ -d /run/systemd/system ] || die 'systemd does not run here, and the service needs it'
  [ ! -e "$root/usr/lib/chipwatch/chipwatch" ] || die "the package chipwatch, a deb or an rpm, is installed; first: apt remove chipwatch, or dnf remove chipwatch"
  if [ "$action$dry" = uninstall ]; then uninstall > "$work/uninstall.sh"; sh "$work/uninstall.sh"; return; fi
  if [ "$action" = uninstall ]; then say "would remove the service, $base, ${toml%/*}, and what was not yet sent"; return; fi
  if [ -z "$dry" ]; then
    mkdir -p "$base" "${toml%/*}" "$root/etc/systemd/system" "$root/run"
    exec 9> "$root/run/chipwatch-install.lock"
    flock -n 9 || die 'another installation of it runs'
    if [ -e "$base/kept.new" ]; then
      say 'a change was cut off; what ran before it comes back first' >&2
      bring "$base/kept.new"
      rm -rf "$base/kept.new"
      restart || true
    fi
  fi
  if [ "$action" = rollback ]; then roll_back; return; fi

  use_environment
  write_config > "$work/chipwatch.toml"
  : > "$work/sinks"
  [ -n "$given_extras" ] || grep -E '^[[:space:]]*sink\b' "$work/chipwatch.toml" > "$work/sinks" || true
  place=wheelhouse
  [ -z "$given_sums_sha256" ] || place=''  # the same files in another folder are the same release
  release=$base/$given_version-$(for name in version extras $place sums_sha256 index_url constraints wheel_sha256; do echo "$name=$(value "$name")"; done | cat - "$work/sinks" | sha256sum | cut -c 1-8)
  if [ -n "$dry" ]; then plan; release=''; return; fi
  if [ ! -e "$release/complete" ] || ! "$release/bin/agent" -V > /dev/null 2>&1; then make_release "$release"; fi
  code=0
  (cd "$work" && "$release/bin/agent" check --config chipwatch.toml) > "$work/said" 2>&1 || code=$?  # its words name the file
  [ "$code" != 2 ] || die "config: the agent refuses it, and nothing was changed: $(cat "$work/said")"
  [ "$code" -le 2 ] || die "$given_version does not run here, and nothing was changed: $(cat "$work/said")"
  printf '%s\n' "$(unit)" > "$work/unit"
  printf '%s\n' "$(uninstall)" > "$work/uninstall.sh"
  chmod 0755 "$work/uninstall.sh"
  old=''
  if [ -e "$base/current" ]; then
    old=$(readlink "$base/current")
    if [ "$old" = "$release" ] && same "$work/chipwatch.toml" "$toml" && same "$work/unit" "$root/etc/systemd/system/chipwatch.service" \
      && { [ -z "$environment_file" ] || same "$work/environment" "$root/etc/chipwatch/environment"; } && active; then
      say "$given_version runs already"
      return
    fi
    if [ "$code" = 1 ] && "$agent" check --config "$toml" > /dev/null 2>&1; then
      die "check: it fails with this release and configuration, and passes with the present ones; nothing was changed: $(cat "$work/said")"
    fi
    was=no
    if healthy; then was=yes; fi
    keep
    switching=yes
  fi
  put "$work/chipwatch.toml" "$toml"
  [ -z "$environment_file" ] || put "$work/environment" "$root/etc/chipwatch/environment"
  put "$work/unit" "$root/etc/systemd/system/chipwatch.service"
  put "$work/uninstall.sh" "$base/uninstall.sh"
  link "$release"
  if [ -n "$old" ]; then
    try "$given_version" "$was"
  elif ! restart || ! holds 20 first; then
    journalctl --unit chipwatch.service --lines 20 --no-pager >&2 || true
    for name in video render; do grep -q "^$name:" "$root/etc/group" || say "there is no group $name" >&2; done
    mask < "$work/said" >&2
    systemctl disable --now --quiet chipwatch.service 2> /dev/null || true
    rm "$base/current"
    die 'the service does not start; its last lines are above'
  fi
  command=$root/usr/local/bin/chipwatch
  if [ ! -e "$command" ] && mkdir -p "${command%/*}"; then ln -sfn /opt/chipwatch/current/bin/chipwatch "$command"; fi
  say "$given_version runs; $base/uninstall.sh takes it off again"
}

main "$@"
