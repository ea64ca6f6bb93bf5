package sim_test

import (
	"context"
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/sim"
)

// A plan is simulated at .8 of the rate that it promises. A plan holds all that its
// simulation needs.
func ExampleReplicate() {
	plan, err := formats.ReadPlan("../testdata/compat/plan-classes.v2.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	sc, err := sim.NewScenario(plan)
	if err != nil {
		fmt.Println(err)
		return
	}
	sc.Load, sc.Duration, sc.Seed = .8, 10*time.Second, 1
	r, err := sim.Replicate(context.Background(), sc, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d requests, %d completed, %d dropped, %d late\n", r.Report.Requests, r.Report.Completed, r.Report.Dropped, r.Report.Late)
	// Output:
	// 11941 requests, 11894 completed, 47 dropped, 0 late
}
