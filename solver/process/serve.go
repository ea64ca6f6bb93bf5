package process

import (
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"inferplan/cputime"
	"inferplan/solver/milp"
)

// Serve solves what a Solver sends, one model after the other, until its orders end. Stops come beside them, and if these
// end, so does the process: the caller is gone.
func Serve(solver milp.Solver, orders, stops io.Reader, reports io.Writer) error {
	s := &server{solver: solver, out: gob.NewEncoder(reports)}
	go s.watch(stops)
	for dec := gob.NewDecoder(orders); ; {
		var o order
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.solve(&o); err != nil {
			return err
		}
	}
}

// server is the state of Serve.
type server struct {
	solver milp.Solver
	out    *gob.Encoder
	cpu    time.Duration // used until the last report

	mu       sync.Mutex
	number   uint64 // of the solve under way
	stopped  uint64 // the last solve that was to stop
	stopping context.CancelFunc
}

// watch stops solves.
func (s *server) watch(stops io.Reader) {
	for {
		var number uint64
		if binary.Read(stops, binary.LittleEndian, &number) != nil {
			os.Exit(1)
		}
		s.mu.Lock()
		if s.stopped = number; s.number == number {
			s.stopping()
		}
		s.mu.Unlock()
	}
}

// begin returns the context of a solve.
func (s *server) begin(number uint64) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number, s.stopping = number, cancel; s.stopped == number {
		cancel()
	}
	return ctx
}

// send sends a report.
func (s *server) send(r *report) error {
	used := cputime.Used()
	r.CPU, s.cpu = used-s.cpu, used
	return s.out.Encode(r)
}

func (s *server) solve(o *order) error {
	if o.Incumbent {
		o.Options.Incumbent = func(in milp.Incumbent) { _ = s.send(&report{Incumbent: &in}) } // the last report says so, too
	}
	if o.Progress {
		o.Options.Progress = func(p milp.Progress) { _ = s.send(&report{Progress: &p}) }
	}
	r := &report{}
	sol, err := s.solver.Solve(s.begin(o.Number), o.Model.Model(), o.Options)
	if err != nil {
		r.Error, r.Fault = err.Error(), errors.Is(err, milp.ErrFault)
	} else {
		r.Solution = sol
	}
	return s.send(r)
}
