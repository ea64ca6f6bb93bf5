package queue

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/sim"
)

// certified is the number of requests of a run of a certification, where the rates
// allow it within the limits of its duration.
const certified = 2000

// certify stores in a plan the highest load of a grid at which every model and class
// attains what is asked.
func certify(ctx context.Context, plan *formats.Plan, asked kind.Asked) error {
	if asked.Attainment == 0 {
		asked.Attainment, _ = plan.Section.Attainment()
	}
	asked, err := asked.Of(plan, certified, time.Minute, time.Hour)
	if err != nil {
		return err
	}
	cert, err := sim.Certify(ctx, plan, asked.Attainment, asked.Runs, asked.Duration, asked.Seed)
	if err != nil {
		return err
	}
	plan.Certified = cert
	if cert.LoadFactor < 1 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g for every model and class at %.2f of the planned rates: the plan judges classes pooled over their models", asked.Attainment, cert.LoadFactor))
	}
	return nil
}
