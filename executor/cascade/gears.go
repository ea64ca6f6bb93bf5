package cascade

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
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// Cascade is the answer of gear plans: it tells the policy how certain the
// answers of every batch are. It belongs to the core's turn, the counters of
// metrics aside.
type Cascade struct {
	turn.Single
	turn.OneTask
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
	Models  []memberCount // by pipeline
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
	batches, samples, Answers int64
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

// New makes the answer of a gear plan.
func (o *Options) New(plan *formats.Plan, t *policy.Tables, core *turn.Options, m *turn.Metrics) (*Cascade, error) {
	own := gear.Of(t)
	g := &Cascade{gears: own, score: o.Certainty, replay: core.MadeUp(), Models: make([]memberCount, len(t.Pipelines))}
	if g.score == nil && !g.replay {
		var err error
		if g.score, err = certainty.Named(formats.GearOf(plan).Score); err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, &document.Error{Path: "gear.score", Found: fmt.Sprintf("%q", formats.GearOf(plan).Score),
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
	g.metrics = newGearMetrics(m.Registry, own)
	g.ranges = drift.NewRanges(plan, drift.Limit{Distance: o.DriftLimit, Windows: o.DriftWindows}, core.RatesURL, m.Registry)
	g.forward = drift.NewForwards(plan, own.Family, drift.Limit{Distance: o.ForwardLimit, Windows: o.ForwardWindows}, m.Registry)
	return g, nil
}

// Answer is that of a core's plan, where it is a gear plan.
func (o *Options) Answer(c *turn.Core, plan *formats.Plan) (turn.Answer, error) {
	if gear.Of(c.Tables) == nil {
		return nil, nil
	}
	g, err := o.New(plan, c.Tables, c.Options, c.Metrics)
	if err != nil {
		return nil, err
	}
	g.Single = turn.Single{Core: c}
	return g, nil
}

func (g *Cascade) OneFamily() bool { return true }

func (g *Cascade) Tick(now time.Duration) {
	g.ranges.Window(now, g.arrived, g.Core.Options.Log)
	g.forward.Window(g.counts.answers, g.Core.Options.Log)
}

// Rates are the rates that were seen.
func (g *Cascade) Rates() *drift.Rates { return &g.ranges.Rates }

// Admit gives a job room for who answered its samples.
func (g *Cascade) Admit(j *turn.Job, _ map[string]oip.Param) *oip.Error {
	side, ok := j.Side.(*cascadeJob)
	if !ok {
		side = &cascadeJob{params: map[string]oip.Param{}}
		j.Side = side
	}
	side.gear, side.certainty, side.answers = 0, 0, side.answers[:0]
	for range j.Samples {
		side.answers = append(side.answers, 0)
	}
	return nil
}

// Arrive notes the gear under which a job came and the records of its samples.
func (g *Cascade) Arrive(j *turn.Job) {
	for _, slot := range j.Slots {
		for int(slot) >= len(g.asked) {
			g.asked = append(g.asked, asked{})
		}
		g.asked[slot] = asked{record: int32(g.arrived % int64(g.gears.Records.Samples)), answer: -1}
		g.arrived++
	}
	j.Side.(*cascadeJob).gear = g.gear
	g.counts.requests[g.gear] += int64(j.Samples)
}

// Check makes sure that the family's first output is what a certainty can be
// computed of.
func (g *Cascade) Check(m *turn.Model) error {
	if g.replay {
		return nil
	}
	out := &m.Outputs[0]
	size := out.Datatype.Size()
	if out.Datatype != oip.FP32 && out.Datatype != oip.FP64 || out.Bytes/size < 2 {
		return fmt.Errorf("%w: the first output of the family, %s, is %s with %d values per sample: a cascade needs scores of at least two classes in FP32 or FP64",
			turn.ErrPlan, out.Name, out.Datatype, out.Bytes/max(size, 1))
	}
	g.scores = make([]float64, out.Bytes/size)
	return nil
}

// Ran computes how certain the answers of a batch are. The policy decides which
// of them are answered.
func (g *Cascade) Ran(b *turn.Batch, out turn.Outputs) {
	g.Scatter(b, out)
	g.metrics.ran(b.Pipeline, len(b.Tasks), b.Infer)
	g.levels, g.certain = g.levels[:0], g.certain[:0]
	if g.replay {
		for _, req := range b.Tasks {
			g.levels = append(g.levels, int64(g.gears.Records.Levels[b.Pipeline][g.asked[req].record]))
		}
		return
	}
	first, src := &b.Service.Outputs[0], out.Output(0)
	for k := range b.Tasks {
		readScores(g.scores, src[k*first.Bytes:], first.Datatype)
		certainty.Normalise(g.scores)
		sure := g.raised[b.Pipeline].At(g.score(g.scores))
		g.certain = append(g.certain, sure)
		g.levels = append(g.levels, g.gears.Level(b.Pipeline, sure))
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

// Ended tells the policy, request by request, how certain the answers of a
// finished batch are. The policy completes a request or keeps it for the next
// model; of those that nobody waits for it hears so first.
func (g *Cascade) Ended(b *turn.Batch, dev int32) {
	c := g.Core
	g.since = c.Now()
	if !b.Failed {
		m := &g.Models[b.Pipeline]
		m.batches++
		m.samples += int64(len(b.Tasks))
		m.running += b.Infer
	}
	n := int64(len(b.Tasks))
	b.Service.Running.Add(-n)
	b.Service.Waiting.Add(n)
	for _, req := range b.Tasks {
		c.Request(req).Batch = -1
	}
	for k, req := range b.Tasks {
		q := c.Request(req)
		if q.Gone { // the policy dropped it meanwhile
			c.Settle(req)
			continue
		}
		level := int64(0)
		if b.Failed || q.Job.Answered {
			c.Tell(policy.Event{Kind: policy.Cancel, Model: b.Model, Service: b.Service.Index, Req: req, Task: req})
		} else {
			level = g.note(req, k, b)
		}
		c.Tell(policy.Event{Kind: policy.ControlRevealed, Model: b.Model, Service: b.Service.Index, Req: req, Task: req, Batch: b.Slot, Device: dev, Value: level})
	}
}

// note keeps the answer of the k-th request of a batch and gives its level.
func (g *Cascade) note(req int32, k int, b *turn.Batch) int64 {
	a := &g.asked[req]
	a.answer = b.Pipeline
	a.infer += b.Infer
	a.gather += b.Gather
	if !g.replay {
		a.certainty = g.certain[k]
	}
	return g.levels[k]
}

// Holds says whether a batch of a pipeline holds its one device until its
// answers were revealed; a batch that goes along a chain leaves its devices before.
func (g *Cascade) Holds(pipeline int32) bool { return g.Core.Tables.Pipelines[pipeline].NumStages == 1 }

// Told notes how long the policy saw a batch hold its device: from its dispatch
// until the next could go.
func (g *Cascade) Told(b *turn.Batch) {
	if s := g.Core.Stats.Service; s != nil && !b.Failed && g.Holds(b.Pipeline) {
		s.Ran(g.Core.Tables.Pipelines[b.Pipeline].FirstStage, len(b.Tasks), b.Dispatched, g.Core.Last()-b.Dispatched)
	}
}

// Complete takes a request's last answer as its answer.
func (g *Cascade) Complete(slot int32) {
	c := g.Core
	if c.Request(slot) == nil || g.asked[slot].answer < 0 {
		c.Options.Log.Error("the policy completed a request that has no answer", "request", slot)
		return
	}
	q, a := c.Request(slot), &g.asked[slot]
	if j := q.Job; !j.Answered {
		side := j.Side.(*cascadeJob)
		g.Models[a.answer].Answers++
		g.counts.answers[side.gear][a.answer]++
		g.metrics.answer(side.gear, a.answer)
		if g.replay {
			g.counts.answered++
			if g.gears.Records.Correct[a.answer][a.record] {
				g.counts.correct++
			}
		}
		side.answers[q.Sample] = a.answer
		side.certainty = a.certainty
		if j.Left--; j.Left == 0 {
			now := c.Now()
			j.Outcome, j.Late = turn.Served, now > j.Deadline
			c.Stats.ServedBy(j, a.infer, a.gather, now, g.since)
			c.Answer(j)
		}
	}
	c.Settle(slot)
}

// Mode notes the gear that requests from now on come under.
func (g *Cascade) Mode(to int32) bool {
	if to < 0 || int(to) >= len(g.counts.requests) {
		return false
	}
	g.metrics.shift(g.gear, to)
	g.counts.switches++
	g.gear = to
	return true
}

// Parameters are what the response tells about the way of its samples: the gear
// under which they came and the model that answered (with several samples the
// models in their order), and of a single sample how certain it was.
func (g *Cascade) Parameters(j *turn.Job) map[string]oip.Param {
	side := j.Side.(*cascadeJob)
	clear(side.params)
	side.params["gear"] = g.gearOf[side.gear]
	if j.Samples == 1 {
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

// Report is the cascade's part of a report.
func (g *Cascade) Report(r *formats.Report) {
	if g.counts.answered > 0 {
		accuracy := float64(g.counts.correct) / float64(g.counts.answered)
		r.Accuracy = &accuracy
	}
	out := &formats.GearReport{Switches: g.counts.switches, Requests: append([]int64(nil), g.counts.requests...)}
	for p, name := range g.gears.Family {
		if p == 0 || name != g.gears.Family[p-1] { // else the same model on another kind of devices
			out.Models = append(out.Models, formats.GearModelReport{Model: name})
		}
		m, sum := &g.Models[p], &out.Models[len(out.Models)-1]
		sum.Batches, sum.Samples, sum.Answers = sum.Batches+m.batches, sum.Samples+m.samples, sum.Answers+m.Answers
		sum.RunningUS += document.Micros(m.running)
	}
	r.Gears = out
	g.ranges.Report(r)
	g.forward.Report(r)
}
