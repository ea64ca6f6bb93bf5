package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"inferplan/testkit/mutant"
)

// instance is a problem, as documents by role, with what is odd about it.
type instance struct {
	seed      uint64
	kind      string
	documents mutant.Problem
	flags     []string
	odd       []string
}

// objectives of the kinds, beside the one that each has by default.
var objectives = map[string][]string{"pool": {"cost", "gpus"}, "flow": {"cost", "gpus"}, "workflow": {"gpus"}, "queue": {"cost", "throughput", "gpus"}}

// drawInstance returns the instance of a seed.
func drawInstance(problems map[string]mutant.Problem, seed uint64) *instance {
	rng := rand.New(rand.NewPCG(seed, 7))
	kinds := slices.Sorted(maps.Keys(problems))
	x := &instance{seed: seed, kind: kinds[seed%uint64(len(kinds))]}
	x.documents = mutant.Problem{}
	for role, tree := range problems[x.kind] {
		x.documents[role] = mutant.Copy(tree)
	}
	for range 1 + rng.IntN(3) {
		changes[rng.IntN(len(changes))](x, rng)
	}
	of := append([]string{""}, objectives[x.kind]...)
	if objective := of[rng.IntN(len(of))]; objective != "" {
		x.flags = []string{"--objective", objective}
		if strings.HasPrefix(x.kind, "pool") {
			x.flags = append(x.flags, "--min-load", fmt.Sprintf("%.4g", math.Pow(10, 6*rng.Float64()-2)))
		}
	}
	return x
}

// changes make a problem odd.
var changes = []func(x *instance, rng *rand.Rand){
	func(x *instance, rng *rand.Rand) { x.scale(rng, "workload", "SLOs", -5, 4, isSLO) },
	func(x *instance, rng *rand.Rand) { x.scale(rng, "workload", "rates", -6, 6, isRate) },
	func(x *instance, rng *rand.Rand) {
		x.scale(rng, "profile", "times", -4, 4, func(key string) bool { return strings.HasSuffix(key, "_us") })
	},
	func(x *instance, rng *rand.Rand) { x.setCounts(int(math.Pow(10, 4*rng.Float64()))) },
	func(x *instance, rng *rand.Rand) { x.setCounts(1) },
	func(x *instance, rng *rand.Rand) { x.addCopies(1 + rng.IntN(7)) },
	func(x *instance, rng *rand.Rand) {
		x.scale(rng, "workload", "lengths", -2, 3, func(key string) bool { return key == "mean" || key == "max" || key == "sd" })
	},
	func(x *instance, rng *rand.Rand) {
		if cascade, ok := x.documents["workload"].(map[string]any)["cascade"].(map[string]any); ok {
			cascade["grid"] = float64(1 + rng.IntN(20))
			x.odd = append(x.odd, fmt.Sprintf("grid %v", cascade["grid"]))
		}
	},
	func(x *instance, rng *rand.Rand) {
		setAll(x.documents["cluster"], "nic_gbps", math.Pow(10, 6*rng.Float64()-4))
		x.odd = append(x.odd, "another network")
	},
}

func isSLO(key string) bool  { return key == "slo" || key == "latency" || key == "waiting_slo" }
func isRate(key string) bool { return key == "rps" || key == "min_rps" || key == "max" }

// scale multiplies the figures of a document that stand under some keys by a power of ten.
func (x *instance) scale(rng *rand.Rand, role, what string, from, to float64, is func(key string) bool) {
	factor := math.Pow(10, from+(to-from)*rng.Float64())
	walk(x.documents[role], func(object map[string]any, key string) {
		if !is(key) {
			return
		}
		switch v := object[key].(type) {
		case float64:
			object[key] = v * factor
			if whole := math.Round(v * factor); v == math.Trunc(v) && whole >= 1 {
				object[key] = whole
			}
		case string:
			if d, err := time.ParseDuration(v); err == nil {
				object[key] = fmt.Sprintf("%dns", max(1, int64(float64(d)*factor)))
			}
		}
	})
	x.odd = append(x.odd, fmt.Sprintf("%s x %.3g", what, factor))
}

// setCounts gives every pool so many devices.
func (x *instance) setCounts(n int) {
	setAll(x.documents["cluster"], "count", float64(n))
	x.odd = append(x.odd, fmt.Sprintf("%d devices of each kind", n))
}

// addCopies adds copies of all models, which differ by name only: to the profile, and to what is asked.
func (x *instance) addCopies(copies int) {
	profile, workload := x.documents["profile"].(map[string]any), x.documents["workload"].(map[string]any)
	named := func(name any, n int) string { return fmt.Sprintf("%v-%d", name, n) }
	add := func(of map[string]any, list, key string) {
		entries, _ := of[list].([]any)
		for n := 1; n <= copies; n++ {
			for _, e := range entries {
				if entry, ok := e.(map[string]any); ok {
					again := mutant.Copy(entry).(map[string]any)
					again[key] = named(entry[key], n)
					of[list] = append(of[list].([]any), again)
				}
			}
		}
	}
	switch x.kind {
	case "pool":
		add(profile, "models", "model")
		add(workload, "models", "model")
	case "flow", "workflow":
		add(workload, "applications", "name")
	case "queue":
		if llm, ok := workload["llm"].(map[string]any); ok {
			add(llm, "classes", "class")
		}
	default:
		return
	}
	x.odd = append(x.odd, fmt.Sprintf("%d copies", copies))
}

func setAll(tree any, name string, value any) {
	walk(tree, func(object map[string]any, key string) {
		if key == name {
			object[key] = value
		}
	})
}

// walk calls visit for every entry of every object of a tree.
func walk(tree any, visit func(object map[string]any, key string)) {
	switch x := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			visit(x, key)
			walk(x[key], visit)
		}
	case []any:
		for _, e := range x {
			walk(e, visit)
		}
	}
}
