package queue

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
)

// certifiedRequests is the number of requests of a run of a certification, where the rates
// allow it within the limits of its duration.
const certifiedRequests = 2000

// certified stores in a plan the highest load of a grid at which every model and class
// attains what is asked.
func certified(ctx context.Context, plan *formats.Plan, asked kind.Asked) error {
	if asked.Attainment == 0 {
		asked.Attainment, _ = plan.Section.Attainment()
	}
	asked, err := asked.Of(plan, certifiedRequests, time.Minute, time.Hour)
	if err != nil {
		return err
	}
	if plan.Arrivals != nil && plan.Arrivals.Trace != "" {
		return &formats.Error{Path: "arrivals.trace", Found: plan.Arrivals.Trace, Expected: "a process of arrivals, for --certify", Hint: "plan simulate --trace plays it"}
	}
	test, err := certify.NewAsked(plan, asked)
	if err != nil {
		return err
	}
	if err := test.Highest(ctx); err != nil {
		return err
	}
	if cert := plan.Certified; cert.LoadFactor < 1 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("simulation attains %.4g for every model and class at %.2f of the planned rates: the plan judges classes pooled over their models", asked.Attainment, cert.LoadFactor))
	}
	return nil
}
