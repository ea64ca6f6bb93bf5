package profiler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/worker"
)

const asShare = "INFERPLAN_TEST_SHARE"

// shareMain is what this test binary does as the process of a share.
func shareMain() {
	if err := worker.Main(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Two processes that work at the same time compute what one engine computes
// here, and both are timed. They share a CPU: there need be no GPU for it.
func TestProcessesComputeTheSame(t *testing.T) {
	eng := realEngine(t)
	path := realModels(t, "squeezenet")[0]
	t.Setenv(asShare, "1")
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", t.TempDir()) // no service
	dev, err := selectDevice(eng, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	m, err := graph.Open(path, graph.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	atoms, err := m.Chain(t.Context(), eng.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	even := make([]float64, atoms.AtomCount())
	for i := range even {
		even[i] = 1
	}
	cut, err := atoms.Partition(even, 3)
	if err != nil {
		t.Fatal(err)
	}
	shares, err := Processes{Command: []string{os.Args[0]}, Stderr: os.Stderr}.Open(t.Context(), dev, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := shares.Close(); err != nil {
			t.Error(err)
		}
	}()
	if shares.Method() != MethodTimeSlicing || shares.Device(0).Share != 2 {
		t.Errorf("%s, share 1/%d: expected %s and 1/2", shares.Method(), shares.Device(0).Share, MethodTimeSlicing)
	}
	var want []byte
	var runs []func(int) (engine.Timing, error)
	for i, e := range append([]engine.Engine{eng}, shares.Engines()...) {
		d := dev
		if i > 0 {
			d = shares.Device(i - 1)
		}
		list, err := loadTarget{eng: e, dev: d}.loadSlices(t.Context(), cut)
		if err != nil {
			t.Fatal(err)
		}
		c := &loadedModel{blocks: list}
		defer c.close()
		bindings, err := bindChain(list, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.bound = map[int]*boundModel{2: {blocks: bindings}}
		if err := runOnce(t.Context(), bindings); err != nil {
			t.Fatal(err)
		}
		last := bindings[len(bindings)-1].Outputs()[0]
		out := make([]byte, last.Spec().BytesAt(2))
		if err := last.Read(out); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = out
			continue
		}
		if !bytes.Equal(out, want) || bytes.Equal(out, make([]byte, len(out))) {
			t.Errorf("share %d computes something else than the engine here", i)
		}
		runs = append(runs, bindings[0].RunN)
	}
	timing, err := RunTogether(runs)(3)
	if err != nil || timing.Runs != 3 || timing.CPU <= 0 || timing.Wall < timing.CPU/2 {
		t.Errorf("timing %+v, %v", timing, err)
	}
}

func TestGPUIsDividedByMPSWhereItRuns(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", dir)
	gpu := engine.Device{ID: "cuda:1", Kind: "L4", MemoryBytes: 24 << 30}
	if method, env := divideDevice(gpu, 3); method != MethodTimeSlicing || env != nil {
		t.Errorf("no service: %s, %v", method, env)
	}
	if err := os.WriteFile(filepath.Join(dir, "control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	method, env := divideDevice(gpu, 3)
	want := []string{"CUDA_MPS_PIPE_DIRECTORY=" + dir, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=33", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=1=8192M"}
	if method != MethodMPS || !slices.Equal(env, want) {
		t.Errorf("%s, %v; want %s, %v", method, env, MethodMPS, want)
	}
}

func TestProcessesThatDoNotStart(t *testing.T) {
	_, err := Processes{Command: []string{filepath.Join(t.TempDir(), "absent")}, Stderr: io.Discard}.Open(t.Context(), engine.CPUDevice(0), 2)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v, want %v", err, os.ErrNotExist)
	}
}
