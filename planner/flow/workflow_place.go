package flow

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// placed is what devices hold at the start.
type placed struct {
	devices int
	held    [][]int   // services, by device
	busy    []float64 // device time that a service takes, in devices
	served  float64   // of all that time, on devices that hold what runs
	bound   float64   // of served
	copies  int       // of those, copies beside what the rates need
	nodes   int64
}

// maxPlacement bounds the program of a placement, in devices times services.
const maxPlacement = 4096

// placementNodes bounds its branching.
const placementNodes = 500

// rounding of device times.
const rounding = 1e-9

// place chooses what devices hold: copies in which the time that the rates take
// runs as far as memory allows, then further copies where room is left, by what
// each would take over.
func (w *workflowProblem) place(ctx context.Context, b *chosenBatches, devices int) (*placed, error) {
	factor := 1.0
	if w.objective == "throughput" {
		factor, _ = b.factor(devices)
	}
	p := &placed{devices: devices}
	all := 0.0
	for s := range w.services {
		busy := 0.0
		for a := range w.apps {
			busy += factor * w.apps[a].weight * w.apps[a].work[s] * w.services[s].sizes[b.chosen[s]].each()
		}
		p.busy = append(p.busy, busy)
		all += busy
	}
	room := w.room()
	w.greedy(p, room)
	if p.bound = all; p.served < all*(1-1e-6) {
		p.bound = min(all, w.packed(p, room))
		if devices*len(w.services) <= maxPlacement && p.served < p.bound*(1-1e-6) {
			if err := w.program(ctx, p, room); err != nil {
				return nil, err
			}
		}
	}
	if w.in.Values.Word("algorithm") != AlgorithmShares {
		w.fill(p, room)
	}
	return p, nil
}

// room is the memory of a device for models, beside the largest batch.
func (w *workflowProblem) room() int64 {
	if w.pool.Memory == 0 {
		return math.MaxInt64
	}
	working := int64(0)
	for s := range w.services {
		working = max(working, w.services[s].working)
	}
	return int64(w.pool.Memory) - working
}

// greedy places the largest models first, each onto the devices that have most time
// left.
func (w *workflowProblem) greedy(p *placed, room int64) {
	order := make([]int, len(w.services))
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(w.services[b].weights, w.services[a].weights), cmp.Compare(p.busy[b], p.busy[a]))
	})
	p.held = make([][]int, p.devices)
	free, left := make([]float64, p.devices), make([]int64, p.devices)
	for d := range free {
		free[d], left[d] = 1, room
	}
	for _, s := range order {
		for need := p.busy[s]; need > rounding; {
			best := -1
			for d := range free {
				if left[d] >= w.services[s].weights && free[d] > rounding && !slices.Contains(p.held[d], s) && (best < 0 || free[d] > free[best]+rounding) {
					best = d
				}
			}
			if best < 0 {
				break
			}
			run := min(need, free[best])
			p.held[best] = append(p.held[best], s)
			free[best] -= run
			left[best] -= w.services[s].weights
			need -= run
			p.served += run
		}
	}
}

// packed bounds the time that any placement serves: memory as one piece, and copies
// in fractions.
func (w *workflowProblem) packed(p *placed, room int64) float64 {
	type item struct{ busy, bytes float64 } // bytes of all copies that serve it
	var list []item
	for s := range w.services {
		if p.busy[s] > 0 {
			list = append(list, item{p.busy[s], float64(w.services[s].weights) * math.Max(1, p.busy[s])})
		}
	}
	slices.SortStableFunc(list, func(a, b item) int { return cmp.Compare(b.busy*a.bytes, a.busy*b.bytes) })
	left, sum := float64(room)*float64(p.devices), 0.0
	for _, x := range list {
		part := 1.0
		if x.bytes > 0 {
			part = math.Min(1, left/x.bytes)
		}
		sum += part * x.busy
		left -= part * x.bytes
	}
	return math.Min(sum, float64(p.devices))
}

// program improves a placement by a mixed-integer program: which device holds which
// service, and how much of its time runs there.
func (w *workflowProblem) program(ctx context.Context, p *placed, room int64) error {
	m := milp.New("placement of workflows")
	m.SetSense(milp.Maximize)
	demand := make([]milp.Row, len(w.services))
	for s := range w.services {
		demand[s] = m.AddLE("time of "+w.services[s].name, p.busy[s])
	}
	holds := make([][]milp.Var, p.devices)
	for d := range p.devices {
		memory, time := m.AddLE(fmt.Sprintf("memory %d", d), float64(room)/1e9), m.AddLE(fmt.Sprintf("time %d", d), 1)
		for s := range w.services {
			x := m.AddBool(fmt.Sprintf("%s on %d", w.services[s].name, d), 0)
			u := m.AddVar("", 0, min(1, p.busy[s]), 1)
			m.AddTerm(memory, x, float64(w.services[s].weights)/1e9)
			m.AddTerm(time, u, 1)
			m.AddTerm(demand[s], u, 1)
			m.AddLE("", 0, milp.Term{Var: u, Coef: 1}, milp.Term{Var: x, Coef: -min(1, p.busy[s])})
			holds[d] = append(holds[d], x)
		}
	}
	sol, err := w.run.Solver.Solve(ctx, m, milp.Options{Gap: w.gap, Seed: w.seed, MaxNodes: placementNodes})
	if err != nil {
		return fmt.Errorf("solving the program of a placement: %w", err)
	}
	p.nodes = sol.Stats.Nodes
	if !sol.Feasible() {
		return nil // what was placed without it stands
	}
	p.bound = min(p.bound, max(sol.Bound, sol.Value))
	if sol.Value <= p.served*(1+1e-6) {
		return nil
	}
	held := make([][]int, p.devices)
	for d := range holds {
		left := room
		for s, x := range holds[d] {
			if sol.Int(x) == 1 {
				held[d] = append(held[d], s)
				left -= w.services[s].weights
			}
		}
		if left < 0 {
			return nil // by the solver's tolerance
		}
	}
	p.held, p.served = held, sol.Value
	return nil
}

// fill uses the room that is left for further copies, each time of the service with
// the most time per copy.
func (w *workflowProblem) fill(p *placed, room int64) {
	copies, left := make([]int, len(w.services)), make([]int64, p.devices)
	for d := range p.held {
		left[d] = room
		for _, s := range p.held[d] {
			copies[s]++
			left[d] -= w.services[s].weights
		}
	}
	for {
		best, at := -1, -1
		for s := range w.services {
			if p.busy[s] <= 0 || best >= 0 && p.busy[s]*float64(copies[best]+1) <= p.busy[best]*float64(copies[s]+1) {
				continue
			}
			for d := range left {
				if left[d] >= w.services[s].weights && !slices.Contains(p.held[d], s) && (best != s || left[d] > left[at]) {
					best, at = s, d
				}
			}
		}
		if best < 0 {
			return
		}
		p.held[at] = append(p.held[at], best)
		left[at] -= w.services[best].weights
		copies[best]++
		p.copies++
	}
}
