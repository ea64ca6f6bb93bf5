package recompute

import (
	"fmt"
	"strconv"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// Rounding is the relative difference that another order of computations makes.
const Rounding = 1e-6

// Checker collects the findings of a check.
type Checker struct {
	CurrentCosts
	Findings []kind.Finding
}

// NewChecker returns a checker without findings.
func NewChecker(t *kind.CheckInput) *Checker { return &Checker{CurrentCosts: CurrentCosts{t}} }

// AddFinding adds a finding.
func (c *Checker) AddFinding(s kind.FindingSeverity, constraint, where, found, expected, format string, args ...any) {
	c.Findings = append(c.Findings, kind.Finding{Severity: s, Constraint: constraint, Path: where, Found: found, Expected: expected, Message: fmt.Sprintf(format, args...)})
}

// AddError adds a constraint that does not hold.
func (c *Checker) AddError(constraint, where, found, expected, format string, args ...any) {
	c.AddFinding(kind.Error, constraint, where, found, expected, format, args...)
}

// AddWarning adds something that changed.
func (c *Checker) AddWarning(constraint, where, found, expected, format string, args ...any) {
	c.AddFinding(kind.Warning, constraint, where, found, expected, format, args...)
}

// CheckStructure checks the pipelines of every deployed model. It returns false if they are too broken to compute
// times and rates from them.
func (c *Checker) CheckStructure() bool {
	sound := true
	for i := range c.Plan.Deployment {
		sound = c.CheckDeployment(i) && sound
	}
	return sound
}

// CheckRequestCosts compares the plan's times of requests beside their runs and at the front end with
// those of today's profile, and its number of front-end CPUs with that of today's cluster.
func (c *Checker) CheckRequestCosts() {
	for i := range c.Plan.Deployment {
		m := &c.Plan.Deployment[i]
		pm := c.ProfileModel(m.Model)
		if pm == nil {
			continue
		}
		path := fmt.Sprintf("deployment[%d]", i)
		if pm.RequestUS != m.RequestUS {
			c.AddWarning("latency", path+".request_us", m.RequestUS.String(), pm.RequestUS.String(), "a request for %s takes another time beside its runs than the plan says (0: not known)", m.Model)
		}
		if pm.RequestCPUUS != m.RequestCPUUS {
			c.AddWarning("capacity", path+".request_cpu_us", m.RequestCPUUS.String(), pm.RequestCPUUS.String(), "a request for %s costs the front end another time than the plan says (0: not known)", m.Model)
		}
	}

	// Compare the CPUs of the front end.
	cores := func(f *formats.FrontEnd) int {
		if f == nil {
			return 0
		}
		return f.Cores
	}
	if planned, today := cores(c.Plan.FrontEnd), cores(formats.FrontEndOf(c.Cluster, c.Profile)); planned != today {
		c.AddWarning("capacity", "front_end.cores", fmt.Sprint(planned), fmt.Sprint(today), "the front end has another number of CPUs than the plan says (0: not known)")
	}
}

// CheckDeployment checks that the profile has the i-th deployed model, cut into the same blocks and from the same
// file, and that its pipelines cover it. It returns false if they are too broken to compute times from them.
func (c *Checker) CheckDeployment(i int) bool {
	m := &c.Plan.Deployment[i]
	path := fmt.Sprintf("deployment[%d]", i)
	pm := c.ProfileModel(m.Model)

	// The profile must have the same model with the same blocks.
	switch {
	case pm == nil:
		c.AddError("model", path+".model", strconv.Quote(m.Model), "a model of the profile", "the profile has no %s", m.Model)
	case len(pm.Blocks) != m.NumBlocks:
		c.AddError("blocks", path+".num_blocks", fmt.Sprint(m.NumBlocks), fmt.Sprint(len(pm.Blocks)), "the profile cuts %s into other blocks", m.Model)
		return false
	case pm.Source != nil && m.SHA256 != "" && pm.Source.SHA256 != m.SHA256:
		c.AddError("source", path+".sha256", shortHash(m.SHA256), shortHash(pm.Source.SHA256), "the profile measured another file of %s than the plan was made for", m.Model)
	}
	if len(m.Pipelines) == 0 {
		c.AddError("pipelines", path+".pipelines", "no pipeline", "at least one", "%s is not served", m.Key())
	}
	ok := true
	for k := range m.Pipelines {
		ok = c.checkPipeline(m, &m.Pipelines[k], fmt.Sprintf("%s.pipelines[%d]", path, k)) && ok
	}
	return ok
}

// checkPipeline checks that the stages of a pipeline cover the model's blocks one after the other. It returns
// false if they do not.
func (c *Checker) checkPipeline(m *formats.Deployed, pl *formats.Pipeline, path string) bool {
	if pl.Batch < 1 || len(pl.Stages) == 0 {
		c.AddError("pipelines", path, fmt.Sprintf("batch %d, %d stages", pl.Batch, len(pl.Stages)), "at least one of each", "a pipeline that runs nothing")
		return false
	}
	nextBlock, ok := 0, true
	for k := range pl.Stages {
		ok = c.checkStage(m, pl, k, nextBlock, fmt.Sprintf("%s.stages[%d]", path, k)) && ok
		nextBlock = pl.Stages[k].Blocks[1]
	}
	if nextBlock != m.NumBlocks {
		c.AddError("blocks", path+".stages", fmt.Sprintf("%d blocks", nextBlock), fmt.Sprint(m.NumBlocks), "the stages of %s do not cover the model", m.Model)
		ok = false
	}
	return ok
}

// checkStage checks that stage k of a pipeline is complete and begins at block nextBlock, where the stage before
// ends. It returns false if not.
func (c *Checker) checkStage(m *formats.Deployed, pl *formats.Pipeline, k, nextBlock int, path string) bool {
	s, ok := &pl.Stages[k], true
	if s.Blocks[0] != nextBlock || s.Blocks[1] <= s.Blocks[0] || s.Blocks[1] > m.NumBlocks {
		c.AddError("blocks", path+".blocks", fmt.Sprint(s.Blocks), fmt.Sprintf("[%d, ...) within %d blocks", nextBlock, m.NumBlocks), "the stages of %s do not follow each other", m.Model)
		ok = false
	}
	if s.Share < 1 || s.Replicas < 1 {
		c.AddError("devices", path, fmt.Sprintf("share %d, %d replicas", s.Share, s.Replicas), "at least one of each", "a stage without a device")
		ok = false
	}
	if len(s.InferUS) != pl.Batch {
		c.AddError("latency", path+".infer_us", fmt.Sprintf("%d values", len(s.InferUS)), fmt.Sprint(pl.Batch), "one latency per batch size is needed")
		ok = false
	}
	if isLast := k+1 == len(pl.Stages); isLast != (s.Cut == nil) {
		c.AddError("cut", path+".cut", "a cut after the last stage, or none before it", "a cut between two stages", "the cuts of %s do not fit its stages", m.Model)
		ok = false
	}
	return ok
}

// shortHash returns the first 12 characters of a hash.
func shortHash(sha string) string {
	if len(sha) > 12 {
		return sha[:12] + "…"
	}
	return sha
}

// Differs reports whether two times differ by more than rounding.
func Differs(a, b time.Duration) bool {
	d := a - b
	return max(d, -d) > time.Duration(Rounding*float64(max(a, b)))+2
}

// ChangeText returns a time of today and, in brackets, its change relative to the time before, for a message.
func ChangeText(before, today time.Duration) string {
	if before == 0 {
		return fmt.Sprintf("%s (was 0)", today)
	}
	return fmt.Sprintf("%s (%+.1f %%)", today, 100*(float64(today)/float64(before)-1))
}

// Micros returns a time in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / 1000 }
