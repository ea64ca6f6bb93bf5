package profiler

import "time"

// progress reports to the caller of Run how far the run is. report may be nil.
type progress struct {
	report       func(Event)
	warned       map[string]bool // warnings that were reported
	finishedTime time.Duration   // expected time of finished groups
	totalTime    time.Duration   // the expected time of all groups
}

// event passes an event on to the caller of Run.
func (p *progress) event(e Event) {
	if p.report != nil {
		p.report(e)
	}
}

// warn reports a warning about a model to the caller of Run, each text only once.
func (p *progress) warn(model, text string) {
	if p.warned[text] {
		return
	}
	if p.warned == nil {
		p.warned = map[string]bool{}
	}
	p.warned[text] = true
	p.event(Event{Stage: StageWarning, Model: model, Text: text, DoneShare: p.fraction(0)})
}

// fraction returns the share of the run that is finished when `done` nanoseconds of the current group's expected
// time are.
func (p *progress) fraction(done float64) float64 {
	if p.totalTime <= 0 {
		return 0
	}
	return min(1, (float64(p.finishedTime)+done)/float64(p.totalTime))
}
