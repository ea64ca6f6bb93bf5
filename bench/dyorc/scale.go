package main

import (
	"fmt"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/policy"
	"inferplan/policy/workflow"
)

// sizes are the fleets that a load per device is served by.
var sizes = []int{4, 8, 16, 32, 64, 128, 1024}

// groupOf is how many devices a group behind a balancer has.
const groupOf = 32

// perDevice is the rate that each device carries: MIX 12 on 32.
const perDevice = 12.0 / 32

// served makes the policy of a scene: one for all devices, or one for each group.
func (sc *scene) served(t *policy.Tables, fleet func(devices int) *policy.Tables, opt workflow.Options) (policy.Policy, []*charged) {
	var all []*charged
	one := func(t *policy.Tables) policy.Policy {
		p := policy.Policy(workflow.New(t, opt))
		if sc.Charged {
			c := &charged{inner: p}
			all, p = append(all, c), c
		}
		return p
	}
	if sc.Group == 0 {
		return one(t), all
	}
	b := &balanced{size: int32(sc.Group), open: make([]int, sc.Devices/sc.Group)}
	part := fleet(sc.Group)
	for range b.open {
		b.groups = append(b.groups, one(part))
	}
	return b, all
}

// scales are the fleets, with the time of the scheduler charged or not.
func scales(charged bool, group int) (out []*scene) {
	for _, devices := range sizes {
		if group > 0 && devices <= group {
			continue
		}
		sc := sceneOf(-1, perDevice*float64(devices), devices, 40)
		sc.Name, sc.Charged, sc.Group, sc.Minutes = fmt.Sprintf("%d", devices), charged, group, 10
		if devices > 128 {
			sc.Minutes, sc.Warmup = 4, 2*time.Minute
		}
		out = append(out, sc)
	}
	return out
}

// scaleTable shows latencies over the size of the fleet, the scheduler's own CPU time
// included, as one scheduler and as groups of devices that each have one.
func (b *bench) scaleTable() error {
	b.jobs = 1 // CPU times of runs beside each other would be longer
	columns := []struct {
		policy  string
		charged bool
		group   int
	}{{"dyorc", false, 0}, {"dyorc", true, 0}, {"dyorc", true, groupOf}, {"greedy", true, 0}}
	b.header("devices", "dyorc, its time not counted", "dyorc", fmt.Sprintf("dyorc, groups of %d", groupOf), "greedy", "CPU µs per request: dyorc", "in groups", "greedy")
	rows := make([][]string, len(sizes))
	var one, none *outcome
	for _, c := range columns {
		for _, sc := range scales(c.charged, c.group) {
			at := slices.Index(sizes, sc.Devices)
			r, err := b.run(b.ctx, &ask{sc: sc, policy: c.policy, seed: b.seeds[0]})
			if err != nil {
				return err
			}
			for len(rows[at]) < 7 {
				rows[at] = append(rows[at], "")
			}
			cell := fmt.Sprintf("%.3f / %.2f", r.Mean, r.P99)
			switch think := fmt.Sprintf("%.0f", r.Think); {
			case !c.charged:
				rows[at][0] = cell
				if sc.Devices == 128 {
					none = r
				}
			case c.policy == "greedy":
				rows[at][3], rows[at][6] = cell, think
			case c.group > 0:
				rows[at][2], rows[at][5] = cell, think
			default:
				rows[at][1], rows[at][4] = cell, think
				if sc.Devices == 128 {
					one = r
				}
			}
		}
	}
	for i := range rows {
		b.line(append([]string{fmt.Sprint(sizes[i])}, rows[i]...)...)
	}
	fmt.Fprintln(b.out)
	longer := 100 * (one.Mean/none.Mean - 1)
	b.claim(figures.Figure{Claim: "mean latency with the scheduler's own time above that without, MIX, 128 devices", Source: paper + " figures 13 and 14", Asked: figures.AskedShown, Measured: longer, Unit: "%"})
	b.claim(figures.Figure{Claim: "CPU time of the scheduler per request in the run, all events, MIX, 128 devices", Source: paper + " figure 14", Asked: figures.AskedShown, Measured: one.Think, Unit: "us"})
	return nil
}

// thought is the CPU time of the schedulers per request, in microseconds.
func thought(all []*charged, requests int) float64 {
	sum := time.Duration(0)
	for _, c := range all {
		sum += c.spent
	}
	return float64(sum.Nanoseconds()) / 1e3 / float64(max(1, requests))
}
