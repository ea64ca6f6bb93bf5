package deploy

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/planner/lists"
)

// Layout is a set of pools that share nothing.
type Layout struct{ Pools []Pool }

// Pool is a set of instances that serve the same items.
type Pool struct {
	Items  []int
	Counts []int   // instances, by kind
	Caps   [][]int // concurrent sequences, by kind and model of the problem
	// ClassCaps limits, by class of the problem, the concurrent sequences of that class. If it is 0, there
	// is no limit.
	ClassCaps []int
}

// InstanceCount returns the number of servers of the pool.
func (x *Pool) InstanceCount() int {
	return lists.Total(x.Counts)
}

// cacheKey returns a text that two pools share only if a simulation of them has the same outcome: the same items, instances and caps.
// Trials stores the scores of runs by it.
func (x *Pool) cacheKey(p *Problem) string {
	var b strings.Builder
	fmt.Fprint(&b, x.Items, x.Counts, x.ClassCaps)
	models := p.ModelsOf(x.Items)
	for k, n := range x.Counts {
		for _, m := range models {
			if n > 0 {
				fmt.Fprint(&b, " ", x.Caps[k][m])
			}
		}
	}
	return b.String()
}

// clone returns a pool whose counts and caps can change without changing the original.
func (x *Pool) clone() Pool {
	y := Pool{Items: x.Items, Counts: slices.Clone(x.Counts), ClassCaps: slices.Clone(x.ClassCaps)}
	y.Caps = lists.Map(len(x.Caps), func(i int) []int { return slices.Clone(x.Caps[i]) })
	return y
}

// clone returns a layout whose pools can change without changing the original.
func (l *Layout) clone() *Layout {
	copied := &Layout{}
	copied.Pools = lists.Map(len(l.Pools), func(i int) Pool { return l.Pools[i].clone() })
	return copied
}

// Price returns the price of the servers, in the unit of the objective.
func (l *Layout) Price(p *Problem) float64 {
	sum := 0.0
	for i := range l.Pools {
		for k, n := range l.Pools[i].Counts {
			sum += float64(n) * p.Kinds[k].Price
		}
	}
	return sum
}

// ServerCount returns the number of servers of a kind.
func (l *Layout) ServerCount(kind int) int {
	return lists.Sum(len(l.Pools), func(i int) int { return l.Pools[i].Counts[kind] })
}

// remainingServers returns how many more servers of a kind the layout's free devices allow. Kinds that take their devices from the same
// pool of the cluster, with other numbers of devices for a server (TP), share them.
func (l *Layout) remainingServers(p *Problem, kind int) int {
	freeServers, otherDevices := p.Kinds[kind].MaxInstances-l.ServerCount(kind), 0
	for k := range p.Kinds {
		if k != kind && p.Kinds[k].Pool == p.Kinds[kind].Pool {
			otherDevices += l.ServerCount(k) * p.Kinds[k].TP
		}
	}
	if otherDevices == 0 {
		return freeServers
	}
	freeDevices := p.Pools[p.Kinds[kind].Pool].Count - otherDevices - l.ServerCount(kind)*p.Kinds[kind].TP
	return max(0, min(freeServers, freeDevices/p.Kinds[kind].TP))
}

// canRunItems returns whether a kind of servers can run the models of all items (classes of requests for a
// model).
func (p *Problem) canRunItems(kind int, items []int) bool {
	for _, i := range items {
		if p.Models[p.Items[i].Model].ByKind[kind] == nil {
			return false
		}
	}
	return len(items) > 0
}

// WithManyDevices returns a new search on a cluster with at least 16 times the devices. If no plan was found, the layout that it finds
// shows how many devices are missing.
func (p *Search) WithManyDevices() *Search {
	largeProblem := *p.Problem
	largeProblem.Kinds, largeProblem.Pools = slices.Clone(p.Problem.Kinds), slices.Clone(p.Problem.Pools)
	for i := range largeProblem.Pools {
		largeProblem.Pools[i].Count = 64 + 16*largeProblem.Pools[i].Count
	}
	for k := range largeProblem.Kinds {
		largeProblem.Kinds[k].MaxInstances = min(largeProblem.Pools[largeProblem.Kinds[k].Pool].Count/largeProblem.Kinds[k].TP, max(maxInstances, largeProblem.Kinds[k].MaxInstances))
	}
	return NewSearch(&largeProblem)
}

// Limits of a layout: the most instances that are simulated (maxInstances), and the most instances of a
// kind: smallFleet, or maxIdleFactor times the instances that the rates keep busy, if that is more.
const (
	maxInstances  = 4096
	smallFleet    = 256
	maxIdleFactor = 8
)

// limitInstances lowers MaxInstances of each kind of servers to the number that the rates can use, since the search tries no more, and
// states that as an assumption of the plan. If the cluster has more instances than can be simulated and the rates can use them, it
// returns an error. For the objective throughput all devices count, because the rates are then sought.
func (r *resolver) limitInstances(p *Search) error {
	for k := range p.Problem.Kinds {
		kind := &p.Problem.Kinds[k]
		limit := float64(maxInstances)

		// Compute how many instances of the kind the rates keep busy.
		if r.input.Values.Word("objective") != "throughput" {
			busyInstances := 0.0
			for _, x := range p.Problem.Items {
				if p.Problem.Models[x.Model].ByKind[k] == nil {
					continue
				}
				requestTime, err := p.Estimators.requestTime(x.Model, k, p.Problem.capsOf(x.Model, k)[0])
				if err != nil {
					return err
				}
				busyInstances += x.RPS * requestTime
			}
			limit = max(smallFleet, math.Ceil(maxIdleFactor*busyInstances))
		}
		switch {
		case float64(kind.MaxInstances) <= min(limit, maxInstances):
		case limit > maxInstances:
			docPath := fmt.Sprintf("pools[%d].count", kind.Pool)
			return r.input.FieldError("cluster", docPath, fmt.Sprintf("%d devices for %d instances", r.problem.Pools[kind.Pool].Count, kind.MaxInstances), fmt.Sprintf("at most %d instances, which is what is simulated", maxInstances),
				"plan for a part of the devices and of the rates")
		default:
			kind.MaxInstances = int(limit)
			r.run.Assume("%d of the %d devices of kind %s are looked at: the rates keep an eighth of these busy at most", kind.MaxInstances*kind.TP, r.problem.Pools[kind.Pool].Count, kind.Device)
		}
	}
	return nil
}
