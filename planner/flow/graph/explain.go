package graph

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/flow/scaling"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/policy/flow"
)

// Explain returns the lines of plan explain: for every application its rate and the time of its longest path, for every module which part
// of its devices' capacity the applications need, and how modules take turns on devices and replicas come and go.
func Explain(p *formats.Plan, f *formats.FlowPlan) []string {
	// Applications, with the rate that each model has to carry.
	requiredRate, lines := map[string]float64{}, []string(nil)
	for i := range f.Applications {
		a := &f.Applications[i]
		g, err := flow.CompileGraph(a.Modules, fmt.Sprintf("flow.applications[%d]", i))
		if err != nil {
			continue
		}
		for k := range a.Modules {
			requiredRate[a.Modules[k].Model] += a.RPS * g.Nodes[k].ReachChance
		}
		path, pathTime := longestPath(p, a, &g)
		lines = append(lines, fmt.Sprintf("application %s: %s rps; its longest path %s takes %v, with %s and one's own in every module; the SLO less the margin is %v",
			a.Model, kind.FormatNumber(a.RPS), strings.Join(path, " > "), pathTime, terms.DescribeWait(p.Options.Number("batch-wait")), a.SLOUS.D()-a.MarginUS.D()))
	}

	// Load of the modules.
	var parts []string
	for i := range p.Deployment {
		d := &p.Deployment[i]
		text := d.Model + " " + kind.FormatPercent(requiredRate[d.Model]/d.RPS())
		if i < len(f.Modules) && f.Modules[i].Accuracy > 0 {
			text += fmt.Sprintf(" (accuracy %.4g)", f.Modules[i].Accuracy)
		}
		parts = append(parts, text)
	}
	lines = append(lines, "load of the modules at the planned rates: "+strings.Join(parts, ", "))
	lines = append(lines, explainTurns(p)...)
	if f.Scaling != nil {
		lines = append(lines, explainScaling(f))
	}
	return lines
}

// explainScaling returns a line about the table by which replicas come and go.
func explainScaling(f *formats.FlowPlan) string {
	s, halfReplicas, allReplicas := f.Scaling, 0, 0
	rate := lists.Sum(len(f.Applications), func(i int) float64 { return f.Applications[i].RPS })
	for _, n := range scaling.RowAt(s, rate/2).Replicas {
		halfReplicas += n
	}
	for _, n := range s.Table[len(s.Table)-1].Replicas {
		allReplicas += n
	}
	coldStart := lists.Max(time.Duration(0), len(f.Modules), func(i int) time.Duration { return f.Modules[i].ColdStartUS.D() })
	return fmt.Sprintf("scaling: a table of %d rates, up to %d replicas, of which %d serve half the planned rate; every %v by the mean rate of the last %v, kept for %v; a further replica serves %v after the decision",
		len(s.Table), allReplicas, halfReplicas, s.EveryUS.D(), s.WindowUS.D(), s.HoldUS.D(), coldStart)
}

// longestPath returns the module names and the time of the path of a planned application that takes longest: in each module a batch, and
// the wait for the longest run on the same devices. g is the application's compiled graph.
func longestPath(p *formats.Plan, a *formats.FlowApplication, g *flow.Application) (names []string, maxTime time.Duration) {
	for _, rest := range g.Nodes[0].Paths {
		path := append([]int32{0}, rest...)
		sum, list := time.Duration(0), []string(nil)
		for _, n := range path {
			sum += terms.ModuleTime(terms.MaxBatchTime(p, a.Modules[n].Model), maxOtherRun(p, a.Modules[n].Model), p.Options.Number("batch-wait"))
			list = append(list, a.Modules[n].Name)
		}
		if sum > maxTime {
			names, maxTime = list, sum
		}
	}
	return names, maxTime
}

// explainTurns returns a line for every pool on whose devices modules take turns.
func explainTurns(p *formats.Plan) (lines []string) {
	for k := range p.Pools {
		pool := &p.Pools[k]
		var names []string
		devices, maxRun := 0, time.Duration(0)
		for s := range p.Stages() {
			if pool.Sharing == formats.SharingTime && s.Device == pool.Device && len(colocatedModels(p, s.Deployed)) > 1 {
				names, devices, maxRun = append(names, s.Deployed.Model), max(devices, s.Replicas), max(maxRun, terms.MaxBatchTime(p, s.Deployed.Model))
			}
		}
		if len(names) > 1 {
			lines = append(lines, fmt.Sprintf("%s and %s take turns on %d x %s: a module may find its device busy with the longest run of any of them, %v",
				strings.Join(names[:len(names)-1], ", "), names[len(names)-1], devices, pool.Device, maxRun))
		}
	}
	return lines
}

// maxOtherRun returns the longest run of a batch of any model on the same devices: a task of the named
// model may have to wait for it.
func maxOtherRun(p *formats.Plan, name string) time.Duration {
	maxRun := time.Duration(0)
	for i := range p.Deployment {
		if p.Deployment[i].Model == name {
			for _, other := range colocatedModels(p, &p.Deployment[i]) {
				maxRun = max(maxRun, terms.MaxBatchTime(p, other))
			}
		}
	}
	return maxRun
}

// colocatedModels returns the names of the models that run on some device of d, itself included.
func colocatedModels(p *formats.Plan, d *formats.Deployed) []string {
	models := []string{d.Model}
	for s := range p.Stages() {
		for k := range d.Pipelines {
			if s.SharesDevice(&d.Pipelines[k].Stages[0]) && !slices.Contains(models, s.Deployed.Model) {
				models = append(models, s.Deployed.Model)
			}
		}
	}
	return models
}
