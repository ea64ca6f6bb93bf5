package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// verdict is the outcome of an instance.
type verdict struct {
	Name     string        // of the instance
	Feasible bool          // it has a plan after all: another is drawn
	Bad      bool          // bad input, as it should be
	Wrong    []string      // what does not hold
	Near     int           // things that were called nearest
	Took     time.Duration // of the answer
}

func (v *verdict) fail(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

// judge solves an instance and holds the answer against other solves.
func judge(ctx context.Context, x *instance) *verdict {
	v := &verdict{Name: x.name}
	start := time.Now()
	err := solve(ctx, x.in, x.opt)
	v.Took = time.Since(start)
	inf, infeasible := errors.AsType[*planner.InfeasibleError](err)
	switch {
	case err == nil:
		v.Feasible = true
		return v
	case x.bad != "":
		if v.Bad = document.Findings(err) != nil && strings.Contains(err.Error(), x.bad); !v.Bad {
			v.fail("bad input is told as: %v", err)
		}
		return v
	case !infeasible:
		v.fail("no verdict: %v", err)
		return v
	}
	causes := []string{inf.Constraint}
	for _, f := range inf.OtherCauses {
		causes = append(causes, f.Constraint)
	}
	dropped := x.again()
	for _, cause := range causes {
		dropped.drop(cause)
	}
	if err := solve(ctx, dropped.in, dropped.opt); err != nil {
		v.fail("without %s there is no plan either: %v", strings.Join(causes, ", "), err)
	}
	all := inf.Alternatives
	if inf.Nearest.String() == "" || inf.Nearest.NotSolved {
		v.fail("nothing is nearest: %v", inf)
	} else {
		all = append([]kind.NearestFeasible{inf.Nearest}, all...)
	}
	for i := range all {
		v.Near++
		v.nearest(ctx, x, inf, &all[i])
	}
	return v
}

// nearest holds that something is feasible, and that a hundredth less is not: of
// each of its parts by itself.
func (v *verdict) nearest(ctx context.Context, x *instance, inf *planner.InfeasibleError, near *kind.NearestFeasible) {
	at := x.again()
	at.take(near, inf.Model, 1, 1)
	if err := solve(ctx, at.in, at.opt); err != nil {
		v.fail("nearest %s: %v", near, err)
		return
	}
	nearer := func(what string, near *kind.NearestFeasible, slo, load float64) {
		c := x.again()
		c.take(near, inf.Model, slo, load)
		if err := solve(ctx, c.in, c.opt); err == nil {
			v.fail("%s: there is a plan with less %s", near, what)
		}
	}
	if near.LoadFactor > 0 {
		nearer("load", near, 1, hundredth)
	}
	if near.SLOUS > 0 || near.SLOFactor > 0 {
		nearer("time", near, hundredth, 1)
	}
	for i := range near.Devices {
		fewer := *near
		fewer.Devices = slices.Clone(near.Devices)
		fewer.Devices[i].Count--
		nearer(near.Devices[i].Device, &fewer, 1, 1)
	}
}

// hundredth is by how much nearer nothing is to be feasible.
const hundredth = 1.01

func solve(ctx context.Context, in planner.Inputs, opt planner.Options) error {
	_, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
	return err
}

// anyPlan is the gap at which any plan is good enough.
const anyPlan = 0.95

// again is an instance that may be changed, of which only the verdict is asked.
func (x *instance) again() *instance {
	c := *x
	c.opt.SkipNearest = true
	if strings.HasPrefix(x.name, "pool ") {
		c.opt.Set("gap", anyPlan)
	}
	cluster, workload := *x.in.Cluster, *x.in.Workload
	cluster.Pools = slices.Clone(cluster.Pools)
	switch s := workload.Section.(type) {
	case formats.WorkloadModels:
		workload.Section = slices.Clone(s)
	case formats.Applications:
		workload.Section = slices.Clone(s)
	case *formats.LLM:
		l := *s
		l.Classes = slices.Clone(l.Classes)
		workload.Section = &l
	case *formats.Cascade:
		d := *s
		workload.Section = &d
	}
	c.in.Cluster, c.in.Workload = &cluster, &workload
	return &c
}

// noSLO is longer than anything takes that is drawn. Simulations last many times an SLO.
const noSLO = 30 * time.Second

// drop takes a constraint out.
func (x *instance) drop(cause string) {
	switch cause {
	case "slo":
		x.slos(func(string, document.SLO) document.SLO { return document.SLO{Duration: noSLO} })
	case "min_rps":
		x.rates(1e-6)
	case "devices":
		for k := range x.in.Cluster.Pools {
			x.in.Cluster.Pools[k].Count += 200
		}
	case "memory":
		for k := range x.in.Cluster.Pools {
			x.in.Cluster.Pools[k].Memory = 0
		}
	}
}

// take does what is nearest as a person would, with SLOs shorter and rates higher by
// factors.
func (x *instance) take(near *kind.NearestFeasible, model string, tighter, load float64) {
	less := func(us float64) document.SLO {
		return document.SLO{Duration: time.Duration(us/tighter) * time.Microsecond}
	}
	x.slos(func(name string, asked document.SLO) document.SLO {
		for _, own := range near.SLOs {
			if own.Model == name {
				return less(own.SLOUS)
			}
		}
		switch {
		case len(near.SLOs) == 0 && near.SLOUS > 0 && (name == model || name == ""):
			return less(near.SLOUS)
		case near.SLOFactor > 0:
			asked.Duration = time.Duration(float64(asked.Duration) * near.SLOFactor / tighter)
		}
		return asked
	})
	for _, d := range near.Devices {
		for k := range x.in.Cluster.Pools {
			if x.in.Cluster.Pools[k].Device == d.Device {
				x.in.Cluster.Pools[k].Count += d.Count
			}
		}
	}
	for k := range x.in.Cluster.Pools {
		if p := &x.in.Cluster.Pools[k]; p.Memory > 0 {
			p.Memory = max(p.Memory, document.Bytes(near.MemoryBytes))
		}
	}
	switch {
	case near.MinLoadRPS > 0:
		x.opt.Set("min-load", near.MinLoadRPS*load)
	case near.LoadFactor > 0:
		x.rates(near.LoadFactor * load)
	}
}

// slos sets every SLO.
func (x *instance) slos(set func(name string, asked document.SLO) document.SLO) {
	switch s := x.in.Workload.Section.(type) {
	case formats.WorkloadModels:
		for i := range s {
			s[i].SLO = set(s[i].Key().String(), s[i].SLO)
		}
	case formats.Applications:
		for i := range s {
			s[i].SLO = set(s[i].Name, s[i].SLO)
		}
	case *formats.LLM:
		for i := range s.Classes {
			c := &s.Classes[i]
			asked, models := c.SLO, s.Models
			if len(c.Models) > 0 {
				models = c.Models
			}
			for _, m := range models { // of its models the longest counts
				if slo := set(formats.ModelClass{Model: m, Class: c.Class}.String(), asked); c.SLO == asked || slo.Duration > c.SLO.Duration {
					c.SLO = slo
				}
			}
		}
	case *formats.Cascade:
		if !s.SLO.Latency.IsZero() {
			s.SLO.Latency = set("", s.SLO.Latency)
		}
	}
}

// rates multiplies every rate that is asked.
func (x *instance) rates(factor float64) {
	switch s := x.in.Workload.Section.(type) {
	case formats.WorkloadModels:
		for i := range s {
			s[i].MinRPS *= factor
		}
	case formats.Applications:
		for i := range s {
			s[i].RPS *= factor
		}
	case *formats.LLM:
		for i := range s.Classes {
			s.Classes[i].RPS *= factor
		}
	case *formats.Cascade:
		s.QPS.Max *= factor
	}
	if load, ok := x.opt.Values["min-load"].(float64); ok && load > 0 {
		x.opt.Set("min-load", load*factor)
	}
}
