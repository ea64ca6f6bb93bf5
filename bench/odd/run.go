package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/testkit/mutant"
)

// What a search may take.
const (
	mostCPU     = 20 * time.Second
	mostMemory  = 1 << 30
	mostAfter   = time.Second            // of CPU to the end, after Ctrl-C
	patience    = 30 * time.Second       // of CPU, then it is killed
	interrupted = 4                      // exit code
	worthCut    = 300 * time.Millisecond // runs that take less are not interrupted
)

// outcome holds what a search used for an instance, and what was wrong.
type outcome struct {
	*mutant.Odd
	flags  []string
	code   int
	cpu    time.Duration
	memory int64
	after  time.Duration // CPU time from Ctrl-C to the end; 0 if it was not interrupted
	wrong  []string
}

// judge solves an instance, and again with an interrupt where there is time for one.
func (o *options) judge(ctx context.Context, x *mutant.Odd) (*outcome, error) {
	dir, err := os.MkdirTemp("", "odd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := &outcome{Odd: x}
	for _, name := range slices.Sorted(maps.Keys(x.Options)) {
		out.flags = append(out.flags, "--"+name, fmt.Sprint(x.Options[name]))
	}
	args := append([]string{"solve", "-o", filepath.Join(dir, "plan.json"), "--force"}, out.flags...)
	for role, tree := range x.Documents {
		text, err := json.Marshal(tree)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, role+".json")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, err
		}
		args = append(args, "--"+role, path)
	}
	r, err := o.run(ctx, args, 0)
	if err != nil {
		return nil, err
	}
	out.code, out.cpu, out.memory = r.code, r.cpu, r.memory
	if !slices.Contains([]int{0, 2, 3}, r.code) {
		out.wrong = append(out.wrong, fmt.Sprintf("exit code %d: %s", r.code, r.last))
	}
	if r.cpu > mostCPU {
		out.wrong = append(out.wrong, fmt.Sprintf("%.1f s of CPU", r.cpu.Seconds()))
	}
	if r.memory > mostMemory {
		out.wrong = append(out.wrong, fmt.Sprintf("%d MiB", r.memory>>20))
	}
	if r.wall < worthCut {
		return out, nil
	}
	rng := rand.New(rand.NewPCG(x.Seed, 8))
	cut, err := o.run(ctx, args, time.Duration(rng.Float64()*float64(r.wall)))
	if err != nil {
		return nil, err
	}
	if cut.code == interrupted {
		out.after = cut.after
	}
	if out.after > mostAfter {
		out.wrong = append(out.wrong, fmt.Sprintf("%.1f s of CPU after Ctrl-C", out.after.Seconds()))
	}
	if !slices.Contains([]int{0, 2, 3, 4}, cut.code) {
		out.wrong = append(out.wrong, fmt.Sprintf("exit code %d after Ctrl-C: %s", cut.code, cut.last))
	}
	return out, nil
}

// usage holds what a process used, and how it ended.
type usage struct {
	code             int
	last             string // line that it said
	cpu, wall, after time.Duration
	memory           int64
}

// run runs plan, and interrupts it after a time, unless that is 0. One that takes too much CPU is killed.
func (o *options) run(ctx context.Context, args []string, interrupt time.Duration) (*usage, error) {
	cmd := exec.CommandContext(ctx, o.plan, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	limit := unix.Rlimit{Cur: uint64(patience.Seconds()), Max: uint64(patience.Seconds())}
	limited := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_CPU, &limit, nil)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var due <-chan time.Time
	if interrupt > 0 {
		due = time.After(interrupt)
	}
	cut := time.Duration(-1) // CPU used at the interrupt
	var err error
	for waiting := true; waiting; {
		select {
		case <-due:
			cut = used(cmd.Process.Pid)
			_ = cmd.Process.Signal(syscall.SIGINT) // it may have ended
		case err = <-ended:
			waiting = false
		}
	}
	if exit := (*exec.ExitError)(nil); limited != nil || err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return nil, errors.Join(limited, err)
	}
	r := &usage{code: cmd.ProcessState.ExitCode(), wall: time.Since(started), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if cut >= 0 {
		r.after = max(time.Millisecond, r.cpu-cut) // ticks are of 10 ms: it was interrupted
	}
	if by, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && by.Signaled() && by.Signal() == syscall.SIGINT {
		r.code = interrupted // before it took signals
	}
	if resources, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.memory = resources.Maxrss << 10
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	r.last = lines[len(lines)-1]
	return r, nil
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
