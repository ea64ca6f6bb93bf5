package placement

import (
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/lists"
)

// An even split has every model on all devices that hold it, so samples of a fast model wait behind batches of a
// slow one on each of them. A concentrated split does the same work on as few devices per model as possible, all
// equally busy: model by model it fills one device after another, and goes on with the free time of the last
// (McNaughton's wrap-around rule).

// ConcentratedSplit returns another split of a cascade's work over the devices, to be tried if the even one is too
// late: shares of each model's samples, by model and replica, that put every model on few devices of each group of
// alike devices, so that these make larger batches of it. Each group, and each device within it, does the same work as
// before. shares is the even split, which is not changed. If nothing would change, it returns nil.
func (l *Layout) ConcentratedSplit(cascade int, shares [][]float64) [][]float64 {
	concentrated := lists.Filled(len(shares), func(m int) []float64 { return slices.Clone(shares[m]) })

	// Concentrate the work of each group g of each kind k. Groups are numbered over all kinds; those of other kinds have no
	// device in GroupOf[k], and nothing changes for them.
	firstReplica := make([]int, len(shares)) // by model: replica on the kind's first device; ReplicaIndexes moves it to the next kind
	for k := range l.GroupOf {
		replicaAt := l.ReplicaIndexes(l.GroupOf[k], firstReplica)
		groupCount := slices.Max(append(l.GroupOf[k], -1)) + 1 // 0 if the kind has no devices
		for g := range groupCount {
			l.concentrateGroup(cascade, k, l.GroupOf[k], g, replicaAt, concentrated)
		}
	}
	for m := range concentrated {
		cascades.Normalise(concentrated[m])
	}

	// Compare with the even split.
	sameShares := func(a, b []float64) bool {
		return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) < 1e-9 })
	}
	if slices.EqualFunc(concentrated, shares, sameShares) {
		return nil
	}
	return concentrated
}

// ReplicaIndexes returns, by model and device of a kind, the index of the device's replica of the whole model in the
// shares of a split, or -1 if the device does not hold the model. groups has the group of each device. firstReplica has
// the index of the kind's first replica, by model; it is changed to that of the next kind.
func (l *Layout) ReplicaIndexes(groups, firstReplica []int) [][]int {
	replicaAt := make([][]int, len(firstReplica))
	for m := range replicaAt {
		for _, g := range groups {
			replica := -1
			if l.DeviceGroups[g].ModelSet&(1<<m) != 0 {
				replica = firstReplica[m]
				firstReplica[m]++
			}
			replicaAt[m] = append(replicaAt[m], replica)
		}
	}
	return replicaAt
}

// concentrateGroup divides the work of a cascade on one group of alike devices of a kind anew, by changing shares: model
// after model fills the devices one after another, each up to an equal part of all the work. groups has the group of
// each device of the kind, and replicaAt the index of its replica in shares, by model and device. A group of one device
// stays.
func (l *Layout) concentrateGroup(cascade, kind int, groups []int, g int, replicaAt [][]int, shares [][]float64) {
	devices := lists.Matching(len(groups), func(d int) bool { return groups[d] == g })
	if len(devices) < 2 {
		return
	}

	// Take the work of each model off the group.
	c := &l.Space.Cascades[cascade]
	work := make([]float64, len(c.Models)) // seconds per request, by model of the cascade
	for k, m := range c.Models {
		for _, d := range devices {
			if n := replicaAt[m][d]; n >= 0 {
				work[k] += shares[m][n] * l.SecondsPerRequest(cascade, kind, int(m))
				shares[m][n] = 0
			}
		}
	}

	// Give every device an equal share of the work. freeTime is the part of its share that device d has not got yet. The last
	// device also gets the rest that rounding leaves.
	deviceShare := lists.Total(work) / float64(len(devices))
	d, freeTime := 0, deviceShare
	for k, m := range c.Models {
		seconds := l.SecondsPerRequest(cascade, kind, int(m))
		for remaining := work[k]; remaining > 0; {
			moved := remaining
			if isLast := d == len(devices)-1; !isLast && moved >= freeTime {
				moved = freeTime
			}
			shares[m][replicaAt[m][devices[d]]] += moved / seconds
			remaining -= moved
			if freeTime -= moved; freeTime <= 1e-12*deviceShare && d < len(devices)-1 {
				d, freeTime = d+1, deviceShare
			}
		}
	}
}

// SecondsPerRequest returns the seconds of a model's work on a kind that a request of a cascade brings on average.
func (l *Layout) SecondsPerRequest(cascade, kind, model int) float64 {
	return l.Space.ReachShares[cascade][model] * l.Space.SecondsPerSample[kind][model]
}
