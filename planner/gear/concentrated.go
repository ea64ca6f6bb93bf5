package gear

import (
	"math"
	"slices"
)

// An even split has every model on all devices that hold it, so that samples of a fast model
// wait behind batches of a slow one on each of them. The same work goes on as few devices as can
// be, all equally busy: model after model fills device after device, and goes on with what
// is left of the last (McNaughton's wrap-around rule).

// onFewDevices is a split of a cascade's work with every model on few of the devices that are
// alike: what they do together stays. Nil: that is the same split.
func (l *layout) onFewDevices(cascade int, shares [][]float64) [][]float64 {
	out := make([][]float64, len(shares))
	for m := range shares {
		out[m] = slices.Clone(shares[m])
	}
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
	same := func(a, b []float64) bool {
		return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
	}
	if slices.EqualFunc(out, shares, same) {
		return nil
	}
	return out
}

// replicasOn are the replicas of whole models on the devices of a kind, by model and device;
// negative: none. first is moved behind them.
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

// wrap fills the devices of a group one after another, model by model.
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
	c := &l.x.list[cascade]
	work := make([]float64, len(c.Models)) // of the group, by model of the cascade
	for k, m := range c.Models {
		for _, d := range devices {
			if n := at[m][d]; n >= 0 {
				work[k] += shares[m][n] * l.seconds(cascade, kind, int(m))
				shares[m][n] = 0
			}
		}
	}
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

// seconds are what a model does of a request of a cascade on a kind.
func (l *layout) seconds(cascade, kind, model int) float64 {
	return l.x.reach[cascade][model] * l.x.per[kind][model]
}
