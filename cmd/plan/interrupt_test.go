package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"inferplan/formats"
	"inferplan/formats/document"
)

// planned goes to a folder with a profile and the plan made from it.
func planned(t *testing.T) (out, stderr *bytes.Buffer) {
	t.Helper()
	t.Chdir(t.TempDir())
	profile := `{"format":"inferplan.profile/v1","devices":[{"device":"cpu-1"}],"models":[
 {"model":"alpha","blocks":[{"name":"a0"}],"measurements":[{"device":"cpu-1","share":1,"batch":1,"whole":{"wall_us":5000},"blocks":[{"wall_us":5000}]}]}]}`
	if err := os.WriteFile("profile.json", []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	out, stderr = new(bytes.Buffer), new(bytes.Buffer)
	if code := executeCommand(context.Background(), []string{"solve", "--slo", "100ms"}, out, stderr); code != exitDone {
		t.Fatalf("solve: exit %d: %s", code, stderr.String())
	}
	return out, stderr
}

// Ctrl-C in the middle of long work ends it with code 4 and writes nothing half.
func TestInterruptWritesNothingHalf(t *testing.T) {
	out, stderr := planned(t)
	for _, c := range []struct {
		after time.Duration
		args  []string
	}{
		{200 * time.Millisecond, []string{"simulate", "plan.json", "--duration", "100h", "--warmup", "99h", "-o", "report.json", "--chrome-trace", "trace.json", "--event-log", "events.log"}},
		{200 * time.Millisecond, []string{"simulate", "plan.json", "--duration", "100h", "--find-max-load", "-o", "report.json"}},
		{0, []string{"solve", "--slo", "100ms", "-o", "other.json"}},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(c.after, cancel)
		if c.after == 0 {
			cancel()
		}
		out.Reset()
		stderr.Reset()
		// Were the interrupt not heeded, this would last until the test's time-out.
		if code := executeCommand(ctx, c.args, out, stderr); code != exitInterrupted {
			t.Errorf("%v: exit %d, expected %d: %s", c.args, code, exitInterrupted, stderr.String())
		}
		if !bytes.Contains(stderr.Bytes(), []byte("interrupted")) {
			t.Errorf("%v does not say that it was interrupted: %s", c.args, stderr.String())
		}
		cancel()
		left, err := filepath.Glob("*")
		if err != nil || len(left) != 2 {
			t.Errorf("%v left %v (%v), expected plan.json and profile.json alone", c.args, left, err)
		}
	}
}

// What was complete when Ctrl-C came is kept, and marked.
func TestInterruptKeepsRuns(t *testing.T) {
	out, stderr := planned(t)
	for _, args := range [][]string{
		{"simulate", "plan.json", "--runs", "10000", "--duration", "10s", "-o", "report.json"},
		{"simulate", "plan.json", "--loads", "0.5:1.4:0.001", "--runs", "10", "--duration", "10s", "-o", "report.json"},
	} {
		// Later and later, until something was complete before the interrupt.
		for after := 50 * time.Millisecond; ; after *= 2 {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(after, cancel)
			stderr.Reset()
			if code := executeCommand(ctx, args, out, stderr); code != exitInterrupted {
				t.Fatalf("%v: exit %d, expected %d: %s", args, code, exitInterrupted, stderr.String())
			}
			rep, err := formats.ReadReport("report.json")
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil || !rep.Interrupted || rep.Runs < 1 || rep.Requests == 0 || !bytes.Contains(stderr.Bytes(), []byte("interrupted; the report is of the first ")) {
				t.Errorf("%v: %+v, %v: %s", args, rep, err, stderr.String())
			}
			break
		}
		if err := os.Remove("report.json"); err != nil {
			t.Fatal(err)
		}
	}
}

// A first run that is interrupted gives the report, the event log and the trace of a run of that duration.
func TestInterruptKeepsFirstRun(t *testing.T) {
	out, stderr := planned(t)
	var cut *formats.Report
	for after := 50 * time.Millisecond; cut == nil; after *= 2 { // until requests came before the interrupt
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(after, cancel)
		stderr.Reset()
		if code := executeCommand(ctx, []string{"simulate", "plan.json", "--duration", "100h", "--event-log", "events.log", "-o", "cut.json"}, out, stderr); code != exitInterrupted {
			t.Fatalf("exit %d, expected %d: %s", code, exitInterrupted, stderr.String())
		}
		var err error
		if cut, err = formats.ReadReport("cut.json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if !cut.Interrupted || cut.Requests == 0 || !strings.Contains(stderr.String(), "the report is of the requests that arrived in the first ") {
		t.Fatalf("%+v: %s", cut, stderr.String())
	}
	planDone(t, "replay", "events.log")
	planDone(t, "simulate", "plan.json", "--duration", cut.DurationUS.D().String(), "-o", "shorter.json")
	shorter, err := formats.ReadReport("shorter.json")
	if err != nil {
		t.Fatal(err)
	}
	for i := range shorter.Models {
		shorter.Models[i].Slower = nil // an interrupted simulation does not simulate slower runs
	}
	cut.Interrupted = false
	if d := cmp.Diff(shorter, cut); d != "" {
		t.Error(d)
	}
}

// cascade writes the documents of a cascade of two models, whose SLO is over all requests
// of ten minutes of rates.
func cascade(t *testing.T) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	rec := formats.Records{Samples: 2000, PlanningSamples: 2000}
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "cpu-1"}}}
	for k, name := range []string{"small", "large"} {
		p.Models = append(p.Models, formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all"}}, Measurements: []formats.Measurement{
			{Device: "cpu-1", Share: 1, Batch: 1, Blocks: []formats.Latency{{WallUS: document.Micros((200 + 600*k) * 1000)}}}}})
		r, correct := formats.ModelRecords{Model: name}, make([]byte, rec.Samples)
		for i := range correct {
			certainty := rng.Float64()
			if correct[i] = '0'; rng.Float64() < .7+.2*float64(k) {
				correct[i], certainty = '1', max(certainty, rng.Float64())
			}
			r.Certainty = append(r.Certainty, math.Round(1e4*certainty)/1e4)
		}
		r.Correct = string(correct)
		rec.Models = append(rec.Models, r)
	}
	p.Records = []formats.Records{rec}
	if _, err := document.WriteFile("profile.json", p); err != nil {
		t.Fatal(err)
	}
	var rates strings.Builder
	rates.WriteString("second,count\n")
	for s := range 600 {
		fmt.Fprintf(&rates, "%d,%d\n", s, 400+600*(s%20/18))
	}
	for path, text := range map[string]string{
		"rates.csv":     rates.String(),
		"cluster.yaml":  "format: inferplan.cluster/v1\npools: [{device: cpu-1, count: 1}]\n",
		"workload.yaml": "format: inferplan.workload/v1\ncascade: {family: [small, large], slo: {latency: 100ms, over: requests}, qps: {measured: rates.csv}}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The plan of a cascade that was found when Ctrl-C came is written, says so, and holds.
func TestInterruptKeepsGears(t *testing.T) {
	t.Chdir(t.TempDir())
	cascade(t)
	out, stderr := new(bytes.Buffer), new(bytes.Buffer)
	// Later and later, until there was a plan before the interrupt.
	for after := 20 * time.Millisecond; ; after += after / 2 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(after, cancel)
		stderr.Reset()
		if code := executeCommand(ctx, []string{"solve"}, out, stderr); code != exitInterrupted {
			t.Fatalf("after %v: exit %d, expected %d: %s", after, code, exitInterrupted, stderr.String())
		}
		plan, err := formats.ReadPlan("plan.json")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || plan.StoppedBy != "interrupt" || len(formats.GearOf(plan).Gears) != 10 || !strings.Contains(stderr.String(), "interrupted; the best plan so far is in plan.json") {
			t.Errorf("after %v: %+v, %v: %s", after, plan, err, stderr.String())
		}
		break
	}
	if code := executeCommand(context.Background(), []string{"check", "plan.json", "--no-solve"}, out, stderr); code != exitDone {
		t.Errorf("check: exit %d: %s", code, stderr.String())
	}
}

// interrupted runs plan until it says FIRST, interrupts it as timeout(1) does,
// twice, and requires that it ends as after one signal. FIRST may be INFERPLAN_STARTED,
// an unknown variable in its environment, of which it warns at its start.
func interrupted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupted FIRST ARGS...")
	}
	path, err := exec.LookPath("plan")
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir, cmd.Env = ts.Getenv("WORK"), append(os.Environ(), "INFERPLAN_STARTED=1")
	out, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() { _ = cmd.Process.Kill() })
	last := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last = lines.Text(); strings.Contains(last, args[0]) {
			ts.Check(cmd.Process.Signal(os.Interrupt))
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.HasPrefix(last, "plan: interrupted") {
		ts.Fatalf("plan %v: exit code %d and %q at last, expected %d and what was kept", args[1:], code, last, exitInterrupted)
	}
}

// abandoned interrupts plan once while it waits for what nobody writes into a
// pipe: there is nothing to keep yet, and it ends.
func abandoned(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: abandoned FIFO ARGS...")
	}
	fifo := ts.MkAbs(args[0])
	ts.Check(unix.Mkfifo(fifo, 0o600))
	path, err := exec.LookPath("plan")
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = ts.Getenv("WORK"), &stderr
	ts.Check(cmd.Start())
	ts.Defer(func() { _ = cmd.Process.Kill() })
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns once plan reads
	ts.Check(err)
	defer w.Close()
	ts.Check(cmd.Process.Signal(os.Interrupt))
	late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	late.Stop()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stderr.String(), "interrupted; nothing was written") {
		ts.Fatalf("plan %v: exit code %d, expected %d: %s", args[1:], code, exitInterrupted, stderr.String())
	}
}
