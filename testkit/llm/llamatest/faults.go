package llamatest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Signal sends a signal to the server and its models.
func (s *Server) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-s.cmd.Process.Pid, signal); err != nil {
		t.Errorf("%v to llama-server: %v", signal, err)
	}
}

// KillModels ends the processes of the models that are loaded, and leaves the router.
func (s *Server) KillModels(t testing.TB) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if s.killChildren(t) > 0 { // between two models there is none
			return
		}
	}
	t.Error("llama-server runs no model that could be killed")
}

// killChildren kills the processes that the server started.
func (s *Server) killChildren(t testing.TB) (killed int) {
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// After the name, which is in parentheses: state, parent.
		fields := strings.Fields(string(data[strings.LastIndex(string(data), ")")+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(s.cmd.Process.Pid) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}
