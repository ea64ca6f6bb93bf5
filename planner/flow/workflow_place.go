package flow

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// placement says which services the devices hold at the start, and how much of the work runs on them.
type placed struct {
	kinds  []int       // by device
	held   [][]int     // by device
	time   [][]float64 // device time that a service takes at the planned rates, by service and kind
	busy   []float64   // device time that a service takes on all kinds, by service
	value  [][]float64 // by service and kind: seconds of totalTime that one second of a device of the kind is worth
	served float64     // part of the total time of all services that runs on devices that hold the service
	bound  float64     // upper bound of servedTime over all placements
	copies int         // copies beyond those that the rates need
	nodes  int64
}

// placer chooses which services devices hold.
type placing struct{ *workflowProblem }

// maxPlacementSize limits the program of a placement, in devices times services.
const maxPlacement = 4096

// maxPlacementNodes limits its branching.
const placementNodes = 500

// timeTolerance is the tolerance of device times, in devices.
const rounding = 1e-9

// place chooses which services devices hold. First it places copies so that as much of the planned time as
// possible runs where the service is held, then extra copies in the memory that is left.
func (w *placing) place(ctx context.Context, b *chosenBatches) (*placed, error) {
	p := w.demands(b)
	room := w.room()
	w.greedy(p, room)

	// If the greedy placement does not serve everything, bound what any could, and improve it by a program
	// if that is small enough.
	all := sum(p.busy)
	if p.bound = all; p.served < all*(1-1e-6) {
		if len(w.pools) == 1 {
			p.bound = min(all, w.packed(p, room[0]))
		}
		if len(p.kinds)*len(w.services) <= maxPlacement && p.served < p.bound*(1-1e-6) {
			if err := w.held(ctx, p, room); err != nil {
				return nil, err
			}
		}
	}
	if w.in.Values.Word("algorithm") != AlgorithmShares {
		w.fill(p, room)
	}
	return p, nil
}

// newPlacement returns a placement that holds nothing, with the devices and the time that the services take
// of them.
func (w *placing) demands(b *chosenBatches) *placed {
	factor, p := 1.0, &placed{}
	if w.objective == "throughput" {
		factor, _ = b.factor()
	}
	for k, n := range b.counts {
		for range n {
			p.kinds = append(p.kinds, k)
		}
	}
	for s := range w.services {
		time, value := make([]float64, len(w.pools)), make([]float64, len(w.pools))
		for k := range time {
			time[k] = factor * w.timeOf(b, s, k)
		}

		// A device of kind k that serves one second of a service's time there may be worth more or less of
		// it elsewhere.
		busy := sum(time)
		for k := range value {
			if b.batch[s][k] == nowhere {
				continue
			}
			if value[k] = 1; len(value) > 1 && busy > 0 {
				value[k] = busy / (factor * w.load(s) * w.services[s].on[k].sizes[b.batch[s][k]].each())
			}
		}
		p.time, p.busy, p.value = append(p.time, time), append(p.busy, busy), append(p.value, value)
	}
	return p
}

// modelBytes returns, by kind, the memory of a device that models can take beside the largest batch.
func (w *placing) room() []int64 {
	out := make([]int64, len(w.pools))
	for k := range out {
		if w.pools[k].Memory == 0 {
			out[k] = math.MaxInt64
			continue
		}
		working := int64(0)
		for s := range w.services {
			working = max(working, w.services[s].on[k].working)
		}
		out[k] = int64(w.pools[k].Memory) - working
	}
	return out
}

// placeGreedily places the largest services first, each on the devices with the most free time.
func (w *placing) greedy(p *placed, room []int64) {
	order := make([]int, len(w.services))
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(w.services[b].weights, w.services[a].weights), cmp.Compare(p.busy[b], p.busy[a]))
	})
	p.held = make([][]int, len(p.kinds))

	// Every device starts with all of its time and memory.
	free, left := make([]float64, len(p.kinds)), make([]int64, len(p.kinds))
	for d, k := range p.kinds {
		free[d], left[d] = 1, room[k]
	}
	fresh := make([]int, len(room)) // the first device that holds nothing, by kind
	for _, s := range order {
		for kind, need := range p.time[s] {
			for need > rounding {
				// The best device is one that holds nothing, else the one with the most free time.
				for fresh[kind] < len(free) && (p.kinds[fresh[kind]] != kind || free[fresh[kind]] < 1) {
					fresh[kind]++
				}
				best := -1
				if d := fresh[kind]; d < len(free) && left[d] >= w.services[s].weights {
					best = d
				}
				for d := 0; d < len(free) && (best < 0 || free[best] < 1); d++ {
					if p.kinds[d] == kind && left[d] >= w.services[s].weights && free[d] > rounding && !slices.Contains(p.held[d], s) && (best < 0 || free[d] > free[best]+rounding) {
						best = d
					}
				}
				if best < 0 {
					break
				}

				// Serve as much there as the device has time for.
				run := min(need, free[best])
				p.held[best] = append(p.held[best], s)
				free[best] -= run
				left[best] -= w.services[s].weights
				need -= run
				p.served += run * p.value[s][kind]
			}
		}
	}
}

// servedUpperBound returns an upper bound of the time that any placement serves on a single kind of
// devices: it treats the memory of all devices as one, and takes fractions of copies, the services with the
// most time per byte first.
func (w *placing) packed(p *placed, room int64) float64 {
	type item struct{ busy, bytes float64 } // bytes of all copies that serve it
	var list []item
	for s := range w.services {
		if p.busy[s] > 0 {
			list = append(list, item{p.busy[s], float64(w.services[s].weights) * math.Max(1, p.busy[s])})
		}
	}
	slices.SortStableFunc(list, func(a, b item) int { return cmp.Compare(b.busy*a.bytes, a.busy*b.bytes) })
	left, sum := float64(room)*float64(len(p.kinds)), 0.0
	for _, x := range list {
		part := 1.0
		if x.bytes > 0 {
			part = math.Min(1, left/x.bytes)
		}
		sum += part * x.busy
		left -= part * x.bytes
	}
	return math.Min(sum, float64(len(p.kinds)))
}

// improveByProgram improves a placement by a mixed-integer program: x_sd says whether device d holds
// service s, u_sd how much of the service's time runs there. Work may run on other kinds of devices than
// the batches were chosen for:
//
//	max Σ u_sd;   Σ_s u_sd ≤ 1;   Σ_d u_sd ≤ U_s;   u_sd ≤ min(1, U_s) x_sd;   Σ_s bytes_s x_sd ≤ memory - largest batch
//
// u_sd has the weight timeValue of the device's kind in the first and third of these.
func (w *placing) held(ctx context.Context, p *placed, room []int64) error {
	m := milp.New("placement of workflows")
	m.SetSense(milp.Maximize)
	demand := make([]milp.Row, len(w.services))
	for s := range w.services {
		demand[s] = m.AddLE("time of "+w.services[s].name, p.busy[s])
	}
	holds := make([][]milp.Var, len(p.kinds)) // by device, in the order of the services. If a device cannot hold a service, it is -1.
	for d, k := range p.kinds {
		memory, time := m.AddLE(fmt.Sprintf("memory %d", d), float64(room[k])/1e9), m.AddLE(fmt.Sprintf("time %d", d), 1)
		for s := range w.services {
			value := p.value[s][k]
			if value == 0 {
				holds[d] = append(holds[d], -1)
				continue
			}
			most := min(1, p.busy[s]/value)
			x := m.AddBool(fmt.Sprintf("%s on %d", w.services[s].name, d), 0)
			u := m.AddVar("", 0, most, value)
			m.AddTerm(memory, x, float64(w.services[s].weights)/1e9)
			m.AddTerm(time, u, 1)
			m.AddTerm(demand[s], u, value)
			m.AddLE("", 0, milp.Term{Var: u, Coef: 1}, milp.Term{Var: x, Coef: -most})
			holds[d] = append(holds[d], x)
		}
	}
	sol, err := w.run.Solver.Solve(ctx, m, milp.Options{Gap: w.gap, Seed: w.seed, MaxNodes: placementNodes})
	if err != nil {
		return fmt.Errorf("solving the program of a placement: %w", err)
	}
	p.nodes = sol.Stats.Nodes
	if !sol.Feasible() {
		return nil // keep the placement without the program
	}

	// Take the program's placement if it serves more and really fits.
	p.bound = min(p.bound, max(sol.Bound, sol.Value))
	if sol.Value <= p.served*(1+1e-6) {
		return nil
	}
	held := make([][]int, len(p.kinds))
	for d, k := range p.kinds {
		left := room[k]
		for s, x := range holds[d] {
			if x >= 0 && sol.Int(x) == 1 {
				held[d] = append(held[d], s)
				left -= w.services[s].weights
			}
		}
		if left < 0 {
			return nil // fits only within the solver's tolerance
		}
	}
	p.held, p.served = held, sol.Value
	return nil
}

// addCopies fills the free memory with extra copies, one at a time, each of the service that has the most
// time per copy.
func (w *placing) fill(p *placed, room []int64) {
	// Count the copies, and what is left of each device's memory.
	copies, left := make([]int, len(w.services)), make([]int64, len(p.kinds))
	for d := range p.held {
		left[d] = room[p.kinds[d]]
		for _, s := range p.held[d] {
			copies[s]++
			left[d] -= w.services[s].weights
		}
	}

	// For every service, collect the devices that have room for a copy, the one with the most memory first.
	next := make([]roomiest, len(w.services))
	for s := range next {
		next[s].left = left
		for d := range left {
			if p.busy[s] > 0 && p.value[s][p.kinds[d]] > 0 && left[d] >= w.services[s].weights && !slices.Contains(p.held[d], s) {
				next[s].list = append(next[s].list, roomAt{left[d], d})
			}
		}
		heap.Init(&next[s])
	}

	// Place one copy after another until no service fits anywhere.
	for {
		best := -1
		for s := range w.services {
			if best >= 0 && p.busy[s]*float64(copies[best]+1) <= p.busy[best]*float64(copies[s]+1) {
				continue
			}
			if next[s].current(w.services[s].weights) {
				best = s
			}
		}
		if best < 0 {
			return
		}
		at := heap.Pop(&next[best]).(roomAt).device
		p.held[at] = append(p.held[at], best)
		left[at] -= w.services[best].weights
		copies[best]++
		p.copies++
	}
}

// deviceMemory is the free memory of a device, as it was when the entry was made.
type roomAt struct {
	room   int64
	device int
}

// memoryHeap is a heap of the devices that may hold a service. The one with the most free memory is first.
type roomiest struct {
	left []int64 // current values, by device
	list []roomAt
}

// refreshTop updates entries until the first one is current and has the required bytes. It returns false if
// no device has them.
func (r *roomiest) current(room int64) bool {
	for len(r.list) > 0 {
		first := &r.list[0]
		switch now := r.left[first.device]; {
		case now < room:
			heap.Pop(r)
		case now < first.room:
			first.room = now
			heap.Fix(r, 0)
		default:
			return true
		}
	}
	return false
}

// Len, Swap, Push, Less and Pop implement heap.Interface. Among equals the device with the lower number
// comes first.
func (r *roomiest) Len() int      { return len(r.list) }
func (r *roomiest) Swap(i, j int) { r.list[i], r.list[j] = r.list[j], r.list[i] }
func (r *roomiest) Push(x any)    { r.list = append(r.list, x.(roomAt)) }

func (r *roomiest) Less(i, j int) bool {
	a, b := r.list[i], r.list[j]
	return a.room > b.room || a.room == b.room && a.device < b.device
}

func (r *roomiest) Pop() any {
	last := r.list[len(r.list)-1]
	r.list = r.list[:len(r.list)-1]
	return last
}
