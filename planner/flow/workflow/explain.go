package workflow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/policy/flow"
)

// Explain returns the lines of plan explain on workflows: for every application its rate, its mean number of tasks and the time of its
// longest path, then which services (models that applications ask for) take most of the devices' time, and which groups of models have
// devices alone.
func Explain(p *formats.Plan, f *formats.FlowPlan) []string {
	var lines []string
	batchWait := p.Options.Number("batch-wait")
	for i := range f.Applications {
		a := &f.Applications[i]
		w, names, err := flow.CompileSegments(&formats.Application{Name: a.Model, Parameters: a.Parameters, Segments: flow.WithTokenWork(a.Segments, f.Generations())}, fmt.Sprintf("flow.applications[%d]", i))
		if err != nil {
			continue
		}
		visits, err := w.VisitCounts()
		if err != nil {
			continue
		}

		// The longest time over all visits, and the mean number of tasks.
		segmentTimes := make([]time.Duration, len(a.Segments))
		for g := range segmentTimes {
			paths, _ := w.SegmentPaths(g) // without an error, as the plan has such paths
			segmentTimes[g] = longestPathTime(paths, func(id int32) time.Duration { return terms.MaxBatchTime(p, names[id]) })
		}
		maxTime, tasks := time.Duration(0), 0.0
		for _, v := range visits {
			visit := visitTime(segmentTimes, v)
			maxTime = max(maxTime, terms.ModuleTime(visit, visit, batchWait))
			for g, n := range v.Counts {
				for _, ask := range w.ServiceDemands(g) {
					tasks += v.Chance * float64(n) * ask.Tasks
				}
			}
		}
		lines = append(lines, fmt.Sprintf("workflow %s: %s rps of %.3g tasks each; its longest way takes %v, with %s and one's own at every step; the SLO less the margin is %v, for %s of the requests",
			a.Model, kind.FormatNumber(a.RPS), tasks, maxTime, terms.DescribeWait(batchWait), a.SLOUS.D()-a.MarginUS.D(), a.Percentile))
	}
	lines = append(lines, "device time of the services at the planned rates, in devices: "+strings.Join(deviceTimeTexts(p, f), ", "))
	if list := deviceGroups(p); len(list) > 0 {
		lines = append(lines, "a device runs the models of one group: "+strings.Join(list, "; "))
	}
	return lines
}

// deviceGroups returns a line for every group of models that share devices of their own, with their number. If all models share all
// devices of each kind, it returns nil.
func deviceGroups(p *formats.Plan) (lines []string) {
	var firstStages []formats.PlacedStage // first stage of each group
	var models [][]string
	for s := range p.Stages() {
		i := slices.IndexFunc(firstStages, func(o formats.PlacedStage) bool { return o.SharesDevice(s.Stage) })
		if i < 0 {
			i, firstStages, models = len(firstStages), append(firstStages, s), append(models, nil)
		}
		models[i] = append(models[i], s.Deployed.Model)
	}
	divided := false
	for i, s := range firstStages {
		lines = append(lines, fmt.Sprintf("%d %s for %s", s.Replicas, s.Device, strings.Join(models[i], ", ")))
		divided = divided || slices.ContainsFunc(firstStages[:i], func(o formats.PlacedStage) bool { return o.Device == s.Device })
	}
	if !divided {
		return nil
	}
	return lines
}

// deviceTimeTexts returns a text for every service that takes at least 1 % of the devices' time, and one
// for all others.
func deviceTimeTexts(p *formats.Plan, f *formats.FlowPlan) (parts []string) {
	totalDevices, otherTime, otherModels := 0, 0.0, 0
	totalDevices += lists.Sum(len(p.Pools), func(i int) int { return p.Pools[i].Count })
	for i := range p.Deployment {
		d, m := &p.Deployment[i], &f.Modules[i]

		// Sum the device time of the service over all kinds.
		deviceTime, kindTexts := 0.0, []string(nil)
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			deviceTime += s.GPUs
			kindTexts = append(kindTexts, fmt.Sprintf("%.3g on %s in batches of %d, load %v", s.GPUs, s.Device, d.Pipelines[k].Batch, m.CostOn(s.Device).LoadUS.D()))
		}
		if deviceTime < .01*float64(totalDevices) {
			otherTime, otherModels = otherTime+deviceTime, otherModels+1
			continue
		}

		// With several pools, the text names each kind.
		text := fmt.Sprintf("load %v", m.ColdStartUS.D())
		if len(p.Pools) > 1 {
			text = strings.Join(kindTexts, "; ")
		}
		parts = append(parts, fmt.Sprintf("%s %.3g (%d copies of %s, %s)", d.Model, deviceTime, len(m.Resident), document.Bytes(m.WeightBytes), text))
	}
	if otherModels > 0 {
		parts = append(parts, fmt.Sprintf("%d others %.3g", otherModels, otherTime))
	}
	return parts
}
