package graph

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// runningClass is devices of a pool that hold the same under the plan that runs.
type runningClass struct {
	pool  int
	parts []runningPart
	count int
}

// runningPart is a model that devices hold, in so many equal shares of a device.
type runningPart struct{ model, sharesPerDevice int }

// runningClasses returns what devices hold under the plan that runs, by pool and content. Idle devices are left out, and
// models that the problem does not have as they run.
func (r *resolvedProblem) runningClasses() (classes []runningClass) {
	running := r.input.RunningPlan
	heldByDevice := running.HeldByDevice()
	for k := range r.pools {
		i := slices.IndexFunc(running.Pools, func(p formats.Pool) bool { return p.Device == r.pools[k].Device })
		for n := range r.pools[k].Count {
			if i < 0 || n >= len(heldByDevice[i]) {
				break
			}
			class := runningClass{pool: k, count: 1}
			for _, part := range heldByDevice[i][n] {
				if u := r.unchangedModel(&part); u >= 0 {
					class.parts = append(class.parts, runningPart{u, part.Share})
				}
			}
			same := slices.IndexFunc(classes, func(c runningClass) bool { return c.pool == k && slices.Equal(c.parts, class.parts) })
			switch {
			case len(class.parts) == 0:
			case same >= 0:
				classes[same].count++
			default:
				classes = append(classes, class)
			}
		}
	}
	return classes
}

// unchangedModel returns the index of the model that a device holds a part of, or -1 if the problem does not have it, or the
// profile has other blocks or another file of it than the plan that runs.
func (r *resolvedProblem) unchangedModel(part *formats.HeldPart) int {
	u := slices.IndexFunc(r.problem.models, func(m model) bool { return m.name == part.Model })
	if u < 0 {
		return -1
	}
	today := r.measuredModels[u].profile.NewDeployment()
	whole := formats.HeldPart{Model: today.Model, SHA256: today.SHA256, Blocks: [2]int{0, today.NumBlocks}, WholeModel: true, Share: part.Share}
	if !part.Equals(&whole) {
		return -1
	}
	return u
}

// runningResult returns the plan that runs as a result of today's problem. If that does not have its choices, batches or
// devices, or if it misses a deadline or, with given rates, does not carry them, it returns an error that says so.
func (r *resolvedProblem) runningResult() (*solveResult, *kind.InfeasibleError) {
	running := r.input.RunningPlan
	refuse := func(format string, args ...any) *kind.InfeasibleError {
		return &kind.InfeasibleError{Constraint: "running", Reason: fmt.Sprintf(format, args...)}
	}

	// The problem in which modules take turns on the devices that are shared, if some do.
	p := r.problem
	if maxRun := p.longestSharedRun(running); maxRun > 0 && p.hasTimeSharedPool() {
		p = p.limitSharedRuns(maxRun, false)
	}
	onProblem := *r
	onProblem.problem = p
	s, err := onProblem.solutionOf(running)
	if err != nil {
		return nil, refuse("%v", err)
	}
	if s.timeShares != nil {
		s.fillSharedTime(p)
	}
	if !p.keepsDeadlines(s) {
		return nil, refuse("it does not keep every deadline with the margin")
	}

	// Its value.
	result := &solveResult{solution: s, problem: p, value: p.rateFactor(s)}
	if result.value == 0 {
		return nil, refuse("no device is left of one of its modules")
	}
	if r.objective != "throughput" {
		if result.value < 1-1e-9 {
			return nil, refuse("it carries %s of the rates", kind.FormatPercent(result.value))
		}
		result.value = p.price(s)
	}
	return result, nil
}

// longestSharedRun returns the longest time, today, of a batch of any model that takes turns on devices in a plan, or 0 if
// none does.
func (p *problem) longestSharedRun(plan *formats.Plan) (longest time.Duration) {
	for s := range plan.Stages() {
		u, k := slices.IndexFunc(p.models, func(m model) bool { return m.name == s.Deployed.Model }), p.poolIndex(s.Device)
		if u < 0 || k < 0 || !takesTurns(plan, s.Stage) {
			continue
		}
		for l := range p.models[u].levels {
			if t := &p.models[u].levels[l].templates[k]; t.batch == s.Pipeline.Batch && t.sharesPerDevice == s.Share {
				longest = max(longest, t.worstTime)
			}
		}
	}
	return longest
}

// takesTurns reports whether a model takes turns with others on the devices of a stage.
func takesTurns(plan *formats.Plan, s *formats.Stage) bool {
	for o := range plan.Stages() {
		if o.Stage != s && o.SharesDevice(s) {
			return true
		}
	}
	return s.Share == 1 && s.GPUs != float64(s.Replicas)
}
