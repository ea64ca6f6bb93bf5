package profiler

import (
	"cmp"
	"context"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Ranges says which ranges of blocks are measured in one piece, beside the
// blocks and the whole model. What a range costs is less than the sum of its
// blocks by what its inner cuts cost: copies, layouts, lost fusions.
type Ranges struct {
	// Of lists ranges [first, last) of a model at a device kind, share and batch;
	// nil: none. What is no range of two or more blocks, or is all of them, is
	// passed over.
	Of func(m *formats.ProfileModel, device string, share, batch int) [][2]int
	// Only: measure nothing but ranges, at the shares and batches that the profile
	// holds.
	Only bool
	plan *formats.Plan
}

// AllRanges are all ranges of blocks.
func AllRanges() Ranges {
	return Ranges{Of: func(m *formats.ProfileModel, _ string, _, _ int) [][2]int {
		var out [][2]int
		for i := range m.Blocks {
			for j := i + 2; j <= len(m.Blocks); j++ {
				out = append(out, [2]int{i, j})
			}
		}
		return out
	}}
}

// UsedRanges are the ranges that the stages of a plan run, at the measured
// batches that their times are read from.
func UsedRanges(plan *formats.Plan) Ranges {
	out := Ranges{Only: true, plan: plan}
	out.Of = func(m *formats.ProfileModel, device string, share, batch int) [][2]int {
		var list [][2]int
		for s := range plan.Stages() {
			here := s.Deployed.Model == m.Model && s.Deployed.NumBlocks == len(m.Blocks) && s.Device == device && s.Share == share
			if here && batch <= batchRead(m, device, share, s.Pipeline.Batch) {
				list = append(list, s.Blocks)
			}
		}
		return list
	}
	return out
}

// shares lists the shares that are asked for on a kind of devices.
func (r *Ranges) shares(device string) []int {
	out := []int{1}
	if r.plan == nil {
		return out
	}
	for s := range r.plan.Stages() {
		if s.Device == device {
			out = append(out, s.Share)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// batchRead is the measured batch that a batch costs: the next larger one.
func batchRead(m *formats.ProfileModel, device string, share, batch int) int {
	best := 0
	for i := range m.Measurements {
		h := &m.Measurements[i]
		if h.Device == device && h.Share == share && h.Batch >= batch && (best == 0 || h.Batch < best) {
			best = h.Batch
		}
	}
	return best
}

// missing lists what is asked for of a job's ranges at a unit and not held.
func (r *runner) missing(j *job, u unit) [][2]int {
	if r.o.Ranges.Of == nil {
		return nil
	}
	m := j.entry
	if len(m.Blocks) == 0 { // not cut yet
		m = &formats.ProfileModel{Model: m.Model, Blocks: make([]formats.Block, min(r.o.Blocks, j.m.atoms()))}
	}
	asked := slices.Clone(r.o.Ranges.Of(m, r.dev.Kind, u.share, u.batch))
	slices.SortFunc(asked, compareRanges)
	have := j.entry.At(r.dev.Kind, u.share, u.batch)
	return slices.DeleteFunc(slices.Compact(asked), func(b [2]int) bool {
		n := len(m.Blocks)
		return b[0] < 0 || b[1] > n || b[1]-b[0] < 2 || b[1]-b[0] == n || !r.o.Force && !j.base[u] && have != nil && hasRange(have, b)
	})
}

func compareRanges(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }

func hasRange(m *formats.Measurement, b [2]int) bool {
	return slices.ContainsFunc(m.Ranges, func(r formats.RangeLatency) bool { return r.Blocks == b })
}

// putRanges adds measured ranges to a measurement, in place of older ones.
func putRanges(m *formats.Measurement, list []formats.RangeLatency) {
	m.Ranges = slices.Clone(m.Ranges)
	for _, l := range list {
		at, found := slices.BinarySearchFunc(m.Ranges, l, func(a, b formats.RangeLatency) int { return compareRanges(a.Blocks, b.Blocks) })
		if found {
			m.Ranges[at] = l
		} else {
			m.Ranges = slices.Insert(m.Ranges, at, l)
		}
	}
}

// asThen is a time in relation to what the whole model takes now, as of when it
// took what the profile says: ranges that are added later than the blocks stand
// beside numbers of another hour, on a machine that may have been less busy.
func asThen(l, now, then formats.Latency) formats.Latency {
	ratio := func(now, then document.Micros) float64 {
		if now <= 0 || then <= 0 {
			return 1
		}
		return float64(then) / float64(now)
	}
	return l.Times(ratio(now.WallUS, then.WallUS), ratio(now.CPUUS, then.CPUUS))
}

// rangeMemory is how much of a group's memory a byte of the weights of a range
// takes: a session's own copies, beside those of the blocks and of the whole.
const rangeMemory = 2 * memoryFactor

// pass is the ranges that are measured beside each other, by unit.
type pass map[unit][][2]int

// passes splits the missing ranges of a share: ranges of one pass are loaded at
// the same time, beside the blocks and the whole. There is at least one pass.
func (g *group) passes(j *job, share int) []pass {
	wanted := map[unit][][2]int{}
	var all [][2]int
	for _, u := range j.todo {
		if u.share == share {
			wanted[u] = g.missing(j, u)
			all = append(all, wanted[u]...)
		}
	}
	slices.SortFunc(all, compareRanges)
	room, used := groupMemory/rangeMemory, int64(0)
	out := []pass{{}}
	for i, b := range slices.Compact(all) {
		if used += j.cut.WeightBytes(b[0], b[1]); i > 0 && used > room {
			out, used = append(out, pass{}), j.cut.WeightBytes(b[0], b[1])
		}
		for u, list := range wanted {
			if slices.Contains(list, b) {
				out[len(out)-1][u] = append(out[len(out)-1][u], b)
			}
		}
	}
	return out
}

// loadRanges loads and binds the ranges of a pass on every copy.
func (g *group) loadRanges(ctx context.Context, j *job, share int, places []place, p pass) error {
	batches := map[[2]int][]int{}
	var order [][2]int
	for _, u := range j.todo {
		for _, b := range p[u] {
			if len(batches[b]) == 0 {
				order = append(order, b)
			}
			batches[b] = append(batches[b], u.batch)
		}
	}
	for k, c := range j.chains[share] {
		for _, b := range order {
			g.event(Event{Stage: StageLoad, Model: j.in.name, Share: share, Done: g.fraction(0)})
			if err := c.loadRange(ctx, places[k], j.cut, b, batches[b]); err != nil {
				return err
			}
		}
	}
	return nil
}
