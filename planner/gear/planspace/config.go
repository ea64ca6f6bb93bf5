package planspace

import (
	"cmp"
	"math/bits"
	"slices"
)

// Config is a number of devices of a kind that hold the same models and stages.
type Config struct {
	Kind     int    // index of the kind
	ModelSet uint32 // bits of the models, and above them of stages of chains
	Count    int    // number of devices
}

// DevicesWith returns the numbers of the devices of a kind that hold a model or stage, which is given by its bit in the
// sets of models. configs are a placement: how many devices hold which set. Devices are numbered within their kind,
// config by config.
func DevicesWith(configs []Config, kind, model int) (list []int) {
	firstDevice := 0
	for _, c := range ConfigsOfKind(configs, kind) {
		for n := range c.Count {
			if c.ModelSet&(1<<model) != 0 {
				list = append(list, firstDevice+n)
			}
		}
		firstDevice += c.Count
	}
	return list
}

// ConfigsOfKind returns the configs of a kind.
func ConfigsOfKind(configs []Config, kind int) (list []Config) {
	for _, c := range configs {
		if c.Kind == kind {
			list = append(list, c)
		}
	}
	return list
}

// WithCounts returns configs (sets of models on a device) with the given numbers of devices, by index, as a placement.
// Configs of no devices are left out.
func WithCounts(configs []Config, counts []int) (placement []Config) {
	for i, n := range counts {
		if n > 0 {
			placement = append(placement, Config{configs[i].Kind, configs[i].ModelSet, n})
		}
	}
	return placement
}

// MergeConfigs returns a placement with one config for each set of models on a kind, by kind and set.
func MergeConfigs(placement []Config) (merged []Config) {
	sorted := slices.SortedStableFunc(slices.Values(placement), func(a, b Config) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ModelSet, b.ModelSet))
	})
	for _, c := range sorted {
		if n := len(merged); n > 0 && merged[n-1].Kind == c.Kind && merged[n-1].ModelSet == c.ModelSet {
			merged[n-1].Count += c.Count
			continue
		}
		merged = append(merged, c)
	}
	return merged
}

// maximalSets returns the sets of items (models and stages, by index of sizes) that fit together into the memory of a
// device and can take no further item, as bit sets in rising order. sizes and limit are in bytes. An item of size below
// 0 is in no set, and a limit of 0 allows everything.
func maximalSets(sizes []int64, limit int64) (sets []uint32) {
	// fits reports whether all items of a set can be on one device.
	fits := func(set uint32) bool {
		total := int64(0)
		for remaining := set; remaining > 0; remaining &= remaining - 1 { // each round drops the lowest bit
			size := sizes[bits.TrailingZeros32(remaining)]
			if total += size; size < 0 {
				return false
			}
		}
		return limit == 0 || total <= limit
	}

	// A set that fits is maximal if it fits with no other item.
	for set := uint32(1); set < 1<<len(sizes); set++ {
		if !fits(set) {
			continue
		}
		maximal := true
		for m := range sizes {
			if item := uint32(1) << m; set&item == 0 && fits(set|item) {
				maximal = false
			}
		}
		if maximal {
			sets = append(sets, set)
		}
	}
	return sets
}

// Compositions returns the number of ways to give each of n machines one of k sets: C(n+k-1, k-1).
func Compositions(n, k int) float64 {
	ways := 1.0
	for i := 1; i < k; i++ {
		ways = ways * float64(n+i) / float64(i)
	}
	return ways
}

// EachComposition calls visit for every way to give each of n alike machines one of k sets, if only the number of
// machines with each set counts. k is at least 1. counts has the number of machines by set, and is only valid during
// the call.
func EachComposition(n, k int, visit func(counts []int)) {
	counts := make([]int, k)
	var assign func(set, remaining int)
	assign = func(set, remaining int) {
		if set == k-1 {
			counts[set] = remaining
			visit(counts)
			return
		}
		for machines := range remaining + 1 {
			counts[set] = machines
			assign(set+1, remaining-machines)
		}
	}
	assign(0, n)
}
