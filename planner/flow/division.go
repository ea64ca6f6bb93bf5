package flow

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/formats"
)

// modelNeeds says how much of the devices the models of a plan need. Divisions of the devices between model
// groups are made from it.
type division struct {
	pools  []formats.Pool
	need   map[string][]float64 // by model and pool: device time at the planned rates, in devices
	llms   []string             // by falling need
	others []string
}

// newModelNeeds reads the needs of a plan's models.
func newDivision(plan *formats.Plan) *division {
	y := &division{pools: plan.Pools, need: map[string][]float64{}}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		need := make([]float64, len(y.pools))
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if s.GPUs > rounding {
				need[slices.IndexFunc(y.pools, func(p formats.Pool) bool { return p.Device == s.Device })] += s.GPUs
			}
		}
		if y.need[d.Model] = need; formats.FlowOf(plan).Modules[i].Generation != nil {
			y.llms = append(y.llms, d.Model)
		} else {
			y.others = append(y.others, d.Model)
		}
	}
	slices.SortStableFunc(y.llms, func(a, b string) int { return cmp.Compare(sum(y.need[b]), sum(y.need[a])) })
	return y
}

// candidateDivisions returns divisions of the devices into groups. In each, the language models with the
// largest needs have devices alone, none to two of them or all. The other language models are one group,
// together with the other models or not. A last division has two groups: all language models, and all other
// models. The last group of each division has what the option dedicated does not name.
func (y *division) candidates() (out [][]group) {
	add := func(sets ...[]string) {
		sets = slices.DeleteFunc(sets, func(set []string) bool { return len(set) == 0 })
		if list := y.apportioned(sets); list != nil && len(sets) > 1 && !slices.ContainsFunc(out, func(o []group) bool { return sameModels(o, list) }) {
			out = append(out, list)
		}
	}
	n := len(y.llms)
	for _, alone := range slices.Compact([]int{n, min(1, n), min(2, n)}) {
		var sets [][]string
		for _, name := range y.llms[:alone] {
			sets = append(sets, []string{name})
		}
		together := y.llms[alone:]
		add(append(slices.Clone(sets), slices.Concat(together, y.others))...)
		add(append(slices.Clone(sets), together, y.others)...)
	}
	add(y.llms, y.others)
	return out
}

// sameModels returns whether two divisions have the same models in each group.
func sameModels(a, b []group) bool {
	return slices.EqualFunc(a, b, func(x, y group) bool { return slices.Equal(x.models, y.models) })
}

// apportionDevices returns groups with devices of each pool in proportion to what their models need, so
// that the least devices / need is as large as possible. If there are too few devices for all groups, it
// returns nil.
func (y *division) apportioned(sets [][]string) []group {
	var list []group
	for _, set := range sets {
		list = append(list, group{models: set, devices: make([]int, len(y.pools))})
	}
	for k := range y.pools {
		for range y.pools[k].Count {
			if next := y.poorest(list, k); next >= 0 {
				list[next].devices[k]++
			}
		}
	}
	if slices.ContainsFunc(list, func(g group) bool { return g.all() == 0 }) {
		return nil
	}
	return list
}

// neediestGroup returns the index of the group with the least devices / need in a pool. Of groups without
// devices it is the one with the largest need. If no group needs the pool, it returns -1.
func (y *division) poorest(list []group, pool int) int {
	best, least, most := -1, 0.0, 0.0
	for i := range list {
		need := y.needOf(&list[i], pool)
		if need == 0 {
			continue
		}
		if has := float64(list[i].devices[pool]) / need; best < 0 || has < least || has == 0 && least == 0 && need > most {
			best, least, most = i, has, need
		}
	}
	return best
}

// groupNeed returns how much the models of a group need of a pool, in devices.
func (y *division) needOf(g *group, pool int) (need float64) {
	for _, name := range g.models {
		need += y.need[name][pool]
	}
	return need
}

// neighbours returns the divisions with one device moved from one group to another. Those come first whose
// devices carry the highest rates without queueing.
func (y *division) neighbours(list []group) (out [][]group) {
	for from := range list {
		for to := range list {
			for k := range y.pools {
				if from == to || list[from].devices[k] == 0 || list[from].all() == 1 || y.needOf(&list[to], k) == 0 {
					continue
				}
				moved := slices.Clone(list)
				for i := range moved {
					moved[i].devices = slices.Clone(moved[i].devices)
				}
				moved[from].devices[k]--
				moved[to].devices[k]++
				out = append(out, moved)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b []group) int { return cmp.Compare(y.carried(b), y.carried(a)) })
	return out
}

// rateFactor returns which multiple of the planned rates the groups' devices carry without queueing: the
// least devices / need of a group.
func (y *division) carried(list []group) float64 {
	least := math.Inf(1)
	for i := range list {
		has, need := 0.0, 0.0
		for k := range y.pools {
			has, need = has+float64(list[i].devices[k]), need+y.needOf(&list[i], k)
		}
		least = min(least, has/need)
	}
	return least
}

// maxDivisions limits how many divisions a search simulates.
const mostDivisions = 16

// divisionSearch looks for the division of the devices with which a plan sustains the highest rate.
type dividing struct {
	*tuning
	*division
	first setting         // setting of all plans, but for the dedicated devices
	at    []group         // groups of the best plan. If it is nil, all models share all devices.
	tried map[string]bool // by the text of the division
}

// searchDivisions finds the best plan among those that give language models devices alone and the one that
// does not, if simulation is to choose the dedicated devices. All other options are those of baseSetting.
func (t *tuning) divide(ctx context.Context, first setting) error {
	if t.p.Values.Word("dedicated") != simulated || !asksLanguageModels(t.p.Workload) {
		return nil
	}

	// Simulate the candidate divisions, then the plan in which all models share the devices.
	shared, err := t.plan(ctx, first)
	if shared == nil || err != nil {
		return err
	}
	d := &dividing{tuning: t, division: newDivision(shared.res.Plan), first: first, tried: map[string]bool{}}
	for _, list := range d.candidates() {
		if goes, err := d.try(ctx, list); !goes || err != nil {
			return err
		}
	}
	if goes, err := t.consider(ctx, shared); !goes || err != nil {
		return err
	}

	// From the best division, move one device at a time from group to group, as long as that helps.
	for better := t.best != shared; better; {
		best := t.best
		for _, list := range d.neighbours(d.at) {
			if goes, err := d.try(ctx, list); !goes || err != nil {
				return err
			}
			if t.best != best {
				break
			}
		}
		better = t.best != best
	}
	return nil
}

// tryDivision simulates the plan of a division, unless that was tried. proceed is false if the search
// should end.
func (d *dividing) try(ctx context.Context, list []group) (goes bool, err error) {
	s := d.first
	if s.dedicated = groupsText(list[:len(list)-1], d.pools); d.tried[s.dedicated] {
		return true, nil
	}
	if len(d.tried) == mostDivisions || ctx.Err() != nil || d.reached() {
		return false, nil
	}
	d.tried[s.dedicated] = true
	one, err := d.plan(ctx, s)
	if one == nil || err != nil {
		return true, err
	}
	goes, err = d.consider(ctx, one)
	if d.best == one {
		d.at = list
	}
	return goes, err
}

// asksLanguageModels returns whether some workflow of the workload has modules that generate text.
func asksLanguageModels(w *formats.Workload) bool {
	for _, a := range formats.ApplicationsOf(w) {
		for i := range a.Segments {
			if slices.ContainsFunc(a.Segments[i].Modules, func(m formats.Module) bool { return m.Generates() }) {
				return true
			}
		}
	}
	return false
}
