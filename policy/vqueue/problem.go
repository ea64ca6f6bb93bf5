package vqueue

import (
	"fmt"
	"math"
)

// Quantiles is the number of members by which the objective judges a group: those
// at 1/8, 3/8, 5/8 and 7/8 of its order of service.
const Quantiles = 4

// Group is a request group as the search sees it. Times are seconds on one clock.
type Group struct {
	Model    int32
	Class    int32   // see Queue.Closed
	Priority int32   // lower goes first in a queue; equal everywhere: the search orders
	Size     float64 // requests; 0: a free slot, which searches leave alone
	// Deadline has the deadlines of the members at the quantiles of the order of
	// service. Judges other than ByQuantiles look at the last only.
	Deadline [Quantiles]float64
}

// Cost is what a group takes on a kind of device.
type Cost struct {
	Work         float64 // seconds of the instance; infinite: cannot run there
	Variance     float64 // of Work
	Residence    float64 // seconds from a member's start to its answer
	ResidenceVar float64
}

// Queue is a virtual queue: what one instance serves, in order.
type Queue struct {
	Kind  int32   // of the device
	Model int32   // loaded; -1: none
	Start float64 // when the instance takes the first group
	// Setup is, by model, how long the change to it takes: the running batch drains,
	// the weights move. Infinite: the model cannot run here. Queues may share it.
	Setup []float64
	// Closed has, by class, whether the queue takes none of its groups; nil: it takes
	// all.
	Closed []bool
}

// change is how long the change from one model to another takes.
func (q *Queue) change(from, to int32) float64 {
	if from == to {
		return 0
	}
	return q.Setup[to]
}

// takes tells whether a group with a cost can run in a queue.
func (q *Queue) takes(g *Group, c *Cost) bool {
	return !math.IsInf(c.Work+q.Setup[g.Model], 1) && (q.Closed == nil || !q.Closed[g.Class])
}

// requests is how many there are in all groups.
func (p *Problem) requests() float64 {
	sum := 0.0
	for i := range p.Groups {
		sum += p.Groups[i].Size
	}
	return sum
}

// Judge says how the objective judges the completion of a group.
type Judge uint8

const (
	// ByQuantiles counts the expected number of late members at four quantiles of the
	// order of service: recommended.
	ByQuantiles Judge = iota
	// ByMeans counts a group late as a whole if its completion is past its last
	// deadline: at the mean, or with Z at a mean that is Z standard deviations later
	// (the chance constraint of equation 12, made soft).
	ByMeans
	// ByCompletion is equation 13: the sum over groups of completion time less
	// deadline. Being late costs Late per group besides (equation 12, hard if Late is
	// large).
	ByCompletion
)

// Objective weighs what goes wrong. The zero value is of no use; see Recommended.
type Objective struct {
	Judge Judge
	Late  float64 // per late request
	Tardy float64 // per request and second of lateness
	End   float64 // per second until a queue is empty
	// Common is the standard deviation of a factor on the work of a queue since Now:
	// the error of its throughput.
	Common float64
	Z      float64 // see ByMeans
}

// Recommended is the smooth objective.
var Recommended = Objective{Late: 1, Tardy: 1e-3, End: 1e-3, Common: 0.08}

// Problem is what a search orders. Nobody changes it while one runs.
type Problem struct {
	Now    float64
	Kinds  int // of devices
	Models int
	Groups []Group
	Costs  []Cost // of group i on kind k: [i*Kinds+k]
	Queues []Queue
	Objective
}

// Cost returns the cost of a group on a kind of device.
func (p *Problem) Cost(group, kind int32) *Cost { return &p.Costs[int(group)*p.Kinds+int(kind)] }

// Validate tells what the search could not work with. A group that can run nowhere
// is no error: it stays unplaced.
func (p *Problem) Validate() error {
	bad := func(where string, i int, what string, found any, want string) error {
		return fmt.Errorf("%s[%d].%s: found %v, expected %s", where, i, what, found, want)
	}
	if len(p.Costs) != len(p.Groups)*p.Kinds {
		return fmt.Errorf("costs: found %d, expected %d groups times %d kinds", len(p.Costs), len(p.Groups), p.Kinds)
	}
	for i := range p.Groups {
		g := &p.Groups[i]
		if g.Model < 0 || int(g.Model) >= p.Models {
			return bad("groups", i, "model", g.Model, fmt.Sprintf("0 to %d", p.Models-1))
		}
		if !(g.Size >= 0) || math.IsInf(g.Size, 1) {
			return bad("groups", i, "size", g.Size, "a number of requests")
		}
		for _, d := range g.Deadline {
			if math.IsNaN(d) {
				return bad("groups", i, "deadline", d, "seconds")
			}
		}
	}
	for i, c := range p.Costs {
		if !(c.Work >= 0) || !(c.Variance >= 0) || !(c.Residence >= 0) || !(c.ResidenceVar >= 0) || math.IsInf(c.Variance+c.Residence+c.ResidenceVar, 1) {
			return bad("costs", i, "work", c, "seconds and variances of at least 0")
		}
	}
	for i := range p.Queues {
		q := &p.Queues[i]
		switch {
		case q.Kind < 0 || int(q.Kind) >= p.Kinds:
			return bad("queues", i, "kind", q.Kind, fmt.Sprintf("0 to %d", p.Kinds-1))
		case q.Model < -1 || int(q.Model) >= p.Models:
			return bad("queues", i, "model", q.Model, fmt.Sprintf("-1 to %d", p.Models-1))
		case math.IsNaN(q.Start) || math.IsInf(q.Start, 0):
			return bad("queues", i, "start", q.Start, "seconds")
		case len(q.Setup) != p.Models:
			return bad("queues", i, "setup", len(q.Setup), fmt.Sprintf("%d models", p.Models))
		}
		for m, s := range q.Setup {
			if !(s >= 0) {
				return bad("queues", i, fmt.Sprintf("setup[%d]", m), s, "seconds")
			}
		}
	}
	return nil
}

// unservable is the lateness in seconds that the objective counts for a group
// that is in no queue.
const unservable = 3600

// unplaced is what a group in no queue costs.
func (p *Problem) unplaced(g *Group) float64 {
	if p.Judge == ByCompletion {
		return p.Late + unservable
	}
	return g.Size * (p.Late + p.Tardy*unservable)
}
