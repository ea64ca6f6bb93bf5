package check

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
)

// gears is a gear plan evaluated anew: what its own figures give, and what they
// give with the latencies and records of today.
type gears struct {
	devices [][]replica         // by model of the plan
	planned [][][]time.Duration // by model and stage of its pipelines, [b-1]
	today   [][][]time.Duration // as planned where the profile has none
	list    []gearToday
	moved   bool // latencies, records or devices are not those of the plan
	slower  bool // latencies alone
}

// replica is where a model stands: a chain of one device per stage of a pipeline.
type replica struct {
	pipeline int
	on       []place
}

// place is a device that runs a stage, one of all of its model's.
type place struct {
	stage, device int
	kind          string
}

// gearToday is one gear. Shares are of the samples planned on.
type gearToday struct {
	load, loadToday         float64 // of the busiest device at the upper edge
	accuracy, accuracyToday float64
}

// gearPlan validates a gear plan.
func (c *checker) gearPlan() *gears {
	p := c.plan
	if p.Gear == nil || len(p.Gear.Gears) == 0 || len(p.Gear.Models) != len(p.Models) {
		c.fail("gears", "gear", "no gears for the models", "gears, and the records of every model", "the plan answers nothing")
		return nil
	}
	sound := true
	for i := range p.Models {
		sound = c.structure(i) && sound
		for n := range p.Models[i].Pipelines {
			chains := p.Models[i].Pipelines[n].Chains()
			for k, s := range p.Models[i].Pipelines[n].Stages {
				if s.Replicas < 1 || chains%s.Replicas != 0 {
					c.fail("pipelines", fmt.Sprintf("models[%d].pipelines[%d].stages[%d].replicas", i, n, k), fmt.Sprint(s.Replicas), fmt.Sprintf("a divisor of %d", chains), "a replica of a model of a cascade is a chain of one device per stage")
					sound = false
				}
			}
		}
	}
	c.pools()
	if !sound {
		return nil
	}
	g := &gears{}
	if !c.family(g) || !c.deployed(g) {
		return nil
	}
	own, ok := c.ownRecords()
	if !ok {
		return nil
	}
	today := c.recordsToday(g, own)
	for i := range p.Gear.Gears {
		c.oneGear(g, i, own, today)
	}
	c.gearLate()
	c.gearObjective(g)
	c.gearBounds(g)
	return g
}

// family checks the plan's models, target and ranges against the workload.
func (c *checker) family(g *gears) bool {
	p := c.plan.Gear
	if c.workload == nil {
		return true
	}
	w := c.workload.Cascade
	if w == nil {
		c.fail("model", "gear", "a cascade", "one in the workload", "the workload no longer asks for a cascade")
		return false
	}
	at := 0
	for i := range p.Models {
		k := slices.Index(w.Family[at:], p.Models[i].Model)
		if k < 0 {
			c.fail("model", fmt.Sprintf("gear.models[%d].model", i), strconv.Quote(p.Models[i].Model), "a model of the workload's family, in its order", "the workload no longer has %s there", p.Models[i].Model)
			return false
		}
		at += k + 1
	}
	slo := w.SLO.Latency
	if s, err := formats.ParseSLO(c.plan.Options.SLO); err == nil && c.plan.Options.SLO != "" {
		slo = s
	}
	if !slo.IsZero() {
		last := c.fastestOf(w.Family[len(w.Family)-1])
		if slo.Times > 0 && last == nil {
			c.fail("slo", "gear.slo_us", p.SLOUS.String(), "a measurement of "+w.Family[len(w.Family)-1], "the SLO is a multiple of its latency, which the profile no longer has")
		} else {
			var one time.Duration
			if last != nil {
				one = last[0]
			}
			if got := slo.Of(one); got != p.SLOUS.D() {
				c.warn("slo", "gear.slo_us", p.SLOUS.String(), formats.Micros(got).String(), "the SLO of the cascade has changed")
				for i := range p.Gears {
					if p.Gears[i].LatencyUS.D() > got && p.Over != formats.OverRequests {
						c.fail("slo", fmt.Sprintf("gear.gears[%d].latency_us", i), p.Gears[i].LatencyUS.String(), "at most "+formats.Micros(got).String(), "the gear was planned for a longer SLO")
					}
				}
			}
		}
	}
	if w.SLO.Percentile != "" && w.SLO.Percentile != p.Percentile {
		c.warn("percentile", "gear.percentile", p.Percentile, w.SLO.Percentile, "the percentile of the cascade has changed")
	}
	c.ranges(&w.QPS)
	return true
}

// ranges checks the upper edges and weights, but for measured rates: these are
// read when the gate plans again.
func (c *checker) ranges(q *formats.CascadeQPS) {
	p := c.plan.Gear
	if q.Max > 0 && math.Abs(q.Max-p.MaxQPS) > rounding*q.Max {
		c.warn("qps", "gear.max_qps", fmt.Sprint(p.MaxQPS), fmt.Sprint(q.Max), "the workload's highest rate has changed")
	}
	n := max(q.Ranges, len(q.Histogram))
	if q.Measured != "" {
		return
	}
	if n != len(p.Gears) {
		c.warn("qps", "gear.gears", fmt.Sprint(len(p.Gears)), fmt.Sprint(n), "the workload's number of ranges has changed")
		return
	}
	weights := make([]float64, n)
	total := 0.0
	for i := range weights {
		switch {
		case q.Histogram != nil:
			weights[i] = q.Histogram[i]
		case q.Distribution == "zipf":
			weights[i] = 1 / float64(i+1)
		default:
			weights[i] = 1
		}
		total += weights[i]
	}
	for i := range weights {
		if math.Abs(weights[i]/total-p.Gears[i].Weight) > rounding {
			c.warn("qps", fmt.Sprintf("gear.gears[%d].weight", i), fmt.Sprint(p.Gears[i].Weight), fmt.Sprint(weights[i]/total), "the workload's distribution of rates has changed")
			return
		}
	}
}

// kinds are the kinds of the plan's devices.
func (c *checker) kinds() []string {
	var out []string
	for i := range c.plan.Pools {
		out = append(out, c.plan.Pools[i].Device)
	}
	return out
}

// fastestOf are a model's latencies on the kind that is fastest at each batch.
func (c *checker) fastestOf(model string) []time.Duration {
	var out []time.Duration
	for _, kind := range c.kinds() {
		for b, t := range c.timesOf(model, kind) {
			if b == len(out) {
				out = append(out, t)
			}
			out[b] = min(out[b], t)
		}
	}
	return out
}

// timesOf are a model's latencies today on a kind of devices, by batch, up to the
// largest that the plan's options allow; nil where there are none.
func (c *checker) timesOf(model, device string) []time.Duration {
	pm := c.profileModel(model)
	if pm == nil {
		return nil
	}
	most := 0
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; ms.Device == device && ms.Share <= 1 {
			most = max(most, ms.Batch)
		}
	}
	if limit := c.plan.Options.MaxBatch; limit > 0 {
		most = min(most, limit)
	}
	var out []time.Duration
	for b := 1; b <= most; b++ {
		ms := measured(pm, device, 1, b)
		if ms.Whole != nil {
			out = append(out, ms.Whole.WallUS.D())
			continue
		}
		took := time.Duration(0)
		for k := range ms.Blocks {
			took += ms.Blocks[k].WallUS.D()
		}
		out = append(out, took)
	}
	return out
}

// deployed reads where the models run and what they take, and checks memory
// device by device.
func (c *checker) deployed(g *gears) bool {
	memory := map[string]map[int]int64{}
	ok := true
	for i := range c.plan.Models {
		var devices []replica
		var planned, today [][]time.Duration
		for n := range c.plan.Models[i].Pipelines {
			chains := make([]replica, c.plan.Models[i].Pipelines[n].Chains())
			for k := range c.plan.Models[i].Pipelines[n].Stages {
				on, was, is, fine := c.stageOn(g, i, n, k, memory)
				for r := range chains {
					if each := len(chains) / max(1, len(on)); r/max(1, each) < len(on) {
						at := on[r/max(1, each)]
						at.stage = len(planned)
						chains[r].pipeline, chains[r].on = n, append(chains[r].on, at)
					}
				}
				planned, today = append(planned, was), append(today, is)
				ok = ok && fine
			}
			devices = append(devices, chains...)
		}
		g.devices, g.planned, g.today = append(g.devices, devices), append(g.planned, planned), append(g.today, today)
	}
	for i := range c.cluster.Pools {
		pool := &c.cluster.Pools[i]
		for d := range pool.Count {
			if used := memory[pool.Device][d]; pool.Memory > 0 && used > int64(pool.Memory) {
				c.fail("memory", "models", fmt.Sprintf("%d bytes on device %d", used, d), fmt.Sprintf("at most %d", int64(pool.Memory)),
					"the models placed on %s number %d do not fit its memory together", pool.Device, d)
			}
		}
	}
	for i := range c.plan.Pools {
		if now := c.pool(c.plan.Pools[i].Device); now == nil || now.Count != c.plan.Pools[i].Count || now.Memory != c.plan.Pools[i].Memory {
			g.moved = true
		}
	}
	return ok
}

// stageOn reads one stage of a pipeline of a model: where it stands, its latencies
// as planned and as they are today.
func (c *checker) stageOn(g *gears, model, n, stage int, memory map[string]map[int]int64) (devices []place, planned, today []time.Duration, ok bool) {
	m := &c.plan.Models[model]
	pl := &m.Pipelines[n]
	s := &pl.Stages[stage]
	path := fmt.Sprintf("models[%d].pipelines[%d].stages[%d]", model, n, stage)
	for _, at := range s.Placement {
		for k := range at.Replicas {
			devices = append(devices, place{device: at.First + k/max(1, at.PerDevice), kind: s.Device})
		}
	}
	if len(pl.Stages) > 1 { // chains take devices in the order of their numbers
		slices.SortStableFunc(devices, func(a, b place) int { return cmp.Compare(a.device, b.device) })
	}
	pool := c.pool(s.Device)
	count := 0
	if pool != nil {
		count = pool.Count
	}
	ok = true
	for _, r := range devices {
		if d := r.device; pool != nil && (d < 0 || d >= count) {
			c.fail("placement", path+".placement", fmt.Sprintf("device %d", d), fmt.Sprintf("0 to %d", count-1), "%s number %d is not there", s.Device, d)
			ok = false
			break
		}
		if memory[s.Device] == nil {
			memory[s.Device] = map[int]int64{}
		}
		memory[s.Device][r.device] += c.memory(m, pl, s)
	}
	if len(devices) != s.Replicas {
		c.fail("placement", path+".placement", fmt.Sprintf("%d replicas", len(devices)), fmt.Sprint(s.Replicas), "the placement does not hold the model's replicas")
		ok = false
	}
	for _, t := range s.InferUS {
		planned = append(planned, t.D())
	}
	if today = c.timesOf(m.Model, s.Device); len(pl.Stages) > 1 {
		today = c.partOf(m, s, len(today))
		if now := c.today(m, pl); s.Cut != nil && now.known {
			c.cut(m, pl, s, c.profileModel(m.Model), &now.stages[stage], path)
		}
	}
	if c.profileModel(m.Model) != nil && len(today) < pl.Batch {
		c.fail("measurement", path, fmt.Sprintf("%s, batch %d", s.Device, pl.Batch), "a measurement of it", "the profile does not say what %s costs there", m.Model)
	}
	if len(today) < pl.Batch {
		today = planned
	}
	today = today[:pl.Batch]
	for b := range planned {
		if moved(planned[b], today[b]) {
			g.moved, g.slower = true, true
			c.warn("latency", fmt.Sprintf("%s.infer_us[%d]", path, b), s.InferUS[b].String(), formats.Micros(today[b]).String(),
				"%s on %s at batch %d takes %s today", m.Model, s.Device, b+1, change(planned[b], today[b]))
			break
		}
	}
	return devices, planned, today, ok
}

// partOf are today's latencies of a part of a model, up to a batch.
func (c *checker) partOf(m *formats.PlanModel, s *formats.Stage, most int) []time.Duration {
	pm := c.profileModel(m.Model)
	var out []time.Duration
	for b := 1; b <= most; b++ {
		ms := measured(pm, s.Device, 1, b)
		if ms == nil || len(ms.Blocks) < s.Blocks[1] {
			break
		}
		out = append(out, inference(ms, s.Blocks[0], s.Blocks[1]))
	}
	return out
}

// chained says whether a model of the plan runs in several stages.
func (c *checker) chained() bool {
	for i := range c.plan.Models {
		if slices.ContainsFunc(c.plan.Models[i].Pipelines, func(l formats.Pipeline) bool { return len(l.Stages) > 1 }) {
			return true
		}
	}
	return false
}

// answers are levels and right answers of the models of a plan, as bit sets
// over samples: reaches[m][l] holds the samples at level l or above.
type answers struct {
	samples int
	reaches [][]set
	right   []set
}

type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// without is a less b, and with how many of both, in out.
func without(out, a, b set) {
	for i := range a {
		out[i] = a[i] &^ b[i]
	}
}

func common(a, b set) int {
	n := 0
	for i := range a {
		n += bits.OnesCount64(a[i] & b[i])
	}
	return n
}

// ownRecords are the records inside the plan.
func (c *checker) ownRecords() (*answers, bool) {
	p := c.plan.Gear
	a := &answers{samples: p.Samples}
	for i := range p.Models {
		m := &p.Models[i]
		if len(m.Levels) != p.Samples || len(m.Correct) != p.Samples {
			c.fail("records", fmt.Sprintf("gear.models[%d]", i), fmt.Sprintf("%d levels, %d answers", len(m.Levels), len(m.Correct)), fmt.Sprint(p.Samples), "one of each per sample is needed")
			return nil, false
		}
		a.addModel(len(m.Thresholds), func(i int) int { return strings.IndexByte(formats.GearLevels, m.Levels[i]) }, m.Correct)
	}
	return a, true
}

func (a *answers) addModel(thresholds int, level func(int) int, correct string) {
	reaches := make([]set, thresholds+1)
	for l := range reaches {
		reaches[l] = newSet(a.samples)
	}
	right := newSet(a.samples)
	for i := range a.samples {
		for l := 0; l <= min(level(i), thresholds); l++ {
			reaches[l].add(i)
		}
		if correct[i] == '1' {
			right.add(i)
		}
	}
	a.reaches, a.right = append(a.reaches, reaches), append(a.right, right)
}

// records finds today's records of models; nil where there are none.
func (c *checker) records(models []string) *formats.Records {
	for i := range c.profile.Records {
		r := &c.profile.Records[i]
		if !slices.ContainsFunc(models, func(n string) bool { return recordsOf(r, n) == nil }) {
			return r
		}
	}
	return nil
}

func recordsOf(r *formats.Records, model string) *formats.ModelRecords {
	for i := range r.Models {
		if r.Models[i].Model == model {
			return &r.Models[i]
		}
	}
	return nil
}

// recordsToday applies the plan's thresholds to today's records and compares
// them with those that the plan holds.
func (c *checker) recordsToday(g *gears, own *answers) *answers {
	p := c.plan.Gear
	var names []string
	for i := range p.Models {
		names = append(names, p.Models[i].Model)
	}
	r := c.records(names)
	if r == nil {
		c.fail("records", "gear.models", list(names), "records of all of them on the same samples", "the profile no longer has the answers that the cascades were chosen on")
		g.moved = true
		return own
	}
	a := &answers{samples: r.Planning}
	for i, n := range names {
		m := recordsOf(r, n)
		t := p.Models[i].Thresholds
		a.addModel(len(t), func(i int) int {
			l := 0
			for l < len(t) && t[l] <= m.Certainty[i] {
				l++
			}
			return l
		}, m.Correct)
	}
	if a.samples != own.samples || !slices.EqualFunc(a.right, own.right, slices.Equal[set]) ||
		!slices.EqualFunc(a.reaches, own.reaches, func(x, y []set) bool { return slices.EqualFunc(x, y, slices.Equal[set]) }) {
		g.moved = true
		c.warn("records", "gear.models", fmt.Sprintf("%d samples", own.samples), fmt.Sprintf("%d samples of the profile", a.samples), "the profile's records are others than the plan was made from")
	}
	return a
}

func list(names []string) string { return strings.Join(names, ", ") }

// replay sends all samples through a cascade: the share that comes to each
// stage, and that is answered right.
func (a *answers) replay(models, levels []int) (fractions []float64, accuracy float64) {
	left, next := newSet(a.samples), newSet(a.samples)
	for i := range a.samples {
		left.add(i)
	}
	right := 0
	for k, m := range models {
		fractions = append(fractions, float64(left.size())/float64(a.samples))
		if k == len(models)-1 {
			right += common(left, a.right[m])
			break
		}
		without(next, left, a.reaches[m][levels[k]])
		right += common(left, a.right[m]) - common(next, a.right[m])
		left, next = next, left
	}
	return fractions, float64(right) / float64(a.samples)
}

// oneGear recomputes a gear.
func (c *checker) oneGear(g *gears, i int, own, today *answers) {
	r := &c.plan.Gear.Gears[i]
	at := fmt.Sprintf("gear.gears[%d]", i)
	var models, levels []int
	for k := range r.Stages {
		m := slices.IndexFunc(c.plan.Gear.Models, func(m formats.GearModel) bool { return m.Model == r.Stages[k].Model })
		if m < 0 || r.Stages[k].Level < 0 || r.Stages[k].Level > len(c.plan.Gear.Models[m].Thresholds) || len(r.Stages[k].Split) != len(g.devices[m]) {
			c.fail("gears", fmt.Sprintf("%s.stages[%d]", at, k), fmt.Sprintf("%s, level %d, %d shares", r.Stages[k].Model, r.Stages[k].Level, len(r.Stages[k].Split)),
				"a model of the plan, one of its levels, a share for each of its devices", "a stage that cannot be")
			g.list = append(g.list, gearToday{})
			return
		}
		models, levels = append(models, m), append(levels, r.Stages[k].Level)
	}
	var out gearToday
	fractions, accuracy := own.replay(models, levels)
	out.accuracy = accuracy
	for k := range fractions {
		if math.Abs(fractions[k]-r.Stages[k].Fraction) > rounding {
			c.fail("fraction", fmt.Sprintf("%s.stages[%d].fraction", at, k), fmt.Sprint(r.Stages[k].Fraction), fmt.Sprint(fractions[k]), "the plan's records send another share of the samples to %s", r.Stages[k].Model)
		}
	}
	if math.Abs(accuracy-r.Accuracy) > rounding {
		c.fail("accuracy", at+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(accuracy), "the plan's records give the gear another accuracy")
	}
	fractionsToday, accuracyToday := fractions, accuracy
	if today != own {
		fractionsToday, accuracyToday = today.replay(models, levels)
	}
	out.accuracyToday = accuracyToday
	if math.Abs(accuracyToday-accuracy) > rounding {
		c.warn("accuracy", at+".accuracy", fmt.Sprint(r.Accuracy), fmt.Sprint(accuracyToday), "today's records give the gear another accuracy")
	}
	out.load = g.load(c.plan, r, models, fractions, g.planned)
	out.loadToday = g.load(c.plan, r, models, fractionsToday, g.today)
	switch {
	case math.Abs(min(1, out.load)-r.Utilisation) > rounding:
		c.fail("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprint(out.load), "at %.6g requests per second the busiest device has another load", r.ToQPS)
	case out.loadToday > 1+rounding:
		c.fail("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", out.loadToday), "the devices no longer hold %.6g requests per second of this gear", r.ToQPS)
	case math.Abs(out.loadToday-out.load) > rounding:
		c.warn("utilisation", at+".utilisation", fmt.Sprint(r.Utilisation), fmt.Sprintf("%.4g today", out.loadToday), "the load of the busiest device has moved")
	}
	if r.LatencyUS > c.plan.Gear.SLOUS && c.plan.Gear.Over != formats.OverRequests {
		c.fail("slo", at+".latency_us", r.LatencyUS.String(), "at most "+c.plan.Gear.SLOUS.String(), "the gear was planned past the SLO")
	}
	g.list = append(g.list, out)
}

// load is the share of the time that the busiest device works at the gear's
// upper edge, in full batches.
func (g *gears) load(p *formats.Plan, r *formats.Gear, models []int, fractions []float64, times [][][]time.Duration) float64 {
	type device struct {
		kind string
		n    int
	}
	loads := map[device]float64{}
	most := 0.0
	for k, m := range models {
		for i, on := range g.devices[m] {
			batch := p.Models[m].Pipelines[on.pipeline].Batch
			for _, at := range on.on {
				per := times[m][at.stage][batch-1].Seconds() / float64(batch)
				d := device{at.kind, at.device}
				loads[d] += r.ToQPS * fractions[k] * r.Stages[k].Split[i] * per
				most = max(most, loads[d])
			}
		}
	}
	return most
}

// gearObjective checks the plan's value against its gears.
func (c *checker) gearObjective(g *gears) {
	o, p := &c.plan.Objective, c.plan.Gear
	accuracy, bound, slowest := 0.0, 0.0, formats.Micros(0)
	for i := range p.Gears {
		r := &p.Gears[i]
		accuracy += r.Weight * r.Accuracy
		bound += r.Weight * r.Bound
		slowest = max(slowest, r.LatencyUS)
		if r.Accuracy > r.Bound+1e-9 {
			c.fail("bound", fmt.Sprintf("gear.gears[%d].bound", i), fmt.Sprint(r.Bound), fmt.Sprintf("at least %v", r.Accuracy), "the gear's accuracy is above its own bound")
		}
	}
	if p.Accuracy > 0 && accuracy < p.Accuracy-rounding {
		c.fail("accuracy", "gear.accuracy_slo", fmt.Sprint(p.Accuracy), fmt.Sprintf("at most %.6g", accuracy), "the gears' accuracies and weights do not reach the accuracy asked for")
	}
	value := o.Value
	switch o.Name {
	case "accuracy":
		value = accuracy
		if o.Bound != nil && math.Abs(bound-*o.Bound) > rounding {
			c.fail("objective", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprint(bound), "the gears' bounds and weights do not give this bound")
		}
	case "latency":
		value = slowest.D().Seconds() * 1e3
	default: // devices, or what they cost
		n := c.gearDevices()
		if n < 1 || math.Abs(n-math.Round(n)) > rounding {
			c.fail("objective", "objective.value", fmt.Sprint(o.Value), "a whole number of devices", "the objective is the number of devices, or that times their price or power")
			return
		}
		for m, devices := range g.devices {
			last := 0
			for _, on := range devices {
				for _, at := range on.on {
					last = max(last, at.device)
				}
			}
			if float64(last) > n-1+rounding {
				c.fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprintf("device %d as well", last), "%s stands on more devices than the objective counts", c.plan.Models[m].Model)
				return
			}
		}
	}
	if math.Abs(value-o.Value) > rounding*max(1, value) {
		c.fail("objective", "objective.value", fmt.Sprint(o.Value), fmt.Sprint(value), "the gears do not give this objective")
	}
}

// gearDevices is the number of devices that the plan was made for: all of the
// pool, but where they were to be few.
func (c *checker) gearDevices() float64 {
	return c.devicesAt(c.plan.Objective.Value)
}

func (c *checker) devicesAt(value float64) float64 {
	pool := &c.plan.Pools[0]
	switch c.plan.Objective.Name {
	case "gpus":
		return value
	case "cost":
		return value / pool.USDPerHour
	case "power":
		return value / pool.Watts
	}
	return float64(pool.Count)
}

// gearLate sums the lateness of the gears of a plan whose SLO is over all
// requests.
func (c *checker) gearLate() {
	g := c.plan.Gear
	if g.Over != formats.OverRequests {
		return
	}
	percentile, err := formats.ParsePercentile(g.Percentile)
	if err != nil {
		return // named already
	}
	late := 0.0
	for i := range g.Gears {
		late += g.Gears[i].Weight * g.Gears[i].Late
	}
	if late > 1-percentile+rounding {
		c.fail("slo", "gear.gears", fmt.Sprintf("%.4g of the requests late", late), fmt.Sprintf("at most %.4g", 1-percentile), "the gears' lateness and weights do not keep the SLO over all requests")
	}
}

// maxCascades limits the enumeration that the bounds are recomputed from.
const maxCascades = 5_000_000

// gearBounds recomputes what no cascades over the same thresholds exceed: the
// concave envelope of accuracy over cost, which memory does not lower. On several
// kinds of devices the bound lies between what each kind reaches alone, and what
// all devices would reach as if each model ran where it is fastest. From the
// plan alone, models that no gear asks are not known; then a bound can only be
// too low.
func (c *checker) gearBounds(g *gears) {
	p, o := c.plan.Gear, &c.plan.Objective
	kinds := c.kinds()
	fewest := o.Name != "accuracy" && o.Name != "latency"
	if len(kinds) == 0 || len(kinds) > 1 && o.Name != "accuracy" {
		return
	}
	devices := 0.0
	var counts []float64
	var alone []hull
	for _, kind := range kinds {
		pool := c.pool(kind)
		e := c.envelope(p.SLOUS.D(), false, kind)
		if pool == nil || e == nil && len(kinds) == 1 {
			return
		}
		n := float64(pool.Count)
		if fewest {
			n = math.Round(c.gearDevices())
		}
		devices += n
		counts, alone = append(counts, n), append(alone, e)
	}
	e, limited := alone[0], c.workload != nil && c.workload.Cascade != nil
	if parts := c.inParts(); len(kinds) > 1 || parts {
		if e = c.envelope(p.SLOUS.D(), parts, kinds...); e == nil {
			return
		}
		limited = limited && (parts || !c.chained())
	}
	report := c.fail
	if g.moved {
		report = c.warn
	}
	for i := range p.Gears {
		r := &p.Gears[i]
		free, least := e.at(devices/r.ToQPS), math.Inf(-1)
		for k := range alone {
			least = max(least, alone[k].at(counts[k]/r.ToQPS))
		}
		where := fmt.Sprintf("gear.gears[%d].bound", i)
		switch {
		case limited && r.Bound > free+rounding:
			report("bound", where, fmt.Sprint(r.Bound), fmt.Sprintf("at most %.6g", free), "no cascades over these thresholds reach the bound at %.6g requests per second", r.ToQPS)
		case r.Bound < least-rounding:
			report("bound", where, fmt.Sprint(r.Bound), fmt.Sprintf("%.6g", least), "a mixture of cascades exceeds the bound at %.6g requests per second", r.ToQPS)
		}
	}
	if o.Bound == nil || o.Name == "accuracy" {
		return
	}
	// Just below the bound not even a mixture may reach the accuracy asked for.
	reached, what := 0.0, ""
	if o.Name == "latency" {
		slo := time.Duration(*o.Bound*1e6) - 1
		reached, what = c.weighted(c.envelope(slo, false, kinds...), devices), fmt.Sprintf("within %v", slo)
	} else {
		n := math.Round(c.devicesAt(*o.Bound)) - 1
		reached, what = c.weighted(e, n), fmt.Sprintf("on %.0f devices", n)
	}
	if reached >= p.Accuracy+rounding {
		report("bound", "objective.bound", fmt.Sprint(*o.Bound), "less", "a mixture of cascades reaches accuracy %.6g %s, below the bound", reached, what)
	}
	if *o.Bound > o.Value+rounding*max(1, o.Value) {
		c.fail("bound", "objective.bound", fmt.Sprint(*o.Bound), fmt.Sprintf("at most %v", o.Value), "the bound is above the objective that it bounds")
	}
}

// weighted is what mixtures of cascades reach at most over all ranges.
func (c *checker) weighted(h hull, devices float64) float64 {
	if len(h) == 0 {
		return math.Inf(-1)
	}
	sum := 0.0
	for i := range c.plan.Gear.Gears {
		r := &c.plan.Gear.Gears[i]
		if r.Weight > 0 || h.at(devices/r.ToQPS) < 0 {
			sum += max(r.Weight, 1e-300) * h.at(devices/r.ToQPS)
		}
	}
	return sum
}

type point struct{ cost, accuracy float64 }

// hull is an upper concave envelope, by rising cost.
type hull []point

func (h hull) at(budget float64) float64 {
	best := math.Inf(-1)
	for i, p := range h {
		if p.cost <= budget {
			best = p.accuracy
		} else if i > 0 {
			before := h[i-1]
			return before.accuracy + (p.accuracy-before.accuracy)*(budget-before.cost)/(p.cost-before.cost)
		}
	}
	return best
}

// inParts says whether the plan's bound counts members that run in stages: such were
// allowed, and there are several kinds of devices or one that a member does not fit
// on.
func (c *checker) inParts() bool {
	if c.plan.Options.MaxPartitions < 2 || c.plan.Objective.Name != "accuracy" || c.plan.Gear.Over == formats.OverRequests || c.plan.Algorithm != "exact" {
		return false
	}
	kinds := c.kinds()
	if len(kinds) > 1 || c.workload == nil || c.workload.Cascade == nil {
		return len(kinds) > 1
	}
	pool := c.pool(kinds[0])
	return pool != nil && pool.Memory > 0 && slices.ContainsFunc(c.workload.Cascade.Family, func(n string) bool {
		return c.profileModel(n) != nil && c.weights(n, kinds[0]) > int64(pool.Memory)
	})
}

// partly is what a model takes at least in stages over some kinds, per sample in the
// best batch within a latency and for one sample alone: every block where it is
// fastest, whatever fits there. Infinite where blocks were not measured.
func (c *checker) partly(model string, slo time.Duration, kinds []string) (per float64, one time.Duration) {
	pm := c.profileModel(model)
	per, one = math.Inf(1), time.Duration(math.MaxInt64)
	if len(pm.Blocks) < 2 {
		return per, one
	}
	most := 0
	for _, kind := range kinds {
		most = max(most, len(c.timesOf(model, kind)))
	}
	for b := 1; b <= most; b++ {
		took := time.Duration(0)
		for k := range pm.Blocks {
			least := time.Duration(math.MaxInt64)
			for _, kind := range kinds {
				if ms := measured(pm, kind, 1, b); ms != nil && len(ms.Blocks) == len(pm.Blocks) {
					least = min(least, inference(ms, k, k+1))
				}
			}
			if least == math.MaxInt64 {
				return per, one
			}
			took += least
		}
		if b == 1 {
			one = took
		}
		if took <= slo {
			per = min(per, took.Seconds()/float64(b))
		}
	}
	return per, one
}

// envelope lists every cascade of the family over its quantile thresholds with
// bit sets, as far as they keep a latency; a model costs what it does on the kind
// where it is cheapest, in parts what these do. Nil where the documents do not say
// enough, or there are too many.
func (c *checker) envelope(slo time.Duration, parts bool, kinds ...string) hull {
	var names []string
	grid := 10
	for i := range c.plan.Gear.Models {
		names = append(names, c.plan.Gear.Models[i].Model)
		grid = len(c.plan.Gear.Models[i].Thresholds) + 1
	}
	if c.workload != nil && c.workload.Cascade != nil {
		names = c.workload.Cascade.Family
		if grid = c.workload.Cascade.Grid; grid == 0 {
			grid = 10
		}
	}
	r := c.records(names)
	if r == nil || math.Pow(float64(grid), float64(len(names))) > maxCascades*float64(grid-1) {
		return nil
	}
	w := walk{a: &answers{samples: r.Planning}, slo: slo}
	percentile, err := formats.ParsePercentile(c.plan.Gear.Percentile)
	if err != nil {
		return nil
	}
	w.late = int((1 - percentile) * float64(r.Planning))
	for _, n := range names {
		m := recordsOf(r, n)
		sorted := slices.Clone(m.Certainty[:r.Planning])
		slices.Sort(sorted)
		var t []float64
		for j := 1; j < grid; j++ {
			t = append(t, sorted[min(r.Planning-1, j*r.Planning/grid)])
		}
		w.a.addModel(len(t), func(i int) int {
			l, _ := slices.BinarySearchFunc(t, m.Certainty[i], func(t, x float64) int {
				if t <= x {
					return -1
				}
				return 1
			})
			return l
		}, m.Correct)
		per, one, measured := math.Inf(1), time.Duration(math.MaxInt64), false
		for _, kind := range kinds {
			times, pool := c.timesOf(n, kind), c.pool(kind)
			if times == nil {
				continue
			}
			measured = true
			if pool != nil && pool.Memory > 0 && c.weights(n, kind) > int64(pool.Memory) {
				continue
			}
			one = min(one, times[0])
			for b, took := range times {
				if took <= w.slo {
					per = min(per, took.Seconds()/float64(b+1))
				}
			}
		}
		if !measured && len(c.plan.Pools) == 1 {
			return nil
		}
		if parts && c.profileModel(n) != nil {
			p, o := c.partly(n, slo, kinds)
			per, one = min(per, p), min(one, o)
		}
		w.per, w.one = append(w.per, per), append(w.one, one)
	}
	all := newSet(r.Planning)
	for i := range r.Planning {
		all.add(i)
	}
	for m := range names {
		w.visit(m, all, 0, 0, 0)
	}
	return w.hull()
}

// weights is the memory that a model needs on a kind of devices.
func (c *checker) weights(model, device string) int64 {
	pm := c.profileModel(model)
	most, sum := int64(0), int64(0)
	for i := range pm.Measurements {
		if ms := &pm.Measurements[i]; ms.Device == device && ms.Share <= 1 {
			most = max(most, ms.MemoryBytes)
		}
	}
	for i := range pm.Blocks {
		sum += pm.Blocks[i].WeightBytes
	}
	if most > 0 {
		return most
	}
	return sum
}

// walk visits all cascades; answered are the right answers given before a model.
type walk struct {
	a    *answers
	per  []float64 // seconds per sample in the best batch
	one  []time.Duration
	slo  time.Duration
	late int // samples that may take longer than the SLO, one by one
	all  []point
}

func (w *walk) visit(m int, left set, cost float64, path time.Duration, answered int) {
	if math.IsInf(w.per[m], 1) {
		return
	}
	n := left.size()
	cost += w.per[m] * float64(n) / float64(w.a.samples)
	if path += w.one[m]; path > w.slo && n > w.late {
		return // and whatever continues it
	}
	right := common(left, w.a.right[m])
	w.all = append(w.all, point{cost, float64(answered+right) / float64(w.a.samples)})
	if m+1 == len(w.per) {
		return
	}
	rest := newSet(w.a.samples)
	for l := 1; l < len(w.a.reaches[m]); l++ {
		without(rest, left, w.a.reaches[m][l])
		if k := rest.size(); k == 0 || k == n {
			continue
		}
		kept := right - common(rest, w.a.right[m])
		for next := m + 1; next < len(w.per); next++ {
			w.visit(next, rest, cost, path, answered+kept)
		}
	}
}

func (w *walk) hull() hull {
	slices.SortFunc(w.all, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(b.accuracy, a.accuracy))
	})
	var h hull
	best := -1.0
	for _, p := range w.all {
		if p.accuracy <= best {
			continue
		}
		best = p.accuracy
		for n := len(h); n >= 2; n = len(h) {
			a, b := h[n-2], h[n-1]
			if (b.accuracy-a.accuracy)*(p.cost-a.cost) > (p.accuracy-a.accuracy)*(b.cost-a.cost) {
				break
			}
			h = h[:n-1]
		}
		h = append(h, p)
	}
	return h
}
