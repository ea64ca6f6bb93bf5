package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	codeInterrupted = 4  // exit code
	patience        = 30 // seconds of CPU, then a search is killed
)

// usage holds what a process used, and how it ended.
type usage struct {
	code       int
	last       string  // line that it said
	cpu, after float64 // seconds of CPU: in all, and from Ctrl-C to the end
	wall       time.Duration
	memory     float64 // MiB
}

// run runs plan, and interrupts it after a time. One that takes too much CPU is killed.
func run(ctx context.Context, args []string, interrupt time.Duration) (*usage, error) {
	limited, cancel := context.WithTimeout(ctx, interrupt)
	defer cancel()
	cmd := exec.CommandContext(limited, "bin/plan", args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	before := time.Duration(-1) // CPU used at the interrupt
	cmd.Cancel = func() error {
		before = used(cmd.Process.Pid)
		return cmd.Process.Signal(syscall.SIGINT)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting plan: %w", err)
	}
	limit := unix.Rlimit{Cur: patience, Max: patience}
	err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_CPU, &limit, nil)
	_ = cmd.Wait() // the exit code counts
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("running plan: %w", err)
	}
	state := cmd.ProcessState
	out := &usage{code: state.ExitCode(), wall: time.Since(began), cpu: (state.UserTime() + state.SystemTime()).Seconds()}
	if before >= 0 {
		out.after = max(0, out.cpu-before.Seconds())
	}
	if by, ok := state.Sys().(syscall.WaitStatus); ok && by.Signaled() && by.Signal() == syscall.SIGINT {
		out.code = codeInterrupted // before it took signals
	}
	if resources, ok := state.SysUsage().(*syscall.Rusage); ok {
		out.memory = float64(resources.Maxrss >> 10)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	out.last = lines[len(lines)-1]
	return out, nil
}

// used returns the CPU time of a process and of those that it has started, to 10 ms; -1 if it has ended. Wall time
// says more of what else the machine does.
func used(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	sum := time.Duration(0)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, ticks := range fields[11:15] { // of the user and the system, and of children that have ended
		n, _ := strconv.ParseInt(ticks, 10, 64)
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for child := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				sum += max(0, used(n))
			}
		}
	}
	return sum
}
