package vqueue

import (
	"fmt"
	"time"

	"inferplan/policy"
)

// Tables are what the policy knows beside the tables of all kinds.
type Tables struct {
	// RCT has the estimators by served model, by whether requests are mega prompts, and
	// by kind of device; Batch 0: it cannot run there. See Estimator.
	RCT []RCT
	// Mega has, by served model, the prompt tokens from which on a request is a mega
	// prompt; 0: none is.
	Mega []int32
	// Sequences has, by served model and kind of device, the most that run at once
	// where one of the model does; 0 or nil: the instance's own limit.
	Sequences []int32
	// Caps has, by device and served model, the most of it that run at once there. 0
	// keeps the model away; below 0 or nil: no cap.
	Caps []int32
	// Only has, by network, the devices that may serve it, ascending; nil: all that can.
	Only [][]int32
	// lacks is what the plan asks for that the policy cannot do; nil: nothing.
	lacks error
}

// Estimator is that of a served model on a kind of device.
func (o *Tables) Estimator(kinds int, model int32, mega bool, kind int32) *RCT {
	return &o.RCT[place(kinds, model, mega, kind)]
}

// place is where the estimator of a served model on a kind of device stands.
func place(kinds int, model int32, mega bool, kind int32) int {
	at := 2 * int(model)
	if mega {
		at++
	}
	return at*kinds + int(kind)
}

// closed has the served models that a device takes none of; nil: it takes all.
func (o *Tables) closed(device int32, models int) []bool {
	if o.Caps == nil {
		return nil
	}
	out := make([]bool, models)
	for m := range out {
		out[m] = o.Caps[int(device)*models+m] == 0
	}
	return out
}

// Rule is how queues are ordered.
type Rule uint8

const (
	// Planned is QLM's: groups, ordered by the search.
	Planned Rule = iota
	// FCFS serves requests in the order of arrival, each where the least work waits: a
	// fleet of servers behind a balancer.
	FCFS
	// EDF is FCFS with the earliest deadline first.
	EDF
	// byDispatcher serves them as Options.Dispatch says.
	byDispatcher
)

// Options steer the policy. The zero value is the recommended one.
type Options struct {
	Rule Rule
	// Without switches operations off.
	Without [numLSOs]bool
	// Dispatch makes the rule of a baseline, by which requests wait in one list for all instances. Only takes
	// the place of Tables.Only, and Deal, where requests are dealt (without Balancing), of turns: it makes
	// what says which instance of so many is asked first. Nil: none.
	Dispatch func(s *Servers) Dispatcher
	Only     [][]int32
	Deal     func(seed uint64) func(instances int) int
	// Delta is the size of a group in batches; 0 is 4, the paper's.
	Delta float64
	// Members is the order within a group.
	Members Members
	// OneOpen keeps one open group per model for the fleet, instead of one per queue.
	OneOpen bool
	// Append puts new groups at the end of the queue with the least work, as the paper
	// does, instead of where the objective grows least.
	Append bool
	// OnViolation plans anew only where a violation is expected, as the paper does,
	// instead of every time.
	OnViolation bool
	// Every is the time between re-plans while instances do something; 0 is a second. Without a re-plan (Still)
	// groups stay as they came.
	Every time.Duration
	Still bool
	// What helps where deadlines cannot be met (appendix A.3). Admission drops requests
	// whose deadline has passed before they start, and a QueueLimit those that come
	// while so many wait. EDFAbove orders queues by deadline while the plan makes more
	// than this share of requests late; 0: never.
	Admission  bool
	QueueLimit int
	EDFAbove   float64
	// Scale makes what turns instances on and off; nil: all are on.
	Scale func(s *Servers) Scaler
	// Unpriced pulls requests while there is room, whatever that does to the batch.
	Unpriced bool
	// Follow keeps the estimators near what the instances do.
	Follow    bool
	Objective Objective // zero: Recommended
	Seed      uint64
}

// Of finds the tables of this package in those of a plan; nil: they are another
// kind's.
func Of(t *policy.Tables) *Tables {
	own, _ := t.Own.(*Tables)
	return own
}

// check tells what the policy could not work with.
func (o *Tables) check(t *policy.Tables) error {
	kinds := len(t.Kinds)
	switch {
	case o.lacks != nil:
		return o.lacks
	case len(o.RCT) != 2*len(t.Models)*kinds:
		return fmt.Errorf("tables of a queue plan: found %d estimators, expected 2 for each of %d models on %d kinds", len(o.RCT), len(t.Models), kinds)
	case len(o.Mega) != len(t.Models):
		return fmt.Errorf("tables of a queue plan: found %d limits of mega prompts, expected %d", len(o.Mega), len(t.Models))
	case o.Sequences != nil && len(o.Sequences) != len(t.Models)*kinds:
		return fmt.Errorf("tables of a queue plan: found %d limits of sequences, expected %d", len(o.Sequences), len(t.Models)*kinds)
	case o.Caps != nil && len(o.Caps) != len(t.Models)*len(t.Devices):
		return fmt.Errorf("tables of a queue plan: found %d caps, expected %d", len(o.Caps), len(t.Models)*len(t.Devices))
	case o.Only != nil && len(o.Only) != len(t.Networks):
		return fmt.Errorf("tables of a queue plan: found the devices of %d networks, expected %d", len(o.Only), len(t.Networks))
	}
	for m := range t.Models {
		if t.Models[m].NumPipelines != 1 {
			return fmt.Errorf("tables of a queue plan: model %d has %d pipelines, expected one", m, t.Models[m].NumPipelines)
		}
	}
	return nil
}
