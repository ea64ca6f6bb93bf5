package formats

import (
	"fmt"
	"iter"
	"slices"
)

// PlacedStage is a stage of a plan with what it is part of, and where it stands.
type PlacedStage struct {
	*Stage
	Deployed *Deployed
	Pipeline *Pipeline
	Position int    // in its pipeline
	at       [2]int // of deployment and pipeline
}

// Path is the field of the plan that holds the stage.
func (s *PlacedStage) Path() string {
	return fmt.Sprintf("deployment[%d].pipelines[%d].stages[%d]", s.at[0], s.at[1], s.Position)
}

// Stages goes through all stages of a plan, in the order of its deployment.
func (d *Plan) Stages() iter.Seq[PlacedStage] {
	return func(yield func(PlacedStage) bool) {
		for i := range d.Deployment {
			for k := range d.Deployment[i].Pipelines {
				l := &d.Deployment[i].Pipelines[k]
				for n := range l.Stages {
					if !yield(PlacedStage{&l.Stages[n], &d.Deployment[i], l, n, [2]int{i, k}}) {
						return
					}
				}
			}
		}
	}
}

// Count is how many devices a placement is on.
func (p *Placement) Count() int {
	each := max(p.PerDevice, 1)
	return (p.Replicas + each - 1) / each
}

// Touched are the devices of a pool on which the plan places something.
func (d *Plan) Touched(pool *Pool) map[int]bool {
	used := map[int]bool{}
	for s := range d.Stages() {
		for _, at := range s.Placement {
			for n := range at.Count() {
				if s.Device == pool.Device && at.First+n >= 0 && at.First+n < pool.Count {
					used[at.First+n] = true
				}
			}
		}
	}
	return used
}

// Meets returns whether two stages have a device in common.
func (s *Stage) Meets(o *Stage) bool {
	return s.Device == o.Device && slices.ContainsFunc(s.Placement, func(p Placement) bool {
		return slices.ContainsFunc(o.Placement, func(q Placement) bool { return p.First < q.First+q.Count() && q.First < p.First+p.Count() })
	})
}
