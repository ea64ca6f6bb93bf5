package policies_test

import (
	"fmt"
	"time"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// A policy is told what happens and answers with actions. It reads no clock and starts
// nothing itself.
func ExampleNew() {
	plan, err := formats.ReadPlan("../../testdata/compat/plan-classes.v2.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	tables, err := policies.Compile(plan)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := policies.New(plan.Policy, tables)
	if err != nil {
		fmt.Println(err)
		return
	}
	var out policy.Actions
	for i := range int32(2) {
		now := time.Duration(i) * time.Millisecond
		arrival := policy.Event{Kind: policy.Arrival, Req: i, Task: i, ArrivedAt: now, Deadline: now + 100*time.Millisecond}
		out.Reset()
		p.Handle(now, &arrival, &out)
		for j := range out.List {
			a := &out.List[j]
			switch a.Kind {
			case policy.Dispatch:
				tasks, hops := out.BatchOf(a)
				fmt.Println(now, "dispatch", tasks, "over", len(hops), "stages")
			case policy.Wake:
				fmt.Println(now, "wake at", a.At)
			}
		}
	}
	// Output:
	// 0s dispatch [0] over 1 stages
	// 1ms dispatch [1] over 1 stages
}
