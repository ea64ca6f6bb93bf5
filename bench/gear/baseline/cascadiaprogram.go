package baseline

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/gear"
	"inferplan/solver/milp"
)

// deployment is what programs choose from for a latency.
type deployment struct {
	*Cascadia
	sets  []uint32 // configurations that a device may hold
	rates []float64
	list  []gear.Cascade
	work  [][]float64 // device seconds per request, by cascade and model
}

// plan is the most accurate plan in the latency; nil: there is none.
func (d *deployment) plan(ctx context.Context) (*CascadiaPoint, error) {
	p := d.Problem
	all := make([]int, len(p.Edges))
	groups := [][]int{all}
	for r := range all {
		all[r] = r
	}
	if d.Redeployed || len(d.sets) == 1 { // one configuration leaves nothing to share
		groups = slices.Collect(slices.Chunk(all, 1))
	}
	out := &CascadiaPoint{}
	for _, levels := range groups {
		got, err := d.solve(ctx, levels)
		if err != nil || got == nil {
			return nil, err
		}
		out.Levels = append(out.Levels, got...)
	}
	for r := range out.Levels {
		out.Accuracy += p.Weights[r] * Accuracy(p, &out.Levels[r].Cascade)
	}
	return out, nil
}

// cascades are those that no other one beats in accuracy without more work of a model,
// or, where all models stand everywhere, without more work.
func (d *deployment) cascades() (list []gear.Cascade, work [][]float64) {
	all, _ := d.Problem.Cascades()
	works, total := make([][]float64, len(all)), make([]float64, len(all))
	for i := range all {
		works[i] = make([]float64, len(d.rates))
		for k, m := range all[i].Models {
			if d.rates[m] == 0 {
				total[i] = math.Inf(1)
				break
			}
			works[i][m] = float64(all[i].Reach[k]) / float64(d.Problem.Planned.N) / d.rates[m]
			total[i] += works[i][m]
		}
	}
	order := make([]int, 0, len(all))
	for i := range all {
		if !math.IsInf(total[i], 1) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[b].Correct, all[a].Correct), cmp.Compare(total[a], total[b]))
	})
	for _, i := range order {
		if !slices.ContainsFunc(work, func(w []float64) bool { return d.beats(w, works[i]) }) {
			list, work = append(list, all[i]), append(work, works[i])
		}
	}
	return list, work
}

// beats tells whether no model, or not all together, works more.
func (d *deployment) beats(a, b []float64) bool {
	if len(d.sets) == 1 {
		return total(a) <= total(b)
	}
	for m := range a {
		if a[m] > b[m] {
			return false
		}
	}
	return true
}

func total(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum
}

// Of programs: the least weight of a level, so that one without requests has a good
// cascade, too; the gap at which they end; and the nodes after which they do.
const (
	leastWeight = 1e-4
	cascadiaGap = 1e-5
	mostNodes   = 2000
)

// solve chooses a deployment for some levels and their cascades; nil: none fits.
func (d *deployment) solve(ctx context.Context, levels []int) ([]CascadiaLevel, error) {
	m, counts, picks := d.program(levels)
	s, err := d.Solver.Solve(ctx, m, milp.Options{Gap: cascadiaGap, AbsGap: cascadiaGap, MaxNodes: mostNodes})
	if err != nil {
		return nil, fmt.Errorf("solving %s: %w", m.Name, err)
	}
	switch {
	case s.Status == milp.Infeasible:
		return nil, nil
	case s.Status == milp.Interrupted || !s.Feasible():
		return nil, cmp.Or(ctx.Err(), fmt.Errorf("solving %s: found no solution, status %v", m.Name, s.Status))
	}
	held := make([]int, len(counts))
	for i, v := range counts {
		held[i] = int(math.Round(s.X[v]))
	}
	out := make([]CascadiaLevel, len(levels))
	for k := range levels {
		for _, c := range picks[k] {
			if s.X[c.taken] > .5 {
				out[k] = CascadiaLevel{held, d.list[c.cascade]}
			}
		}
	}
	return out, nil
}

// program is the choice of one deployment for some levels, with the variables of the
// configurations' counts and of the cascades by level.
//
// Work fits where, for every set of configurations, the models that stand nowhere else
// have no more of it than these devices have time for (Hall's condition).
func (d *deployment) program(levels []int) (m *milp.Model, counts []milp.Var, picks [][]choice) {
	p := d.Problem
	m = milp.New("cascadia")
	m.SetSense(milp.Maximize)
	devices := m.AddRow("devices", float64(p.Devices), float64(p.Devices))
	for i := range d.sets {
		counts = append(counts, m.AddInt(fmt.Sprintf("n%d", i), 0, float64(p.Devices), 0))
		m.AddTerm(devices, counts[i], 1)
	}
	for _, r := range levels {
		one := m.AddRow(fmt.Sprintf("one%d", r), 1, 1)
		var pick []choice
		for i := range d.list {
			if total(d.work[i])*p.Edges[r] <= float64(p.Devices) {
				v := m.AddBool(fmt.Sprintf("y%d,%d", r, i), max(p.Weights[r], leastWeight)*Accuracy(p, &d.list[i]))
				m.AddTerm(one, v, 1)
				pick = append(pick, choice{i, v})
			}
		}
		d.time(m, r, counts, pick)
		picks = append(picks, pick)
	}
	return m, counts, picks
}

// choice is a cascade with the variable that says whether a level has it.
type choice struct {
	cascade int
	taken   milp.Var
}

// time adds the rows by which a level's work fits.
func (d *deployment) time(m *milp.Model, level int, counts []milp.Var, pick []choice) {
	for hit := 1; hit < 1<<len(d.sets); hit++ {
		row := m.AddRow(fmt.Sprintf("time%d,%d", level, hit), -milp.Inf, 0)
		for _, c := range pick {
			if w := d.workOn(c.cascade, hit); w > 0 {
				m.AddTerm(row, c.taken, w*d.Problem.Edges[level])
			}
		}
		for i, v := range counts {
			if hit&(1<<i) != 0 {
				m.AddTerm(row, v, -1)
			}
		}
	}
}

// workOn is the work of a cascade's models that stand on no device but of some
// configurations.
func (d *deployment) workOn(cascade, hit int) float64 {
	sum := 0.0
	for m, w := range d.work[cascade] {
		only := true
		for i, set := range d.sets {
			if set&(1<<m) != 0 && hit&(1<<i) == 0 {
				only = false
			}
		}
		if only {
			sum += w
		}
	}
	return sum
}
