# shellcheck shell=bash
# wait_ready HOST PORT [PID [PATH]]: waits up to a minute until the server says at PATH that it
# is ready, or PID is gone. Needs nothing but bash.
wait_ready() {
  local line
  for _ in $(seq 300); do
    if { exec 9<>"/dev/tcp/$1/$2"; } 2>/dev/null; then
      printf 'GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${4:-/v2/health/ready}" "$1" >&9
      if IFS= read -r -t 5 line <&9 && [[ $line == *" 200 "* ]]; then exec 9>&-; return 0; fi
      exec 9>&-
    fi
    [ -z "${3:-}" ] || kill -0 "$3" 2>/dev/null || { echo "the server ended before it was ready" >&2; return 5; }
    sleep 0.2
  done
  echo "the server was not ready within a minute" >&2
  return 5
}
