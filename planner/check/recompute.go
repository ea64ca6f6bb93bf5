package check

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
)

// Severity of a finding.
type Severity string

// A plan with an error finding does not hold; a warning tells what moved.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing that does not hold, or has moved.
type Finding struct {
	Severity   Severity `json:"severity"`
	Constraint string   `json:"constraint"` // slo, devices, pool, placement, memory, ...
	Where      string   `json:"where"`      // field path in the plan
	Found      string   `json:"found,omitempty"`
	Expected   string   `json:"expected,omitempty"`
	Message    string   `json:"message"`

	excess float64 // of an SLO: by how much of what is left for it, relative
}

// String is the finding on one line.
func (f Finding) String() string {
	s := string(f.Severity) + ": " + f.Constraint + ": " + f.Message
	if f.Where != "" {
		s += " (" + f.Where
		if f.Found != "" {
			s += ": " + f.Found
		}
		if f.Expected != "" {
			s += ", expected " + f.Expected
		}
		s += ")"
	}
	return s
}

// rounding is the relative difference that arithmetic in another order makes.
const rounding = 1e-6

// Recompute validates a plan of pooled pipelines or of gears against documents
// from first principles. workload may be nil: then the plan's own targets count. No
// finding means that all of it holds and nothing has moved.
func Recompute(plan *formats.Plan, profile *formats.Profile, cluster *formats.Cluster, workload *formats.Workload) []Finding {
	c := &checker{world: world{plan, profile, cluster, workload}}
	switch plan.Kind {
	case formats.PlanPool:
	case formats.PlanGear:
		c.gearPlan()
		return c.findings
	default:
		c.fail("kind", "kind", strconv.Quote(plan.Kind), formats.PlanPool+" or "+formats.PlanGear, "plans of this kind cannot be checked yet")
		return c.findings
	}
	c.workloadModels()
	sound := true
	for i := range plan.Models {
		sound = c.structure(i) && sound
	}
	c.pools()
	if !sound {
		return c.findings
	}
	c.held = c.hold()
	for i := range plan.Models {
		c.model(i)
	}
	c.devices()
	c.objective()
	return c.findings
}

type checker struct {
	world
	held     *held
	findings []Finding
}

func (c *checker) add(s Severity, constraint, where, found, expected, format string, args ...any) {
	c.findings = append(c.findings, Finding{Severity: s, Constraint: constraint, Where: where, Found: found, Expected: expected, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) fail(constraint, where, found, expected, format string, args ...any) {
	c.add(Error, constraint, where, found, expected, format, args...)
}

func (c *checker) warn(constraint, where, found, expected, format string, args ...any) {
	c.add(Warning, constraint, where, found, expected, format, args...)
}

// workloadModels checks that plan and workload name the same models.
func (c *checker) workloadModels() {
	if len(c.plan.Models) == 0 {
		c.fail("model", "models", "no model", "at least one", "the plan serves nothing")
	}
	if c.workload == nil {
		return
	}
	for i := range c.plan.Models {
		key := c.plan.Models[i].Key()
		if c.workloadModel(key) == nil {
			c.fail("model", fmt.Sprintf("models[%d].model", i), strconv.Quote(key.String()), "a model of the workload", "the workload no longer asks for %s", key)
		}
	}
	for i := range c.workload.Models {
		key := c.workload.Models[i].Key()
		if !slices.ContainsFunc(c.plan.Models, func(m formats.PlanModel) bool { return m.Key() == key }) {
			c.fail("model", "models", "no "+strconv.Quote(key.String()), "every model of the workload", "the workload asks for %s, the plan does not serve it", key)
		}
	}
}

// structure checks a model's pipelines on their own; false where the rest
// cannot be computed.
func (c *checker) structure(mi int) bool {
	m := &c.plan.Models[mi]
	path := fmt.Sprintf("models[%d]", mi)
	pm := c.profileModel(m.Model)
	switch {
	case pm == nil:
		c.fail("model", path+".model", strconv.Quote(m.Model), "a model of the profile", "the profile has no %s", m.Model)
	case len(pm.Blocks) != m.NumBlocks:
		c.fail("blocks", path+".num_blocks", fmt.Sprint(m.NumBlocks), fmt.Sprint(len(pm.Blocks)), "the profile cuts %s into other blocks", m.Model)
		return false
	case pm.Source != nil && m.SHA256 != "" && pm.Source.SHA256 != m.SHA256:
		c.fail("source", path+".sha256", short(m.SHA256), short(pm.Source.SHA256), "the profile measured another file of %s than the plan was made for", m.Model)
	}
	if len(m.Pipelines) == 0 {
		c.fail("pipelines", path+".pipelines", "no pipeline", "at least one", "%s is not served", m.Key())
	}
	ok := true
	for pi := range m.Pipelines {
		pl := &m.Pipelines[pi]
		ppath := fmt.Sprintf("%s.pipelines[%d]", path, pi)
		if pl.Batch < 1 || len(pl.Stages) == 0 {
			c.fail("pipelines", ppath, fmt.Sprintf("batch %d, %d stages", pl.Batch, len(pl.Stages)), "at least one of each", "a pipeline that runs nothing")
			ok = false
			continue
		}
		at := 0
		for si := range pl.Stages {
			s := &pl.Stages[si]
			spath := fmt.Sprintf("%s.stages[%d]", ppath, si)
			if s.Blocks[0] != at || s.Blocks[1] <= s.Blocks[0] || s.Blocks[1] > m.NumBlocks {
				c.fail("blocks", spath+".blocks", fmt.Sprint(s.Blocks), fmt.Sprintf("[%d, ...) within %d blocks", at, m.NumBlocks), "the stages of %s do not follow each other", m.Model)
				ok = false
			}
			if s.Share < 1 || s.Replicas < 1 {
				c.fail("devices", spath, fmt.Sprintf("share %d, %d replicas", s.Share, s.Replicas), "at least one of each", "a stage without a device")
				ok = false
			}
			if len(s.InferUS) != pl.Batch {
				c.fail("latency", spath+".infer_us", fmt.Sprintf("%d values", len(s.InferUS)), fmt.Sprint(pl.Batch), "one latency per batch size is needed")
				ok = false
			}
			if last := si+1 == len(pl.Stages); last != (s.Cut == nil) {
				c.fail("cut", spath+".cut", "a cut after the last stage, or none before it", "a cut between two stages", "the cuts of %s do not fit its stages", m.Model)
				ok = false
			}
			at = s.Blocks[1]
		}
		if at != m.NumBlocks {
			c.fail("blocks", ppath+".stages", fmt.Sprintf("%d blocks", at), fmt.Sprint(m.NumBlocks), "the stages of %s do not cover the model", m.Model)
			ok = false
		}
	}
	return ok
}

func short(sha string) string {
	if len(sha) > 12 {
		return sha[:12] + "…"
	}
	return sha
}

// model checks one model against today's documents.
func (c *checker) model(mi int) {
	m := &c.plan.Models[mi]
	path := fmt.Sprintf("models[%d]", mi)
	slo, known := c.slo(m)
	margin := time.Duration(math.Round(c.plan.Options.Margin*float64(slo)/1000)) * time.Microsecond
	if !known {
		c.fail("slo", path+".slo_us", m.SLOUS.String(), "a whole-model measurement", "the SLO of %s is a multiple of its latency, which the profile no longer has", m.Key())
		slo, margin = m.SLOUS.D(), m.MarginUS.D()
	} else if slo != m.SLOUS.D() {
		c.warn("slo", path+".slo_us", m.SLOUS.String(), formats.Micros(slo).String(), "the SLO of %s has changed", m.Key())
	}
	if wm := c.workloadModel(m.Key()); wm != nil {
		weight := wm.Weight
		if weight == 0 {
			weight = 1
		}
		if weight != m.Weight {
			c.warn("weight", path+".weight", fmt.Sprint(m.Weight), fmt.Sprint(weight), "the weight of %s has changed", m.Key())
		}
		if p := wm.Percentile; p != "" && p != m.Percentile {
			c.warn("percentile", path+".percentile", m.Percentile, p, "the percentile of %s has changed", m.Key())
		}
		if floor := wm.MinRPS; m.RPS < floor*(1-rounding) {
			c.fail("min_rps", path+".rps", fmt.Sprint(m.RPS), fmt.Sprint(floor), "the plan gives %s less than the workload asks", m.Key())
		}
	}
	sum := 0.0
	for pi := range m.Pipelines {
		pl, now := &m.Pipelines[pi], &c.held.pipelines[mi][pi]
		ppath := fmt.Sprintf("%s.pipelines[%d]", path, pi)
		sum += pl.RPS
		c.stages(m, pl, now, ppath)
		if !now.known {
			continue
		}
		build := c.build(m, pl)
		if need := margin + build + now.latency; need > slo {
			c.fail("slo", ppath+".latency_us",
				fmt.Sprintf("%s us with margin and batch building", formats.Micros(need)), fmt.Sprintf("at most %s us", formats.Micros(slo)),
				"a pipeline of %s takes %s today, and the margin of %s and %s for filling a batch leave %s",
				m.Key(), now.latency, margin, build, slo-margin-build)
			if left := slo - margin - build; left > 0 {
				c.findings[len(c.findings)-1].excess = float64(now.latency)/float64(left) - 1
			}
		}
	}
	if math.Abs(sum-m.RPS) > rounding*m.RPS {
		c.fail("rps", path+".rps", fmt.Sprint(m.RPS), fmt.Sprint(sum), "the pipelines of %s do not add up to its rate", m.Key())
	}
}

// build is the time that the first request of a batch waits, today.
func (c *checker) build(m *formats.PlanModel, pl *formats.Pipeline) time.Duration {
	if wm := c.workloadModel(m.Key()); wm != nil && wm.BatchBuildRPS > 0 {
		us := c.plan.Options.BatchBuild * 1e6 / wm.BatchBuildRPS
		return time.Duration(math.Round(us * float64(pl.Batch-1) * 1000))
	}
	return pl.BatchBuildUS.D()
}

// stages compares what a pipeline's stages were planned with to today.
func (c *checker) stages(m *formats.PlanModel, pl *formats.Pipeline, now *pipelineToday, ppath string) {
	pm := c.profileModel(m.Model)
	for si := range pl.Stages {
		s := &pl.Stages[si]
		spath := fmt.Sprintf("%s.stages[%d]", ppath, si)
		pool := c.pool(s.Device)
		if pool == nil {
			continue // the pool itself is a finding
		}
		if s.Share > max(pool.MaxShares, 1) || pool.TimeShared() && s.Share != 1 {
			c.fail("share", spath+".share", fmt.Sprint(s.Share), fmt.Sprintf("1 to %d", max(pool.MaxShares, 1)), "%s has no such shares", s.Device)
		}
		if pm != nil && !now.stages[si].known {
			c.fail("measurement", spath, fmt.Sprintf("%s, share 1/%d, batch %d", s.Device, s.Share, pl.Batch), "a measurement of it",
				"the profile does not say what %s costs there", m.Model)
			continue
		}
		if pm == nil {
			continue
		}
		planned := s.InferUS[pl.Batch-1].D()
		if got := now.stages[si].infer; moved(planned, got) {
			c.warn("latency", fmt.Sprintf("%s.infer_us[%d]", spath, pl.Batch-1), s.InferUS[pl.Batch-1].String(), formats.Micros(got).String(),
				"blocks %d to %d of %s on %s at batch %d take %s today", s.Blocks[0], s.Blocks[1]-1, m.Model, s.Device, pl.Batch, change(planned, got))
		}
		if s.Cut != nil {
			c.cut(m, pl, s, pm, &now.stages[si], spath)
		}
		if pool.TimeShared() {
			continue // its time shares are checked with the pool
		}
		if carries := now.stages[si].rate * float64(s.Replicas); carries < pl.RPS*(1-rounding) {
			c.warn("rps", spath+".rps", fmt.Sprintf("%.6g for the pipeline", pl.RPS), fmt.Sprintf("at most %.6g", carries),
				"the %d replicas of a stage of %s on %s no longer carry the pipeline's rate", s.Replicas, m.Model, s.Device)
		}
		if gpus := float64(s.Replicas) / float64(s.Share); math.Abs(gpus-s.GPUs) > rounding*gpus {
			c.fail("devices", spath+".gpus", fmt.Sprint(s.GPUs), fmt.Sprint(gpus), "replicas and shares do not give this number of devices")
		}
	}
}

// cut checks one crossing.
func (c *checker) cut(m *formats.PlanModel, pl *formats.Pipeline, s *formats.Stage, pm *formats.ProfileModel, now *stageToday, spath string) {
	b := &pm.Blocks[s.Blocks[1]-1]
	where := spath + ".cut"
	if bytes := cutBytes(b, s.Cut.DType); bytes > 0 && bytes != s.Cut.Bytes {
		c.warn("cut", where+".bytes", fmt.Sprint(s.Cut.Bytes), fmt.Sprint(bytes), "the cut after block %d of %s has another size", s.Blocks[1]-1, m.Model)
	}
	var names []string
	for _, t := range b.Cut {
		names = append(names, t.Name)
	}
	if len(names) > 0 && len(s.Cut.Tensors) > 0 && !slices.Equal(names, s.Cut.Tensors) {
		c.fail("cut", where+".tensors", strings.Join(s.Cut.Tensors, ", "), strings.Join(names, ", "), "other tensors cross after block %d of %s", s.Blocks[1]-1, m.Model)
	}
	if s.Cut.DType == "FP16" && b.FP16 != nil && b.FP16.Top1Agreement < 0.99 {
		c.fail("fp16", where+".dtype", "FP16", "FP32", "crossing after block %d of %s in float16 changes %.2g %% of the answers",
			s.Blocks[1]-1, m.Model, 100*(1-b.FP16.Top1Agreement))
	}
	if n := len(s.Cut.TransferUS); n == pl.Batch && moved(s.Cut.TransferUS[n-1].D(), now.transfer) {
		c.warn("transfer", fmt.Sprintf("%s.transfer_us[%d]", where, n-1), s.Cut.TransferUS[n-1].String(), formats.Micros(now.transfer).String(),
			"the crossing after block %d of %s takes %s today", s.Blocks[1]-1, m.Model, change(s.Cut.TransferUS[n-1].D(), now.transfer))
	}
}

// moved tells whether two times differ by more than rounding.
func moved(a, b time.Duration) bool {
	d := a - b
	return max(d, -d) > time.Duration(rounding*float64(max(a, b)))+2
}

func change(old, now time.Duration) string {
	if old == 0 {
		return fmt.Sprintf("%s (was 0)", now)
	}
	return fmt.Sprintf("%s (%+.1f %%)", now, 100*(float64(now)/float64(old)-1))
}

// objective checks the plan's headline figures.
func (c *checker) objective() {
	o := &c.plan.Objective
	if o.Name != "throughput" || len(c.plan.Models) == 0 {
		return
	}
	value := math.Inf(1)
	for i := range c.plan.Models {
		if w := c.plan.Models[i].Weight; w > 0 {
			value = min(value, c.plan.Models[i].RPS/w)
		}
	}
	if math.Abs(value-o.Value) > rounding*value {
		c.fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the models' rates do not give this objective")
	}
	if o.Bound != nil && o.Value > *o.Bound*(1+1e-9) {
		c.fail("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at least %v", o.Value), "the value is above its own bound")
	}
}
