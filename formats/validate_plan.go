package formats

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"inferplan/formats/document"
)

// Validate checks a plan for consistency, from first principles. It returns all violations, each with its field
// path: stages cover the blocks in order, replicas are on devices that exist and are not oversubscribed,
// capacities carry the promised rates, latencies add up and keep the SLO. Package planner/check compares a plan
// with a profile and a cluster.
func (d *Plan) Validate() error {
	var c document.Checker
	c.Header(d, d.Format, FormatPlan)
	c.OneOf("kind", d.Kind, PlanKinds()...)
	c.OneOf("stopped_by", d.StoppedBy, "proved", "gap", "trials", "work", "time", "interrupt")
	d.Objective.check(&c)
	checkInputs(&c, d.Inputs)
	d.Options.Check(&c)
	checkPools(&c, d.Pools)
	d.FrontEnd.check(&c)
	p := &planChecker{Checker: &c, plan: d, sound: map[*Pipeline]bool{}, pools: map[string]int{}, load: make([][]float64, len(d.Pools)), gpus: make([]float64, len(d.Pools))}
	for i := range d.Pools {
		p.pools[d.Pools[i].Device] = i
		if n := d.Pools[i].Count; n > 0 && n <= maxCount {
			p.load[i] = make([]float64, n+1)
		}
	}
	p.deployment()
	p.section()
	p.occupancy()
	c.FailIf(d.Policy.Name == "", "policy.name", "an empty name", "a policy")
	d.checkExecution(&c)
	d.Arrivals.check(&c, "arrivals")
	p.certificate()
	for i := range d.Limits {
		c.FailIf(d.Limits[i].What == "", fmt.Sprintf("limits[%d].what", i), "an empty text", "what limits the plan")
	}
	return c.Err()
}

// checkExecution checks that each kind of device occurs once, and is one of the plan's.
func (d *Plan) checkExecution(c *document.Checker) {
	seen := map[string]int{}
	for i := range d.Execution {
		e := &d.Execution[i]
		c.Name(seen, i, e.Device, "execution[%d].device", i)
		c.FailIf(!slices.ContainsFunc(d.Pools, func(p Pool) bool { return p.Device == e.Device }), fmt.Sprintf("execution[%d].device", i), document.Quote(e.Device), "a device of the plan's pools")
		checkPrecision(c, e.Precision, "execution", i)
	}
}

// maxObjective bounds the value of any objective.
const maxObjective = 1e15

// check holds value, bound and gap against each other. Up to rounding the
// bound is on the better side of the value, and the gap is their distance as a
// part of the one or the other.
func (o *Objective) check(c *document.Checker) {
	c.OneOf("objective.name", o.Name, "throughput", "cost", "power", "gpus", "accuracy", "latency", "goodput")
	if c.FailIf(!(math.Abs(o.Value) <= maxObjective), "objective.value", o.Value, "a number of at most %g", maxObjective) {
		return
	}
	if o.Bound == nil {
		if o.Gap != nil {
			c.Fail("objective.gap", document.Number(*o.Gap), "null: there is no bound", "")
		}
		return
	}

	// No plan can be better than the bound, so it lies beyond the value.
	bound := *o.Bound
	if c.FailIf(!(math.Abs(bound) <= maxObjective), "objective.bound", bound, "a number of at most %g", maxObjective) {
		return
	}
	most := o.Name == "throughput" || o.Name == "accuracy" || o.Name == "goodput"
	switch {
	case document.CloseTo(o.Value, bound):
	case most && bound < o.Value:
		c.Fail("objective.bound", document.Number(bound), "at least the value, "+document.FormatFloat(o.Value), "a bound is what no plan can exceed")
	case !most && bound > o.Value:
		c.Fail("objective.bound", document.Number(bound), "at most the value, "+document.FormatFloat(o.Value), "a bound is what no plan can go below")
	}

	// The gap is the distance between them relative to either, within the rounding of both.
	if o.Gap == nil {
		return
	}
	apart := math.Abs(bound - o.Value)
	low := apart / max(math.Abs(bound), math.Abs(o.Value), 1e-12)
	high := min(apart/max(min(math.Abs(bound), math.Abs(o.Value)), 1e-12), maxObjective)
	const slack = 2e-6
	if g := *o.Gap; !(g >= low*(1-slack)-slack && g <= high*(1+slack)+slack) {
		want := document.FormatFloat(low)
		if !document.CloseTo(low, high) {
			want += " to " + document.FormatFloat(high)
		}
		c.Fail("objective.gap", document.Number(g), "what follows from value and bound, "+want, "")
	}
}

func checkInputs(c *document.Checker, inputs []Input) {
	for i := range inputs {
		at := fmt.Sprintf("inputs[%d]", i)
		in := &inputs[i]
		c.FailIf(in.Role == "", at+".role", "an empty text", "profile, cluster or workload")
		c.FailIf(in.Path == "" || path.IsAbs(in.Path), at+".path", "the text "+document.Quote(in.Path), "a path relative to the document")
		c.SHA(at+".sha256", in.SHA256)
	}
}

// planChecker follows a plan's replicas onto devices.
type planChecker struct {
	*document.Checker
	plan  *Plan
	sound map[*Pipeline]bool // pipelines whose latency adds up
	pools map[string]int
	load  [][]float64 // the change of the occupied shares from the device before, by pool and physical device
	gpus  []float64   // the sum of the stages' gpus, by pool
}

// section checks that the plan has the section of its kind, and the section.
func (p *planChecker) section() {
	kind := planKindOf(p.plan.Kind)
	if kind == nil {
		return
	}
	if p.FailIf(p.plan.Section == nil, kind.name, "nothing", "the section of a plan of kind "+kind.name) {
		return
	}
	if name := sectionOf(p.plan.Section); name != kind.name {
		p.Fail(name, "a section "+name, "none in a plan of kind "+kind.name, "")
		return
	}
	p.plan.Section.check(p)
}

// checkDeployment checks the rules for deployed models that all kinds of plans have in common.
func (p *planChecker) deployment() {
	seen := map[ModelClass]int{}
	for i := range p.plan.Deployment {
		m := &p.plan.Deployment[i]
		at := fmt.Sprintf("deployment[%d]", i)
		checkKey(p.Checker, seen, i, m.Key(), at)
		p.class(m, at)
		if m.SHA256 != "" {
			p.SHA(at+".sha256", m.SHA256)
		}
		checkBucket(p.Checker, m.Bucket, m.Model, at)
		checkTensors(p.Checker, m.Inputs, at+".inputs")
		checkTensors(p.Checker, m.Outputs, at+".outputs")
		checkConstants(p.Checker, m.Constants, at+".constants")
		checkOperators(p.Checker, m.Operators, at+".operators")
		document.Least(p.Checker, m.NumBlocks, 1, at, ".num_blocks")
		for k := range m.Pipelines {
			p.pipeline(m, &m.Pipelines[k], fmt.Sprintf("%s.pipelines[%d]", at, k))
		}
	}
}

// checkServed checks the promise for one model.
func (p *planChecker) served(m *Served, at string) {
	if m.SLOUS <= 0 {
		p.Fail(at+".slo_us", "the number "+m.SLOUS.String(), "a positive latency", "")
	} else if m.MarginUS >= m.SLOUS {
		p.Fail(at+".margin_us", "the number "+m.MarginUS.String(), "less than the SLO, "+m.SLOUS.String(), "")
	}
	p.Percentile(m.Percentile, at+".percentile")
	p.FailIf(!(m.Weight > 0), at+".weight", m.Weight, "a positive weight")
}

// checkLimits checks that a pipeline keeps the promise for its model, and the option for the largest batch.
func (p *planChecker) keeps(l *Pipeline, m *Served, at string) {
	if need := l.LatencyUS + l.BatchBuildUS + m.MarginUS; m.SLOUS > 0 && p.sound[l] && need > m.SLOUS+document.Micros(time.Microsecond) {
		p.Fail(at+".latency_us", "latency, batch building and margin of "+need.String()+" us", "at most the SLO, "+m.SLOUS.String(), "")
	}
	if most := p.plan.Options.Whole("max-batch"); most > 0 && l.Batch > most {
		p.Fail(at+".batch", document.Whole(l.Batch), fmt.Sprintf("at most options.max_batch, %d", most), "")
	}
}

// checkClass checks that the classes of one model agree on the model's file and blocks.
func (p *planChecker) class(m *Deployed, at string) {
	if m.Class == "" {
		return
	}
	first := &p.plan.Deployment[slices.IndexFunc(p.plan.Deployment, func(o Deployed) bool { return o.Model == m.Model })]
	p.FailIf(m.SHA256 != first.SHA256, at+".sha256", "the text "+document.Quote(m.SHA256), "that of the model's other classes, "+document.Quote(first.SHA256))
	p.FailIf(m.NumBlocks != first.NumBlocks, at+".num_blocks", m.NumBlocks, "that of the model's other classes, %d", first.NumBlocks)
}

func (p *planChecker) pipeline(m *Deployed, l *Pipeline, at string) {
	if p.FailIf(l.Batch < 1, at+".batch", l.Batch, "1 or more") {
		return
	}
	if !(l.RPS > 0) {
		p.Fail(at+".rps", document.Number(l.RPS), "a positive rate", "leave out pipelines that carry nothing")
	}
	if p.FailIf(len(l.Stages) == 0, at+".stages", "an empty list", "at least one stage") {
		return
	}

	// Check the stages: each begins where the one before ends. Sum up their times at the planned batch size.
	next, latency, whole := 0, time.Duration(0), true
	for i := range l.Stages {
		s := &l.Stages[i]
		where := fmt.Sprintf("%s.stages[%d]", at, i)
		if s.Blocks[0] != next || s.Blocks[1] <= s.Blocks[0] {
			p.Fail(where+".blocks", fmt.Sprintf("the range [%d, %d)", s.Blocks[0], s.Blocks[1]),
				fmt.Sprintf("a range that starts at %d, where the stage before ends, and holds a block", next), "")
		}
		next = s.Blocks[1]
		whole = p.stage(l, s, i == len(l.Stages)-1, where) && whole
		if len(s.InferUS) == l.Batch {
			latency += s.InferUS[l.Batch-1].D()
		}
		if s.Cut != nil && len(s.Cut.TransferUS) == l.Batch {
			latency += s.Cut.TransferUS[l.Batch-1].D()
		}
	}

	// Check that they cover the model, and that the times sum to the pipeline's latency.
	p.FailIf(next != m.NumBlocks, fmt.Sprintf("%s.stages[%d].blocks", at, len(l.Stages)-1), fmt.Sprintf("an end at block %d", next), "%d, the number of blocks of the model", m.NumBlocks)
	if !whole {
		return // a sum over wrong times would only repeat their errors
	}
	if diff := l.LatencyUS.D() - latency; diff.Abs() > time.Microsecond {
		p.Fail(at+".latency_us", "the number "+l.LatencyUS.String(), "the sum of inference and transfer at the planned batch, "+document.Micros(latency).String(), "")
	}
	p.sound[l] = true
}

// checkStage checks one stage and adds its replicas to the load of their devices. It returns whether all times are
// there, so that they can be summed.
func (p *planChecker) stage(l *Pipeline, s *Stage, last bool, at string) (whole bool) {
	// Check the times.
	whole = p.times(s.InferUS, l.Batch, at+".infer_us", 1)
	if s.MeanUS != nil {
		whole = p.times(s.MeanUS, l.Batch, at+".mean_us", 1) && whole
	}
	if s.InferRangeUS != nil && whole {
		whole = p.within(s, l.Batch, at+".infer_range_us")
	}
	if n := s.Blocks[1] - s.Blocks[0]; s.BlockUS != nil && len(s.BlockUS) != n {
		p.Fail(at+".block_us", fmt.Sprintf("%d times", len(s.BlockUS)), fmt.Sprintf("%d, one per block of the stage", n), "")
	}

	// Check the cut: every stage but the last has one.
	switch {
	case last && s.Cut != nil:
		p.Fail(at+".cut", "a cut after the last stage", "none: the answer leaves there", "")
	case !last && s.Cut == nil:
		p.Fail(at, "no cut", "the cut to the next stage", "")
		whole = false
	case s.Cut != nil:
		p.OneOf(at+".cut.dtype", s.Cut.DType, "FP32", "FP16")
		document.Least(p.Checker, s.Cut.Bytes, 0, at, ".cut.bytes")
		whole = p.times(s.Cut.TransferUS, l.Batch, at+".cut.transfer_us", 0) && whole
	}

	// Check replicas, device kind and share.
	if p.FailIf(s.Replicas < 1 || s.Replicas > maxCount*maxShares, at+".replicas", s.Replicas, "1 or more") {
		return whole
	}
	p.FailIf(!(s.GPUs > 0), at+".gpus", s.GPUs, "a positive number of devices")
	i, ok := p.pools[s.Device]
	if !ok {
		p.Fail(at+".device", "the device "+document.Quote(s.Device), "a device of the plan's pools", p.didYouMean(s.Device))
		return whole
	}
	pool := p.plan.Pools[i].WithDefaults()
	p.gpus[i] += s.GPUs
	if p.FailIf(s.Share < 1 || s.Share > pool.MaxShares, at+".share", s.Share, "1 to max_shares of the pool, %d", pool.MaxShares) {
		return whole
	}

	// Check that the replicas carry the pipeline's rate, and where they are placed.
	if whole && l.RPS > 0 {
		p.capacity(l, s, &pool, at)
	}
	p.placement(s, i, &pool, at)
	return whole
}

func (p *planChecker) didYouMean(device string) string {
	kinds := named(p.plan.Pools, func(o *Pool) string { return o.Device })
	return cmp.Or(document.DidYouMean(device, kinds), "the pools are "+strings.Join(kinds, ", "))
}

// within checks that the intervals of a stage's times hold them.
func (p *planChecker) within(s *Stage, batch int, at string) bool {
	if p.FailIf(len(s.InferRangeUS) != batch, at, fmt.Sprintf("%d intervals", len(s.InferRangeUS)), "%d, one for each batch size up to the planned one", batch) {
		return false
	}
	for b, r := range s.InferRangeUS {
		if us := s.InferUS[b]; r[0] > us || us > r[1] {
			p.Failf(fmt.Sprintf("%s to %s", r[0], r[1]), fmt.Sprintf("an interval that holds infer_us[%d], %s", b, us), "", "%s[%d]", at, b)
			return false
		}
	}
	return true
}

// times checks a list of times by batch size.
func (p *planChecker) times(list []document.Micros, batch int, at string, least document.Micros) bool {
	if p.FailIf(len(list) != batch, at, fmt.Sprintf("%d times", len(list)), "%d, one for each batch size up to the planned one", batch) {
		return false
	}
	if i := slices.IndexFunc(list, func(m document.Micros) bool { return m < least }); i >= 0 {
		p.FailIf(least > 0 && list[i] == 0, fmt.Sprintf("%s[%d]", at, i), "the number 0", "a positive latency")
		return false // negative ones are found with all numbers
	}
	return true
}

func (p *planChecker) certificate() {
	d := p.plan.Certified
	if d == nil {
		return
	}
	p.FailIf(!(d.Attainment > 0 && d.Attainment <= 1), "certified.attainment", d.Attainment, "a share above 0, at most 1")
	document.Least(p.Checker, d.Runs, 1, "", "certified.runs")
	document.Least(p.Checker, d.LoadFactor, 0, "", "certified.load_factor")
	for i := range d.Models {
		m := &d.Models[i]
		at := fmt.Sprintf("certified.models[%d]", i)
		p.FailIf(!slices.ContainsFunc(p.plan.Served(), func(o Served) bool { return o.Key() == m.Key() }), at+".model", "the model "+document.Quote(m.Key().String()), "a model of the plan")
		document.Least(p.Checker, m.RPS, 0, at, ".rps")
		p.Share(at+".attainment", m.Attainment)
		p.Interval(at+".attainment_interval", m.AttainmentCI)
	}
}

// capacity checks that the stage carries the pipeline, and that it promises no
// more than its replicas can do.
func (p *planChecker) capacity(l *Pipeline, s *Stage, pool *Pool, at string) {
	p.FailIf(s.RPS < l.RPS && !document.CloseTo(s.RPS, l.RPS), at+".rps", s.RPS, "at least the pipeline's rate, "+document.FormatFloat(l.RPS))
	servers := float64(s.Replicas)
	if pool.Sharing == SharingTime {
		servers = min(servers, s.GPUs)
	}
	most := servers * float64(l.Batch) / p.plan.RunUS(l, s).D().Seconds()
	p.FailIf(s.RPS > most && !document.CloseTo(s.RPS, most), at+".rps", s.RPS, "at most what its replicas can do, "+document.FormatFloat(most))
}

// placement puts the replicas of a stage on the devices of its pool.
func (p *planChecker) placement(s *Stage, pool int, info *Pool, at string) {
	sum := 0
	for k := range s.Placement {
		g := &s.Placement[k]
		where := fmt.Sprintf("%s.placement[%d]", at, k)
		if p.FailIf(g.Replicas < 1 || g.PerDevice < 1 || g.Replicas > maxCount*maxShares, where, fmt.Sprintf("%d replicas, %d per device", g.Replicas, g.PerDevice), "1 or more of each") {
			return
		}
		sum += g.Replicas
		if p.FailIf(g.PerDevice > s.Share, where+".per_device", g.PerDevice, "at most %d shares of 1/%d on a device", s.Share, s.Share) {
			return
		}
		devices := (g.Replicas + g.PerDevice - 1) / g.PerDevice
		if p.FailIf(g.First < 0 || g.First > info.Count-devices, where, fmt.Sprintf("devices %d to %d", g.First, g.First+devices-1), "devices 0 to %d, which the pool has", info.Count-1) {
			return
		}
		if p.load[pool] == nil {
			continue // the count itself is wrong
		}
		full, rest := g.Replicas/g.PerDevice, g.Replicas%g.PerDevice
		p.put(pool, g.First, g.First+full, float64(g.PerDevice)/float64(s.Share))
		if rest > 0 {
			p.put(pool, g.First+full, g.First+full+1, float64(rest)/float64(s.Share))
		}
	}
	p.FailIf(sum != s.Replicas, at+".placement", fmt.Sprintf("%d replicas placed", sum), "replicas, %d", s.Replicas)
}

// put adds load to the devices [first, last) of a pool; load holds differences
// between neighbours until occupancy sums them.
func (p *planChecker) put(pool, first, last int, load float64) {
	p.load[pool][first] += load
	p.load[pool][last] -= load
}

// checkOccupancy checks that no device is used by more than its capacity.
func (p *planChecker) occupancy() {
	for i := range p.plan.Pools {
		pool := p.plan.Pools[i].WithDefaults()
		if total := p.gpus[i]; total > float64(pool.Count)*(1+1e-6) {
			p.Fail(fmt.Sprintf("pools[%d].count", i), document.Whole(pool.Count), "the devices that the stages take together, "+document.FormatFloat(total), "")
		}
		if pool.Sharing == SharingTime {
			continue // a device of the pool may be in the lists of several stages
		}
		load := 0.0
		for g, step := range p.load[i] {
			load += step
			if load > 1+1e-9 {
				p.Fail(fmt.Sprintf("pools[%d]", i), fmt.Sprintf("device %d of %s given to stages %.4g times over", g, pool.Device, load),
					"shares of each device that sum to at most 1", "look at the placements that cover the device")
				break
			}
		}
	}
}
