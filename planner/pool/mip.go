package pool

import (
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// integerProgram is the integer program over a set of templates: rates within what whole replicas carry, and
// replicas within the devices. With x_t a rate, g_s replicas, v_s shares and X_s the rate of a replica:
//
//	max θ   s.t.  θ <= Σ x_t / w_d,   x_t <= X_s g_s,   devices of each slot >= Σ g_s / v_s (whole),   Σ devices <= N_k
type program struct {
	*catalogue
	m       *milp.Model
	set     []int // indexes of the templates
	theta   milp.Var
	x       []milp.Var     // [i]: rate of template templateSet[i], in units
	g       [][]milp.Var   // [i][stage]: replicas; -1 on time-shared pools
	y       []milp.Var     // [i]: whether the template is used at all; -1 if no row needs it
	once    []heldOnce     // weights that several templates share in memory
	whole   []wholeDevices // counts of whole devices that replicas round up to
	taken   [][]milp.Term  // devices taken, by model and pool
	byModel []milp.Row     // by model: its rate is at least w_d θ
	floors  []milp.Row     // by model; -1 without a floor
	pools   []milp.Row     // by pool; -1 for empty pools
	memory  []milp.Row     // by pool; -1 if memory is enough
	idle    []milp.Var     // by pool: whole devices that nothing takes; nil unless the goal needs them
	stay    *staying       // of the plan that runs, if moves are counted
	moved   milp.Var       // devices that load something
	news    []newContent   // replicas of contents beyond those that run
}

// wholeCount is a count of whole devices that the replicas of several templates round up to.
type wholeDevices struct {
	v     milp.Var
	parts []milp.Term // each replica by the part of a device that it takes
}

// sharedWeight says whether weights are loaded that stages of several templates use.
type heldOnce struct {
	key   kept
	v     milp.Var
	users []milp.Var // usedVars of those templates
}

// slotKey names a slot: the replicas that may share whole devices under the slot rule.
type slotKey struct{ model, slot, pool int }

// newProgram builds the program. θ is at least floor and at most bound, in units.
func (c *catalogue) program(set []int, bound, floor float64) *program {
	q := &program{catalogue: c, m: milp.New("plan"), set: set}
	q.m.SetSense(milp.Maximize)
	q.theta = q.m.AddVar("theta", floor, math.Max(floor, bound), 1)
	q.addRows()

	// The templates, and the replicas of each slot.
	parts := map[slotKey][]milp.Term{}
	var keys []slotKey
	for i := range set {
		t := q.addTemplate(i)
		for si, v := range q.g[i] {
			if v < 0 {
				continue
			}
			key := slotKey{t.Model, si, t.Stages[si].Pool}
			if _, ok := parts[key]; !ok {
				keys = append(keys, key)
			}
			parts[key] = append(parts[key], milp.Term{Var: v, Coef: 1 / float64(t.Stages[si].Share)})
		}
	}

	// The devices of each slot.
	q.taken = make([][]milp.Term, len(c.Models)*len(c.Pools))
	for _, key := range keys {
		q.addDevices(key, parts[key])
	}
	return q
}

// addModelCounts adds, for each model and kind, a count of the whole devices that the model takes: under the
// slot rule no two models share a device. There are few such counts, so a search that branches on them ends
// soon. On time-shared pools models do share devices, so no counts are added.
func (q *program) countPerModel() {
	if q.Rounding != Slot || q.timed() {
		return
	}
	for i, parts := range q.taken {
		if len(parts) < 2 {
			continue
		}
		d, k := i/len(q.Pools), i%len(q.Pools)
		v := q.m.AddInt(fmt.Sprintf("n%d_%d", d, k), 0, float64(q.Pools[k].Count), 0)
		q.m.AddRow("", 0, 0, append(slices.Clone(parts), milp.Term{Var: v, Coef: -1})...)
		q.whole = append(q.whole, wholeDevices{v, parts})
	}
}

// addRows adds the rows that the templates' columns enter: rates, floors, devices and memory.
func (q *program) addRows() {
	for d := range q.Models {
		q.byModel = append(q.byModel, q.m.AddGE("rate "+q.Models[d].Name, 0, milp.Term{Var: q.theta, Coef: -1}))
	}
	q.floors = make([]milp.Row, len(q.Models))
	for d := range q.Models {
		q.floors[d] = -1
		if f := q.Models[d].MinRPS; f > 0 {
			q.floors[d] = q.m.AddGE("floor "+q.Models[d].Name, 1)
		}
	}
	q.pools = make([]milp.Row, len(q.Pools))
	for k := range q.Pools {
		q.pools[k] = -1
		if q.Pools[k].Count > 0 {
			q.pools[k] = q.m.AddLE("devices "+q.Pools[k].Kind, float64(q.Pools[k].Count))
		}
	}
	tight := q.tightMemory(q.set)
	q.memory = make([]milp.Row, len(q.Pools))
	for k := range q.Pools {
		q.memory[k] = -1
		if tight[k] {
			// In parts of the device's memory, so that coefficients stay near 1.
			q.memory[k] = q.m.AddLE("memory "+q.Pools[k].Kind, 1)
		}
	}
}

// addTemplateVars adds the rate of template i of the set, its replicas, and, if memory is tight, whether it is
// used.
func (q *program) addTemplate(i int) *stages.Template {
	t := &q.templates[q.set[i]]
	unit := q.u.rps[t.Model]
	most := q.fullRate(t) / unit
	x := q.m.AddVar(fmt.Sprintf("x%d", i), 0, most, 0)
	q.x = append(q.x, x)
	q.m.AddTerm(q.byModel[t.Model], x, 1)
	if r := q.floors[t.Model]; r >= 0 {
		q.m.AddTerm(r, x, q.ofFloor(t.Model))
	}
	g := make([]milp.Var, len(t.Stages))
	y := milp.Var(-1)

	// Whole replicas of each stage carry the rate: x <= X g.
	for si := range t.Stages {
		s := &t.Stages[si]
		if pool := &q.Pools[s.Pool]; !pool.Time {
			g[si] = q.m.AddInt(fmt.Sprintf("g%d_%d", i, si), 0, float64(pool.Count*s.Share), 0)
			q.m.AddLE("", 0, milp.Term{Var: x, Coef: q.partOfReplica(t.Model, s.Rate)}, milp.Term{Var: g[si], Coef: -1})
			continue
		}
		g[si] = -1
		q.m.AddTerm(q.pools[s.Pool], x, unit/s.Rate)
		if q.memory[s.Pool] >= 0 && y < 0 {
			y = q.m.AddBool(fmt.Sprintf("y%d", i), 0)
			q.m.AddLE("", 0, milp.Term{Var: x, Coef: 1}, milp.Term{Var: y, Coef: -most})
			q.addMemory(t, y)
		}
	}
	q.g, q.y = append(q.g, g), append(q.y, y)
	return t
}

// addDeviceTerms counts the devices that the replicas of a slot take. If the rounding makes shares round up, it
// adds a count of whole devices.
func (q *program) addDevices(key slotKey, terms []milp.Term) {
	taken := &q.taken[key.model*len(q.Pools)+key.pool]
	if q.Rounding == Fractional || !slices.ContainsFunc(terms, func(t milp.Term) bool { return t.Coef != 1 }) {
		for _, t := range terms {
			q.m.AddTerm(q.pools[key.pool], t.Var, t.Coef)
		}
		*taken = append(*taken, terms...)
		return
	}
	v := q.m.AddInt(fmt.Sprintf("c%d_%d_%d", key.model, key.slot, key.pool), 0, float64(q.Pools[key.pool].Count), 0)
	q.m.AddLE("", 0, append(slices.Clone(terms), milp.Term{Var: v, Coef: -1})...)
	q.m.AddTerm(q.pools[key.pool], v, 1)
	*taken = append(*taken, milp.Term{Var: v, Coef: 1})
	q.whole = append(q.whole, wholeDevices{v, terms})
}

// minReplicaPart is the least part of a replica that programs can tell from none.
const leastPart = 1e-5

// partOfReplica returns the part of a replica, of a given rate, that one unit of model d's rate takes. A replica
// that carries far more units than any objective asks for counts as one that carries less. Else the solver's
// tolerance would let the model run without it.
func (c *catalogue) partOfReplica(d int, rate float64) float64 {
	part := c.u.rps[d] / rate
	if most := max(float64(len(c.Models)), c.Models[d].MinRPS/c.u.rps[d]); most*leastPart > 1 {
		return part
	}
	return max(part, leastPart)
}

// addMemoryTerms adds what a template needs to the rows of memory, if usedVar is 1.
func (q *program) addMemory(t *stages.Template, y milp.Var) {
	for si := range t.Stages {
		s := &t.Stages[si]
		row := q.memory[s.Pool]
		if row < 0 {
			continue
		}
		unit := float64(q.Pools[s.Pool].Memory)
		own := s.Need
		if key, ok := q.kept(t, s); ok {
			w := q.Models[t.Model].WeightBytes(s.First, s.Last)
			own -= w
			q.keep(key, y, row, float64(w)/unit)
		}
		q.m.AddTerm(row, y, float64(own)/unit)
	}
}

// shareWeights counts weights once in a row of memory while any template that uses them is used.
func (q *program) keep(key kept, y milp.Var, memory milp.Row, part float64) {
	i := slices.IndexFunc(q.once, func(h heldOnce) bool { return h.key == key })
	if i < 0 {
		i = len(q.once)
		v := q.m.AddVar(fmt.Sprintf("w%d", i), 0, 1, 0)
		q.m.AddTerm(memory, v, part)
		q.once = append(q.once, heldOnce{key: key, v: v})
	}
	h := &q.once[i]
	q.m.AddLE("", 0, milp.Term{Var: y, Coef: 1}, milp.Term{Var: h.v, Coef: -1})
	h.users = append(h.users, y)
}

// fixReplicas keeps at least the replicas that a plan has.
func (q *program) pin(plan *counts) {
	for _, c := range plan.list {
		i := slices.Index(q.set, c.template)
		if i < 0 {
			continue
		}
		for si, v := range q.g[i] {
			if v >= 0 {
				_, hi := q.m.Bounds(v)
				q.m.SetBounds(v, float64(c.replicas[si]), hi)
			}
		}
	}
}

// startPoint returns a plan as a point of the program. If the plan uses a template that the program lacks, it
// returns nil.
func (q *program) start(plan *counts) []float64 {
	// Rates, replicas and use of the plan's templates.
	x := make([]float64, q.m.NumVars())
	for _, c := range plan.list {
		i := slices.Index(q.set, c.template)
		if i < 0 {
			return nil
		}
		x[q.x[i]] = c.rps / q.u.rps[c.model]
		for si, v := range q.g[i] {
			if v >= 0 {
				x[v] = float64(c.replicas[si])
			}
		}
		if q.y[i] >= 0 {
			x[q.y[i]] = 1
		}
	}

	// Then the variables that follow from them: loaded weights, whole devices, θ, idle devices, moves.
	for _, h := range q.once {
		for _, y := range h.users {
			x[h.v] = max(x[h.v], x[y])
		}
	}
	for _, w := range q.whole {
		sum := 0.0
		for _, t := range w.parts {
			sum += t.Coef * x[t.Var]
		}
		x[w.v] = math.Ceil(sum - 1e-9)
	}
	if _, most := q.m.Bounds(q.theta); most > 0 {
		x[q.theta] = plan.value / q.u.theta
	}
	if q.idle != nil {
		for k, n := range q.wholePools(plan) {
			if q.idle[k] >= 0 {
				x[q.idle[k]] = float64(q.Pools[k].Count - n)
			}
		}
	}
	if q.stay != nil {
		for _, n := range q.news {
			sum := -float64(n.held)
			for _, v := range n.parts {
				sum += x[v]
			}
			x[n.v] = max(sum, 0)
		}
		x[q.moved] = q.stay.moved(plan.list)
	}
	return x
}

// readPlan returns the plan of a solution.
func (q *program) read(sol *milp.Solution) *counts {
	var list []count
	for i, ti := range q.set {
		t := &q.templates[ti]
		c := count{template: ti, model: t.Model, rps: sol.At(q.x[i]) * q.u.rps[t.Model], replicas: make([]int, len(t.Stages))}
		// Within the solver's tolerance a little rate passes through a template that is not used.
		used := c.rps > 1e-7*q.u.rps[t.Model] && (q.y[i] < 0 || sol.Int(q.y[i]) > 0)
		for si, v := range q.g[i] {
			if v >= 0 {
				c.replicas[si] = sol.Int(v)
				used = used && c.replicas[si] > 0
			}
		}
		if used {
			list = append(list, c)
		}
	}
	return q.recount(list)
}
