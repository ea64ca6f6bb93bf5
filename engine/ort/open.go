//go:build cgo && !noort

package ort

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -I${SRCDIR}/../../third_party/ort/include
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "ort.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"inferplan/engine"
)

// goError turns a message of the C code into an error, and frees it. No message (nil) is no error.
func goError(m *C.char) error {
	if m == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(m))
	return errors.New(plainMessage(C.GoString(m)))
}

// Forms in which ONNX Runtime's messages mention its own source code or a node of the model.
var (
	innerNode  = regexp.MustCompile(`Non-zero status code returned while running (\S+) node\. Name:'([^']*)' Status Message: `)
	sourceFile = regexp.MustCompile(`\b\w+\.(?:cc|h):\d+ \w+ `)
	shapeError = regexp.MustCompile(`Node \(([^)]*)\) Op \((\w+)\) (?:\[\w+\] )?`)
	inNode     = regexp.MustCompile(`(?s)This is an invalid model\. In Node, \("([^"]*)", (\w+), "[^"]*", -?\d+\) : .*? , Error `)
	newOpset   = regexp.MustCompile(`(?s)ONNX Runtime only \*guarantees\* support.*?Opset (\d+) is under development.*$`)
	condition  = regexp.MustCompile(`(^|: )[^:]*? was false\. ?`)
	sourceCode = regexp.MustCompile(`/\S*onnxruntime\S*\.(?:cc|h|cpp|hpp):\d+[^\n]*?\)\s*(?:\[[^\]]*\]\s*)?(\S+ was false\.\s*)?`)
)

// plainMessage returns the library's message for users: without file names, line numbers and conditions of its
// source code, and with the operator that fails in front.
func plainMessage(text string) string {
	text = innerNode.ReplaceAllString(text, `the operator $1 "$2" fails: `)
	text = sourceCode.ReplaceAllString(text, "")
	text = sourceFile.ReplaceAllString(text, "")
	text = shapeError.ReplaceAllString(text, `operator $2 "$1": `)
	text = inNode.ReplaceAllString(text, `operator $2 "$1": `)
	text = newOpset.ReplaceAllString(text, "its operator set (opset) $1 is newer than this ONNX Runtime: export it with an older one")
	text = condition.ReplaceAllString(text, "$1")
	return strings.Join(strings.Fields(text), " ")
}

// openLibrary is the library that this process has opened. It is opened once and never closed.
var openLibrary struct {
	sync.Mutex
	path, version string
}

// Engine is ONNX Runtime.
type Engine struct {
	info engine.Info

	// perBatch makes blocks on the CPU keep a session per batch size, as those on a GPU do. Tests set it.
	perBatch bool
	// staged makes blocks copy into and out of their own tensors, as those with CUDA graphs do. Tests set it.
	staged bool
	// fed makes blocks on the CPU copy inputs into their own tensors at each run, as those on a GPU do. Tests set
	// it.
	fed bool
	// static makes sessions for one batch size each, as on a GPU for models that compute with their own shapes.
	// Tests set it.
	static bool
	// waits makes runs on the CPU wait through the GPU's driver. Tests set it.
	waits bool

	operators []string // libraries of custom operators

	mu     sync.Mutex
	blocks map[*block]struct{}
	closed bool
	ready  map[string]bool // GPUs whose libraries were found
}

// Open opens ONNX Runtime's library at a path, or the one that FindLibrary finds if the path is empty, and returns
// the engine. A process can open one library only. Further calls with the same path return engines over the same
// library.
func Open(path string) (*Engine, error) {
	if path == "" {
		var err error
		if path, err = FindLibrary(); err != nil {
			return nil, err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open ONNX Runtime: %w", err)
	}

	// Open the library, unless this process has opened it before.
	openLibrary.Lock()
	defer openLibrary.Unlock()
	if openLibrary.path == "" {
		if _, err := os.Stat(path); err != nil {
			return nil, &engine.MissingError{Target: "ONNX Runtime", Missing: []string{path}, Hint: "type `make setup`, or set " + LibraryEnv, Kind: engine.ErrNoLibrary}
		}
		if err := noTelemetry(); err != nil {
			return nil, err
		}
		p := C.CString(path)
		defer C.free(unsafe.Pointer(p))
		var v *C.char
		if err := goError(C.ip_open(p, &v)); err != nil {
			return nil, fmt.Errorf("open ONNX Runtime %s: %w: %v", path, engine.ErrNoLibrary, err)
		}
		openLibrary.version = C.GoString(v)
		C.free(unsafe.Pointer(v))
		openLibrary.path = path
	} else if openLibrary.path != path {
		return nil, fmt.Errorf("open ONNX Runtime %s: this process has already opened %s, and can hold one only", path, openLibrary.path)
	}
	return &Engine{info: engine.Info{Name: "onnxruntime", Version: openLibrary.version, Library: path}, blocks: map[*block]struct{}{}}, nil
}

// telemetryEnv is ONNX Runtime's own switch. From release 1.29 on, its builds for Linux identify the machine (with
// a shell that they start) and upload events about sessions, unless it is set.
const telemetryEnv = "ORT_DISABLE_TELEMETRY"

// noTelemetry keeps the library, which is about to be opened, from reporting to its vendor. Users who want the
// reports set the variable to 0.
func noTelemetry() error {
	if _, chosen := os.LookupEnv(telemetryEnv); chosen {
		return nil
	}
	if err := os.Setenv(telemetryEnv, "1"); err != nil {
		return fmt.Errorf("switch ONNX Runtime's telemetry off: %w", err)
	}
	return nil
}

// UseOperators opens libraries of custom operators, which every later session can use. Opening a library runs its
// code.
func (e *Engine) UseOperators(paths ...string) error {
	for _, path := range paths {
		p := C.CString(path)
		err := goError(C.ip_operators(p))
		C.free(unsafe.Pointer(p))
		if err != nil {
			return fmt.Errorf("%w: %s is no library of custom operators for ONNX Runtime: %w", engine.ErrModel, path, err)
		}
		e.operators = append(e.operators, path)
	}
	return nil
}

// Info names the library and its version.
func (e *Engine) Info() engine.Info { return e.info }

// Devices lists each CPU that this process may use as a device of its own, then the GPUs.
func (e *Engine) Devices() ([]engine.Device, error) {
	cpus, err := engine.CPUs()
	if err != nil {
		return nil, err
	}
	var out []engine.Device
	name, memory := cpuName(), engine.MemoryBytes()
	for _, cpu := range cpus {
		d := engine.CPUDevice(cpu)
		d.Name, d.MemoryBytes = name, memory
		out = append(out, d)
	}
	gpus, err := GPUs()
	return append(out, gpus...), err
}

// cpuName returns the processor's model name, as Linux reports it.
func cpuName() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(data)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return runtime.GOARCH + " CPU"
}

// Close frees all blocks that are still loaded. The library stays open for other engines of this process.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	var openBlocks []*block
	for b := range e.blocks {
		openBlocks = append(openBlocks, b)
	}
	e.mu.Unlock()
	var errs []error
	for _, b := range openBlocks {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// tryLibrary returns why a library cannot be opened, or nil.
func tryLibrary(name string) error {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return goError(C.ip_library(n))
}

// CUDA lists the libraries that a CUDA device needs, and whether each can be opened.
func CUDA() []Requirement {
	lib, err := FindLibrary()
	if err != nil {
		return []Requirement{{Name: libraryName, Purpose: "ONNX Runtime", Err: err}}
	}
	return requirements(lib, "cuda", cudaNeeds)
}

// requirements lists the files of ONNX Runtime's execution provider for GPUs (cuda or tensorrt), which lie beside
// its library lib, and the given system libraries as pairs of name and purpose. For each it says whether it can be
// used.
func requirements(lib, provider string, libraries [][2]string) []Requirement {
	var out []Requirement
	dir := filepath.Dir(lib)
	if resolved, err := filepath.EvalSymlinks(lib); err == nil {
		dir = filepath.Dir(resolved)
	}
	for _, p := range []string{"shared", provider} {
		f := filepath.Join(dir, "libonnxruntime_providers_"+p+".so")
		_, err := os.Stat(f)
		out = append(out, Requirement{Name: f, Purpose: "ONNX Runtime's provider for GPUs, beside its library", Err: err})
	}
	for _, library := range libraries {
		name, purpose := library[0], library[1]
		out = append(out, Requirement{Name: name, Purpose: purpose, Err: tryLibrary(name)})
	}
	return out
}

// checkGPU returns an error that says exactly what a GPU device lacks: libraries, with those of TensorRT if tensorrt
// is set, or the GPU itself. A GPU that passed is not checked again, because the libraries are large and there is a
// session for every block and batch size.
func (e *Engine) checkGPU(d engine.Device, tensorrt bool) error {
	key := fmt.Sprint(d.ID, tensorrt)
	e.mu.Lock()
	isChecked := e.ready[key]
	e.mu.Unlock()
	if isChecked {
		return nil
	}
	if err := e.lookForGPU(d, tensorrt); err != nil {
		return err
	}
	e.mu.Lock()
	if e.ready == nil {
		e.ready = map[string]bool{}
	}
	e.ready[key] = true
	e.mu.Unlock()
	return nil
}

// lookForGPU opens the libraries that a GPU device needs, with those of TensorRT if tensorrt is set, and looks for the
// GPU. Its error lists all that is missing.
func (e *Engine) lookForGPU(d engine.Device, tensorrt bool) error {
	const hint = "install the driver, CUDA 13 and cuDNN 9 (as Python packages: pip install nvidia-cudnn-cu13 nvidia-cublas nvidia-cuda-runtime nvidia-curand nvidia-cufft), and type `make setup CUDA=1` for the providers"
	reqs := requirements(e.info.Library, "cuda", cudaNeeds)
	if tensorrt {
		reqs = append(reqs, requirements(e.info.Library, "tensorrt", tensorrtNeeds)[1:]...)
	}
	if err := missingError("device "+d.ID, reqs, hint, engine.ErrNoDevice); err != nil {
		return err
	}
	gpus, err := GPUs()
	if err != nil {
		return err
	}
	i, err := d.Index()
	if err != nil {
		return err
	}
	if i >= len(gpus) {
		return fmt.Errorf("device %s: %w: this machine has %d GPUs", d.ID, engine.ErrNoDevice, len(gpus))
	}
	return nil
}
