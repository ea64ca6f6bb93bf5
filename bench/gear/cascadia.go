package main

import (
	"context"
	"fmt"
	"strings"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/planner/gear/cascades"
)

// cascadia is the tuner of plans as Cascadia makes them: on one deployment, or on one for
// every level of load, between which changes take no time.
func cascadia(redeployed bool) tuner {
	return func(b *runs, at place, p *cascades.Problem, run baseline.Runner) (*baseline.Tuned, error) {
		rates, err := memo(b, fmt.Sprintf("%s/%v/Cascadia rates", at.f.Name, at.slo), perPlan, func() [][]float64 { return nil }, func(ctx context.Context) ([][]float64, error) {
			return baseline.CascadiaRates(ctx, p)
		}, func([][]float64) string { return "rates of models alone" })
		if err != nil {
			return nil, err
		}
		redeployed := redeployed && p.Kinds[0].Memory > 0 && baseline.MemoryOf(p, 1<<len(p.Models)-1) > p.Kinds[0].Memory // else there is one deployment
		c := &baseline.Cascadia{Problem: p, Rates: rates, Redeployed: redeployed}
		name := "Cascadia"
		if redeployed {
			name = "Cascadia re-deployed"
		}
		front, err := memo(b, fmt.Sprintf("%s/%s/front", at, name), perFront, func() []baseline.CascadiaPoint { return nil }, func(context.Context) ([]baseline.CascadiaPoint, error) {
			return c.Points()
		}, func(front []baseline.CascadiaPoint) string {
			return fmt.Sprintf("%d points", len(front))
		})
		if err != nil {
			return nil, err
		}
		if b.counting != nil { // the front is not known yet: one run
			r, err := run(name, nil)
			return &baseline.Tuned{Name: name, Run: r}, err
		}
		return c.Best(front, at.slo, run)
	}
}

// perFront is about the CPU time of a front, in seconds.
const perFront = 2

// cell is an accuracy with the devices that our plans need for it, for every range and
// over all requests, and those of the baselines. 0 stands for more than were tried.
type cell struct {
	target string
	plans  [2]int
	rivals []rival
}

type rival struct {
	name    string
	devices float64
}

// rivals are the baselines of all tables of devices.
func rivals(cascadia, redeployed, msPlus, dynba int) []rival {
	return []rival{{"Cascadia-like", float64(cascadia)}, {"Cascadia-like, re-deployed", float64(redeployed)}, {"MS+", float64(msPlus)}, {"DynBa", float64(dynba)}}
}

// below are the baselines that need fewer devices than a plan.
func (c *cell) below(plan int) []string {
	var out []string
	for _, r := range c.rivals {
		if r.devices > 0 && (plan == 0 || r.devices < float64(plan)) {
			out = append(out, fmt.Sprintf("%s %.4g", r.name, r.devices))
		}
	}
	return out
}

// neverMore is in how many cells of a table a plan needs more devices than a baseline.
func (b *bench) neverMore(where, table string, f *published.Family, cells []cell) {
	if b.counting != nil {
		return
	}
	for i, plan := range []string{"planner", "planner, all requests"} {
		lost := []string{}
		for k := range cells {
			if by := cells[k].below(cells[k].plans[i]); len(by) > 0 {
				lost = append(lost, fmt.Sprintf("%s: %d against %s", cells[k].target, cells[k].plans[i], strings.Join(by, ", ")))
			}
		}
		note := "none"
		if len(lost) > 0 {
			note = strings.Join(lost, "; ")
		}
		var names []string
		for _, r := range cells[0].rivals {
			names = append(names, r.name)
		}
		b.figure(figures.Figure{Claim: fmt.Sprintf("%s, %s: accuracies of %d for which a baseline needs fewer devices", where, plan, len(cells)),
			Source: "baselines of gear plans (docs/methods.md): " + strings.Join(names, ", "), Asked: "0", Measured: float64(len(lost)), Holds: figures.If(len(lost) == 0), Note: note}, table, f)
	}
}
