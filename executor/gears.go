package executor

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/engine/certainty"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// cascade is what a core needs to serve a gear plan beside what it needs for
// any plan: it tells the policy how certain the answers are. It belongs to the
// core's turn, the counters of metrics aside.
type cascade struct {
	gears   *gear.Tables
	score   certainty.Func
	raised  []formats.Calibration // by pipeline: what makes certainties of scores
	metrics *gearMetrics
	replay  bool // certainties come from the plan's records
	arrived int64
	gear    int32 // in force
	drift   *drift

	scores []float64 // room for one sample
	gearOf []oip.Param
	nameOf []oip.Param
	models []memberCount // by pipeline
	counts gearCounts

	batch *batch // whose answers are being revealed
	since time.Duration
}

// memberCount is what a model of the family did.
type memberCount struct {
	batches, samples, answers int64
	running                   time.Duration
}

// gearCounts are sums over the run.
type gearCounts struct {
	switches int64
	requests []int64 // by gear
	answered int64   // with records
	correct  int64
}

func newCascade(plan *formats.Plan, t *policy.Tables, o *Options, m *metrics) (*cascade, error) {
	own := gear.Of(t)
	g := &cascade{gears: own, score: o.Certainty, replay: o.Engine == "replay", models: make([]memberCount, len(t.Pipelines))}
	if g.score == nil && !g.replay {
		var err error
		if g.score, err = certainty.Named(formats.GearOf(plan).Score); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPlan, &formats.Error{Path: "gear.score", Found: fmt.Sprintf("%q", formats.GearOf(plan).Score),
				Expected: "one of " + strings.Join(certainty.Names(), ", "), Hint: "the thresholds of the plan are certainties of this kind, which this server cannot compute"})
		}
	}
	g.counts.requests = make([]int64, len(own.Gears))
	for i := range own.Gears {
		g.gearOf = append(g.gearOf, oip.Param(int64(i)))
	}
	for _, name := range own.Family {
		g.nameOf = append(g.nameOf, oip.Param(name))
		var raise formats.Calibration
		if at := slices.IndexFunc(formats.GearOf(plan).Models, func(m formats.GearModel) bool { return m.Model == name }); at >= 0 {
			raise = formats.GearOf(plan).Models[at].Calibration
		}
		g.raised = append(g.raised, raise)
	}
	g.metrics = newGearMetrics(m.registry, own)
	g.drift = newDrift(plan, t, o, g.metrics)
	return g, nil
}

// checkOutput makes sure that the family's first output is what a certainty
// can be computed of.
func (g *cascade) checkOutput(m *model) error {
	if g.replay {
		return nil
	}
	out := &m.outputs[0]
	size := out.datatype.Size()
	if out.datatype != oip.FP32 && out.datatype != oip.FP64 || out.bytes/size < 2 {
		return fmt.Errorf("%w: the first output of the family, %s, is %s with %d values per sample: a cascade needs scores of at least two classes in FP32 or FP64",
			ErrPlan, out.name, out.datatype, out.bytes/max(size, 1))
	}
	g.scores = make([]float64, out.bytes/size)
	return nil
}

// grade computes how certain the answers of a batch are, before their memory is
// given back.
func (c *core) grade(b *batch, r *run) {
	g := c.cascade
	b.levels, b.certain = b.levels[:0], b.certain[:0]
	if g.replay {
		for _, req := range b.reqs {
			b.levels = append(b.levels, int64(g.gears.Records.Levels[b.pipeline][c.reqs[req].record]))
		}
		return
	}
	own := r.out.pool
	out := &b.model.outputs[0]
	src := c.devices[own.device].segment.TensorAt(own.loaded.Outputs, 0, r.size, own.layout.Out(int(r.out.slot)))
	for k := range b.reqs {
		readScores(g.scores, src[k*out.bytes:], out.datatype)
		certainty.Normalise(g.scores)
		sure := g.raised[b.pipeline].At(g.score(g.scores))
		b.certain = append(b.certain, sure)
		b.levels = append(b.levels, g.gears.Level(b.pipeline, sure))
	}
}

func readScores(dst []float64, src []byte, t oip.Datatype) {
	if t == oip.FP64 {
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:]))
		}
		return
	}
	for i := range dst {
		dst[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
	}
}

// reveal tells the policy, request by request, how certain the answers of a
// finished batch are. The policy completes a request or keeps it for the next
// model; of those that nobody waits for it hears so first.
func (c *core) reveal(b *batch, dev int32) {
	g := c.cascade
	g.batch, g.since = b, c.now()
	if !b.failed {
		m := &g.models[b.pipeline]
		m.batches++
		m.samples += int64(len(b.reqs))
		m.running += b.infer
	}
	n := int64(len(b.reqs))
	b.model.running.Add(-n)
	b.model.waiting.Add(n)
	for _, req := range b.reqs {
		c.reqs[req].batch = -1
	}
	for k, req := range b.reqs {
		q := &c.reqs[req]
		level := int64(0)
		if b.failed || q.job.answered {
			c.handle(policy.Event{Kind: policy.Cancel, Model: b.model.index, Service: b.model.index, Req: req, Task: req})
		} else {
			q.answer = b.pipeline
			q.infer += b.infer
			q.gather += b.gather
			level = b.levels[k]
			if !g.replay {
				q.certainty = b.certain[k]
			}
		}
		c.handle(policy.Event{Kind: policy.ControlRevealed, Model: b.model.index, Service: b.model.index, Req: req, Task: req, Batch: b.slot, Device: dev, Value: level})
	}
	g.batch = nil
}

// heldWhole says whether a batch of a pipeline holds its one device until its
// answers were revealed; a batch that goes along a chain leaves its devices before.
func (c *core) heldWhole(pipeline int32) bool {
	return c.cascade != nil && c.tables.Pipelines[pipeline].NumStages == 1
}

// freed notes how long the policy saw a batch hold its device: from its dispatch
// until the next could go.
func (c *core) freed(b *batch) {
	if c.stats.service != nil && !b.failed && c.heldWhole(b.pipeline) {
		c.stats.service.ran(c.tables.Pipelines[b.pipeline].FirstStage, len(b.reqs), b.dispatched, c.last-b.dispatched)
	}
}

// completeRequest takes a request's last answer as its answer.
func (c *core) completeRequest(slot int32) {
	if c.cascade == nil || slot < 0 || int(slot) >= len(c.reqs) || c.reqs[slot].job == nil || c.reqs[slot].answer < 0 {
		c.opt.Log.Error("the policy completed a request that has no answer", "request", slot)
		return
	}
	g, q := c.cascade, &c.reqs[slot]
	if j := q.job; !j.answered {
		g.models[q.answer].answers++
		g.metrics.answer(j.gear, q.answer)
		if g.replay {
			g.counts.answered++
			if g.gears.Records.Correct[q.answer][q.record] {
				g.counts.correct++
			}
		}
		j.answers[q.sample] = q.answer
		j.certainty = q.certainty
		if j.left--; j.left == 0 {
			now := c.now()
			j.outcome, j.late = served, now > j.deadline
			c.stats.servedBy(j, q, now)
			c.answer(j)
		}
	}
	c.settle(slot)
}

// switchGear notes the gear that requests from now on come under.
func (c *core) switchGear(to int32) {
	g := c.cascade
	if g == nil || int(to) >= len(g.counts.requests) {
		c.stats.ignored++
		return
	}
	g.metrics.shift(g.gear, to)
	g.counts.switches++
	g.gear = to
}

// parameters are what the response tells about the way of its samples: the gear
// under which they came and the model that answered (with several samples the
// models in their order), and of a single sample how certain it was.
func (g *cascade) parameters(j *job) map[string]oip.Param {
	if j.params == nil {
		j.params = map[string]oip.Param{}
	}
	clear(j.params)
	j.params["gear"] = g.gearOf[j.gear]
	if j.n == 1 {
		j.params["model"] = g.nameOf[j.answers[0]]
		if !g.replay {
			j.params["certainty"] = j.certainty
		}
		return j.params
	}
	var names strings.Builder
	for k, a := range j.answers {
		if k > 0 {
			names.WriteByte(',')
		}
		names.WriteString(g.gears.Family[a])
	}
	j.params["model"] = names.String()
	return j.params
}

// report is the cascade's part of a report.
func (g *cascade) report(r *formats.Report) {
	if g.counts.answered > 0 {
		accuracy := float64(g.counts.correct) / float64(g.counts.answered)
		r.Accuracy = &accuracy
	}
	out := &formats.GearReport{Switches: g.counts.switches, Requests: append([]int64(nil), g.counts.requests...)}
	for p, name := range g.gears.Family {
		if p == 0 || name != g.gears.Family[p-1] { // else the same model on another kind of devices
			out.Models = append(out.Models, formats.GearModelReport{Model: name})
		}
		m, sum := &g.models[p], &out.Models[len(out.Models)-1]
		sum.Batches, sum.Samples, sum.Answers = sum.Batches+m.batches, sum.Samples+m.samples, sum.Answers+m.answers
		sum.RunningUS += formats.Micros(m.running)
	}
	if d := g.drift; d.windows > 0 {
		out.Drift = d.distance()
		out.Observed = d.shares()
	}
	r.Gears = out
	if d := g.drift; d.drifted {
		r.Warnings = append(r.Warnings, d.notice("")) // the server that has the rates is gone
	}
}
