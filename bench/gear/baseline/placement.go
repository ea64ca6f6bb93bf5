package baseline

import (
	"context"
	"math"
	"math/bits"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/solver/highs"
	"inferplan/testkit/balance"
)

// Placement says which models identical devices hold: of the work that models bring per unit of time, Load is that of the
// busiest device under the best split, and Split reaches it.
type Placement struct {
	Configs []planspace.Config
	groups  []balance.Group
	*balance.Machines
}

// placementOf is the placement of a family's models by configurations.
func placementOf(models int, configs []planspace.Config) *Placement {
	pl := &Placement{Configs: configs}
	for _, c := range configs {
		pl.groups = append(pl.groups, balance.Group{Takes: c.ModelSet, Count: c.Count})
	}
	pl.Machines = balance.NewMachines(models, pl.groups)
	return pl
}

// newPlacement is the placement of sets of models on counts of devices.
func newPlacement(models int, sets []uint32, counts []int) *Placement {
	var configs []planspace.Config
	for i, n := range counts {
		configs = append(configs, planspace.Config{ModelSet: sets[i], Count: n})
	}
	return placementOf(models, configs)
}

// DevicesOf lists the devices that hold a model.
func (pl *Placement) DevicesOf(model int) []int { return balance.Taking(pl.groups, model) }

// gearOn is a cascade as a gear up to a rate, its load split as evenly as can be.
func gearOn(p *cascades.Problem, pl *Placement, c *cascades.Cascade, to float64) policygear.Gear {
	shares, _ := pl.Split(works(p, []cascades.Cascade{*c})[0])
	return c.Gear(to, 1, shares)
}

// tablesOn are the run-time tables of gears on a placement, for a simulation outside of planning.
func tablesOn(p *cascades.Problem, pl *Placement, gears []policygear.Gear) *policy.Tables {
	return trials.NewSimulator(p, pl.Configs, nil, 0).TablesWith(p.RangeEdges[len(p.RangeEdges)-1], gears...)
}

// fluid is the placement that lets most ranges, and then the most accurate cascades, fit when queueing is left out, with the
// front of cascades on it.
func fluid(p *cascades.Problem) (*Placement, []cascades.Cascade, error) {
	ctx := context.Background()
	if err := p.Validate(); err != nil {
		return nil, nil, err
	}
	space, err := planspace.WholeModelSpace(ctx, p, highs.Solver{}, nil)
	if err != nil {
		return nil, nil, err
	}
	top, _, err := placement.RankPlacements(ctx, space, 1)
	if err != nil {
		return nil, nil, err
	}
	front, err := top[0].Layout.CascadeFront(ctx, -1)
	var list []cascades.Cascade
	for _, i := range front {
		list = append(list, space.Cascades[i])
	}
	return placementOf(len(p.Models), top[0].Layout.Configs), list, err
}

// works are the seconds that every model works per request of cascades, in its cheapest batch within the SLO: [cascade][model].
func works(p *cascades.Problem, list []cascades.Cascade) [][]float64 {
	least, out := make([]float64, len(p.Models)), make([][]float64, len(list))
	for m := range least {
		least[m] = math.Inf(1)
		for b, t := range p.Models[m].FastestTimes {
			if t <= p.SLO {
				least[m] = min(least[m], t.Seconds()/float64(b+1))
			}
		}
	}
	for i := range list {
		out[i] = make([]float64, len(p.Models))
		for k, m := range list[i].Models {
			out[i][m] = least[m] * float64(list[i].ReachCounts[k]) / float64(p.PlanningSamples.N)
		}
	}
	return out
}

// MemoryOf is the memory that a set of models takes.
func MemoryOf(p *cascades.Problem, set uint32) int64 {
	total := int64(0)
	for ; set > 0; set &= set - 1 {
		total += p.Models[bits.TrailingZeros32(set)].Variants[0].Memory
	}
	return total
}

// configurations are the maximal sets of models in time that fit on a device together.
func configurations(p *cascades.Problem) (sets []uint32) {
	limit := p.Kinds[0].Memory
	fits := func(set uint32) bool {
		for m := range p.Models {
			if set&(1<<m) != 0 && p.Models[m].FastestTimes[0] > p.SLO {
				return false
			}
		}
		return limit == 0 || MemoryOf(p, set) <= limit
	}
	for set := uint32(1); set < 1<<len(p.Models); set++ {
		maximal := fits(set)
		for m := range p.Models {
			maximal = maximal && (set&(1<<m) != 0 || !fits(set|1<<m))
		}
		if maximal {
			sets = append(sets, set)
		}
	}
	return sets
}
