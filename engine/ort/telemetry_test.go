//go:build cgo && !noort

package ort

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const telemetryChild = "INFERPLAN_TEST_TELEMETRY"

// ONNX Runtime 1.29 keeps an identifier of the machine and a queue of events to
// upload in the user's folders as soon as a session is made. With the switch
// that Open sets it keeps nothing.
func TestNoTelemetry(t *testing.T) {
	if os.Getenv(telemetryChild) != "" {
		e := open(t)
		b := mlp(t, e, 16)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	e := open(t) // or skips
	path := e.Info().Library
	home := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestNoTelemetry$", "-test.v")
	for _, kv := range os.Environ() {
		if len(kv) < len(telemetryEnv) || kv[:len(telemetryEnv)] != telemetryEnv {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, telemetryChild+"=1", LibraryEnv+"="+path, "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	err := filepath.WalkDir(home, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left behind: %s", p)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestTelemetryIsTheUsersChoice(t *testing.T) {
	t.Setenv(telemetryEnv, "0")
	if err := noTelemetry(); err != nil || os.Getenv(telemetryEnv) != "0" {
		t.Errorf("%s is %q, %v: expected what the user set", telemetryEnv, os.Getenv(telemetryEnv), err)
	}
	os.Unsetenv(telemetryEnv) // Setenv's clean-up puts back what was
	if err := noTelemetry(); err != nil || os.Getenv(telemetryEnv) != "1" {
		t.Errorf("%s is %q, %v: expected 1", telemetryEnv, os.Getenv(telemetryEnv), err)
	}
}
