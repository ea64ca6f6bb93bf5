package policytest_test

import (
	"strings"
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/testkit/policytest"
)

// spoilt changes what a policy asks for.
type spoilt struct {
	*policytest.Diamond
	change func(a *policy.Action, out *policy.Actions)
}

func (p *spoilt) Unwrap() policy.Policy { return p.Diamond }

func (p *spoilt) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	p.Diamond.Handle(now, ev, out)
	for i := range out.List {
		p.change(&out.List[i], out)
	}
}

// A policy that breaks the contract is found out, by the fault that it has.
func TestAdversaryFindsFaults(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(a *policy.Action, out *policy.Actions)
	}{
		{"which it does not have", func(a *policy.Action, out *policy.Actions) {
			if a.Kind == policy.Drop {
				out.List = append(out.List, *a)
			}
		}},
		{"without a reason", func(a *policy.Action, _ *policy.Actions) { a.Reason = policy.ReasonNone }},
		{"which has no answer", func(a *policy.Action, _ *policy.Actions) {
			if a.Kind == policy.Drop {
				a.Kind = policy.Complete
			}
		}},
		{"which is under way", func(a *policy.Action, out *policy.Actions) {
			if a.Kind == policy.Dispatch {
				out.List = append(out.List, *a)
			}
		}},
		{"which is not on it", func(a *policy.Action, out *policy.Actions) {
			if a.Kind == policy.Dispatch {
				out.Hops[a.HopFirst].Device = 2 - out.Hops[a.HopFirst].Device
			}
		}},
		{"which is not a waiting task of it", func(a *policy.Action, out *policy.Actions) {
			if a.Kind == policy.Dispatch && a.Size == 2 {
				out.Tasks[a.TaskFirst+1] = out.Tasks[a.TaskFirst]
			}
		}},
		{"expected 1 to", func(a *policy.Action, _ *policy.Actions) {
			if a.Kind == policy.Dispatch {
				a.Size = 0
			}
		}},
		{"which is on no instance", func(a *policy.Action, _ *policy.Actions) {
			if a.Kind == policy.Evict {
				a.Batch = 77
			}
		}},
		{"which does not wait", func(a *policy.Action, _ *policy.Actions) {
			if a.Kind == policy.Place {
				a.Task = 7777
			}
		}},
		{"takes mode", func(a *policy.Action, _ *policy.Actions) {
			if a.Kind == policy.Replan {
				a.Kind = policy.SwitchMode
			}
		}},
		{"which is free", func(a *policy.Action, _ *policy.Actions) {
			if a.Kind == policy.Replan {
				a.Kind, a.Batch = policy.Abort, 99
			}
		}},
	} {
		tab := policytest.DiamondTables()
		foe := &policytest.Adversary{Tables: tab, Policy: &spoilt{policytest.NewDiamond(tab), c.change}, Control: &policytest.DiamondControl{}, Rand: seeded.New(1, "adversary")}
		if err := foe.Run(600); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("found %v, expected %q", err, c.want)
		}
	}
}
