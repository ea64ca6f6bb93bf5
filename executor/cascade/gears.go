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
type CascadeAnswerer struct {
	turn.OneTaskPerRequest
	turn.OneTaskAtATime
	gears        *gear.Tables
	certaintyOf  certainty.Func        // computes a certainty from scores
	calibrations []formats.Calibration // by pipeline: turns certainties into calibrated ones
	metrics      *gearMetrics
	replay       bool  // certainties come from the plan's records
	arrivals     int64 // samples so far
	gear         int32 // the gear in force
	ranges       *drift.RateDrift
	forwards     *drift.ForwardDrift

	requests        []cascadeRequest // by request slot
	scores          []float64        // scratch: scores of one sample
	certaintyLevels []int64          // of the latest batch, by request: level of the certainty
	certainties     []float64        // of the latest batch, by request; empty if the records have them
	gearParams      []oip.Param      // by gear: value of the response parameter
	modelParams     []oip.Param      // by pipeline: value of the response parameter
	Models          []modelCounts    // by pipeline
	counts          gearCounts
	loggedGear      int32 // when logSwitches last wrote
	loggedSwitches  int64

	revealedAt time.Duration // when the answers of a batch were last told to the policy
}

// cascadeRequest is a request of a gear plan.
type cascadeRequest struct {
	record     int32 // row of the plan's records, for an engine without models
	answer     int32 // pipeline whose answer it has; -1 if none yet
	certainty  float64
	inferTime  time.Duration // sum over the batches that it was in
	gatherTime time.Duration // likewise
}

// cascadeJob is the part of a job that a gear plan needs.
type cascadeJob struct {
	gear      int32   // gear in force at its arrival
	answers   []int32 // by sample: pipeline that answered
	certainty float64 // of the answer of the last sample
	params    map[string]oip.Param
}

// modelCounts counts what a model of the family did.
type modelCounts struct {
	batches, samples, Answers int64
	runTime                   time.Duration
}

// gearCounts are sums over the run.
type gearCounts struct {
	switches        int64
	requests        []int64   // by gear
	answers         [][]int64 // by gear at arrival, and pipeline
	recordedAnswers int64     // with records: samples answered, and of them correctly
	correctAnswers  int64
}

// New returns the answerer of a gear plan: it passes a request from model to model of a cascade until one answer is
// certain enough. It returns an error if nothing here computes the kind of certainty (gear.score) that the plan's
// thresholds are in. With the engine replay, which gives random outputs, certainties come from the plan's recorded
// samples, and no function computes them.
func (o *Options) New(plan *formats.Plan, t *policy.Tables, core *turn.Options, m *turn.Metrics) (*CascadeAnswerer, error) {
	gears := gear.TablesOf(t)
	g := &CascadeAnswerer{gears: gears, replay: core.HasRandomOutputs(), Models: make([]modelCounts, len(t.Pipelines))}
	// Find the function that computes a certainty from a model's scores.
	if !g.replay {
		var err error
		if g.certaintyOf, err = certainty.ByName(formats.GearOf(plan).Score); err != nil {
			return nil, fmt.Errorf("%w: %w", turn.ErrPlan, &document.Error{Path: "gear.score", Found: fmt.Sprintf("%q", formats.GearOf(plan).Score),
				Expected: "one of " + strings.Join(certainty.Names(), ", "), Hint: "the thresholds of the plan are certainties of this kind, which this server cannot compute"})
		}
	}

	// Counters and response parameters, by gear.
	g.counts.requests = make([]int64, len(gears.Gears))
	for i := range gears.Gears {
		g.counts.answers = append(g.counts.answers, make([]int64, len(gears.PipelineModels)))
		g.gearParams = append(g.gearParams, oip.Param(int64(i)))
	}

	// Response parameters and calibrations, by model.
	for _, name := range gears.PipelineModels {
		g.modelParams = append(g.modelParams, oip.Param(name))
		var calibration formats.Calibration
		if modelIndex := slices.IndexFunc(formats.GearOf(plan).Models, func(m formats.GearModel) bool { return m.Model == name }); modelIndex >= 0 {
			calibration = formats.GearOf(plan).Models[modelIndex].Calibration
		}
		g.calibrations = append(g.calibrations, calibration)
	}
	// Register the metrics, and the two alarms for a plan that no longer fits: rates outside its gears, and forwards
	// between models other than planned.
	g.metrics = newGearMetrics(m.Registry, gears)
	g.ranges = drift.NewRateDrift(plan, drift.Limit{Distance: o.DriftLimit, Windows: o.DriftWindows}, core.RatesURL, m.Registry)
	g.forwards = drift.NewForwardDrift(plan, gears.PipelineModels, drift.Limit{Distance: o.ForwardLimit, Windows: o.ForwardWindows}, m.Registry)
	return g, nil
}

// Answer returns the answerer of a core's plan, if it is a gear plan, and else nil.
func (o *Options) Answer(c *turn.Core, plan *formats.Plan) (turn.Answerer, error) {
	if gear.TablesOf(c.Tables) == nil {
		return nil, nil
	}
	g, err := o.New(plan, c.Tables, c.Options, c.Metrics)
	if err != nil {
		return nil, err
	}
	g.OneTaskPerRequest = turn.OneTaskPerRequest{Core: c}
	return g, nil
}

func (g *CascadeAnswerer) IsOneFamily() bool { return true }

// EverySecond implements turn.Answerer: it compares rates and answers with the plan's, and logs changes of the gear.
func (g *CascadeAnswerer) EverySecond(now time.Duration) {
	g.logSwitches()
	g.ranges.Window(now, g.arrivals, g.Core.Options.Log)
	g.forwards.Window(g.counts.answers, g.Core.Options.Log)
}

// SeenRates returns the rates that were seen.
func (g *CascadeAnswerer) SeenRates() *drift.RateHistory { return &g.ranges.Rates }

// Admit gives a new job (a client's request of j.Samples samples) the state in which it notes the gear and which model
// answers each sample. State of a pooled job is used again. It never refuses a job. Goroutines of transports call it,
// before the job enters the core. It implements turn.Answerer.
func (g *CascadeAnswerer) Admit(j *turn.Job, _ map[string]oip.Param) *oip.Error {
	state, ok := j.AnswerState.(*cascadeJob)
	if !ok {
		state = &cascadeJob{params: map[string]oip.Param{}}
		j.AnswerState = state
	}
	state.gear, state.certainty, state.answers = 0, 0, state.answers[:0]
	for range j.Samples {
		state.answers = append(state.answers, 0)
	}
	return nil
}

// JobArrived starts the records of a new job's samples (one request of the policy each, by request slot), when the core
// takes the job from its inbox, and notes and counts the gear in force. For the engine replay each request stands for
// one of the plan's recorded samples, in their order and again from the first. It implements turn.Answerer.
func (g *CascadeAnswerer) JobArrived(j *turn.Job) {
	for _, slot := range j.Slots {
		for int(slot) >= len(g.requests) {
			g.requests = append(g.requests, cascadeRequest{})
		}
		g.requests[slot] = cascadeRequest{record: int32(g.arrivals % int64(g.gears.Records.Samples)), answer: -1}
		g.arrivals++
	}
	j.AnswerState.(*cascadeJob).gear = g.gear
	g.counts.requests[g.gear] += int64(j.Samples)
}

// CheckOutputs returns an error if no certainty can be computed from the first output of the family, which is the
// cascade's models, seen by clients as one model m. That needs FP32 or FP64 scores of at least two classes. It also
// makes the buffer into which scores are read. The engine replay computes none and passes the check.
func (g *CascadeAnswerer) CheckOutputs(m *turn.Model) error {
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

// TakeOutputs copies a batch's outputs to its requests and computes how certain each answer is, as a level: how many of
// the plan's thresholds for the model it reaches. The levels, in the batch's order, are read by BatchEnded, which passes
// them to the policy. The engine replay takes the levels of the recorded samples.
func (g *CascadeAnswerer) TakeOutputs(b *turn.Batch, out turn.BatchOutputs) {
	g.CopyOutputs(b, out)
	g.metrics.countBatch(b.Pipeline, len(b.Tasks), b.InferTime)
	g.certaintyLevels, g.certainties = g.certaintyLevels[:0], g.certainties[:0]
	if g.replay {
		for _, req := range b.Tasks {
			g.certaintyLevels = append(g.certaintyLevels, int64(g.gears.Records.Levels[b.Pipeline][g.requests[req].record]))
		}
		return
	}
	first, src := &b.Service.Outputs[0], out.Output(0)
	// Compute the certainty of each sample from the class scores, which are in the first output, and correct it by the
	// model's calibration.
	for k := range b.Tasks {
		readScores(g.scores, src[k*first.Bytes:], first.Datatype)
		certainty.Normalise(g.scores)
		calibrated := g.calibrations[b.Pipeline].Calibrated(g.certaintyOf(g.scores))
		g.certainties = append(g.certainties, calibrated)
		g.certaintyLevels = append(g.certaintyLevels, g.gears.Level(b.Pipeline, calibrated))
	}
}

// readScores reads the class scores of one sample from a tensor's little-endian bytes src, of type t (FP64, or else
// FP32), into dst, which has one place for each class.
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

// BatchEnded tells the policy, request by request, the level of certainty of the answers of a finished batch on device
// dev. The policy then completes a request or keeps it for the next model of the cascade. Requests whose batch failed,
// or for whose answer nobody waits, are cancelled first, and their level is 0.
func (g *CascadeAnswerer) BatchEnded(b *turn.Batch, dev int32) {
	c := g.Core
	g.revealedAt = c.Loop.Now()
	if !b.HasFailed {
		m := &g.Models[b.Pipeline]
		m.batches++
		m.samples += int64(len(b.Tasks))
		m.runTime += b.InferTime
	}

	// All requests of the batch wait again.
	n := int64(len(b.Tasks))
	b.Service.Running.Add(-n)
	b.Service.Waiting.Add(n)
	for _, req := range b.Tasks {
		c.Ledger.RequestIn(req).Batch = -1
	}

	// Tell the policy the level of each.
	for k, req := range b.Tasks {
		q := c.Ledger.RequestIn(req)
		if q.IsDropped { // the policy has dropped it meanwhile
			c.Ledger.FreeRequest(req)
			continue
		}
		level := int64(0)
		if b.HasFailed || q.Job.Answered {
			c.Loop.TellPolicy(policy.Event{Kind: policy.Cancel, Model: b.Model, Service: b.Service.Index, Req: req, Task: req})
		} else {
			level = g.keepAnswer(req, k, b)
		}
		c.Loop.TellPolicy(policy.Event{Kind: policy.ControlRevealed, Model: b.Model, Service: b.Service.Index, Req: req, Task: req, Batch: b.Slot, Device: dev, Value: level})
	}
}

// keepAnswer records in the request of slot req that the batch's pipeline has answered it, and adds the batch's times.
// The request is the k-th of the batch. It returns the level of the answer's certainty (the number of thresholds that it
// reaches), by which the policy decides whether the next model of the cascade runs.
func (g *CascadeAnswerer) keepAnswer(req int32, k int, b *turn.Batch) int64 {
	a := &g.requests[req]
	a.answer = b.Pipeline
	a.inferTime += b.InferTime
	a.gatherTime += b.GatherTime
	if !g.replay {
		a.certainty = g.certainties[k]
	}
	return g.certaintyLevels[k]
}

// HoldsDevice returns true if batches of a pipeline keep their only device until their answers were told. A batch on a
// chain leaves its devices earlier.
func (g *CascadeAnswerer) HoldsDevice(pipeline int32) bool {
	return g.Core.Tables.Pipelines[pipeline].NumStages == 1
}

// PolicyTold records how long, as the policy saw it, a batch kept its device: from its dispatch until the next batch
// could be dispatched.
func (g *CascadeAnswerer) PolicyTold(b *turn.Batch) {
	if s := g.Core.Stats.Recorder; s != nil && !b.HasFailed && g.HoldsDevice(b.Pipeline) {
		s.RecordRun(g.Core.Tables.Pipelines[b.Pipeline].FirstStage, len(b.Tasks), b.DispatchedAt, g.Core.Loop.LastTime()-b.DispatchedAt)
	}
}

// CompleteRequest makes the latest answer of the request of a slot its final one, frees the slot, and, with the last
// sample of its job, answers the client. The core calls it when the policy finds the answer certain enough or the
// cascade ends.
func (g *CascadeAnswerer) CompleteRequest(slot int32) {
	c := g.Core
	if c.Ledger.RequestIn(slot) == nil || g.requests[slot].answer < 0 {
		c.Options.Log.Error("the policy completed a request that has no answer", "request", slot)
		return
	}

	// Count the answer by the gear of the job's arrival and by pipeline, and answer the job with its last sample. If the
	// job has been answered already (refused, say), the slot is only freed.
	q, a := c.Ledger.RequestIn(slot), &g.requests[slot]
	if j := q.Job; !j.Answered {
		state := j.AnswerState.(*cascadeJob)
		g.Models[a.answer].Answers++
		g.counts.answers[state.gear][a.answer]++
		g.metrics.answers[state.gear][a.answer].Inc()
		if g.replay {
			g.counts.recordedAnswers++
			if g.gears.Records.Correct[a.answer][a.record] {
				g.counts.correctAnswers++
			}
		}
		state.answers[q.Sample] = a.answer
		state.certainty = a.certainty
		if j.RemainingSamples--; j.RemainingSamples == 0 {
			now := c.Loop.Now()
			j.Outcome, j.IsLate = turn.OutcomeServed, now > j.Deadline
			c.Stats.RecordServedTasks(j, a.inferTime, a.gatherTime, now, g.revealedAt)
			c.Ledger.AnswerJob(j)
		}
	}
	c.Ledger.FreeRequest(slot)
}

// SwitchMode puts gear `to` into force for the requests that arrive from now on, when the policy asks for it. If
// there is no such gear, it returns false.
func (g *CascadeAnswerer) SwitchMode(to int32) bool {
	if to < 0 || int(to) >= len(g.counts.requests) {
		return false
	}
	g.metrics.countSwitch(g.gear, to)
	g.counts.switches++
	g.gear = to
	return true
}

// ResponseParameters returns the gear in force at the job's arrival and the model that answered (with several samples,
// the models in their order). For a single sample it also returns the certainty.
func (g *CascadeAnswerer) ResponseParameters(j *turn.Job) map[string]oip.Param {
	state := j.AnswerState.(*cascadeJob)
	clear(state.params)
	state.params["gear"] = g.gearParams[state.gear]
	if j.Samples == 1 {
		state.params["model"] = g.modelParams[state.answers[0]]
		if !g.replay {
			state.params["certainty"] = state.certainty
		}
		return state.params
	}
	var names strings.Builder
	for k, a := range state.answers {
		if k > 0 {
			names.WriteByte(',')
		}
		names.WriteString(g.gears.PipelineModels[a])
	}
	state.params["model"] = names.String()
	return state.params
}

// Report adds the cascade's part to a report: how often the gear changed, requests by gear, what each model did, and the
// alarms of rates and forwards. Requests that had recorded answers also give an accuracy: the share that was right.
func (g *CascadeAnswerer) Report(r *formats.Report) {
	if g.counts.recordedAnswers > 0 {
		accuracy := float64(g.counts.correctAnswers) / float64(g.counts.recordedAnswers)
		r.Accuracy = &accuracy
	}
	out := &formats.GearReport{Switches: g.counts.switches, RequestsByGear: append([]int64(nil), g.counts.requests...)}
	// Sum by model. Pipelines are in the order of their models, so that those of one model stand together.
	for p, name := range g.gears.PipelineModels {
		if p == 0 || name != g.gears.PipelineModels[p-1] { // else the same model on another kind of devices
			out.Models = append(out.Models, formats.GearModelReport{Model: name})
		}
		m, sum := &g.Models[p], &out.Models[len(out.Models)-1]
		sum.Batches, sum.Samples, sum.Answers = sum.Batches+m.batches, sum.Samples+m.samples, sum.Answers+m.Answers
		sum.RunningUS += document.Micros(m.runTime)
	}
	r.Gears = out
	g.ranges.Report(r)
	g.forwards.Report(r)
}
