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

// CascadeAnswerer answers the requests of gear plans. After every batch it tells the policy how certain the answers are.
// It belongs to the core's turn, except the counters of metrics.
type Cascade struct {
	turn.Single
	turn.OneTask
	gears   *gear.Tables
	score   certainty.Func        // computes a certainty from scores
	raised  []formats.Calibration // by pipeline: turns certainties into calibrated ones
	metrics *gearMetrics
	replay  bool  // certainties come from the plan's records
	arrived int64 // samples so far
	gear    int32 // the gear in force
	ranges  *drift.Ranges
	forward *drift.Forwards

	asked   []asked       // by request slot
	scores  []float64     // scratch: scores of one sample
	levels  []int64       // of the latest batch, by request: level of the certainty
	certain []float64     // of the latest batch, by request; empty if the records have them
	gearOf  []oip.Param   // by gear: value of the response parameter
	nameOf  []oip.Param   // by pipeline: value of the response parameter
	Models  []memberCount // by pipeline
	counts  gearCounts

	since time.Duration // when the answers of a batch were last told to the policy
}

// cascadeRequest is a request of a gear plan.
type asked struct {
	record    int32 // row of the plan's records, for an engine without models
	answer    int32 // pipeline whose answer it has; -1 if none yet
	certainty float64
	infer     time.Duration // sum over the batches that it was in
	gather    time.Duration // likewise
}

// cascadeJob is the part of a job that a gear plan needs.
type cascadeJob struct {
	gear      int32   // gear in force at its arrival
	answers   []int32 // by sample: pipeline that answered
	certainty float64 // of the answer of the last sample
	params    map[string]oip.Param
}

// modelCounts counts what a model of the family did.
type memberCount struct {
	batches, samples, Answers int64
	running                   time.Duration
}

// gearCounts are sums over the run.
type gearCounts struct {
	switches int64
	requests []int64   // by gear
	answers  [][]int64 // by gear at arrival, and pipeline
	answered int64     // with records: samples answered, and of them correctly
	correct  int64
}

// New returns the answerer of a gear plan.
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

	// Counters and response parameters, by gear.
	g.counts.requests = make([]int64, len(own.Gears))
	for i := range own.Gears {
		g.counts.answers = append(g.counts.answers, make([]int64, len(own.Family)))
		g.gearOf = append(g.gearOf, oip.Param(int64(i)))
	}

	// Response parameters and calibrations, by model.
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

// Answer returns the answerer of a core's plan. If it is no gear plan, it returns nil.
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

// EverySecond implements turn.Answerer: it compares rates and answers with the plan's.
func (g *Cascade) Tick(now time.Duration) {
	g.ranges.Window(now, g.arrived, g.Core.Options.Log)
	g.forward.Window(g.counts.answers, g.Core.Options.Log)
}

// SeenRates returns the rates that were seen.
func (g *Cascade) Rates() *drift.Rates { return &g.ranges.Rates }

// Admit prepares the job's record of which models answer its samples.
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

// JobArrived records the gear in force for a job, and the records of its samples.
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

// CheckOutputs returns an error if no certainty can be computed from the family's first output.
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

// TakeOutputs computes the certainties of a batch's answers. The policy decides which of them are final.
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

// readScores reads the scores of a sample.
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

// BatchEnded tells the policy, request by request, how certain the answers of a finished batch are. The policy completes
// a request or keeps it for the next model. Requests that nobody waits for are cancelled first.
func (g *Cascade) Ended(b *turn.Batch, dev int32) {
	c := g.Core
	g.since = c.Now()
	if !b.Failed {
		m := &g.Models[b.Pipeline]
		m.batches++
		m.samples += int64(len(b.Tasks))
		m.running += b.Infer
	}

	// All requests of the batch wait again.
	n := int64(len(b.Tasks))
	b.Service.Running.Add(-n)
	b.Service.Waiting.Add(n)
	for _, req := range b.Tasks {
		c.Request(req).Batch = -1
	}

	// Tell the policy the level of each.
	for k, req := range b.Tasks {
		q := c.Request(req)
		if q.Gone { // the policy has dropped it meanwhile
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

// keepAnswer keeps the answer of the k-th request of a batch, and returns its level.
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

// HoldsDevice returns true if batches of a pipeline keep their only device until their answers were told. A batch on a
// chain leaves its devices earlier.
func (g *Cascade) Holds(pipeline int32) bool { return g.Core.Tables.Pipelines[pipeline].NumStages == 1 }

// PolicyTold records how long, as the policy saw it, a batch kept its device: from its dispatch until the next batch
// could be dispatched.
func (g *Cascade) Told(b *turn.Batch) {
	if s := g.Core.Stats.Service; s != nil && !b.Failed && g.Holds(b.Pipeline) {
		s.Ran(g.Core.Tables.Pipelines[b.Pipeline].FirstStage, len(b.Tasks), b.Dispatched, g.Core.Last()-b.Dispatched)
	}
}

// CompleteRequest makes a request's latest answer its final one.
func (g *Cascade) Complete(slot int32) {
	c := g.Core
	if c.Request(slot) == nil || g.asked[slot].answer < 0 {
		c.Options.Log.Error("the policy completed a request that has no answer", "request", slot)
		return
	}

	// Count the answer, and answer the job with its last sample.
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

// SwitchMode puts a gear into force for the requests that arrive from now on.
func (g *Cascade) Mode(to int32) bool {
	if to < 0 || int(to) >= len(g.counts.requests) {
		return false
	}
	g.metrics.shift(g.gear, to)
	g.counts.switches++
	g.gear = to
	return true
}

// ResponseParameters returns the gear in force at the job's arrival and the model that answered (with several samples,
// the models in their order). For a single sample it also returns the certainty.
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

// Report adds the cascade's part to a report.
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
