package profiler

import (
	"context"
	"errors"
	"fmt"
	"io"

	"inferplan/engine"
	"inferplan/engine/worker"
	"inferplan/formats/modelfile"
)

// How a GPU is divided between processes.
const (
	// MethodMPS is CUDA's Multi-Process Service. Each process may use only its part of the multiprocessors, and
	// the processes run at the same time.
	MethodMPS = "mps"
	// MethodTimeSlicing is for machines on which no service runs. The driver lets the processes take turns on the
	// whole GPU.
	MethodTimeSlicing = "time-slicing"
)

// Processes is a DeviceSharer with a process per share. If CUDA's Multi-Process Service runs, each process gets
// 1/v of the multiprocessors and of the memory. Otherwise the processes take turns, and the method says so.
type Processes struct {
	// Command is a program that calls worker.Main, with its arguments.
	Command []string
	Stderr  io.Writer
	// Operators are the libraries of custom operators that models need.
	Operators []modelfile.OperatorLibrary
}

// Open starts v worker processes that divide a device, each with a v-th of it.
func (p Processes) Open(ctx context.Context, d engine.Device, v int) (SharedDevice, error) {
	method, env := divideDevice(d, v)
	s := &shareProcesses{method: method, device: d}
	s.device.Share = v
	s.device.MemoryBytes /= int64(v)
	for i := range v {
		e, err := worker.StartEngine(ctx, s.device, worker.Config{Hello: worker.Hello{Engine: "onnx", Operators: p.Operators}, Command: p.Command, Env: env, Stderr: p.Stderr})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("share %d of %d: %w", i+1, v, err), s.Close())
		}
		s.engines = append(s.engines, e)
	}
	return s, nil
}

// divideDevice returns how processes divide the device, and the variables that each needs in its environment for
// that (CUDA's Multi-Process Service, "Environment Variables").
func divideDevice(d engine.Device, v int) (method string, env []string) {
	dir := mpsPipe()
	if !mpsRuns(dir) {
		return MethodTimeSlicing, nil
	}
	env = append([]string{"CUDA_MPS_PIPE_DIRECTORY=" + dir}, worker.ShareEnv(v)...)
	if index, err := d.Index(); err == nil && d.MemoryBytes > 0 {
		env = append(env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%d=%dM", index, d.MemoryBytes/int64(v)>>20))
	}
	return MethodMPS, env
}

// shareProcesses are the processes that divide a device.
type shareProcesses struct {
	engines []engine.Engine
	device  engine.Device
	method  string
}

func (s *shareProcesses) Engines() []engine.Engine { return s.engines }
func (s *shareProcesses) Device(int) engine.Device { return s.device }
func (s *shareProcesses) Method() string           { return s.method }

// Close ends the processes.
func (s *shareProcesses) Close() error {
	var errs []error
	for _, e := range s.engines {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}
