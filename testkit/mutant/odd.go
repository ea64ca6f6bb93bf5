package mutant

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Odd is a problem that is tiny, huge, equal or one too many, as documents by role, with what is odd about it.
type Odd struct {
	Seed      uint64
	Kind      string
	Documents Problem
	Options   map[string]any // of the search
	What      []string
}

// objectives of the kinds, beside the one that each has by default.
var objectives = map[string][]string{"pool": {"cost", "gpus"}, "flow": {"cost", "gpus"}, "workflow": {"gpus"}, "queue": {"cost", "throughput", "gpus"}}

// DrawOdd returns the odd problem of a seed.
func DrawOdd(problems map[string]Problem, seed uint64) *Odd {
	rng := rand.New(rand.NewPCG(seed, 7))
	kinds := slices.Sorted(maps.Keys(problems))
	x := &Odd{Seed: seed, Kind: kinds[seed%uint64(len(kinds))], Documents: Problem{}, Options: map[string]any{}}
	for role, tree := range problems[x.Kind] {
		x.Documents[role] = Copy(tree)
	}
	for range 1 + rng.IntN(3) {
		changes[rng.IntN(len(changes))](x, rng)
	}
	of := append([]string{""}, objectives[x.Kind]...)
	if objective := of[rng.IntN(len(of))]; objective != "" {
		x.Options["objective"] = objective
		if strings.HasPrefix(x.Kind, "pool") {
			x.Options["min-load"], _ = strconv.ParseFloat(fmt.Sprintf("%.4g", math.Pow(10, 6*rng.Float64()-2)), 64)
		}
	}
	return x
}

// changes make a problem odd.
var changes = []func(x *Odd, rng *rand.Rand){
	func(x *Odd, rng *rand.Rand) { x.scale(rng, "workload", "SLOs", -5, 4, isSLO) },
	func(x *Odd, rng *rand.Rand) { x.scale(rng, "workload", "rates", -6, 6, isRate) },
	func(x *Odd, rng *rand.Rand) {
		x.scale(rng, "profile", "times", -4, 4, func(key string) bool { return strings.HasSuffix(key, "_us") })
	},
	func(x *Odd, rng *rand.Rand) { x.setCounts(int(math.Pow(10, 4*rng.Float64()))) },
	func(x *Odd, rng *rand.Rand) { x.setCounts(1) },
	func(x *Odd, rng *rand.Rand) { x.addCopies(1 + rng.IntN(7)) },
	func(x *Odd, rng *rand.Rand) {
		x.scale(rng, "workload", "lengths", -2, 3, func(key string) bool { return key == "mean" || key == "max" || key == "sd" })
	},
	func(x *Odd, rng *rand.Rand) {
		if cascade, ok := x.Documents["workload"].(map[string]any)["cascade"].(map[string]any); ok {
			cascade["grid"] = float64(1 + rng.IntN(20))
			x.What = append(x.What, fmt.Sprintf("grid %v", cascade["grid"]))
		}
	},
	func(x *Odd, rng *rand.Rand) {
		setAll(x.Documents["cluster"], "nic_gbps", math.Pow(10, 6*rng.Float64()-4))
		x.What = append(x.What, "another network")
	},
}

func isSLO(key string) bool  { return key == "slo" || key == "latency" || key == "waiting_slo" }
func isRate(key string) bool { return key == "rps" || key == "min_rps" || key == "max" }

// scale multiplies the figures of a document that stand under some keys by a power of ten.
func (x *Odd) scale(rng *rand.Rand, role, what string, from, to float64, is func(key string) bool) {
	factor := math.Pow(10, from+(to-from)*rng.Float64())
	walk(x.Documents[role], func(object map[string]any, key string) {
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
	x.What = append(x.What, fmt.Sprintf("%s x %.3g", what, factor))
}

// setCounts gives every pool so many devices.
func (x *Odd) setCounts(n int) {
	setAll(x.Documents["cluster"], "count", float64(n))
	x.What = append(x.What, fmt.Sprintf("%d devices of each kind", n))
}

// addCopies adds copies of all models, which differ by name only: to the profile, and to what is asked.
func (x *Odd) addCopies(copies int) {
	profile, workload := x.Documents["profile"].(map[string]any), x.Documents["workload"].(map[string]any)
	named := func(name any, n int) string { return fmt.Sprintf("%v-%d", name, n) }
	add := func(of map[string]any, list, key string) {
		entries, _ := of[list].([]any)
		for n := 1; n <= copies; n++ {
			for _, e := range entries {
				if entry, ok := e.(map[string]any); ok {
					again := Copy(entry).(map[string]any)
					again[key] = named(entry[key], n)
					of[list] = append(of[list].([]any), again)
				}
			}
		}
	}
	switch x.Kind {
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
	x.What = append(x.What, fmt.Sprintf("%d copies", copies))
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
