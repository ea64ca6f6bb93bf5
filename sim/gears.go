package sim

import (
	"fmt"
	"time"

	"inferplan/policy"
)

// GearResult is what a run of a gear plan showed beside its report. Only
// requests that are counted in the report count here.
type GearResult struct {
	Answered int64
	Correct  int64 // answers that are right, by the plan's records
	Switches int64 // of gears, in the whole run
}

// Accuracy is the share of right answers, 0 without any.
func (g *GearResult) Accuracy() float64 {
	if g.Answered == 0 {
		return 0
	}
	return float64(g.Correct) / float64(g.Answered)
}

func (r *Result) setGears(g GearResult) {
	r.Gears = &g
	if g.Answered > 0 && r.Report != nil {
		accuracy := g.Accuracy()
		r.Report.Accuracy = &accuracy
	}
}

// sampleOf is the sample that a request carries: request i of the run carries
// sample i modulo their number.
func (s *machine) sampleOf() int32 {
	if s.family == nil {
		return 0
	}
	return int32(s.sampled % int64(s.family.Records.Samples))
}

// reveal ends a batch of a gear plan: its requests wait again, and the policy
// hears what level each answer has.
func (s *machine) reveal(slot int32, d int32) {
	b := &s.batches[slot]
	pipeline := b.pipeline
	levels := s.family.Records.Levels[pipeline]
	s.event = policy.Event{Kind: policy.ControlRevealed, Model: b.model, Batch: slot, Device: d}
	for _, r := range s.members(slot) {
		q := &s.requests[r]
		q.state, q.answer = waiting, pipeline
		s.event.Req, s.event.Task, s.event.Value = r, r, int64(levels[q.sample])
		s.hear()
	}
}

// answer completes a request of a gear plan with its last answer.
func (s *machine) answer(slot int32) {
	q := &s.requests[slot]
	if s.family == nil || q.state != waiting || q.answer < 0 {
		s.fail(fmt.Errorf("the policy completes request slot %d, which has no answer", slot))
		return
	}
	if q.arrived >= s.cfg.Warmup {
		s.gears.Answered++
		if s.family.Records.Correct[q.answer][q.sample] {
			s.gears.Correct++
		}
	}
	s.acc.Complete(q.model, q.arrived, s.now+s.cfg.Egress, q.deadline)
	if s.cfg.Completed != nil {
		s.cfg.Completed(q.arrived, s.now+s.cfg.Egress)
	}
	s.freeRequest(slot)
}

// CompletedFunc hears of every answered request.
type CompletedFunc func(arrived, answered time.Duration)
