package graph

import (
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/planner/moves"
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
// models that the problem does not have as they run: with other blocks, or from another file.
func (r *resolvedProblem) runningClasses() (classes []runningClass) {
	for k, held := range moves.HeldByPool(r.input.RunningPlan, r.pools) {
		for _, content := range held {
			class := runningClass{pool: k, count: 1}
			for _, part := range content {
				if u := slices.IndexFunc(r.measuredModels, func(m measuredModel) bool { return moves.IsUnchanged(&part, m.profile, part.Share) }); u >= 0 {
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
