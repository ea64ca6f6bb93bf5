package deploy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
)

// Fleet is the servers of a layout that runs, or of one that is to take its place, with their devices. The order is that of the pools
// and devices.
type Fleet []formats.QueueInstance

// ResolveRunning reads the problem from the documents with servers of every size that was measured on a kind of devices, and the part of
// the fleet that runs which can go on: of models that are still asked for, on devices that are still there. What it leaves out, it warns of.
func ResolveRunning(in *kind.Problem, run *kind.SolveRun, plan *formats.QueuePlan) (*Search, Fleet, error) {
	r, err := readProblem(in, run)
	if err != nil {
		return nil, nil, err
	}
	running, kinds, err := r.readServers(plan.Instances, func(i int, err error) error {
		run.Warn("instance %d of the plan that runs cannot go on: %v", i, err)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	running.sort(r.problem.Pools)

	// Servers of other sizes may take the place of some.
	for i := range r.problem.Pools {
		for _, size := range r.sizesOn(i) {
			kinds = r.withKindOf(kinds, &formats.QueueInstance{Device: r.problem.Pools[i].Device, TensorParallel: size})
		}
	}
	s, err := r.searchOn(kinds)
	if err != nil {
		return nil, nil, err
	}
	r.limitKV(s, running, plan)
	return s, running, nil
}

// limitKV lowers the KV capacity of models to what the plan that runs states of its servers, which their options may have lowered.
func (r *resolver) limitKV(s *Search, running Fleet, plan *formats.QueuePlan) {
	stated := formats.Profile{LLMs: plan.Models}
	for i := range running {
		for _, name := range running[i].Models {
			_, planned := stated.LLMOn(name, running[i].Device, running[i].TensorParallel)
			_, current := r.input.Profile.LLMOn(name, running[i].Device, running[i].TensorParallel)
			if planned != nil && planned.KVTokens > 0 && planned.KVTokens < current.KVTokens {
				r.run.Warn("%s on %d x %s: the plan that runs has KV memory for %d tokens, and the profile for %d: planned with the lower, which servers that go on have", name, running[i].TensorParallel, running[i].Device, planned.KVTokens, current.KVTokens)
				s.LimitKV(name, &running[i], planned.KVTokens)
			}
		}
	}
}

// Instances returns the instances of a layout as a fleet.
func (p *Search) Instances(l *Layout) (Fleet, error) {
	q, err := p.Plans.Section(l, p.Problem.AllItems())
	if err != nil {
		return nil, err
	}
	return q.Instances, nil
}

// sort puts the instances in the order of pools and devices.
func (f Fleet) sort(pools []formats.Pool) {
	place := func(in *formats.QueueInstance) int {
		return slices.IndexFunc(pools, func(p formats.Pool) bool { return p.Device == in.Device })
	}
	slices.SortStableFunc(f, func(a, b formats.QueueInstance) int {
		return cmp.Or(cmp.Compare(place(&a), place(&b)), cmp.Compare(a.FirstDevice, b.FirstDevice))
	})
}

// end returns the device behind the last one of an instance.
func end(in *formats.QueueInstance) int { return in.FirstDevice + in.TensorParallel }

// overlap reports whether two instances have a device in common.
func overlap(a, b *formats.QueueInstance) bool {
	return a.Device == b.Device && a.FirstDevice < end(b) && b.FirstDevice < end(a)
}

// goesOn reports whether a server that runs can be an instance of another fleet without a start: on the same devices, with models that it
// has, of which it runs as many sequences at once or more, and with the same options of its own.
func goesOn(running, wanted *formats.QueueInstance) bool {
	if running.Device != wanted.Device || running.FirstDevice != wanted.FirstDevice || running.TensorParallel != wanted.TensorParallel ||
		running.TokenBudget != wanted.TokenBudget || running.Scheduling != wanted.Scheduling || running.Preemption != wanted.Preemption || running.NoPrefixCache != wanted.NoPrefixCache {
		return false
	}
	for k, name := range wanted.Models {
		if m := slices.Index(running.Models, name); m < 0 || running.Sequences[m] < wanted.Sequences[k] {
			return false
		}
	}
	return true
}

// asRunning returns an instance with the own options of the server that runs in its place, if that can serve it in all else. Otherwise it
// returns the instance as it is.
func asRunning(running Fleet, wanted formats.QueueInstance) formats.QueueInstance {
	for i := range running {
		adapted := wanted
		adapted.TokenBudget, adapted.Scheduling, adapted.Preemption, adapted.NoPrefixCache = running[i].TokenBudget, running[i].Scheduling, running[i].Preemption, running[i].NoPrefixCache
		if goesOn(&running[i], &adapted) {
			return adapted
		}
	}
	return wanted
}

// Moves returns the devices that have to load something for a fleet, given what runs: those of its servers that do not go on.
func Moves(running, fleet Fleet) (moves []formats.DeviceMove, devices int) {
	for i := range fleet {
		in := &fleet[i]
		if slices.ContainsFunc(running, func(r formats.QueueInstance) bool { return goesOn(&r, in) }) {
			continue
		}
		devices += in.TensorParallel
		var before []string
		for k := range running {
			if overlap(&running[k], in) {
				before = append(before, describe(&running[k]))
			}
		}
		moves = append(moves, formats.DeviceMove{Device: in.Device, First: in.FirstDevice, Count: in.TensorParallel, OldContent: strings.Join(before, ", "), NewContent: describe(in)})
	}
	return moves, devices
}

// describe returns what an instance serves, for people: its models with the sequences that run at once.
func describe(in *formats.QueueInstance) string {
	parts := lists.Map(len(in.Models), func(k int) string { return fmt.Sprintf("%s (%d at once)", in.Models[k], in.Sequences[k]) })
	return strings.Join(parts, " or ")
}

// Price returns the price of the servers, in the unit of the objective.
func (f Fleet) Price(p *Problem) float64 {
	return lists.Sum(len(f), func(i int) float64 { return p.Kinds[p.kindOf(&f[i])].Price })
}

// Serves reports whether every item of the problem has an instance that takes its requests.
func (f Fleet) Serves(p *Problem) bool {
	for i := range p.Items {
		model, class := p.Models[p.Items[i].Model].Name, p.Classes[p.Items[i].Class].Name
		if !slices.ContainsFunc(f, func(in formats.QueueInstance) bool {
			return slices.Contains(in.Models, model) && !slices.ContainsFunc(in.Caps, func(c formats.ClassCap) bool { return c.Class == class && c.Sequences == 0 })
		}) {
			return false
		}
	}
	return true
}

// IsOneSize reports whether the instances on each kind of devices are on as many of them.
func (f Fleet) IsOneSize() bool {
	sizeByDevice := map[string]int{}
	for i := range f {
		if size, isKnown := sizeByDevice[f[i].Device]; isKnown && size != f[i].TensorParallel {
			return false
		}
		sizeByDevice[f[i].Device] = f[i].TensorParallel
	}
	return true
}

// placements returns the first devices on which a server of tp devices of a pool may be: all of its devices are on one node, if a node
// has as many.
func placements(pool *formats.Pool, tp int) (list []int) {
	perNode := pool.WithDefaults().PerNode
	for first := range pool.Count - tp + 1 {
		if tp > perNode || first/perNode == (first+tp-1)/perNode {
			list = append(list, first)
		}
	}
	return list
}

// withServer returns the fleet with a server on its devices, in place of those that have some of these.
func (f Fleet) withServer(server formats.QueueInstance, pools []formats.Pool) (changed, displaced Fleet) {
	for i := range f {
		if overlap(&f[i], &server) {
			displaced = append(displaced, f[i])
			continue
		}
		changed = append(changed, f[i])
	}
	changed = append(changed, server)
	changed.sort(pools)
	return changed, displaced
}

// PlaceNear returns a fleet on the devices where it moves few of what runs: servers stay where one goes on, or go where another one goes
// on, and the others where devices are left, idle ones first. If these do not suffice, because those that go on are in the way, the fleet
// is returned as it is.
func PlaceNear(running, fleet Fleet, pools []formats.Pool) Fleet {
	var placed Fleet
	waiting := slices.Clone(fleet)
	slices.SortStableFunc(waiting, func(a, b formats.QueueInstance) int { return cmp.Compare(b.Sequences[0], a.Sequences[0]) }) // they fit the fewest servers
	used := make([]bool, len(running))
	for _, mayMove := range []bool{false, true} {
		waiting = slices.DeleteFunc(waiting, func(in formats.QueueInstance) bool {
			for k := range running {
				there := in
				there.FirstDevice = running[k].FirstDevice
				there = asRunning(running[k:k+1], there)
				if !used[k] && (mayMove || in.FirstDevice == there.FirstDevice) && goesOn(&running[k], &there) {
					used[k], placed = true, append(placed, there)
					return true
				}
			}
			return false
		})
	}

	// The others: the largest first, on devices that are idle, or else on any that are left.
	slices.SortStableFunc(waiting, func(a, b formats.QueueInstance) int { return cmp.Compare(b.TensorParallel, a.TensorParallel) })
	for _, in := range waiting {
		pool := document.First(pools, func(p *formats.Pool) bool { return p.Device == in.Device })
		best, bestOverlaps := -1, 0
		for _, first := range placements(pool, in.TensorParallel) {
			in.FirstDevice = first
			overlaps := lists.Count(len(running), func(k int) bool { return overlap(&running[k], &in) })
			isFree := !slices.ContainsFunc(placed, func(o formats.QueueInstance) bool { return overlap(&o, &in) })
			if isFree && (best < 0 || overlaps < bestOverlaps) {
				best, bestOverlaps = first, overlaps
			}
		}
		if best < 0 {
			return fleet
		}
		in.FirstDevice = best
		placed = append(placed, in)
	}
	placed.sort(pools)
	return placed
}

// Neighbours returns the fleets that differ from one by one server, or by the sequences of one sort of servers, and move at most
// maxDevices of what runs. Servers are those of the fleet, of what runs, and of target. With mayShrink there may be one less. Those that
// serve alike and lie alike count once.
// The fleets that give the busiest models more come first.
func (p *Search) Neighbours(fleet, running, target Fleet, maxDevices int, mayShrink bool) ([]Fleet, error) {
	busy, err := p.busyByModel(fleet)
	if err != nil {
		return nil, err
	}
	type neighbour struct {
		fleet Fleet
		gain  float64
	}
	var list []neighbour
	seen, isOneSize := map[string]bool{}, running.IsOneSize() && target.IsOneSize()
	add := func(changed Fleet, key string, gain float64) {
		_, devices := Moves(running, changed)
		if key = fmt.Sprint(key, " ", devices); devices > maxDevices || seen[key] || !changed.Serves(p.Problem) || isOneSize && !changed.IsOneSize() {
			return
		}
		seen[key] = true
		list = append(list, neighbour{changed, gain})
	}

	// Another server in some place.
	for _, sort := range sortsOf(slices.Concat(fleet, running, target)) {
		pool := document.First(p.Problem.Pools, func(q *formats.Pool) bool { return q.Device == sort.Device })
		for _, first := range placements(pool, sort.TensorParallel) {
			server := sort
			server.FirstDevice = first
			server = asRunning(running, server)
			changed, displaced := fleet.withServer(server, p.Problem.Pools)
			key, gain := ServerKey(&server)+" for", meanBusy(busy, &server)
			for i := range displaced {
				key += " " + ServerKey(&displaced[i])
				gain -= meanBusy(busy, &displaced[i]) / float64(len(displaced))
			}
			if !slices.ContainsFunc(displaced, func(d formats.QueueInstance) bool {
				return ServerKey(&d) == ServerKey(&server) && d.FirstDevice == first
			}) {
				add(changed, key, gain)
			}
		}
	}

	// A server less, and other sequences of all servers of a sort.
	for _, sort := range sortsOf(fleet) {
		last := len(fleet) - 1
		for ServerKey(&fleet[last]) != ServerKey(&sort) {
			last--
		}
		if mayShrink {
			add(slices.Delete(slices.Clone(fleet), last, last+1), "without "+ServerKey(&sort), -meanBusy(busy, &sort))
		}
		for _, step := range []int{-1, 1} {
			changed, isChanged := p.withOtherCaps(fleet, &sort, step)
			if isChanged {
				add(changed, fmt.Sprint("caps ", step, " of ", ServerKey(&sort)), 0)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b neighbour) int { return cmp.Compare(b.gain, a.gain) })
	return document.Map(list, func(n *neighbour) Fleet { return n.fleet }), nil
}

// sortsOf returns the first server of each sort: of those that serve alike, wherever they are.
func sortsOf(fleet Fleet) (sorts Fleet) {
	seen := map[string]bool{}
	for i := range fleet {
		if key := ServerKey(&fleet[i]); !seen[key] {
			seen[key], sorts = true, append(sorts, fleet[i])
		}
	}
	return sorts
}

// withOtherCaps returns the fleet with the sequences of all servers of a sort one step up or down in the problem's list. It returns false
// if there is no such step.
func (p *Search) withOtherCaps(fleet Fleet, sort *formats.QueueInstance, step int) (Fleet, bool) {
	changed, isChanged := slices.Clone(fleet), false
	for i := range changed {
		if ServerKey(&fleet[i]) != ServerKey(sort) {
			continue
		}
		in := &changed[i]
		in.Sequences = slices.Clone(in.Sequences)
		for k, name := range in.Models {
			m := slices.IndexFunc(p.Problem.Models, func(m Model) bool { return m.Name == name })
			caps := p.Problem.capsOf(m, p.Problem.kindOf(in))
			at, isListed := slices.BinarySearch(caps, in.Sequences[k])
			if step > 0 && isListed {
				at++
			} else if step < 0 {
				at--
			}
			if at < 0 || at >= len(caps) {
				return nil, false
			}
			in.Sequences[k], isChanged = caps[at], isChanged || caps[at] != in.Sequences[k]
		}
	}
	return changed, isChanged
}

// busyByModel returns how busy the servers of each model are with its requests, by the name of the model: its work, over that of which
// its servers are capable if they share their time evenly among their models. A model without servers is infinitely busy.
func (p *Search) busyByModel(fleet Fleet) (map[string]float64, error) {
	busy := map[string]float64{}
	for m := range p.Problem.Models {
		rps, name, capable := 0.0, p.Problem.Models[m].Name, 0.0
		for _, i := range p.Problem.itemsOf(m) {
			rps += p.Problem.Items[i].RPS
		}
		for i := range fleet {
			k := slices.Index(fleet[i].Models, name)
			if k < 0 {
				continue
			}
			requestTime, err := p.Estimators.requestTime(m, p.Problem.kindOf(&fleet[i]), fleet[i].Sequences[k])
			if err != nil {
				return nil, err
			}
			capable += 1 / requestTime / float64(len(fleet[i].Models))
		}
		busy[name] = rps / capable
	}
	return busy, nil
}

// meanBusy returns how busy the models of a server are on average.
func meanBusy(busy map[string]float64, server *formats.QueueInstance) float64 {
	sum := lists.Sum(len(server.Models), func(i int) float64 { return min(busy[server.Models[i]], 1e6) })
	return sum / float64(len(server.Models))
}
