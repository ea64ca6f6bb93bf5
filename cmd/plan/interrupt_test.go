package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Ctrl-C in the middle of long work ends it with code 4 and writes nothing half.
func TestInterrupt(t *testing.T) {
	t.Chdir(t.TempDir())
	profile := `{"format":"inferplan.profile/v1","devices":[{"device":"cpu-1"}],"models":[
 {"model":"alpha","blocks":[{"name":"a0"}],"measurements":[{"device":"cpu-1","share":1,"batch":1,"whole":{"wall_us":5000},"blocks":[{"wall_us":5000}]}]}]}`
	if err := os.WriteFile("profile.json", []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	if code := execute(context.Background(), []string{"solve", "--slo", "100ms"}, &out, &stderr); code != exitDone {
		t.Fatalf("solve: exit %d: %s", code, stderr.String())
	}
	for _, c := range []struct {
		after time.Duration
		args  []string
	}{
		{200 * time.Millisecond, []string{"simulate", "plan.json", "--duration", "100000h", "-o", "report.json", "--chrome-trace", "trace.json"}},
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
		if code := execute(ctx, c.args, &out, &stderr); code != exitInterrupted {
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
