package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/workflows"
)

// scene is the setting in which policies are compared.
type scene struct {
	Name      string
	Devices   int
	Gigabytes float64
	Rates     rates
	Minutes   int
	Warmup    time.Duration
	// Foresight gives each request, as it comes, a feature that names its way: what prediction could do at best.
	Foresight bool
	// Prior has the policy know the ways of the applications by their chances, and their rates, as a plan says. Planned has devices begin with what a plan
	// has them hold.
	Prior, Planned bool
	// Scale is that of the deadlines: arrival and Scale times the application's mean unloaded latency. A call's own deadline is Scale times its time
	// alone. If it is 0, there are none.
	Scale float64
	// Generations has the language models run iteration by iteration, with answers of spread lengths.
	Generations bool
	// Oracle says how many minutes a static fleet's contents are taken from; 0 stands for all.
	Oracle int
}

// warmup says how long arrivals are not counted.
const warmup = 300 * time.Second

// chances is the seed of the ways that a policy knows from the start. No run has it.
const chances = 1 << 40

// answerSpread is the standard deviation of the answers' lengths over their mean. Those of the conversations of Azure (2023) and of Mooncake (FAST '25) are
// .77 and .73.
const answerSpread = .75

// sceneOf returns an application at a rate on a fleet; app -1 is all three at a third of the rate each.
func sceneOf(app int, rps float64, devices int, gigabytes float64) *scene {
	sc := &scene{Devices: devices, Gigabytes: gigabytes, Minutes: 30, Warmup: warmup}
	if app >= 0 {
		sc.Rates.rps[app] = rps
	} else {
		sc.Rates.rps = [3]float64{rps / 3, rps / 3, rps / 3}
	}
	sc.Name = fmt.Sprintf("%s %g", appName(app), rps)
	return sc
}

// appName returns the name of an application, of which -1 is all three.
func appName(app int) string { return [4]string{"MIX", "GILL", "KC", "DEBATE"}[app+1] }

// fleet returns the name of a scene with its devices.
func (sc *scene) fleet() string {
	return fmt.Sprintf("%s on %d with %g GB", sc.Name, sc.Devices, sc.Gigabytes)
}

// row has the rates of an application.
type row struct {
	app int
	rps []float64
}

// ample are the rows of 32 devices with 40 GB, scarce those of 8 with 24 GB.
var (
	ample  = []row{{0, []float64{4, 12, 24}}, {1, []float64{4, 12, 30}}, {2, []float64{2, 6, 20}}, {-1, []float64{4, 12, 24}}}
	scarce = []row{{0, []float64{1, 3, 5}}, {1, []float64{1, 3, 7}}, {2, []float64{2, 5}}, {-1, []float64{1, 3, 6}}}
)

func scenesOf(rows []row, devices int, gigabytes float64) (scenes []*scene) {
	for _, r := range rows {
		for _, rps := range r.rps {
			scenes = append(scenes, sceneOf(r.app, rps, devices, gigabytes))
		}
	}
	return scenes
}

// fromStart returns the first ten minutes of scenes, all of which count.
func fromStart(scenes []*scene) []*scene {
	for _, sc := range scenes {
		sc.Minutes, sc.Warmup = 10, 0
	}
	return scenes
}

// planned returns the networks that devices hold at the start in a plan of a scene's applications.
func (sc *scene) planned(ctx context.Context) ([][]int32, error) {
	plan, err := solve(ctx, 5*time.Minute, sc.Rates.rps, sc.Devices, sc.Gigabytes)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", sc.Name, err)
	}
	profile, section, resident := workflows.Profile("card"), formats.FlowOf(plan), make([][]int32, sc.Devices)
	for i := range section.Modules {
		s := slices.IndexFunc(profile.Models, func(m formats.ProfileModel) bool { return m.Model == section.Modules[i].Model })
		for _, d := range section.Modules[i].Resident {
			resident[d] = append(resident[d], int32(s))
		}
	}
	return resident, nil
}

// defaultValues are the options that plan solve sets for workflows by itself.
var defaultValues = map[string]any{"margin": "auto", "dedicated": "auto"}

// solve plans applications, in the proportions of their rates, for the largest rate, as plan solve does by default.
func solve(ctx context.Context, slo time.Duration, rps [3]float64, devices int, gigabytes float64) (*formats.Plan, error) {
	in := planner.Inputs{Profile: workflows.Profile("card"), Workload: workflows.Workload(slo, rps),
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "card", Count: devices, PerNode: 8, NICGbps: 100, Memory: document.Bytes(int64(gigabytes * 1e9))}}}}
	list := in.Workload.Section.(formats.Applications)
	for i := range list {
		list[i].RPS = 0
	}
	res, err := planner.Solve(ctx, in, planner.Options{Values: defaultValues}, highs.Solver{}, nil)
	if err != nil {
		return nil, err
	}
	return res.Plan, nil
}
