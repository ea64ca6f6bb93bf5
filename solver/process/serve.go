package process

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"time"

	"inferplan/cputime"
	"inferplan/solver/milp"
)

// Serve solves the models that a Solver in the parent process sends, one after the other, until its orders end. A byte
// on stops cancels the context of all solves: the running one ends, and later ones at once. If stops ends, the caller is
// gone, and this process exits with status 1.
func Serve(solver milp.Solver, orders, stops io.Reader, reports io.Writer) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for {
			if _, err := stops.Read(make([]byte, 1)); err != nil {
				os.Exit(1)
			}
			stop()
		}
	}()
	s := &server{solver: solver, reports: gob.NewEncoder(reports)}
	orderDecoder := gob.NewDecoder(orders)
	for {
		var o solveOrder
		if err := orderDecoder.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.solve(ctx, &o); err != nil {
			return err
		}
	}
}

// server is the state of Serve.
type server struct {
	solver      milp.Solver
	reports     *gob.Encoder
	reportedCPU time.Duration // CPU time that was reported so far
}

// send sends a report with the CPU time since the last one.
func (s *server) send(r *solveReport) error {
	cpuUsed := cputime.Used()
	r.CPU, s.reportedCPU = cpuUsed-s.reportedCPU, cpuUsed
	return s.reports.Encode(r)
}

// solve solves the model of an order, and sends reports: one for each improved solution and each progress that the
// caller wants, and a last one with the solution or the error. It returns an error if the last one could not be sent.
func (s *server) solve(ctx context.Context, o *solveOrder) error {
	if o.Incumbent {
		o.Options.Incumbent = func(in milp.Incumbent) { _ = s.send(&solveReport{Incumbent: &in}) } // the last report says so, too
	}
	if o.Progress {
		o.Options.Progress = func(p milp.Progress) { _ = s.send(&solveReport{Progress: &p}) }
	}
	r := &solveReport{}
	sol, err := s.solver.Solve(ctx, o.Model.Model(), o.Options)
	if err != nil {
		r.Error, r.Fault = err.Error(), errors.Is(err, milp.ErrFault)
	} else {
		r.Solution = sol
	}
	return s.send(r)
}
