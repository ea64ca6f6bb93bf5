package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/testkit/mutant"
)

// signalled are command lines of every verb, in a folder with the documents of a large
// problem and, as plan.json, the plan of a small one of the same kind. FIFO is a pipe
// that nobody writes to, MUTE an address that takes connections and says nothing, HOW and
// NOISE what plans of the kind need. A verb
// that is over before a signal can come has none.
var signalled = map[string][]string{
	"solve":      {"solve --profile profile.json --cluster cluster.json --workload workload.json -o made.json"},
	"check":      {"check plan.json --profile profile.json --cluster cluster.json --workload workload.json --against plan.json", "check FIFO"},
	"simulate":   {"simulate plan.json --duration 10h -o report.json", "simulate FIFO"},
	"serve":      {"serve plan.json --http 127.0.0.1:0 --metrics off HOW"},
	"worker":     {"worker --join MUTE --token-file token --device L4"},
	"agent":      {"agent --queue nats://MUTE --server 0=http://MUTE"},
	"load":       {"load --plan plan.json --duration 1h NOISE http://MUTE"},
	"diff":       {"diff FIFO plan.json"},
	"explain":    {"explain FIFO"},
	"report":     {"report FIFO"},
	"replay":     {"replay FIFO"},
	"import":     {"import workload FIFO --slo 30s"},
	"profile":    {"profile --llm http://MUTE --model m --device L4"},
	"export":     nil,
	"init":       nil,
	"models":     nil,
	"schema":     nil,
	"doctor":     nil,
	"version":    nil,
	"rescue":     nil,
	"help":       nil,
	"completion": nil,
	"share":      nil, // ends with the process that started it
	"solver":     nil, // likewise
}

// Ctrl-C ends every verb within a second of the processor's time, whenever it comes, and
// nothing half is left.
func TestInterruptEndsEveryVerb(t *testing.T) {
	for _, c := range newRootCommand().Commands() {
		if _, listed := signalled[c.Name()]; !listed {
			t.Errorf("no command line of the verb %s is interrupted here", c.Name())
		}
	}
	problems, err := mutant.Problems("../..")
	if err != nil {
		t.Fatal(err)
	}
	rounds, latest := 1, 150
	if os.Getenv("INFERPLAN_LONG") != "" {
		rounds, latest = 4, 400
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	program := filepath.Join(t.TempDir(), "plan") // TestMain is plan under this name
	own, err := os.Executable()
	if err == nil {
		err = os.Link(own, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 1))
	for _, kind := range slices.Sorted(maps.Keys(problems)) {
		dir := t.TempDir()
		how, noise := "--engine replay --grpc 127.0.0.1:0", ""
		if kind == "gear" {
			noise = "--noise"
		}
		if rounds > 1 || kind == "pool" {
			tree := solved(t, dir, problems[kind])
			if q, ok := tree.(map[string]any)["queue"].(map[string]any); ok {
				how = strings.Repeat("--server http://MUTE ", len(q["instances"].([]any)))
			}
			plan, err := json.Marshal(tree)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "plan.json"), plan, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "token"), []byte("0123456789abcdef0123456789abcdef\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		for role, tree := range enlarged(problems[kind]) {
			data, err := json.Marshal(tree)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, role+".json"), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range rounds {
			for _, verb := range slices.Sorted(maps.Keys(signalled)) {
				for _, line := range signalled[verb] {
					if (i > 0 || kind != "pool") && verb != "solve" && (rounds == 1 || strings.Contains(line, "FIFO") || !strings.Contains(line, "plan.json")) {
						continue // it does not depend on the kind, or is for the long run
					}
					line = strings.NewReplacer("HOW", how, "NOISE", noise).Replace(line)
					line = strings.NewReplacer("FIFO", "pipe", "MUTE", mute.Addr().String()).Replace(line)
					interruptOne(t, program, dir, kind, line, 60*time.Millisecond+time.Duration(rng.IntN(latest))*time.Millisecond)
				}
			}
		}
	}
}

// The gate of a plan of language models whose iterations take a thousand times too long
// simulates for minutes. Ctrl-C ends that, too.
func TestInterruptEndsAbsurdCheck(t *testing.T) {
	problems, err := mutant.Problems("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tree := solved(t, dir, problems["queue"])
	instance := tree.(map[string]any)["queue"].(map[string]any)["models"].([]any)[0].(map[string]any)["instances"].([]any)[0]
	instance.(map[string]any)["iteration"].(map[string]any)["context_ns"] = 1e6
	data, err := json.Marshal(tree)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "plan.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "plan")
	own, err := os.Executable()
	if err == nil {
		err = os.Link(own, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	interruptOne(t, program, dir, "queue", "check plan.json --no-solve --profile profile.json --cluster cluster.json --workload workload.json --against plan.json", 300*time.Millisecond)
}

// copies of each model of an enlarged problem.
const copies = 5

// enlarged is a problem with twenty times the devices, more of all rates, and copies of
// each model with what is asked of it.
func enlarged(p mutant.Problem) mutant.Problem {
	out := mutant.Problem{}
	for role, tree := range p {
		out[role] = larger(tree, "", "")
	}
	return out
}

// more are the lists whose entries are copied, by the fields that name a copy.
var more = map[string][]string{"models": {"model"}, "family": nil, "applications": {"name", "model"}}

func larger(tree any, parent, field string) any {
	switch x := tree.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			out[k] = larger(v, field, k)
		}
		return out
	case []any:
		out := make([]any, 0, len(x))
		for _, v := range x {
			out = append(out, larger(v, field, ""))
		}
		names, copied := more[field]
		if len(x) == 0 || !copied {
			return out
		}
		if _, objects := x[0].(map[string]any); !objects && field != "family" {
			return out
		}
		for i := range copies {
			for _, v := range x {
				out = append(out, suffixed(larger(v, field, ""), names, fmt.Sprint(i)))
			}
		}
		return out
	case float64:
		switch {
		case field == "count":
			return 20 * x
		case field == "rps" || parent == "qps" && (field == "max" || field == "ranges"):
			return 10 * x
		case field == "grid":
			return 10.0
		}
	}
	return tree
}

// suffixed is an entry with other names, and asks for other models.
func suffixed(tree any, names []string, suffix string) any {
	switch x := tree.(type) {
	case string:
		return x + suffix
	case map[string]any:
		for k, v := range x {
			switch name, text := v.(string); {
			case text && slices.Contains(names, k):
				x[k] = name + suffix
			case k == "segments":
				for _, seg := range v.([]any) {
					suffixed(seg, nil, suffix)
				}
			case k == "modules":
				for i, m := range v.([]any) {
					if name, ok := m.(string); ok {
						m = map[string]any{"name": name}
						v.([]any)[i] = m
					}
					m.(map[string]any)["model"] = m.(map[string]any)["name"].(string) + suffix
				}
			}
		}
	}
	return tree
}

// interruptOne starts a command line, interrupts it after a while, and says where it goes on
// or leaves what is half written.
func interruptOne(t *testing.T, program, dir, kind, line string, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, strings.Fields(line)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitUntilUsed(cmd.Process.Pid, after)
	used := cpuOf(cmd.Process.Pid)
	begun := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Logf("%s: %s: over before the signal", kind, line)
	}
	_ = cmd.Wait()
	wall := time.Since(begun)
	state := cmd.ProcessState
	cpu := state.UserTime() + state.SystemTime() - used
	what := fmt.Sprintf("%s: plan %s: interrupted after %v: %v after %v (%v of the processor): %s", kind, line, after, state, wall.Round(time.Millisecond), cpu, last(stderr.String()))
	t.Log(what)
	if cpu > time.Second || wall > 15*time.Second || state.ExitCode() == exitUsage {
		t.Error(what)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("%s\nleft %v (%v)", what, left, err)
	}
	os.Remove(filepath.Join(dir, "made.json"))
}

// waitUntilUsed returns once a process has taken so much of the processor, or takes nothing.
func waitUntilUsed(pid int, after time.Duration) {
	const idle = 300 * time.Millisecond
	before, since := time.Duration(0), time.Now()
	for {
		now := cpuOf(pid)
		if now >= after || time.Since(since) > idle {
			return
		}
		if now > before {
			before, since = now, time.Now()
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// cpuOf is the processor's time that a process has taken; 0 where it is gone.
func cpuOf(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	sum := int64(0)
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / 100 // USER_HZ
}
