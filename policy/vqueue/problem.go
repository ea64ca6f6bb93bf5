package vqueue

import (
	"fmt"
	"math"
)

// Quantiles is the number of members by which the objective judges a group: those at 1/8, 3/8, 5/8 and 7/8 of its
// order of service.
const Quantiles = 4

// Group is a request group as the search sees it: waiting requests of one served model that are served one after the other.
// Times are seconds on one clock.
type Group struct {
	Model    int32   // network that the group needs
	Class    int32   // served model, which is a model with one SLO class; see Queue.ClosedClasses
	Priority int32   // lower is served first; if all are equal, the search decides the order
	Size     float64 // number of requests; 0 marks a free entry, which searches skip
	// Deadline has the deadlines of the members at the quantiles of the order of service. Rules other than
	// ByQuantiles use the last only.
	Deadline [Quantiles]float64
}

// Cost is the time that a group takes on a kind of device, in seconds.
// The milestone of a request is the point to which its SLO applies: its start, its first token or its answer.
type Cost struct {
	Work         float64 // time that the instance spends on all members, which start one after the other during it; infinite if the group cannot run there
	Variance     float64 // variance of Work
	Residence    float64 // mean time from a member's start to its milestone
	ResidenceVar float64 // variance of that time
}

// Queue is a virtual queue as the search sees it: the groups that one instance serves, in order.
type Queue struct {
	Kind  int32   // kind of the instance's device
	Model int32   // loaded network; -1 if there is none
	Start float64 // time in seconds at which the instance can start the first group
	// Setup is, by network, the seconds that the change to it takes: the running batch drains and weights are
	// loaded. It is infinite if the network cannot run here. Queues may share the slice.
	Setup []float64
	// ClosedClasses has, by class, whether the queue refuses its groups. If it is nil, the queue accepts all
	// classes.
	ClosedClasses []bool
}

// changeTime returns the seconds that the change from one network to another takes on the queue's instance: 0 for the same network, else
// the setup time of the new one.
func (q *Queue) changeTime(fromModel, toModel int32) float64 {
	if fromModel == toModel {
		return 0
	}
	return q.Setup[toModel]
}

// accepts reports whether a group, given its cost on the queue's kind of device, can run in the queue: the device can run it and load its
// network, and its class is not closed there.
func (q *Queue) accepts(group *Group, cost *Cost) bool {
	return !math.IsInf(cost.Work+q.Setup[group.Model], 1) && (q.ClosedClasses == nil || !q.ClosedClasses[group.Class])
}

// totalRequests returns the number of requests in all groups of the problem.
func (p *Problem) totalRequests() float64 {
	sum := 0.0
	for i := range p.Groups {
		sum += p.Groups[i].Size
	}
	return sum
}

// LatenessRule is the rule by which the objective counts a group as late.
type LatenessRule uint8

const (
	// ByQuantiles counts the expected number of late members at four quantiles of the order of service. It is
	// recommended.
	ByQuantiles LatenessRule = iota
	// ByMeans counts a whole group as late if its completion is after its last deadline. The completion is the
	// mean or, with Z, Z standard deviations later (the chance constraint of equation 12, made soft).
	ByMeans
	// ByCompletion is equation 13: the sum over groups of completion time less deadline. A late group costs
	// LateWeight besides (equation 12, which is hard if LateWeight is large).
	ByCompletion
)

// Objective has the weights of violations. The zero value is useless; see RecommendedObjective.
type Objective struct {
	LatenessRule LatenessRule
	LateWeight   float64 // cost of a late request
	TardyWeight  float64 // cost of a request per second of lateness
	EndWeight    float64 // cost per second until a queue is empty
	// CommonSD is the relative standard deviation of a factor on all work of a queue since Now: the error of the
	// estimated throughput.
	CommonSD float64
	Z        float64 // standard deviations of ByMeans
}

// RecommendedObjective is the smooth objective.
var RecommendedObjective = Objective{LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-3, CommonSD: 0.08}

// Problem is the input of a search. Nobody changes it while a search runs.
type Problem struct {
	Now    float64 // current time in seconds
	Kinds  int     // number of device kinds
	Models int     // number of networks
	Groups []Group
	Costs  []Cost // cost of group i on kind k, at [i*Kinds+k]
	Queues []Queue
	Objective
}

// Cost returns the cost of a group, by index, on a kind of device: its times in seconds.
func (p *Problem) Cost(groupIndex, kind int32) *Cost {
	return &p.Costs[int(groupIndex)*p.Kinds+int(kind)]
}

// Validate returns an error that names the first value with which a search could not work.
// A group that can run nowhere is no error: it stays unplaced, in no queue.
func (p *Problem) Validate() error {
	// problemError describes one wrong value.
	problemError := func(section string, i int, field string, found any, expected string) error {
		return fmt.Errorf("%s[%d].%s: found %v, expected %s", section, i, field, found, expected)
	}

	// Groups need a known network, a finite size, deadlines that are numbers.
	if len(p.Costs) != len(p.Groups)*p.Kinds {
		return fmt.Errorf("costs: found %d, expected %d groups times %d kinds", len(p.Costs), len(p.Groups), p.Kinds)
	}
	for i := range p.Groups {
		group := &p.Groups[i]
		if group.Model < 0 || int(group.Model) >= p.Models {
			return problemError("groups", i, "model", group.Model, fmt.Sprintf("0 to %d", p.Models-1))
		}
		// Comparisons are negated so that NaN fails them, too.
		if !(group.Size >= 0) || math.IsInf(group.Size, 1) {
			return problemError("groups", i, "size", group.Size, "a number of requests")
		}
		for _, deadline := range group.Deadline {
			if math.IsNaN(deadline) {
				return problemError("groups", i, "deadline", deadline, "seconds")
			}
		}
	}

	// Costs may not be negative, and only work may be infinite.
	for i, cost := range p.Costs {
		isAtLeastZero := cost.Work >= 0 && cost.Variance >= 0 && cost.Residence >= 0 && cost.ResidenceVar >= 0
		if !isAtLeastZero || math.IsInf(cost.Variance+cost.Residence+cost.ResidenceVar, 1) {
			return problemError("costs", i, "work", cost, "seconds and variances of at least 0")
		}
	}

	// Queues need a known kind and network, a finite start, a setup time for each network.
	for i := range p.Queues {
		queue := &p.Queues[i]
		switch {
		case queue.Kind < 0 || int(queue.Kind) >= p.Kinds:
			return problemError("queues", i, "kind", queue.Kind, fmt.Sprintf("0 to %d", p.Kinds-1))
		case queue.Model < -1 || int(queue.Model) >= p.Models:
			return problemError("queues", i, "model", queue.Model, fmt.Sprintf("-1 to %d", p.Models-1))
		case math.IsNaN(queue.Start) || math.IsInf(queue.Start, 0):
			return problemError("queues", i, "start", queue.Start, "seconds")
		case len(queue.Setup) != p.Models:
			return problemError("queues", i, "setup", len(queue.Setup), fmt.Sprintf("%d models", p.Models))
		}
		for network, setupTime := range queue.Setup {
			if !(setupTime >= 0) {
				return problemError("queues", i, fmt.Sprintf("setup[%d]", network), setupTime, "seconds")
			}
		}
	}
	return nil
}

// unplacedLateness is the lateness in seconds that the objective counts for a group that is in no queue.
const unplacedLateness = 3600

// unplacedCost returns the cost of a group that is in no queue: as if it were late by unplacedLateness seconds, so that groups are put into
// queues wherever they can run.
func (p *Problem) unplacedCost(group *Group) float64 {
	if p.LatenessRule == ByCompletion {
		return p.LateWeight + unplacedLateness
	}
	return group.Size * (p.LateWeight + p.TardyWeight*unplacedLateness)
}
