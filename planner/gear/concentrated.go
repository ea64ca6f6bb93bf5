package gear

import (
	"math"
	"slices"
)

// An even split has every model on all devices that hold it, so samples of a fast model wait behind batches of a
// slow one on each of them. A concentrated split does the same work on as few devices per model as possible, all
// equally busy: model by model it fills one device after another, and goes on with the free time of the last
// (McNaughton's wrap-around rule).

// concentratedSplit returns the shares, by model and replica, of a split that puts every model on few devices of
// each group. Each group does the same work as before. If nothing changes, it returns nil.
func (l *layout) onFewDevices(cascade int, shares [][]float64) [][]float64 {
	out := make([][]float64, len(shares))
	for m := range shares {
		out[m] = slices.Clone(shares[m])
	}

	// Concentrate the work of each group.
	first := make([]int, len(shares)) // replica of the model on the kind's first device
	for k := range l.cellOf {
		at := l.replicasOn(l.cellOf[k], first)
		for g := range slices.Max(append(l.cellOf[k], -1)) + 1 {
			l.wrap(cascade, k, l.cellOf[k], g, at, out)
		}
	}
	for m := range out {
		toShares(out[m])
	}

	// Compare with the even split.
	same := func(a, b []float64) bool {
		return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
	}
	if slices.EqualFunc(out, shares, same) {
		return nil
	}
	return out
}

// replicaIndexes returns the index of the replica of a whole model, by model and device of a kind, or -1 if the
// device does not hold the model. firstReplica, by model, is moved behind them.
func (l *layout) replicasOn(group, first []int) [][]int {
	at := make([][]int, len(first))
	for m := range at {
		for _, g := range group {
			n := -1
			if l.cells[g].Set&(1<<m) != 0 {
				n = first[m]
				first[m]++
			}
			at[m] = append(at[m], n)
		}
	}
	return at
}

// wrapAround fills the devices of group g one after another, model by model.
func (l *layout) wrap(cascade, kind int, group []int, g int, at [][]int, shares [][]float64) {
	var devices []int
	for d := range group {
		if group[d] == g {
			devices = append(devices, d)
		}
	}
	if len(devices) < 2 {
		return
	}

	// Take the work of each model off the group.
	c := &l.x.list[cascade]
	work := make([]float64, len(c.Models)) // seconds per request, by model of the cascade
	for k, m := range c.Models {
		for _, d := range devices {
			if n := at[m][d]; n >= 0 {
				work[k] += shares[m][n] * l.seconds(cascade, kind, int(m))
				shares[m][n] = 0
			}
		}
	}

	// Give every device an equal share of it.
	each := sum(work) / float64(len(devices))
	d, room := 0, each
	for k, m := range c.Models {
		per := l.seconds(cascade, kind, int(m))
		for left := work[k]; left > 0; {
			part := left
			if last := d == len(devices)-1; !last && part >= room {
				part = room
			}
			shares[m][at[m][devices[d]]] += part / per
			left -= part
			if room -= part; room <= 1e-12*each && d < len(devices)-1 {
				d, room = d+1, each
			}
		}
	}
}

// secondsPerRequest returns the seconds of a model's work on a kind that a request of a cascade brings on average.
func (l *layout) seconds(cascade, kind, model int) float64 {
	return l.x.reach[cascade][model] * l.x.per[kind][model]
}
