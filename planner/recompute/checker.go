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

// AddFinding adds a finding: which constraint does not hold, where in the plan (the path of a field), the value that was found there, the
// one that was expected, and a message with its format's args.
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

// CheckRequestCosts compares the plan with today's documents, and warns of differences: the times that a request takes beside its runs
// and on the front end's CPUs with those of the profile, and the number of these CPUs with that of the cluster.
func (c *Checker) CheckRequestCosts() {
	for i := range c.Plan.Deployment {
		deployed := &c.Plan.Deployment[i]
		current := c.ProfileModel(deployed.Model)
		if current == nil {
			continue
		}
		path := fmt.Sprintf("deployment[%d]", i)
		if current.RequestUS != deployed.RequestUS {
			c.AddWarning("latency", path+".request_us", deployed.RequestUS.String(), current.RequestUS.String(), "a request for %s takes another time beside its runs than the plan says (0: not known)", deployed.Model)
		}
		if current.RequestCPUUS != deployed.RequestCPUUS {
			c.AddWarning("capacity", path+".request_cpu_us", deployed.RequestCPUUS.String(), current.RequestCPUUS.String(), "a request for %s costs the front end another time than the plan says (0: not known)", deployed.Model)
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

// CheckDeployment checks that today's profile has the i-th deployed model of the plan, cut into the same blocks and from the same file,
// and that each of its pipelines covers these blocks, and adds what does not hold to the findings. It returns false if the pipelines are
// too broken to compute times from them. A model that the profile lacks is a finding, but no reason to stop.
func (c *Checker) CheckDeployment(i int) bool {
	deployed := &c.Plan.Deployment[i]
	path := fmt.Sprintf("deployment[%d]", i)
	current := c.ProfileModel(deployed.Model)

	// The profile must have the same model with the same blocks.
	switch {
	case current == nil:
		c.AddError("model", path+".model", strconv.Quote(deployed.Model), "a model of the profile", "the profile has no %s", deployed.Model)
	case len(current.Blocks) != deployed.NumBlocks:
		c.AddError("blocks", path+".num_blocks", fmt.Sprint(deployed.NumBlocks), fmt.Sprint(len(current.Blocks)), "the profile cuts %s into other blocks", deployed.Model)
		return false
	case current.Source != nil && deployed.SHA256 != "" && current.Source.SHA256 != deployed.SHA256:
		c.AddError("source", path+".sha256", shortHash(deployed.SHA256), shortHash(current.Source.SHA256), "the profile measured another file of %s than the plan was made for", deployed.Model)
	}
	if len(deployed.Pipelines) == 0 {
		c.AddError("pipelines", path+".pipelines", "no pipeline", "at least one", "%s is not served", deployed.Key())
	}
	computable := true
	for k := range deployed.Pipelines {
		computable = c.checkPipeline(deployed, &deployed.Pipelines[k], fmt.Sprintf("%s.pipelines[%d]", path, k)) && computable
	}
	return computable
}

// checkPipeline checks that the stages of a pipeline cover the blocks of its model m one after the other, and adds what does not hold to
// the findings. It returns false if times cannot be computed from it. path is the pipeline's place in the plan.
func (c *Checker) checkPipeline(m *formats.Deployed, pl *formats.Pipeline, path string) bool {
	if pl.Batch < 1 || len(pl.Stages) == 0 {
		c.AddError("pipelines", path, fmt.Sprintf("batch %d, %d stages", pl.Batch, len(pl.Stages)), "at least one of each", "a pipeline that runs nothing")
		return false
	}
	nextBlock, computable := 0, true
	for k := range pl.Stages {
		computable = c.checkStage(m, pl, k, nextBlock, fmt.Sprintf("%s.stages[%d]", path, k)) && computable
		nextBlock = pl.Stages[k].Blocks[1]
	}
	if nextBlock != m.NumBlocks {
		c.AddError("blocks", path+".stages", fmt.Sprintf("%d blocks", nextBlock), fmt.Sprint(m.NumBlocks), "the stages of %s do not cover the model", m.Model)
		computable = false
	}
	return computable
}

// checkStage checks that stage k of a pipeline is complete (blocks, devices, a time for each batch size, a cut to the next stage) and
// begins at block nextBlock, where the stage before ends. It adds what does not hold to the findings, and returns false if anything does
// not. path is the stage's place in the plan.
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
	if isLast := k+1 == len(pl.Stages); isLast != (s.Cut == nil) { // only the last stage has no cut behind it
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

// Differs returns whether two times differ by more than rounding: a relative part (Rounding) and two nanoseconds.
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
