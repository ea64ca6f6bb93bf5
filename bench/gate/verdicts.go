package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

// world holds the documents that plans are made for.
type world struct {
	devices int
	slo     time.Duration
	told    bool // why the gate fails is printed
}

// why says what fails.
func why(r *check.Result) (out []string) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Severity == check.Error {
			out = append(out, f.String())
		}
	}
	for i := range r.Metrics {
		if c := &r.Metrics[i]; c.Failed {
			out = append(out, c.FailureText())
		}
	}
	return out
}

// inputs are the documents with a profile.
func (w *world) inputs(p *formats.Profile) planner.Inputs {
	workload, _ := planner.AssumedWorkload(p, document.SLO{Duration: w.slo})
	return planner.Inputs{Profile: p, Workload: workload, Cluster: &formats.Cluster{
		Format: formats.FormatCluster, Host: formats.HostShared,
		Pools: []formats.Pool{{Device: p.Devices[0].Device, Count: w.devices, PerNode: w.devices, Sharing: formats.SharingTime}},
	}}
}

// fails returns whether the gate fails a plan made from the first of the old profiles
// by the new ones.
func (w *world) fails(ctx context.Context, old, now []*formats.Profile) (bool, error) {
	in := w.inputs(old[0])
	opt := planner.Options{}
	opt.Set("max-partitions", 1) // every profile cuts a model where its own times say
	res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
	if err != nil {
		return false, fmt.Errorf("planning: %w", err)
	}
	r, err := check.Gate(ctx, check.GateInput{Plan: res.Plan, Today: w.inputs(now[0]), Profiles: now[1:], OldProfiles: old, Solver: highs.Solver{}})
	if err != nil {
		return false, fmt.Errorf("checking: %w", err)
	}
	if r.Verdict == check.Fail && w.told {
		fmt.Fprintln(os.Stderr, strings.Join(why(r), "\n"))
	}
	return r.Verdict == check.Fail, nil
}

// pairs counts the failures over pairs of profiles. Pair i is of profiles i and i+half,
// so that its two were taken far apart. A model that is drawn by turns takes longer by
// a factor in the second.
func (w *world) pairs(ctx context.Context, list []*formats.Profile, factor float64) (failed, of int, err error) {
	half := len(list) / 2
	for i := range half {
		now := list[i+half]
		if factor != 1 {
			now = slower(now, i%len(now.Models), factor)
		}
		bad, err := w.fails(ctx, list[i:i+1], []*formats.Profile{now})
		if err != nil {
			return 0, 0, fmt.Errorf("pair %d: %w", i, err)
		}
		if bad {
			failed++
		}
	}
	return failed, half, nil
}

// draws counts the failures over draws of so many profiles a side, where all models
// of one side take longer by a factor.
func (w *world) draws(ctx context.Context, list []*formats.Profile, a, n int, factor float64, seed uint64) (failed int, err error) {
	r := rand.New(rand.NewPCG(seed, 23))
	for range n {
		order := r.Perm(len(list))
		var old, now []*formats.Profile
		for k := range a {
			old = append(old, list[order[k]])
			now = append(now, slower(list[order[a+k]], -1, factor))
		}
		bad, err := w.fails(ctx, old, now)
		if err != nil {
			return 0, err
		}
		if bad {
			failed++
		}
	}
	return failed, nil
}

// spread is the standard deviation, between profiles, of the time of a model in one
// piece, relative: of all models and batches together.
func spread(list []*formats.Profile) float64 {
	squares, n := 0.0, 0
	for m := range list[0].Models {
		for i := range list[0].Models[m].Measurements {
			var logs []float64
			mean := 0.0
			for _, p := range list {
				if ms := p.Models[m].Measurements; i < len(ms) && ms[i].WholeModel != nil {
					logs = append(logs, math.Log(float64(ms[i].WholeModel.WallUS)))
					mean += logs[len(logs)-1]
				}
			}
			mean /= float64(len(logs))
			for _, v := range logs {
				squares += (v - mean) * (v - mean)
			}
			n += len(logs) - 1
		}
	}
	return math.Sqrt(squares / float64(n))
}
