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
	c.Values(d, d.Format, FormatPlan, rules)
	c.OneOf("kind", d.Kind, PlanKinds()...)
	d.Objective.check(&c)
	for i := range d.Inputs {
		d.Inputs[i].check(&c, fmt.Sprintf("inputs[%d]", i))
	}
	d.Options.Check(&c)
	checkPools(&c, d.Pools)
	p := &planChecker{Checker: &c, plan: d, hasValidTimes: map[*Pipeline]bool{}, pools: map[string]int{}, loadSteps: make([][]float64, len(d.Pools)), devicesByPool: make([]float64, len(d.Pools))}
	for i := range d.Pools {
		p.pools[d.Pools[i].Device] = i
		if n := d.Pools[i].Count; n > 0 && n <= maxCount {
			p.loadSteps[i] = make([]float64, n+1)
		}
	}
	p.checkDeployment()
	p.checkSection()
	p.checkOccupancy()
	c.FailIf(d.Policy.Name == "", "policy.name", "an empty name", "a policy")
	d.checkExecution(&c)
	d.Arrivals.check(&c, "arrivals")
	p.checkCertificate()
	for i := range d.Limits {
		c.FailIf(d.Limits[i].Constraint == "", fmt.Sprintf("limits[%d].what", i), "an empty text", "what limits the plan")
	}
	return c.Err()
}

// checkExecution reports to c execution settings for a device kind that stands twice or is not one of the plan's.
func (d *Plan) checkExecution(c *document.Checker) {
	indexByName := map[string]int{}
	for i := range d.Execution {
		e := &d.Execution[i]
		c.Name(indexByName, i, e.Device, "execution[%d].device", i)
		c.FailIf(!slices.ContainsFunc(d.Pools, func(p Pool) bool { return p.Device == e.Device }), fmt.Sprintf("execution[%d].device", i), document.Quote(e.Device), "a device of the plan's pools")
	}
}

// maxObjective bounds the value of any objective.
const maxObjective = 1e15

// check reports to c an objective whose value, bound and gap contradict each other. Up to rounding, the bound is on
// the better side of the value, and the gap is their distance divided by one of the two. Throughput, accuracy and
// goodput are maximised; all other objectives are minimised.
func (o *Objective) check(c *document.Checker) {
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
	isMaximised := o.Name == "throughput" || o.Name == "accuracy" || o.Name == "goodput"
	switch {
	case document.CloseTo(o.Value, bound):
	case isMaximised && bound < o.Value:
		c.Fail("objective.bound", document.Number(bound), "at least the value, "+document.FormatFloat(o.Value), "a bound is what no plan can exceed")
	case !isMaximised && bound > o.Value:
		c.Fail("objective.bound", document.Number(bound), "at most the value, "+document.FormatFloat(o.Value), "a bound is what no plan can go below")
	}

	// The gap is the distance between them relative to either, within the rounding of both.
	if o.Gap == nil {
		return
	}
	distance := math.Abs(bound - o.Value)
	minGap := distance / max(math.Abs(bound), math.Abs(o.Value), 1e-12)
	maxGap := min(distance/max(min(math.Abs(bound), math.Abs(o.Value)), 1e-12), maxObjective)
	const slack = 2e-6 // for figures that were rounded to six digits
	if g := *o.Gap; !(g >= minGap*(1-slack)-slack && g <= maxGap*(1+slack)+slack) {
		wantedGap := document.FormatFloat(minGap)
		if !document.CloseTo(minGap, maxGap) {
			wantedGap += " to " + document.FormatFloat(maxGap)
		}
		c.Fail("objective.gap", document.Number(g), "what follows from value and bound, "+wantedGap, "")
	}
}

// check reports to c a file of a document's inputs without a role, or without a relative path.
func (in *Input) check(c *document.Checker, fieldPath string) {
	c.FailIf(in.Role == "", fieldPath+".role", "an empty text", "profile, cluster or workload")
	c.FailIf(in.Path == "" || path.IsAbs(in.Path), fieldPath+".path", "the text "+document.Quote(in.Path), "a path relative to the document")
}

// planChecker follows a plan's replicas onto devices.
type planChecker struct {
	*document.Checker
	plan          *Plan
	hasValidTimes map[*Pipeline]bool // pipelines whose latency adds up
	pools         map[string]int
	loadSteps     [][]float64 // the change of the occupied shares from the device before, by pool and physical device
	devicesByPool []float64   // the sum of the stages' gpus, by pool
}

// checkSection reports a plan without the section of its kind, or what is wrong with the section.
func (p *planChecker) checkSection() {
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

// checkDeployment reports what is wrong with deployed models, by the rules that all kinds of plans have in common.
func (p *planChecker) checkDeployment() {
	indexByKey := map[ModelClass]int{}
	for i := range p.plan.Deployment {
		m := &p.plan.Deployment[i]
		fieldPath := fmt.Sprintf("deployment[%d]", i)
		checkKey(p.Checker, indexByKey, i, m.Key(), fieldPath)
		p.checkClass(m, fieldPath)
		checkBucket(p.Checker, m.Bucket, m.Model, fieldPath)
		checkTensors(p.Checker, m.Inputs, fieldPath+".inputs")
		checkTensors(p.Checker, m.Outputs, fieldPath+".outputs")
		checkConstants(p.Checker, m.Constants, fieldPath+".constants")
		checkOperators(p.Checker, m.Operators, fieldPath+".operators")
		for k := range m.Pipelines {
			p.checkPipeline(m, &m.Pipelines[k], fmt.Sprintf("%s.pipelines[%d]", fieldPath, k))
		}
	}
}

// checkServed reports what is wrong with the SLO and the margin that are promised for one model, class or application.
func (p *planChecker) checkServed(m *Served, fieldPath string) {
	if m.SLOUS <= 0 {
		p.Fail(fieldPath+".slo_us", "the number "+m.SLOUS.String(), "a positive latency", "")
	} else if m.MarginUS >= m.SLOUS {
		p.Fail(fieldPath+".margin_us", "the number "+m.MarginUS.String(), "less than the SLO, "+m.SLOUS.String(), "")
	}
}

// checkLimits reports a pipeline that breaks the SLO of the promise m for its model, or the option for the largest
// batch.
func (p *planChecker) checkLimits(l *Pipeline, m *Served, fieldPath string) {
	needed, maxBatch := l.LatencyUS+l.BatchBuildUS+m.MarginUS, p.plan.Options.WholeNumber("max-batch")
	isSlow := m.SLOUS > 0 && p.hasValidTimes[l] && needed > m.SLOUS+document.Micros(time.Microsecond)
	p.FailIf(isSlow, fieldPath+".latency_us", "latency, batch building and margin of "+needed.String()+" us", "at most the SLO, "+m.SLOUS.String())
	p.FailIf(maxBatch > 0 && l.Batch > maxBatch, fieldPath+".batch", l.Batch, "at most options.max_batch, %d", maxBatch)
}

// checkClass reports classes of one model that have another file or number of blocks than the model's first class.
func (p *planChecker) checkClass(m *Deployed, fieldPath string) {
	if m.Class == "" {
		return
	}
	firstClass := &p.plan.Deployment[slices.IndexFunc(p.plan.Deployment, func(o Deployed) bool { return o.Model == m.Model })]
	p.FailIf(m.SHA256 != firstClass.SHA256, fieldPath+".sha256", "the text "+document.Quote(m.SHA256), "that of the model's other classes, "+document.Quote(firstClass.SHA256))
	p.FailIf(m.NumBlocks != firstClass.NumBlocks, fieldPath+".num_blocks", m.NumBlocks, "that of the model's other classes, %d", firstClass.NumBlocks)
}

// checkPipeline reports what is wrong with a pipeline of model m: stages, each on a device kind of its own, that run
// consecutive ranges of the model's blocks. It marks the pipeline in hasValidTimes if its times can be relied on.
// Each stage runs its range on as many replicas as it has; tensors go from stage to stage. m is the deployed model.
func (p *planChecker) checkPipeline(m *Deployed, l *Pipeline, fieldPath string) {
	if p.FailIf(l.Batch < 1, fieldPath+".batch", l.Batch, "1 or more") {
		return
	}
	p.HintIf(!(l.RPS > 0), fieldPath+".rps", l.RPS, "a positive rate", "leave out pipelines that carry nothing")
	if p.FailIf(len(l.Stages) == 0, fieldPath+".stages", "an empty list", "at least one stage") {
		return
	}

	// Check the stages: each begins where the one before ends. Sum up their times at the planned batch size.
	nextBlock, latency, validTimes := 0, time.Duration(0), true
	for i := range l.Stages {
		s := &l.Stages[i]
		stagePath := fmt.Sprintf("%s.stages[%d]", fieldPath, i)
		if s.Blocks[0] != nextBlock || s.Blocks[1] <= s.Blocks[0] {
			p.Fail(stagePath+".blocks", fmt.Sprintf("the range [%d, %d)", s.Blocks[0], s.Blocks[1]),
				fmt.Sprintf("a range that starts at %d, where the stage before ends, and holds a block", nextBlock), "")
		}
		nextBlock = s.Blocks[1]
		validTimes = p.checkStage(l, s, i == len(l.Stages)-1, stagePath) && validTimes
		if len(s.InferUS) == l.Batch {
			latency += s.InferUS[l.Batch-1].D()
		}
		if s.Cut != nil && len(s.Cut.TransferUS) == l.Batch {
			latency += s.Cut.TransferUS[l.Batch-1].D()
		}
	}

	// Check that they cover the model, and that the times sum to the pipeline's latency.
	p.FailIf(nextBlock != m.NumBlocks, fmt.Sprintf("%s.stages[%d].blocks", fieldPath, len(l.Stages)-1), fmt.Sprintf("an end at block %d", nextBlock), "%d, the number of blocks of the model", m.NumBlocks)
	if !validTimes {
		return // a sum over wrong times would only repeat their errors
	}
	p.FailIf((l.LatencyUS.D()-latency).Abs() > time.Microsecond, fieldPath+".latency_us", l.LatencyUS, "the sum of inference and transfer at the planned batch, "+document.Micros(latency).String())
	p.hasValidTimes[l] = true
}

// checkStage reports what is wrong with one stage of pipeline l: a range of the model's blocks that replicas run on a
// kind of device, each on a share 1/v of one. Its times are in microseconds, one per batch size up to l.Batch. It
// adds the replicas to the load of their devices (loadSteps) and to the devices that the pool needs (devicesByPool).
// It returns whether all times are there, so that they can be summed. isLast is set for the pipeline's last stage,
// which has no cut to a next one.
func (p *planChecker) checkStage(l *Pipeline, s *Stage, isLast bool, fieldPath string) (validTimes bool) {
	// Check the times.
	validTimes = p.checkTimes(s.InferUS, l.Batch, fieldPath+".infer_us", 1)
	if s.MeanUS != nil {
		validTimes = p.checkTimes(s.MeanUS, l.Batch, fieldPath+".mean_us", 1) && validTimes
	}
	if s.InferRangeUS != nil && validTimes {
		validTimes = p.checkIntervals(s, l.Batch, fieldPath+".infer_range_us")
	}
	blocks := s.Blocks[1] - s.Blocks[0]
	p.FailIf(s.BlockUS != nil && len(s.BlockUS) != blocks, fieldPath+".block_us", fmt.Sprintf("%d times", len(s.BlockUS)), "%d, one per block of the stage", blocks)

	// Check the cut: every stage but the last has one.
	switch {
	case isLast && s.Cut != nil:
		p.Fail(fieldPath+".cut", "a cut after the last stage", "none: the answer leaves there", "")
	case !isLast && s.Cut == nil:
		p.Fail(fieldPath, "no cut", "the cut to the next stage", "")
		validTimes = false
	case s.Cut != nil:
		validTimes = p.checkTimes(s.Cut.TransferUS, l.Batch, fieldPath+".cut.transfer_us", 0) && validTimes
	}

	// Check replicas, device kind and share.
	if p.FailIf(s.Replicas < 1 || s.Replicas > maxCount*maxShares, fieldPath+".replicas", s.Replicas, "1 or more") {
		return validTimes
	}
	p.FailIf(!(s.GPUs > 0), fieldPath+".gpus", s.GPUs, "a positive number of devices")
	i, ok := p.pools[s.Device]
	if !ok {
		p.Fail(fieldPath+".device", "the device "+document.Quote(s.Device), "a device of the plan's pools", p.didYouMean(s.Device))
		return validTimes
	}
	pool := p.plan.Pools[i].WithDefaults()
	p.devicesByPool[i] += s.GPUs
	if p.FailIf(s.Share < 1 || s.Share > pool.MaxShares, fieldPath+".share", s.Share, "1 to max_shares of the pool, %d", pool.MaxShares) {
		return validTimes
	}

	// Check that the replicas carry the pipeline's rate, and where they are placed.
	if validTimes && l.RPS > 0 {
		p.checkCapacity(l, s, &pool, fieldPath)
	}
	p.checkPlacement(s, i, &pool, fieldPath)
	return validTimes
}

func (p *planChecker) didYouMean(device string) string {
	kinds := document.Map(p.plan.Pools, func(o *Pool) string { return o.Device })
	return cmp.Or(document.DidYouMean(device, kinds), "the pools are "+strings.Join(kinds, ", "))
}

// checkIntervals reports intervals of a stage's times, one per batch size, that do not hold the time itself. It
// returns false then.
func (p *planChecker) checkIntervals(s *Stage, batch int, fieldPath string) bool {
	if p.FailIf(len(s.InferRangeUS) != batch, fieldPath, fmt.Sprintf("%d intervals", len(s.InferRangeUS)), "%d, one for each batch size up to the planned one", batch) {
		return false
	}
	for b, r := range s.InferRangeUS {
		if inferTime := s.InferUS[b]; r[0] > inferTime || inferTime > r[1] {
			p.Failf(fmt.Sprintf("%s to %s", r[0], r[1]), fmt.Sprintf("an interval that holds infer_us[%d], %s", b, inferTime), "", "%s[%d]", fieldPath, b)
			return false
		}
	}
	return true
}

// checkTimes reports a list of times that does not have one of at least minTime for each batch size. It returns false
// then. batch is the planned batch size.
func (p *planChecker) checkTimes(list []document.Micros, batch int, fieldPath string, minTime document.Micros) bool {
	if p.FailIf(len(list) != batch, fieldPath, fmt.Sprintf("%d times", len(list)), "%d, one for each batch size up to the planned one", batch) {
		return false
	}
	if i := slices.IndexFunc(list, func(m document.Micros) bool { return m < minTime }); i >= 0 {
		p.FailIf(minTime > 0 && list[i] == 0, fmt.Sprintf("%s[%d]", fieldPath, i), "the number 0", "a positive latency")
		return false // negative ones are found with all numbers
	}
	return true
}

// checkCertificate reports what is wrong with a plan's certificate: the rates and attainments that simulated runs
// confirmed. A plan without one is valid.
func (p *planChecker) checkCertificate() {
	d := p.plan.Certificate
	if d == nil {
		return
	}
	for i := range d.Models {
		m := &d.Models[i]
		fieldPath := fmt.Sprintf("certified.models[%d]", i)
		p.FailIf(!slices.ContainsFunc(p.plan.ServedModels(), func(o Served) bool { return o.Key() == m.Key() }), fieldPath+".model", "the model "+document.Quote(m.Key().String()), "a model of the plan")
		p.Interval(fieldPath+".attainment_interval", m.AttainmentCI)
	}
}

// checkCapacity reports a stage that carries less than its pipeline, or promises more than its replicas can do in
// full batches. On devices that are shared in time, replicas count only for their part of the time (GPUs).
func (p *planChecker) checkCapacity(l *Pipeline, s *Stage, pool *Pool, fieldPath string) {
	p.FailIf(s.RPS < l.RPS && !document.CloseTo(s.RPS, l.RPS), fieldPath+".rps", s.RPS, "at least the pipeline's rate, "+document.FormatFloat(l.RPS))
	servers := float64(s.Replicas)
	if pool.Sharing == SharingTime {
		servers = min(servers, s.GPUs)
	}
	maxRate := servers * float64(l.Batch) / p.plan.RunUS(l, s).D().Seconds()
	p.FailIf(s.RPS > maxRate && !document.CloseTo(s.RPS, maxRate), fieldPath+".rps", s.RPS, "at most what its replicas can do, "+document.FormatFloat(maxRate))
}

// checkPlacement reports a wrong placement of a stage's replicas, and adds them to the load of the devices of their
// pool. pool is the index of the pool, and info the pool itself with its defaults.
func (p *planChecker) checkPlacement(s *Stage, pool int, info *Pool, fieldPath string) {
	sum := 0
	for k := range s.Placement {
		g := &s.Placement[k]
		entryPath := fmt.Sprintf("%s.placement[%d]", fieldPath, k)
		if p.FailIf(g.Replicas < 1 || g.PerDevice < 1 || g.Replicas > maxCount*maxShares, entryPath, fmt.Sprintf("%d replicas, %d per device", g.Replicas, g.PerDevice), "1 or more of each") {
			return
		}
		sum += g.Replicas
		if p.FailIf(g.PerDevice > s.Share, entryPath+".per_device", g.PerDevice, "at most %d shares of 1/%d on a device", s.Share, s.Share) {
			return
		}
		devices := (g.Replicas + g.PerDevice - 1) / g.PerDevice
		if p.FailIf(g.FirstDevice < 0 || g.FirstDevice > info.Count-devices, entryPath, fmt.Sprintf("devices %d to %d", g.FirstDevice, g.FirstDevice+devices-1), "devices 0 to %d, which the pool has", info.Count-1) {
			return
		}
		if p.loadSteps[pool] == nil {
			continue // the count itself is wrong
		}

		// Add the load of full devices, and of the last one, which may have fewer replicas.
		fullDevices, remainder := g.Replicas/g.PerDevice, g.Replicas%g.PerDevice
		p.addLoad(pool, g.FirstDevice, g.FirstDevice+fullDevices, float64(g.PerDevice)/float64(s.Share))
		if remainder > 0 {
			p.addLoad(pool, g.FirstDevice+fullDevices, g.FirstDevice+fullDevices+1, float64(remainder)/float64(s.Share))
		}
	}
	p.FailIf(sum != s.Replicas, fieldPath+".placement", fmt.Sprintf("%d replicas placed", sum), "replicas, %d", s.Replicas)
}

// addLoad adds load to the devices [firstDevice, endDevice) of a pool; load holds differences
// between neighbours until occupancy sums them.
func (p *planChecker) addLoad(pool, firstDevice, endDevice int, load float64) {
	p.loadSteps[pool][firstDevice] += load
	p.loadSteps[pool][endDevice] -= load
}

// checkOccupancy reports pools and devices that stages use by more than they have. loadSteps has, by device, how much
// the load changes from the device before. devicesByPool has the number of devices that all stages take of a pool
// together.
func (p *planChecker) checkOccupancy() {
	for i := range p.plan.Pools {
		pool := p.plan.Pools[i].WithDefaults()
		total := p.devicesByPool[i]
		p.FailIf(total > float64(pool.Count)*(1+1e-6), fmt.Sprintf("pools[%d].count", i), pool.Count, "the devices that the stages take together, "+document.FormatFloat(total))
		if pool.Sharing == SharingTime {
			continue // a device of the pool may be in the lists of several stages
		}
		load := 0.0
		for g, step := range p.loadSteps[i] {
			load += step
			if load > 1+1e-9 {
				p.Fail(fmt.Sprintf("pools[%d]", i), fmt.Sprintf("device %d of %s given to stages %.4g times over", g, pool.Device, load),
					"shares of each device that sum to at most 1", "look at the placements that cover the device")
				break
			}
		}
	}
}
