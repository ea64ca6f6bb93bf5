package pool

import (
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// mipModel is the integer program over a set of templates: rates within what
// whole replicas carry, replicas within whole devices.
type mipModel struct {
	m       *milp.Model
	set     []int // templates
	theta   milp.Var
	x       []milp.Var   // [i]: rate of template set[i], in units
	g       [][]milp.Var // [i][stage]: replicas; -1 on time-shared pools
	y       []milp.Var   // [i]: whether it is used at all; -1 where nothing asks
	once    []heldOnce
	whole   []wholeDevices
	byModel []milp.Row
	pools   []milp.Row // -1 for empty pools
	idle    []milp.Var // per pool: whole devices that nothing takes; nil where nothing asks
	moved   milp.Var   // devices that load something, where news are counted
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

// mip builds the program. theta is at most bound and at least floor (units).
func (p *Problem) mip(u units, templates []stages.Template, set []int, bound, floor float64) *mipModel {
	q := &mipModel{m: milp.New("plan"), set: set}
	m := q.m
	m.SetSense(milp.Maximize)
	q.theta = m.AddVar("theta", floor, math.Max(floor, bound), 1)
	for d := range p.Models {
		q.byModel = append(q.byModel, m.AddGE("rate "+p.Models[d].Name, 0, milp.Term{Var: q.theta, Coef: -1}))
	}
	floors := make([]milp.Row, len(p.Models))
	for d := range p.Models {
		floors[d] = -1
		if f := p.Models[d].MinRPS; f > 0 {
			floors[d] = m.AddGE("floor "+p.Models[d].Name, 1)
		}
	}
	pools := make([]milp.Row, len(p.Pools))
	for k := range p.Pools {
		pools[k] = -1
		if p.Pools[k].Count > 0 {
			pools[k] = m.AddLE("devices "+p.Pools[k].Kind, float64(p.Pools[k].Count))
		}
	}
	q.pools = pools
	memory := p.tightMemory(templates, set)
	memRows := make([]milp.Row, len(p.Pools))
	for k := range p.Pools {
		memRows[k] = -1
		if memory[k] {
			// In parts of the device's memory, so that coefficients stay near 1.
			memRows[k] = m.AddLE("memory "+p.Pools[k].Kind, 1)
		}
	}

	parts := map[slotKey][]milp.Term{}
	var keys []slotKey
	for i, ti := range set {
		t := &templates[ti]
		unit := u.rps[t.Model]
		most := math.Inf(1)
		for k := range p.Pools {
			if c := t.DevicesPerRPS(k); c > 0 {
				most = min(most, float64(p.Pools[k].Count)/c/unit)
			}
		}
		x := m.AddVar(fmt.Sprintf("x%d", i), 0, most, 0)
		q.x = append(q.x, x)
		m.AddTerm(q.byModel[t.Model], x, 1)
		if r := floors[t.Model]; r >= 0 {
			m.AddTerm(r, x, p.ofFloor(u, t.Model))
		}
		g := make([]milp.Var, len(t.Stages))
		y := milp.Var(-1)
		for si := range t.Stages {
			s := &t.Stages[si]
			pool := &p.Pools[s.Pool]
			if pool.Time {
				g[si] = -1
				m.AddTerm(pools[s.Pool], x, unit/s.Rate)
				if memory[s.Pool] && y < 0 {
					y = m.AddBool(fmt.Sprintf("y%d", i), 0)
					m.AddLE("", 0, milp.Term{Var: x, Coef: 1}, milp.Term{Var: y, Coef: -most})
					p.addMemory(q, t, y, memRows)
				}
				continue
			}
			v := m.AddInt(fmt.Sprintf("g%d_%d", i, si), 0, float64(pool.Count*s.Share), 0)
			g[si] = v
			m.AddLE("", 0, milp.Term{Var: x, Coef: p.partOfReplica(t.Model, unit, s.Rate)}, milp.Term{Var: v, Coef: -1})
			key := slotKey{t.Model, si, s.Pool}
			if _, ok := parts[key]; !ok {
				keys = append(keys, key)
			}
			parts[key] = append(parts[key], milp.Term{Var: v, Coef: 1 / float64(s.Share)})
		}
		q.g = append(q.g, g)
		q.y = append(q.y, y)
	}
	for _, key := range keys {
		terms := parts[key]
		whole := p.Rounding == Fractional || !slices.ContainsFunc(terms, func(t milp.Term) bool { return t.Coef != 1 })
		if whole {
			for _, t := range terms {
				m.AddTerm(pools[key.pool], t.Var, t.Coef)
			}
			continue
		}
		c := m.AddInt(fmt.Sprintf("c%d_%d_%d", key.model, key.slot, key.pool), 0, float64(p.Pools[key.pool].Count), 0)
		m.AddLE("", 0, append(slices.Clone(terms), milp.Term{Var: c, Coef: -1})...)
		m.AddTerm(pools[key.pool], c, 1)
		q.whole = append(q.whole, wholeDevices{c, terms})
	}
	return q
}

// leastPart is the least part of a replica that programs tell from none.
const leastPart = 1e-5

// partOfReplica is the part of a replica of a rate that one unit of a model's
// rate takes. A replica that carries far more units than any objective asks for
// counts as one that carries less: the solver's tolerance would else let the
// model run without it.
func (p *Problem) partOfReplica(d int, unit, rate float64) float64 {
	part := unit / rate
	if most := max(float64(len(p.Models)), p.Models[d].MinRPS/unit); most*leastPart > 1 {
		return part
	}
	return max(part, leastPart)
}

// addMemory counts what a template needs, if y, in the rows of memory; -1: none.
func (p *Problem) addMemory(q *mipModel, t *stages.Template, y milp.Var, memory []milp.Row) {
	for si := range t.Stages {
		s := &t.Stages[si]
		row := memory[s.Pool]
		if row < 0 {
			continue
		}
		unit := float64(p.Pools[s.Pool].Memory)
		own := s.Need
		if key, ok := p.kept(t, s); ok {
			w := p.Models[t.Model].WeightBytes(s.First, s.Last)
			own -= w
			q.keep(key, y, row, float64(w)/unit)
		}
		q.m.AddTerm(row, y, float64(own)/unit)
	}
}

// keep counts weights in a row of memory while y, or another user of them, is used.
func (q *mipModel) keep(key kept, y milp.Var, memory milp.Row, part float64) {
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

// tightMemory tells, per time-shared pool, whether the templates of the set
// could together need more memory than a device has.
func (p *Problem) tightMemory(templates []stages.Template, set []int) []bool {
	r := p.resident()
	for _, ti := range set {
		r.add(&templates[ti])
	}
	out := make([]bool, len(p.Pools))
	for k := range p.Pools {
		out[k] = p.Pools[k].Memory > 0 && r.bytes[k] > p.Pools[k].Memory
	}
	return out
}

// pin keeps at least the replicas that a plan has.
func (q *mipModel) pin(plan *counts) {
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
func (q *mipModel) start(p *Problem, u units, templates []stages.Template, plan *counts) []float64 {
	x := make([]float64, q.m.NumVars())
	for _, c := range plan.list {
		i := slices.Index(q.set, c.template)
		if i < 0 {
			return nil
		}
		x[q.x[i]] = c.rps / u.rps[c.model]
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
		x[q.theta] = plan.value / u.theta
	}
	if q.idle != nil {
		for k, n := range p.wholePools(templates, plan) {
			if q.idle[k] >= 0 {
				x[q.idle[k]] = float64(p.Pools[k].Count - n)
			}
		}
	}
	return x
}

// read takes the counts from a solution.
func (q *mipModel) read(p *Problem, u units, templates []stages.Template, sol *milp.Solution) *counts {
	var list []count
	for i, ti := range q.set {
		t := &templates[ti]
		c := count{template: ti, model: t.Model, rps: sol.At(q.x[i]) * u.rps[t.Model], replicas: make([]int, len(t.Stages))}
		// Within the solver's tolerance a little goes through what is not used.
		used := c.rps > 1e-7*u.rps[t.Model] && (q.y[i] < 0 || sol.Int(q.y[i]) > 0)
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
	return p.recount(templates, list)
}
