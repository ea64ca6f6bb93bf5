package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/testkit/mutant"
)

// solverOf waits for the process in which another one solves. Before it runs its own program it shares memory with it.
func solverOf(t *testing.T, pid int) int {
	for range 3000 {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, path := range tasks {
			var child int
			text, _ := os.ReadFile(path)
			_, _ = fmt.Sscan(string(text), &child)
			if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)); string(line) == "plan\x00"+solverCommand+"\x00" {
				return child
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatal("no process was started for the solver")
	return 0
}

// If the solver crashes, plan solve goes on and says so, and it leaves no process behind.
func TestSolveOutlivesItsSolver(t *testing.T) {
	problems, err := mutant.Problems("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, own := filepath.Join(dir, "plan"), ""
	if own, err = os.Executable(); err == nil {
		err = os.Link(own, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"solve", "-o", filepath.Join(dir, "plan.json")}
	for role, tree := range problems["pool"] {
		data, err := json.Marshal(tree)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, role+".json"), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--"+role, filepath.Join(dir, role+".json"))
	}
	for _, signal := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGKILL} {
		cmd := exec.Command(program, args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		first := solverOf(t, cmd.Process.Pid)
		_ = syscall.Kill(first, signal)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %v: %s", signal, err, &said)
		}
		plan, err := formats.ReadPlan(filepath.Join(dir, "plan.json"))
		if err != nil {
			t.Fatal(err)
		}
		word := strings.Fields(signal.String())[0] // killed, segmentation
		if !slices.ContainsFunc(plan.Warnings, func(w string) bool {
			return strings.Contains(w, "on which the solver failed") && strings.Contains(w, word)
		}) {
			t.Errorf("%v: no warning tells of it: %q", signal, plan.Warnings)
		}
		if syscall.Kill(first, 0) == nil {
			t.Errorf("%v: process %d is left", signal, first)
		}
	}
}
