//go:build !cgo || noort

package ort

import (
	"context"

	"inferplan/engine"
	"inferplan/engine/graph"
)

// Engine is the type that a build with cgo has; this one cannot be opened.
type Engine struct{ engine.Engine }

func absent() error {
	return &engine.MissingError{Target: "ONNX Runtime", Missing: []string{"cgo: this binary was built without it"},
		Hint: "build with CGO_ENABLED=1, a C compiler and without the tag noort (`make build`)", Kind: engine.ErrNoLibrary}
}

// Open reports that this binary has no ONNX Runtime.
func Open(string) (*Engine, error) { return nil, absent() }

// Probe cannot be called: Open never gives an Engine.
func (*Engine) Probe(context.Context, []byte, []engine.Spec, ...graph.ProbeRun) ([]map[string]graph.Value, error) {
	return nil, absent()
}

// UseOperators cannot be called, either.
func (*Engine) UseOperators(...string) error { return absent() }

// GPUs lists none.
func GPUs() ([]engine.Device, error) { return nil, nil }

func tryLibrary(string) error { return absent() }

// GPUState holds what a GPU reports of itself.
type GPUState struct {
	Watts                        float64
	ClockMHz, MemoryMHz, Celsius int
	Throttled                    uint64
}

// Watch cannot be opened.
type Watch struct{}

// OpenWatch cannot be done.
func OpenWatch(int) (*Watch, error) { return nil, absent() }

// Read reads nothing.
func (*Watch) Read() (GPUState, error) { return GPUState{}, absent() }

// Close does nothing.
func (*Watch) Close() {}

// Pin always fails in this build.
func Pin(int, []byte) (func() error, error) { return nil, absent() }

// CUDA lists the libraries that a CUDA device needs.
func CUDA() []Requirement {
	return []Requirement{{Name: "cgo", Purpose: "this binary was built without it", Err: absent()}}
}

// Handle names a piece of GPU memory.
type Handle [64]byte

// Memory cannot be had.
type Memory struct{}

// ShareMemory cannot be done.
func ShareMemory(int, int64) (*Memory, Handle, error) { return nil, Handle{}, absent() }

// Import cannot be done.
func Import(int, Handle, int) (*Memory, error) { return nil, absent() }

// Tensor cannot be had.
func (*Memory) Tensor(engine.Spec, int, int64) (engine.Tensor, error) { return nil, absent() }

// Close does nothing.
func (*Memory) Close() error { return nil }
