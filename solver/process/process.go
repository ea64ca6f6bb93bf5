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

	turn  sync.Mutex
	child *child
}

// stopTimeout is the time that a solve has to end after it was told to stop.
const patience = 500 * time.Millisecond

// Version returns the solver's name and version, as a plan file states it.
func (s *Solver) Version() string { return s.Name }

// Solve implements milp.Solver.
func (s *Solver) Solve(ctx context.Context, m *milp.Model, o milp.Options) (*milp.Solution, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return milp.NewSolution(milp.Interrupted), nil
	}

	// Start a process, if none is running.
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.child == nil {
		c, err := start(s.Command())
		if err != nil {
			return nil, fmt.Errorf("starting a process for the solver: %w", err)
		}
		s.child = c
	}

	// End the process unless the solve ended by itself.
	keep := false
	defer func() { // also if a callback panics
		if !keep && s.child != nil {
			s.end()
		}
	}()

	// Solve.
	r, stopped, err := s.child.solve(ctx, m, &o)
	switch {
	case err != nil && stopped:
		return milp.NewSolution(milp.Interrupted), nil
	case err != nil:
		return nil, fmt.Errorf("model %q: %w: its process ended: %s", m.Name, milp.ErrFault, s.end())
	}
	keep = !stopped
	if r.Solution == nil {
		return nil, &remote{r.Error, r.Fault}
	}
	if r.Solution.Rounded && r.Solution.X == nil { // gob does not send empty slices
		r.Solution.X = []float64{}
	}
	return r.Solution, nil
}

// Close ends the process.
func (s *Solver) Close() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.child != nil {
		s.end()
	}
}

// endProcess ends the process, and returns the first line of its standard error or its exit status.
func (s *Solver) end() string {
	c := s.child
	s.child = nil
	c.in.Close()
	c.stops.Close()
	err := c.cmd.Wait()
	first, _, _ := strings.Cut(strings.TrimSpace(c.said.String()), "\n")
	switch exit := (*exec.ExitError)(nil); {
	case first != "":
		return first
	case errors.As(err, &exit):
		return exit.String()
	}
	return "without a word"
}

// solverProcess is a running process.
type child struct {
	cmd     *exec.Cmd
	said    bytes.Buffer // its standard error
	in      io.WriteCloser
	orders  *gob.Encoder
	reports *gob.Decoder
	stops   *os.File
}

// startProcess starts a process with its pipes.
func start(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stopped, stops, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stopped.Close()
	cmd.ExtraFiles = []*os.File{stopped}
	cmd.Stderr = &c.said
	c.in, c.orders, c.reports, c.stops = in, gob.NewEncoder(in), gob.NewDecoder(out), stops
	return c, cmd.Start()
}

// solve sends a model and calls the options' callbacks until the solve ends. wasStopped says that the solve was
// told to stop. The process then solves nothing else. It fails if the process ends.
func (c *child) solve(ctx context.Context, m *milp.Model, o *milp.Options) (r *report, stopped bool, err error) {
	answered := make(chan struct{})
	defer close(answered)

	// Stop the solve when ctx ends, and kill the process if it does not react.
	unless := context.AfterFunc(ctx, func() {
		_, _ = c.stops.Write([]byte{1}) // an error means that the process is gone, and its solve with it
		select {
		case <-answered:
		case <-time.After(patience):
			_ = c.cmd.Process.Kill()
		}
	})

	// Send the order, and read reports up to the one with the solution.
	err = c.orders.Encode(&order{m.Tables(), *o, o.Incumbent != nil, o.Progress != nil})
	for err == nil {
		r = &report{}
		if err = c.reports.Decode(r); err != nil {
			break
		}
		cputime.Add(r.CPU)
		if r.Incumbent == nil && r.Progress == nil {
			break
		}
		if r.Incumbent != nil {
			o.Incumbent(*r.Incumbent)
		} else {
			o.Progress(*r.Progress)
		}
	}
	return r, !unless(), err
}
