package sizing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/queue/deploy"
	"inferplan/sim/llm"
)

// newProblem returns a problem of so many A100s, which the planner judges by some runs. It has no models yet. A re-plan takes a
// microsecond per position that it looks at.
func newProblem(gpus, runs int) *deploy.Problem {
	return &deploy.Problem{
		Pools: []formats.Pool{{Device: "A100", Count: gpus, MaxShares: 1, PerNode: 1}}, Kinds: []deploy.Kind{{Device: "A100", TP: 1, MaxInstances: gpus, Price: 1}},
		Seed: 1, Runs: runs, Effort: 1, SearchWork: 1000,
		SearchTime: func(worked int64) time.Duration { return time.Duration(worked) * time.Microsecond },
	}
}

// addModel adds a model that A100s run. All have one size, so that a whole number of them waits in a host's memory.
func addModel(p *deploy.Problem, name string, m llm.Model, loads *formats.ModelLoads) {
	profile := &formats.LLMProfile{Model: name, WeightBytes: 26e9, KVBytesPerToken: m.TokenBytes, Instances: []formats.LLMInstance{{
		Device: "A100", TensorParallel: 1, Iteration: m.Iteration, KVTokens: m.KVTokens, KVSource: formats.KVMeasured, BlockTokens: 16, TokenBudget: 2048, SwapGBps: 23.6, Loads: loads,
	}}}
	p.Models = append(p.Models, deploy.Model{Name: name, Profile: profile, ByKind: []*formats.LLMInstance{&profile.Instances[0]}})
}

// words describe a layout: each pool with its instances and sequences at once, those of one model that are alike together.
func words(p *deploy.Problem, l *deploy.Layout) string {
	var out []string
	alike := map[string][]string{}
	for i := range l.Pools {
		x := &l.Pools[i]
		models := p.ModelsOf(x.Items)
		var caps []string
		for _, m := range models {
			if cap := fmt.Sprint(x.Caps[0][m]); !slices.Contains(caps, cap) {
				caps = append(caps, cap)
			}
		}
		text := "at " + strings.Join(caps, "/")
		if len(x.Items) < len(models)*len(p.Classes) {
			for _, item := range x.Items {
				text += " " + p.Classes[p.Items[item].Class].Name
			}
		}
		for class, cap := range x.ClassCaps {
			if cap > 0 {
				text += fmt.Sprintf(", at most %d of %s", cap, p.Classes[class].Name)
			}
		}
		if len(models) > 1 {
			out = append(out, fmt.Sprintf("%d for %d models %s", x.InstanceCount(), len(models), text))
			continue
		}
		text = fmt.Sprintf("%d each %s", x.InstanceCount(), text)
		alike[text] = append(alike[text], p.Models[models[0]].Name)
	}
	for _, text := range slices.Sorted(maps.Keys(alike)) {
		names := strings.Join(alike[text], ", ")
		if n := len(alike[text]); n > 2 {
			names = fmt.Sprintf("%d models", n)
		}
		out = append(out, text+" for "+names)
	}
	return strings.Join(out, " + ")
}
