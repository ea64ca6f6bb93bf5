package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"inferplan/formats"
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
	if code := execute(context.Background(), []string{"solve", "--slo", "100ms"}, out, stderr); code != exitDone {
		t.Fatalf("solve: exit %d: %s", code, stderr.String())
	}
	return out, stderr
}

// Ctrl-C in the middle of long work ends it with code 4 and writes nothing half.
func TestInterrupt(t *testing.T) {
	out, stderr := planned(t)
	for _, c := range []struct {
		after time.Duration
		args  []string
	}{
		{200 * time.Millisecond, []string{"simulate", "plan.json", "--duration", "100000h", "-o", "report.json", "--chrome-trace", "trace.json", "--event-log", "events.log"}},
		{200 * time.Millisecond, []string{"simulate", "plan.json", "--duration", "100000h", "--find-max-load", "-o", "report.json"}},
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
		if code := execute(ctx, c.args, out, stderr); code != exitInterrupted {
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
		{"simulate", "plan.json", "--runs", "100000", "--duration", "10s", "-o", "report.json"},
		{"simulate", "plan.json", "--loads", "0.5:1.4:0.001", "--runs", "10", "--duration", "10s", "-o", "report.json"},
	} {
		// Later and later, until something was complete before the interrupt.
		for after := 50 * time.Millisecond; ; after *= 2 {
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(after, cancel)
			stderr.Reset()
			if code := execute(ctx, args, out, stderr); code != exitInterrupted {
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

// interrupted runs plan until it says FIRST, interrupts it as timeout(1) does,
// twice, and requires that it ends as after one signal.
func interrupted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupted FIRST ARGS...")
	}
	path, err := exec.LookPath("plan")
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.Getenv("WORK")
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
