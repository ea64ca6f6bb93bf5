package executor

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/engine/certainty"
	"inferplan/executor/drift"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// cascade is the answer of gear plans: it tells the policy how certain the
// answers of every batch are. It belongs to the core's turn, the counters of
// metrics aside.
type cascade struct {
	single
	oneTask
	gears   *gear.Tables
	score   certainty.Func
	raised  []formats.Calibration // by pipeline: what makes certainties of scores
	metrics *gearMetrics
	replay  bool // certainties come from the plan's records
	arrived int64
	gear    int32 // in force
	ranges  *drift.Ranges
	forward *drift.Forwards

	asked   []asked   // by request slot
	scores  []float64 // room for one sample
	levels  []int64   // of the batch that ran last: how certain the answers are, by request
	certain []float64 // likewise; empty where the records say it
	gearOf  []oip.Param
	nameOf  []oip.Param
	models  []memberCount // by pipeline
	counts  gearCounts

	since time.Duration // when the answers of a batch were revealed last
}

// asked is what a request has beside what all have.
type asked struct {
	record    int32 // of the plan's records, for an engine without models
	answer    int32 // pipeline whose answer it has; -1: none yet
	certainty float64
	infer     time.Duration // of the batches that it was in
	gather    time.Duration
}

// cascadeJob is what a job has beside what all have.
type cascadeJob struct {
	gear      int32   // under which it came
	answers   []int32 // pipeline that answered, by sample
	certainty float64 // of the answer of the last sample
	params    map[string]oip.Param
}

// memberCount is what a model of the family did.
type memberCount struct {
	batches, samples, answers int64
	running                   time.Duration
}

// gearCounts are sums over the run.
type gearCounts struct {
	switches int64
	requests []int64   // by gear
	answers  [][]int64 // by gear under which samples came, and pipeline
	answered int64     // with records
	correct  int64
}

func newCascade(plan *formats.Plan, t *policy.Tables, o *Options, m *metrics) (*cascade, error) {
	own := gear.Of(t)
	g := &cascade{gears: own, score: o.Certainty, replay: o.madeUp(), models: make([]memberCount, len(t.Pipelines))}
	if g.score == nil && !g.replay {
		var err error
		if g.score, err = certainty.Named(formats.GearOf(plan).Score); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPlan, &formats.Error{Path: "gear.score", Found: fmt.Sprintf("%q", formats.GearOf(plan).Score),
				Expected: "one of " + strings.Join(certainty.Names(), ", "), Hint: "the thresholds of the plan are certainties of this kind, which this server cannot compute"})
		}
	}
	g.counts.requests = make([]int64, len(own.Gears))
	for i := range own.Gears {
		g.counts.answers = append(g.counts.answers, make([]int64, len(own.Family)))
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
	g.ranges = drift.NewRanges(plan, drift.Limit{Distance: o.DriftLimit, Windows: o.DriftWindows}, o.RatesURL, m.registry)
	g.forward = drift.NewForwards(plan, own.Family, drift.Limit{Distance: o.ForwardLimit, Windows: o.ForwardWindows}, m.registry)
	return g, nil
}

// cascadeOf is the answer of a core's plan, where it is a gear plan.
func cascadeOf(c *core, plan *formats.Plan) (answer, error) {
	if gear.Of(c.tables) == nil {
		return nil, nil
	}
	g, err := newCascade(plan, c.tables, c.opt, c.metrics)
	if err != nil {
		return nil, err
	}
	g.single = single{c}
	return g, nil
}

func (g *cascade) oneFamily() bool { return true }

func (g *cascade) tick(now time.Duration) {
	g.ranges.Window(now, g.arrived, g.c.opt.Log)
	g.forward.Window(g.counts.answers, g.c.opt.Log)
}

// kept are the rates that were seen.
func (g *cascade) kept() *drift.Rates { return &g.ranges.Rates }

// admit gives a job room for who answered its samples.
func (g *cascade) admit(j *job) {
	side, ok := j.side.(*cascadeJob)
	if !ok {
		side = &cascadeJob{params: map[string]oip.Param{}}
		j.side = side
	}
	side.gear, side.certainty, side.answers = 0, 0, side.answers[:0]
	for range j.n {
		side.answers = append(side.answers, 0)
	}
}

// arrive notes the gear under which a job came and the records of its samples.
func (g *cascade) arrive(j *job) {
	for _, slot := range j.slots {
		for int(slot) >= len(g.asked) {
			g.asked = append(g.asked, asked{})
		}
		g.asked[slot] = asked{record: int32(g.arrived % int64(g.gears.Records.Samples)), answer: -1}
		g.arrived++
	}
	j.side.(*cascadeJob).gear = g.gear
	g.counts.requests[g.gear] += int64(j.n)
}

// check makes sure that the family's first output is what a certainty can be
// computed of.
func (g *cascade) check(m *model) error {
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

// ran computes how certain the answers of a batch are. The policy decides which
// of them are answered.
func (g *cascade) ran(b *batch, out outputs) {
	g.scatter(b, out)
	g.metrics.ran(b.pipeline, len(b.tasks), b.infer)
	g.levels, g.certain = g.levels[:0], g.certain[:0]
	if g.replay {
		for _, req := range b.tasks {
			g.levels = append(g.levels, int64(g.gears.Records.Levels[b.pipeline][g.asked[req].record]))
		}
		return
	}
	first, src := &b.service.outputs[0], out.output(0)
	for k := range b.tasks {
		readScores(g.scores, src[k*first.bytes:], first.datatype)
		certainty.Normalise(g.scores)
		sure := g.raised[b.pipeline].At(g.score(g.scores))
		g.certain = append(g.certain, sure)
		g.levels = append(g.levels, g.gears.Level(b.pipeline, sure))
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

// ended tells the policy, request by request, how certain the answers of a
// finished batch are. The policy completes a request or keeps it for the next
// model; of those that nobody waits for it hears so first.
func (g *cascade) ended(b *batch, dev int32) {
	c := g.c
	g.since = c.now()
	if !b.failed {
		m := &g.models[b.pipeline]
		m.batches++
		m.samples += int64(len(b.tasks))
		m.running += b.infer
	}
	n := int64(len(b.tasks))
	b.service.running.Add(-n)
	b.service.waiting.Add(n)
	for _, req := range b.tasks {
		c.book.reqs[req].batch = -1
	}
	for k, req := range b.tasks {
		q := &c.book.reqs[req]
		if q.gone { // the policy dropped it meanwhile
			c.book.settle(req)
			continue
		}
		level := int64(0)
		if b.failed || q.job.answered {
			c.handle(policy.Event{Kind: policy.Cancel, Model: b.model, Service: b.service.index, Req: req, Task: req})
		} else {
			level = g.note(req, k, b)
		}
		c.handle(policy.Event{Kind: policy.ControlRevealed, Model: b.model, Service: b.service.index, Req: req, Task: req, Batch: b.slot, Device: dev, Value: level})
	}
}

// note keeps the answer of the k-th request of a batch and gives its level.
func (g *cascade) note(req int32, k int, b *batch) int64 {
	a := &g.asked[req]
	a.answer = b.pipeline
	a.infer += b.infer
	a.gather += b.gather
	if !g.replay {
		a.certainty = g.certain[k]
	}
	return g.levels[k]
}

// holds says whether a batch of a pipeline holds its one device until its
// answers were revealed; a batch that goes along a chain leaves its devices before.
func (g *cascade) holds(pipeline int32) bool { return g.c.tables.Pipelines[pipeline].NumStages == 1 }

// told notes how long the policy saw a batch hold its device: from its dispatch
// until the next could go.
func (g *cascade) told(b *batch) {
	if s := g.c.stats.service; s != nil && !b.failed && g.holds(b.pipeline) {
		s.ran(g.c.tables.Pipelines[b.pipeline].FirstStage, len(b.tasks), b.dispatched, g.c.loop.Last()-b.dispatched)
	}
}

// complete takes a request's last answer as its answer.
func (g *cascade) complete(slot int32) {
	c := g.c
	if c.book.at(slot) == nil || g.asked[slot].answer < 0 {
		c.opt.Log.Error("the policy completed a request that has no answer", "request", slot)
		return
	}
	q, a := &c.book.reqs[slot], &g.asked[slot]
	if j := q.job; !j.answered {
		side := j.side.(*cascadeJob)
		g.models[a.answer].answers++
		g.counts.answers[side.gear][a.answer]++
		g.metrics.answer(side.gear, a.answer)
		if g.replay {
			g.counts.answered++
			if g.gears.Records.Correct[a.answer][a.record] {
				g.counts.correct++
			}
		}
		side.answers[q.sample] = a.answer
		side.certainty = a.certainty
		if j.left--; j.left == 0 {
			now := c.now()
			j.outcome, j.late = served, now > j.deadline
			c.stats.servedBy(j, a.infer, a.gather, now, g.since)
			c.book.answer(j)
		}
	}
	c.book.settle(slot)
}

// mode notes the gear that requests from now on come under.
func (g *cascade) mode(to int32) bool {
	if to < 0 || int(to) >= len(g.counts.requests) {
		return false
	}
	g.metrics.shift(g.gear, to)
	g.counts.switches++
	g.gear = to
	return true
}

// parameters are what the response tells about the way of its samples: the gear
// under which they came and the model that answered (with several samples the
// models in their order), and of a single sample how certain it was.
func (g *cascade) parameters(j *job) map[string]oip.Param {
	side := j.side.(*cascadeJob)
	clear(side.params)
	side.params["gear"] = g.gearOf[side.gear]
	if j.n == 1 {
		side.params["model"] = g.nameOf[side.answers[0]]
		if !g.replay {
			side.params["certainty"] = side.certainty
		}
		return side.params
	}
	var names strings.Builder
	for k, a := range side.answers {
		if k > 0 {
			names.WriteByte(',')
		}
		names.WriteString(g.gears.Family[a])
	}
	side.params["model"] = names.String()
	return side.params
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
	r.Gears = out
	g.ranges.Report(r)
	g.forward.Report(r)
}
