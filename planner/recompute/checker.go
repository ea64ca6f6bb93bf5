package recompute

import (
	"fmt"
	"strconv"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
)

// Rounding is the relative difference that arithmetic in another order makes.
const Rounding = 1e-6

// Checker collects what does not hold, or has moved.
type Checker struct {
	World
	Findings []kind.Finding
}

// New returns a checker without findings.
func New(t *kind.Today) *Checker { return &Checker{World: World{t}} }

// Add notes a finding.
func (c *Checker) Add(s kind.Severity, constraint, where, found, expected, format string, args ...any) {
	c.Findings = append(c.Findings, kind.Finding{Severity: s, Constraint: constraint, Where: where, Found: found, Expected: expected, Message: fmt.Sprintf(format, args...)})
}

// Fail notes something that does not hold.
func (c *Checker) Fail(constraint, where, found, expected, format string, args ...any) {
	c.Add(kind.Error, constraint, where, found, expected, format, args...)
}

// Warn notes something that has moved.
func (c *Checker) Warn(constraint, where, found, expected, format string, args ...any) {
	c.Add(kind.Warning, constraint, where, found, expected, format, args...)
}

// Sound checks every deployed model's pipelines on their own; false where the
// rest cannot be computed.
func (c *Checker) Sound() bool {
	sound := true
	for i := range c.Plan.Deployment {
		sound = c.Structure(i) && sound
	}
	return sound
}

// Requests compares what the plan says that requests take beside their runs, and cost at the front end, with what
// the profile says today, and the CPUs of the front end with those of today's cluster.
func (c *Checker) Requests() {
	for i := range c.Plan.Deployment {
		m := &c.Plan.Deployment[i]
		pm := c.ProfileModel(m.Model)
		if pm == nil {
			continue
		}
		path := fmt.Sprintf("deployment[%d]", i)
		if pm.RequestUS != m.RequestUS {
			c.Warn("latency", path+".request_us", m.RequestUS.String(), pm.RequestUS.String(), "a request for %s takes another time beside its runs than the plan says (0: not known)", m.Model)
		}
		if pm.RequestCPUUS != m.RequestCPUUS {
			c.Warn("capacity", path+".request_cpu_us", m.RequestCPUUS.String(), pm.RequestCPUUS.String(), "a request for %s costs the front end another time than the plan says (0: not known)", m.Model)
		}
	}
	cores := func(f *formats.FrontEnd) int {
		if f == nil {
			return 0
		}
		return f.Cores
	}
	if said, today := cores(c.Plan.FrontEnd), cores(formats.FrontEndOf(c.Cluster, c.Profile)); said != today {
		c.Warn("capacity", "front_end.cores", fmt.Sprint(said), fmt.Sprint(today), "the front end has another number of CPUs than the plan says (0: not known)")
	}
}

// Structure checks the pipelines of deployment i on their own; false where the
// rest cannot be computed.
func (c *Checker) Structure(i int) bool {
	m := &c.Plan.Deployment[i]
	path := fmt.Sprintf("deployment[%d]", i)
	pm := c.ProfileModel(m.Model)
	switch {
	case pm == nil:
		c.Fail("model", path+".model", strconv.Quote(m.Model), "a model of the profile", "the profile has no %s", m.Model)
	case len(pm.Blocks) != m.NumBlocks:
		c.Fail("blocks", path+".num_blocks", fmt.Sprint(m.NumBlocks), fmt.Sprint(len(pm.Blocks)), "the profile cuts %s into other blocks", m.Model)
		return false
	case pm.Source != nil && m.SHA256 != "" && pm.Source.SHA256 != m.SHA256:
		c.Fail("source", path+".sha256", short(m.SHA256), short(pm.Source.SHA256), "the profile measured another file of %s than the plan was made for", m.Model)
	}
	if len(m.Pipelines) == 0 {
		c.Fail("pipelines", path+".pipelines", "no pipeline", "at least one", "%s is not served", m.Key())
	}
	ok := true
	for k := range m.Pipelines {
		ok = c.pipeline(m, &m.Pipelines[k], fmt.Sprintf("%s.pipelines[%d]", path, k)) && ok
	}
	return ok
}

// pipeline checks that the stages of a pipeline cover the model one after the
// other.
func (c *Checker) pipeline(m *formats.Deployed, pl *formats.Pipeline, path string) bool {
	if pl.Batch < 1 || len(pl.Stages) == 0 {
		c.Fail("pipelines", path, fmt.Sprintf("batch %d, %d stages", pl.Batch, len(pl.Stages)), "at least one of each", "a pipeline that runs nothing")
		return false
	}
	at, ok := 0, true
	for k := range pl.Stages {
		ok = c.stage(m, pl, k, at, fmt.Sprintf("%s.stages[%d]", path, k)) && ok
		at = pl.Stages[k].Blocks[1]
	}
	if at != m.NumBlocks {
		c.Fail("blocks", path+".stages", fmt.Sprintf("%d blocks", at), fmt.Sprint(m.NumBlocks), "the stages of %s do not cover the model", m.Model)
		ok = false
	}
	return ok
}

// stage checks stage k of a pipeline, whose first block should be block at.
func (c *Checker) stage(m *formats.Deployed, pl *formats.Pipeline, k, at int, path string) bool {
	s, ok := &pl.Stages[k], true
	if s.Blocks[0] != at || s.Blocks[1] <= s.Blocks[0] || s.Blocks[1] > m.NumBlocks {
		c.Fail("blocks", path+".blocks", fmt.Sprint(s.Blocks), fmt.Sprintf("[%d, ...) within %d blocks", at, m.NumBlocks), "the stages of %s do not follow each other", m.Model)
		ok = false
	}
	if s.Share < 1 || s.Replicas < 1 {
		c.Fail("devices", path, fmt.Sprintf("share %d, %d replicas", s.Share, s.Replicas), "at least one of each", "a stage without a device")
		ok = false
	}
	if len(s.InferUS) != pl.Batch {
		c.Fail("latency", path+".infer_us", fmt.Sprintf("%d values", len(s.InferUS)), fmt.Sprint(pl.Batch), "one latency per batch size is needed")
		ok = false
	}
	if last := k+1 == len(pl.Stages); last != (s.Cut == nil) {
		c.Fail("cut", path+".cut", "a cut after the last stage, or none before it", "a cut between two stages", "the cuts of %s do not fit its stages", m.Model)
		ok = false
	}
	return ok
}

func short(sha string) string {
	if len(sha) > 12 {
		return sha[:12] + "…"
	}
	return sha
}

// Moved tells whether two times differ by more than rounding.
func Moved(a, b time.Duration) bool {
	d := a - b
	return max(d, -d) > time.Duration(Rounding*float64(max(a, b)))+2
}

// Change writes a time of today beside what it was.
func Change(old, now time.Duration) string {
	if old == 0 {
		return fmt.Sprintf("%s (was 0)", now)
	}
	return fmt.Sprintf("%s (%+.1f %%)", now, 100*(float64(now)/float64(old)-1))
}

// US is a time in microseconds.
func US(d time.Duration) float64 { return float64(d) / 1000 }
