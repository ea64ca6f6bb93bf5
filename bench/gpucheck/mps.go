package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"inferplan/profiler"
)

// withMPS does what needs shares of the GPU while CUDA's Multi-Process Service
// runs, started for it with folders of its own. Without its program, or where what
// is done fails under it, shares are made by time slicing and named so.
func (c *check) withMPS(r *StepResult, do func() error) error {
	// Not below the work folder: its sockets' names are bounded to 108 bytes.
	dir, err := os.MkdirTemp("", "ip-mps-")
	if err != nil {
		return fmt.Errorf("start MPS: %w", err)
	}
	defer os.RemoveAll(dir)
	m, err := profiler.StartMPS(dir)
	if err != nil {
		r.note("no MPS: %v", err)
		return do()
	}
	var names []string
	for _, kv := range m.Env() {
		k, v, _ := strings.Cut(kv, "=")
		os.Setenv(k, v)
		names = append(names, k)
	}
	err = do()
	if stopped := m.Stop(); stopped != nil {
		fmt.Fprintf(c.log(), "stopping MPS: %v\n", stopped)
	}
	for _, k := range names {
		os.Unsetenv(k)
	}
	if err == nil || errors.Is(err, errStopped) {
		r.note("MPS ran, started for this step")
		return err
	}
	r.note("with MPS: %v; again by time slicing", err)
	return do()
}

func stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return errStopped
	}
	return nil
}

// errStopped: the step's time is up, trying another way makes no sense.
var errStopped = errors.New("out of time")
