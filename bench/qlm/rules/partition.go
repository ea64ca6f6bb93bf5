package rules

import (
	"cmp"
	"slices"

	"inferplan/formats/seeded"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// mostOfOne is the part of an instance from which on a network has one of its own,
// where there are fewer instances than networks.
const mostOfOne = 0.75

// partition gives the instances to networks for good.
type partition struct {
	t    *policy.Tables
	own  *vqueue.Tables
	need []float64 // instances' seconds a second by network, at the planned rates
	free []int32   // devices
	only [][]int32
}

// Partition is the devices of each network, as Tables.AllowedDevices has them, for a fleet
// whose instances never change their model. Every network has one, and the others go
// where most work is on each. Where there are fewer instances than networks, those with
// most work have whole instances, and the others share what is left.
func Partition(t *policy.Tables) [][]int32 {
	p := &partition{t: t, own: vqueue.TablesOf(t), only: make([][]int32, len(t.Networks))}
	p.work()
	for d := range t.Devices {
		if t.InstanceOf(int32(d)) >= 0 {
			p.free = append(p.free, int32(d))
		}
	}
	order := make([]int32, len(t.Networks))
	for n := range order {
		order[n] = int32(n)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(p.need[b], p.need[a]) })
	if len(p.free) >= len(order) {
		for _, n := range order {
			p.take(n)
		}
		for n := p.busiest(); n >= 0 && len(p.free) > 0; n = p.busiest() {
			p.take(n)
		}
		return p.sorted()
	}
	total, instances := 0.0, float64(len(p.free))
	for _, need := range p.need {
		total += need
	}
	for _, n := range order {
		for k := mostOfOne; k < p.need[n]/total*instances && len(p.free) > 1 && p.take(n); k++ {
		}
	}
	for _, n := range order {
		if p.only[n] == nil {
			p.only[n] = p.allowed(n, p.free)
		}
	}
	return p.sorted()
}

func (p *partition) sorted() [][]int32 {
	for _, list := range p.only {
		slices.Sort(list)
	}
	return p.only
}

// work sets the networks' need.
func (p *partition) work() {
	p.need = make([]float64, len(p.t.Networks))
	for m := range p.t.Models {
		for k := range p.t.Kinds {
			if e := p.own.Estimator(len(p.t.Kinds), int32(m), false, int32(k)); e.Batch > 0 {
				each, _ := e.Work(1)
				p.need[p.t.Pipelines[p.t.Models[m].FirstPipeline].Network] += p.t.Models[m].RPS * each
				break
			}
		}
	}
}

// allowed is those of a list of devices that may serve a network.
func (p *partition) allowed(n int32, list []int32) []int32 {
	if p.own.AllowedDevices == nil {
		return slices.Clone(list)
	}
	return slices.DeleteFunc(slices.Clone(list), func(d int32) bool {
		_, may := slices.BinarySearch(p.own.AllowedDevices[n], d)
		return !may
	})
}

// take gives a network a free device that may serve it, where it is loaded if it can
// be. It is false where there is none.
func (p *partition) take(n int32) bool {
	list := p.allowed(n, p.free)
	if len(list) == 0 {
		return false
	}
	d := list[max(0, slices.IndexFunc(list, func(d int32) bool { return slices.Contains(p.t.Resident[d], n) }))]
	p.only[n] = append(p.only[n], d)
	p.free = slices.DeleteFunc(p.free, func(f int32) bool { return f == d })
	return true
}

// busiest is the network with most work on each of its devices among those that a
// free device may serve; -1: there is none.
func (p *partition) busiest() int32 {
	best := int32(-1)
	load := func(n int32) float64 { return p.need[n] / float64(max(1, len(p.only[n]))) }
	for n := range p.need {
		if len(p.allowed(int32(n), p.free)) > 0 && (best < 0 || load(int32(n)) > load(best)) {
			best = int32(n)
		}
	}
	return best
}

// Random deals requests at random.
func Random(seed uint64) func(instances int) int {
	return seeded.New(seed, "vqueue/place").IntN
}
