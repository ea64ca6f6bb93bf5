package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"inferplan/bench/drawn"
	"inferplan/bench/instrument"
	"inferplan/bench/recorded"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/testkit/workflows"
)

// planCase is a problem to plan, of a set.
type planCase struct {
	set string
	drawn.Problem
}

// The seeds of drawn problems. None is drawn by the instrument or the tests that the planner was tuned on.
const (
	firstSeed    = 200
	pools        = 12
	applications = 14
	ranged       = 40 // cascades that hold each range of rates
	bursty       = 24 // cascades over all requests of measured rates
	fleets       = 6
)

// cases returns all problems. It writes files that workloads name into the folder of results.
func cases(r *instrument.Run) ([]planCase, error) {
	list, err := recordedCases(r.Data)
	if err != nil {
		return nil, err
	}
	add := func(set string, n int, draw func(uint64) drawn.Problem) {
		for i := range n {
			list = append(list, planCase{set, draw(firstSeed + uint64(i))})
		}
	}
	add("pools", pools, drawn.Pools)
	add("applications", applications, drawn.Applications)
	add("cascades", ranged, aimed)
	for i := range bursty {
		p, err := bursts(r, firstSeed+uint64(i))
		if err != nil {
			return nil, err
		}
		list = append(list, planCase{"bursts", p})
	}
	add("queues", fleets, drawn.Queues)
	return append(list, workflowCases()...), nil
}

// recordedCases returns the cases for which the artifact of PPipe recorded a plan, with its options.
func recordedCases(data string) ([]planCase, error) {
	profile, err := recorded.Profile(data)
	if err != nil {
		return nil, err
	}
	plans, err := recorded.Plans(data)
	if err != nil {
		return nil, err
	}
	var list []planCase
	for i := range plans {
		p := &plans[i]
		if p.Algorithm != "PPipe" {
			continue
		}
		list = append(list, planCase{"recorded", drawn.Problem{Name: p.Case,
			Inputs: planner.Inputs{Profile: profile, Cluster: p.ClusterDocument(), Workload: p.WorkloadDocument()},
			Values: map[string]any{"margin": p.Margin, "batch-build": p.BatchBuild, "max-partitions": p.MaxPartitions}}})
	}
	layered, err := recorded.Layered(data, profile)
	if err != nil {
		return nil, err
	}
	return append(list, layeredCases(layered)...), nil
}

// layeredCases returns cases of models that may be cut after any of some hundred layers, alone and together.
func layeredCases(profile *formats.Profile) []planCase {
	var names []string
	for i := range profile.Models {
		names = append(names, profile.Models[i].Model)
	}
	var list []planCase
	for _, partitions := range []int{2, 3} {
		for _, name := range append(names, "all") {
			var models formats.WorkloadModels
			for i := range profile.Models {
				m := &profile.Models[i]
				if name != "all" && name != m.Model {
					continue
				}
				alone := document.Micros(0)
				for _, x := range m.Measurements {
					if x.Device == "L4" && x.Batch == 1 && x.Share == 1 {
						for _, block := range x.Blocks {
							alone += block.WallUS
						}
					}
				}
				models = append(models, formats.WorkloadModel{Model: m.Model, SLO: document.SLO{Duration: 5 * alone.D()}, Weight: 1})
			}
			cluster := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{
				{Device: "L4", Count: 25, MaxShares: 4, PerNode: 4, NICGbps: 10}, {Device: "T4", Count: 75, MaxShares: 4, PerNode: 2, NICGbps: 10}}}
			list = append(list, planCase{"layers", drawn.Problem{Name: fmt.Sprintf("layers of %s, %d partitions", name, partitions),
				Inputs: planner.Inputs{Profile: profile, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: models}},
				Values: map[string]any{"margin": 0.4, "max-partitions": partitions, "gap": []float64{5e-3, 2e-2}[partitions-2]}}})
		}
	}
	return list
}

// aimed draws a cascade whose plan aims at one of three goals: accuracy, the least latency at an accuracy, or the
// fewest devices at an accuracy.
func aimed(seed uint64) drawn.Problem {
	p := drawn.Cascades(seed)
	cascade := p.Inputs.Workload.Section.(*formats.Cascade)
	if seed%6 == 1 {
		cascade.SLO = formats.CascadeSLO{Percentile: cascade.SLO.Percentile, Accuracy: 0.72 + 0.02*float64(seed%5)}
		p.Name += ", least latency"
	}
	return p
}

// bursts draws a cascade under measured rates that rise for some seconds above what its devices hold, over all
// requests or as the planner chooses. It writes the rates to a file in the folder of results.
func bursts(run *instrument.Run, seed uint64) (drawn.Problem, error) {
	p := drawn.Cascades(6*seed + 1) // none of them asks for the fewest devices
	cascade := p.Inputs.Workload.Section.(*formats.Cascade)
	r := rand.New(rand.NewPCG(seed, 9))
	usual, period := cascade.QPS.Max*(0.3+0.3*r.Float64()), 20+r.IntN(30)
	var text strings.Builder
	text.WriteString("second,count\n")
	for second := range 600 {
		rate := usual * (0.9 + 0.2*r.Float64())
		if second%period >= period-5 {
			rate = cascade.QPS.Max * (0.9 + 0.3*r.Float64())
		}
		fmt.Fprintf(&text, "%d,%.0f\n", second, rate)
	}
	name := fmt.Sprintf("bursts-%d.csv", seed)
	if err := run.WriteFile(name, []byte(text.String())); err != nil {
		return p, err
	}
	cascade.QPS = formats.CascadeQPS{MeasuredFile: name, Ranges: 4}
	if seed%2 == 0 {
		cascade.SLO.Scope = formats.ScopeRequests
	}
	p.Inputs.WorkloadDir = run.Folder
	p.Name = fmt.Sprintf("bursts %d on %s", seed, p.Name)
	return p, nil
}

// workflowCases are the applications of the workflow evaluation, alone and together, on three fleets.
func workflowCases() []planCase {
	var list []planCase
	for _, fleet := range []struct{ devices, gigabytes int }{{8, 24}, {32, 40}} {
		for _, rps := range [][3]float64{{1, 0, 0}, {0, 1, 0}, {1, 1, 1}} {
			workload := workflows.Workload(5*time.Minute, rps)
			applications := workload.Section.(formats.Applications)
			for i := range applications {
				applications[i].RPS = 0
			}
			cluster := &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "card", Count: fleet.devices, PerNode: 8, NICGbps: 100, Memory: document.Bytes(int64(fleet.gigabytes) * 1e9)}}}
			list = append(list, planCase{"workflows", drawn.Problem{Name: fmt.Sprintf("workflows %v on %d cards of %d GB", rps, fleet.devices, fleet.gigabytes),
				Inputs: planner.Inputs{Profile: workflows.Profile("card"), Workload: workload, Cluster: cluster}}})
		}
	}
	return list
}
