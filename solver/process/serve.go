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
	server := &server{solver: solver, reports: gob.NewEncoder(reports)}
	orderDecoder := gob.NewDecoder(orders)
	for {
		var order solveOrder
		if err := orderDecoder.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := server.solve(ctx, &order); err != nil {
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
func (s *server) send(report *solveReport) error {
	cpuUsed := cputime.Used()
	report.CPU, s.reportedCPU = cpuUsed-s.reportedCPU, cpuUsed
	return s.reports.Encode(report)
}

// solve solves the model of an order, and sends reports: one for each improved solution and each progress that the
// caller wants, and a last one with the solution or the error. It returns an error if the last one could not be sent.
func (s *server) solve(ctx context.Context, order *solveOrder) error {
	if order.Incumbent {
		order.Options.Incumbent = func(in milp.Incumbent) { _ = s.send(&solveReport{Incumbent: &in}) } // the last report says so, too
	}
	if order.Progress {
		order.Options.Progress = func(p milp.Progress) { _ = s.send(&solveReport{Progress: &p}) }
	}
	report := &solveReport{}
	solution, err := s.solver.Solve(ctx, order.Model.Model(), order.Options)
	if err != nil {
		report.Error, report.Fault = err.Error(), errors.Is(err, milp.ErrFault)
	} else {
		report.Solution = solution
	}
	return s.send(report)
}
