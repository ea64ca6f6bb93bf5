package profiler

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A stand-in for the control program: it writes down what it is told, and keeps
// a file "control" while the service "runs", as the real one does.
const fakeControl = `#!/bin/sh
dir=$CUDA_MPS_PIPE_DIRECTORY
[ -d "$dir" ] && [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || { echo "no folders"; exit 1; }
if [ "$1" = -d ]; then
  [ -n "$FAKE_MPS_REFUSES" ] && { echo "An instance of this daemon is already running"; exit 1; }
  : > "$dir/control"; exit 0
fi
while read -r line; do
  echo "$line" >> "$dir/../told"
  [ "$line" = quit ] && rm -f "$dir/control"
  [ "$line" = get_server_list ] && [ -n "$FAKE_MPS_SILENT" ] && exit 3
done
exit 0
`

func TestMPS(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no shell (sh) for the stand-in")
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "nvidia-cuda-mps-control"), []byte(fakeControl), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", filepath.Join(t.TempDir(), "none"))
	if state, _ := MPSState(); state != MPSAbsent && os.Getenv("PATH") != "" {
		if _, err := exec.LookPath("nvidia-cuda-mps-control"); err != nil {
			t.Errorf("without the program the state is %s", state)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if state, _ := MPSState(); state != MPSStopped {
		t.Errorf("with the program: %s", state)
	}
	dir := t.TempDir()
	m, err := StartMPS(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range m.Env() {
		k, v, _ := strings.Cut(kv, "=")
		t.Setenv(k, v)
	}
	if state, text := MPSState(); state != MPSRunning || !strings.Contains(text, dir) {
		t.Errorf("%s: %s", state, text)
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	if state, _ := MPSState(); state != MPSStopped {
		t.Errorf("after Stop: %s", state)
	}
	told, _ := os.ReadFile(filepath.Join(dir, "told"))
	if got := strings.Fields(string(told)); len(got) != 2 || got[0] != "get_server_list" || got[1] != "quit" {
		t.Errorf("the daemon was told %q", got)
	}

	t.Setenv("FAKE_MPS_REFUSES", "1")
	if _, err := StartMPS(t.TempDir()); err == nil || !strings.Contains(err.Error(), "already running") {
		t.Errorf("a daemon that does not start: %v", err)
	}
	t.Setenv("FAKE_MPS_REFUSES", "")
	t.Setenv("FAKE_MPS_SILENT", "1")
	silent := t.TempDir()
	if _, err := StartMPS(silent); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a daemon that does not answer: %v", err)
	}
	if _, err := os.Stat(filepath.Join(silent, "pipe", "control")); err == nil {
		t.Error("it was left running")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := StartMPS(t.TempDir()); err == nil || !strings.Contains(err.Error(), "driver's packages") {
		t.Errorf("without the program: %v", err)
	}
}

// The program is found where the driver lies, off the PATH.
func TestFindMPS(t *testing.T) {
	bin := t.TempDir()
	program := filepath.Join(bin, mpsControl)
	if err := os.WriteFile(program, []byte(fakeControl), 0o755); err != nil {
		t.Fatal(err)
	}
	was := mpsFolders
	defer func() { mpsFolders = was }()
	t.Setenv("PATH", t.TempDir())
	mpsFolders = []string{t.TempDir(), bin, t.TempDir()}
	if got, err := findMPS(); err != nil || got != program {
		t.Errorf("%q, %v", got, err)
	}
	mpsFolders = nil
	if got, err := findMPS(); err == nil {
		t.Errorf("found %q where there is none", got)
	}
}
