# Helpers shared by the set-up scripts; sourced, never run.
# Everything a script makes lies below third_party/; nothing else on the machine changes, save for
# packages installed by apt-get when the user is root.

TP=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=$TP/cache
TOOLS=$TP/tools
mkdir -p "$CACHE"

say()  { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: FAILED: %s\n' "$*" >&2; exit 1; }

# retry N CMD…: a download that breaks off is tried again after 2 s, 4 s, …
retry() {
  local n=$1 i; shift
  for ((i = 1; i <= n; i++)); do
    "$@" && return 0
    [ "$i" -lt "$n" ] && { say "try $i of $n failed: $1 …; again in $((2 * i)) s"; sleep $((2 * i)); }
  done
  return 1
}

# has_sha256 FILE HEX / has_sha512 FILE HEX: is FILE there and is that its hash?
has_sha256() { [ -f "$1" ] && printf '%s  %s\n' "$2" "$1" | sha256sum -c --status 2>/dev/null; }
has_sha512() { [ -f "$1" ] && printf '%s  %s\n' "$2" "$1" | sha512sum -c --status 2>/dev/null; }

# locked FD NAME: the caller holds third_party/cache/NAME.lock until it exits, so that two set-ups at
# once wait for each other instead of writing over each other.
locked() {
  command -v flock >/dev/null || return 0
  eval "exec $1>\"$CACHE/$2.lock\""
  flock -n "$1" || { say "waiting for another set-up of $2"; flock "$1"; }
}

# distribution_mirror prints the mirror that this machine's own apt configuration uses.
distribution_mirror() {
  local codename
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null |
    awk -v c="$codename" '$2 == c { print $1; exit }'
}

# private_apt DIR 'deb|deb-src' SUITE: an apt configuration of our own below DIR for one suite of the
# distribution (lists, cache and sources apart from the system's); sets the array APT. The signature of the suite
# is checked with the distribution's keyring.
private_apt() {
  local dir=$1 kind=$2 suite=$3 mirror
  command -v apt-get >/dev/null || fail "apt-get is missing: this route needs Debian (see third_party/README.md for the others)"
  mirror=$(distribution_mirror)
  [ -n "$mirror" ] || fail "no mirror found in apt's configuration (apt-get indextargets printed none)"
  mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$dir/out"
  printf '%s [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$kind" "$mirror" "$suite" > "$dir/src.list"
  # What images of containers hook in after an update needs root, and has nothing to do here.
  printf '#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n#clear DPkg::Post-Invoke;\n' > "$dir/apt.conf"
  APT=(apt-get -c "$dir/apt.conf" -o "Dir::Etc::sourcelist=$dir/src.list" -o Dir::Etc::sourceparts=/dev/null
       -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache"
       -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=2)
  retry 3 "${APT[@]}" -qq update >&2
}

# use_local_tools puts what install_tools unpacked on PATH.
use_local_tools() {
  [ -d "$TOOLS/usr/bin" ] || return 0
  PATH=$TOOLS/usr/bin:$PATH
  LD_LIBRARY_PATH=$TOOLS/usr/lib/$(uname -m)-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PATH LD_LIBRARY_PATH
}
