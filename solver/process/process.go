package process

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"inferplan/cputime"
	"inferplan/solver/milp"
)

// Solver is a milp.Solver whose solves run in another process, one at a time. The first solve starts the process,
// and so does the first one after a crash.
type Solver struct {
	Command func() *exec.Cmd // a process that calls Serve with its standard input, file 3 and its standard output
	Name    string           // of the solver and its version

	mu      sync.Mutex
	process *solverProcess
}

// stopTimeout is the time that a solve has to end after it was told to stop.
const stopTimeout = 500 * time.Millisecond

// Version returns the solver's name and version, as a plan file states it.
func (s *Solver) Version() string { return s.Name }

// Solve implements milp.Solver: it has a model solved by another process, which it starts if none runs, and calls the
// options' callbacks here. A process that was told to stop is ended, because it solves nothing else. If the process
// breaks off, the error wraps milp.ErrFault; the next solve then starts another one.
func (s *Solver) Solve(ctx context.Context, model *milp.Model, options milp.Options) (*milp.Solution, error) {
	if err := model.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return milp.NewSolution(milp.Interrupted), nil
	}

	// Start a process, if none is running.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		process, err := startProcess(s.Command())
		if err != nil {
			return nil, fmt.Errorf("starting a process for the solver: %w", err)
		}
		s.process = process
	}

	// End the process unless the solve ended by itself.
	keepProcess := false
	defer func() { // also if a callback panics
		if !keepProcess && s.process != nil {
			s.endProcess()
		}
	}()

	// Solve.
	report, wasStopped, err := s.process.solve(ctx, model, &options)
	switch {
	case err != nil && wasStopped:
		return milp.NewSolution(milp.Interrupted), nil
	case err != nil:
		return nil, fmt.Errorf("model %q: %w: its process ended: %s", model.Name, milp.ErrFault, s.endProcess())
	}
	keepProcess = !wasStopped
	if report.Solution == nil {
		return nil, &remoteError{report.Error, report.Fault}
	}
	if report.Solution.Rounded && report.Solution.X == nil { // gob does not send empty slices
		report.Solution.X = []float64{}
	}
	return report.Solution, nil
}

// Close ends the process of the solver, if one runs. A later Solve starts another one.
func (s *Solver) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.endProcess()
	}
}

// endProcess ends the process by closing its orders and its stops, waits for it, and returns the first line of its
// standard error or, if that is empty, its exit status. The next solve starts another one.
func (s *Solver) endProcess() string {
	process := s.process
	s.process = nil
	process.stdin.Close()
	process.stops.Close()
	err := process.cmd.Wait()
	firstLine, _, _ := strings.Cut(strings.TrimSpace(process.stderr.String()), "\n")
	switch exit := (*exec.ExitError)(nil); {
	case firstLine != "":
		return firstLine
	case errors.As(err, &exit):
		return exit.String()
	}
	return "without a word"
}

// solverProcess is a running process.
type solverProcess struct {
	cmd     *exec.Cmd
	stderr  bytes.Buffer // its standard error
	stdin   io.WriteCloser
	orders  *gob.Encoder
	reports *gob.Decoder
	stops   *os.File
}

// startProcess starts a process with its pipes: orders on its standard input, reports on its standard output, and stops
// on its file 3.
func startProcess(cmd *exec.Cmd) (*solverProcess, error) {
	process := &solverProcess{cmd: cmd}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stopReader, stopWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stopReader.Close()
	cmd.ExtraFiles = []*os.File{stopReader}
	cmd.Stderr = &process.stderr
	process.stdin, process.orders, process.reports, process.stops = stdin, gob.NewEncoder(stdin), gob.NewDecoder(stdout), stopWriter
	return process, cmd.Start()
}

// solve sends a model to the process and calls the options' callbacks until the last report, which it returns. If ctx
// ends, it tells the process to stop, and kills it after stopTimeout; wasStopped reports that. The process then solves
// nothing else. It returns an error if the process ends before its last report.
func (c *solverProcess) solve(ctx context.Context, model *milp.Model, options *milp.Options) (report *solveReport, wasStopped bool, err error) {
	ended := make(chan struct{})
	defer close(ended)

	// Stop the solve when ctx ends, and kill the process if it does not react.
	cancelStop := context.AfterFunc(ctx, func() {
		_, _ = c.stops.Write([]byte{1}) // an error means that the process is gone, and its solve with it
		select {
		case <-ended:
		case <-time.After(stopTimeout):
			_ = c.cmd.Process.Kill()
		}
	})

	// Send the order, and read reports up to the one with the solution.
	err = c.orders.Encode(&solveOrder{model.Tables(), *options, options.Incumbent != nil, options.Progress != nil})
	for err == nil {
		report = &solveReport{}
		if err = c.reports.Decode(report); err != nil {
			break
		}
		cputime.Add(report.CPU)
		if report.Incumbent == nil && report.Progress == nil {
			break
		}
		if report.Incumbent != nil {
			options.Incumbent(*report.Incumbent)
		} else {
			options.Progress(*report.Progress)
		}
	}
	wasStopped = !cancelStop() // cancelStop returns true if ctx has not ended so far
	return report, wasStopped, err
}
