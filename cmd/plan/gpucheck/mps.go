package gpucheck

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"inferplan/profiler"
)

// startMPS starts CUDA's Multi-Process Service for this step's processes, with
// folders of its own, unless one runs already. Without its program, or where
// it does not start, shares are made by time slicing and named so.
func (c *check) startMPS() (stop func(), note string) {
	m, err := profiler.StartMPS(filepath.Join(c.Work, "mps"))
	if err != nil {
		return func() {}, fmt.Sprintf("no MPS: %v", err)
	}
	for _, kv := range m.Env() {
		k, v, _ := strings.Cut(kv, "=")
		os.Setenv(k, v)
	}
	return func() {
		if err := m.Stop(); err != nil {
			fmt.Fprintf(c.log(), "stopping MPS: %v\n", err)
		}
	}, "MPS runs, started for this step"
}
