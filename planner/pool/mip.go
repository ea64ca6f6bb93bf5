package pool

import (
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// program is the integer program over a set of templates: rates within what
// whole replicas carry, replicas within whole devices.
type program struct {
	*catalogue
	m       *milp.Model
	set     []int // templates
	theta   milp.Var
	x       []milp.Var   // [i]: rate of template set[i], in units
	g       [][]milp.Var // [i][stage]: replicas; -1 on time-shared pools
	y       []milp.Var   // [i]: whether it is used at all; -1 where nothing asks
	once    []heldOnce
	whole   []wholeDevices
	taken   [][]milp.Term // whole devices, by model and pool
	byModel []milp.Row
	floors  []milp.Row // -1 without a floor
	pools   []milp.Row // -1 for empty pools
	memory  []milp.Row // -1 where memory is enough
	idle    []milp.Var // per pool: whole devices that nothing takes; nil where nothing asks
	stay    *staying   // where moves are counted
	moved   milp.Var   // devices that load something
	news    []newContent
}

// wholeDevices is a count of whole devices that replicas of several templates
// round up to.
type wholeDevices struct {
	v     milp.Var
	parts []milp.Term // replicas, by the part of a device each takes
}

// heldOnce tells whether weights are in memory that stages of several templates use.
type heldOnce struct {
	key   kept
	v     milp.Var
	users []milp.Var // their y
}

// slotKey names what may share whole devices under the slot rule.
type slotKey struct{ model, slot, pool int }

// program builds the program. theta is at most bound and at least floor (units).
func (c *catalogue) program(set []int, bound, floor float64) *program {
	q := &program{catalogue: c, m: milp.New("plan"), set: set}
	q.m.SetSense(milp.Maximize)
	q.theta = q.m.AddVar("theta", floor, math.Max(floor, bound), 1)
	q.addRows()
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
	q.taken = make([][]milp.Term, len(c.Models)*len(c.Pools))
	for _, key := range keys {
		q.addDevices(key, parts[key])
	}
	return q
}

// countPerModel counts the whole devices of each kind that each model takes: under
// the slot rule no two models share one. There are few of these numbers, so that a
// search that branches on them ends soon. On time-shared pools models do share.
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

// addRows adds the rows that templates are counted in.
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

// addTemplate adds the rate of template i of the set, and its replicas.
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

// addDevices counts the devices that replicas take: whole ones where they are shares
// that others may not fill.
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

// leastPart is the least part of a replica that programs tell from none.
const leastPart = 1e-5

// partOfReplica is the part of a replica of a rate that one unit of a model's
// rate takes. A replica that carries far more units than any objective asks for
// counts as one that carries less: the solver's tolerance would else let the
// model run without it.
func (c *catalogue) partOfReplica(d int, rate float64) float64 {
	part := c.u.rps[d] / rate
	if most := max(float64(len(c.Models)), c.Models[d].MinRPS/c.u.rps[d]); most*leastPart > 1 {
		return part
	}
	return max(part, leastPart)
}

// addMemory counts what a template needs, if y, in the rows of memory.
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

// keep counts weights in a row of memory while y, or another user of them, is used.
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

// pin keeps at least the replicas that a plan has.
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

// start writes a plan as a point of the program; nil where it uses a template
// that the program lacks.
func (q *program) start(plan *counts) []float64 {
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

// read takes the counts from a solution.
func (q *program) read(sol *milp.Solution) *counts {
	var list []count
	for i, ti := range q.set {
		t := &q.templates[ti]
		c := count{template: ti, model: t.Model, rps: sol.At(q.x[i]) * q.u.rps[t.Model], replicas: make([]int, len(t.Stages))}
		// Within the solver's tolerance a little goes through what is not used.
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
