package profiler

import (
	"slices"
	"time"

	"inferplan/engine/graph"
)

// atomSpan is the range of atoms that a layer's operators lie in, and the layer's time.
type atomSpan struct {
	layer               string
	firstAtom, lastAtom int
	time                time.Duration
}

// sumByBlock sums the times of layers by the blocks that they lie in. bounds are the first atom of each block, and
// the end.
func sumByBlock(bounds []int, spans []atomSpan) []time.Duration {
	out := make([]time.Duration, len(bounds)-1)
	for _, s := range spans {
		k, _ := slices.BinarySearch(bounds, s.firstAtom+1) // the first bound behind the atom, which ends its block, k-1
		out[k-1] += s.time
	}
	return out
}

// operatorIndex finds the atom of an operator by its name.
type operatorIndex struct {
	atom      map[string]int
	benchmark Benchmark
}

// newOperators makes the index that finds the atom (the part of a model between two possible cuts) of an operator by
// its name. The benchmark finds the names in those of layers.
func newOperators(c *graph.Chain, benchmark Benchmark) *operatorIndex {
	o := &operatorIndex{map[string]int{}, benchmark}
	for i := range c.AtomCount() {
		for _, n := range c.AtomNodes(i) {
			o.atom[n] = i
		}
	}
	return o
}

// maxUnmatchedShare is the largest share of a run's time in layers without an operator's name, which are mostly
// changes of layout.
const maxUnmatchedShare = 0.25

// match returns for every layer of a run the atoms that its operators lie in, with its time. It finds the operators
// by the names in the layer's name. The time of a layer without any goes to the next layer that has some. If such
// layers take too much of the time, the run is of another model, which is an error.
func (o *operatorIndex) match(r BenchmarkRun) ([]atomSpan, error) {
	var out []atomSpan
	unmatchedTotal, pendingTime := time.Duration(0), time.Duration(0) // time of layers without an operator: all, and not yet given to the next
	firstUnmatched := ""                                              // the name of the first such layer

	// A layer spans the operators that its name lists. The time of one that lists none goes to the next that does.
	for _, l := range r.Layers.Layers {
		s := atomSpan{layer: l.Name, firstAtom: -1, time: l.Time}
		for _, n := range o.benchmark.OperatorNames(l.Name) {
			atom, ok := o.atom[n]
			if !ok {
				continue
			}
			if s.firstAtom < 0 {
				s.firstAtom, s.lastAtom = atom, atom
			}
			s.firstAtom, s.lastAtom = min(s.firstAtom, atom), max(s.lastAtom, atom)
		}
		if s.firstAtom < 0 {
			pendingTime += l.Time
			if unmatchedTotal += l.Time; firstUnmatched == "" && l.Time > 0 {
				firstUnmatched = l.Name
			}
			continue
		}
		s.time += pendingTime
		pendingTime = 0
		out = append(out, s)
	}

	// Refuse a profile whose layers belong to another model.
	total := r.Layers.Total()
	switch {
	case len(out) == 0:
		return nil, inputError("%s: none of its %d layers has the name of an operator of the model, such as %q: is it the file that the engine was built from?", r.Name, len(r.Layers.Layers), r.Layers.Layers[0].Name)
	case unmatchedTotal.Seconds() > maxUnmatchedShare*total.Seconds():
		return nil, inputError("%s: layers of no operator of the model, such as %q, take %.0f %% of the time (at most %.0f %%): is it the file that the engine was built from?",
			r.Name, firstUnmatched, 100*unmatchedTotal.Seconds()/total.Seconds(), 100*maxUnmatchedShare)
	}
	out[len(out)-1].time += pendingTime
	return out, nil
}
