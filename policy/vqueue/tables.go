package vqueue

import (
	"fmt"
	"time"

	"inferplan/policy"
)

// Tables are the policy's tables of a queue plan, beside those of all kinds.
type Tables struct {
	// RCT has the estimators by served model, by regular or mega prompts, and by kind of device, see Estimator.
	// Where requests cannot run, Batch is 0.
	RCT []RCT
	// MegaTokens has, by served model, the prompt tokens from which on a request is a mega prompt; 0 if none is.
	MegaTokens []int32
	// MaxSequences has, by served model and kind of device, how many requests may run at once if one of the model
	// does. If it is 0 or nil, the instance's own limit applies.
	MaxSequences []int32
	// Caps has, by device and served model, how many requests of the model may run at once there. 0 keeps the
	// model away; a negative number or nil is no cap.
	Caps []int32
	// AllowedDevices has, by network, the devices that may serve it, ascending. If it is nil, all devices that can
	// may.
	AllowedDevices [][]int32
	// unsupported is the first part of the plan that the policy cannot follow, or nil.
	unsupported error
}

// Estimator returns the estimator of completion times of a served model on a kind of device, for regular requests or for mega prompts,
// which are many times longer. kinds is the number of kinds.
func (t *Tables) Estimator(kinds int, model int32, isMegaPrompt bool, kind int32) *RCT {
	return &t.RCT[estimatorIndex(kinds, model, isMegaPrompt, kind)]
}

// The values of isMegaPrompt: a mega prompt is many times longer than other requests.
const (
	regularRequest = false
	megaPrompt     = true
)

// estimatorIndex returns the index in Tables.RCT of the estimator of a served model on a kind of device.
// Each kind of request (regular or mega prompt) has a row of `kinds` estimators, one for each kind of device.
func estimatorIndex(kinds int, model int32, isMegaPrompt bool, kind int32) int {
	return requestKind(model, isMegaPrompt)*kinds + int(kind)
}

// requestKind returns the number of a kind of request: two for each served model, first regular requests and then mega prompts, which are many
// times longer.
func requestKind(model int32, isMegaPrompt bool) int {
	kind := 2 * int(model)
	if isMegaPrompt {
		kind++
	}
	return kind
}

// closedModels returns, by served model, whether a cap of 0 keeps it away from a device.
// A cap is the most requests of a model that run at once there. If there are no caps, it returns nil.
func (t *Tables) closedModels(device int32, models int) []bool {
	if t.Caps == nil {
		return nil
	}
	isClosed := make([]bool, models)
	for model := range isClosed {
		isClosed[model] = t.Caps[int(device)*models+model] == 0
	}
	return isClosed
}

// QueueRule is the order of queues.
type QueueRule uint8

const (
	// VirtualQueues is QLM's rule: groups, in the order that the search finds.
	VirtualQueues QueueRule = iota
	// FCFS serves requests in the order of arrival, each on the instance where the least work waits: servers
	// behind a load balancer.
	FCFS
	// EDF is FCFS with the earliest deadline first.
	EDF
	// byDispatcher leaves the order to the dispatcher of Options.NewDispatcher.
	byDispatcher
)

// Options are the options of the policy. The zero value is the recommended one.
type Options struct {
	Rule QueueRule
	// DisabledLSOs disables operations.
	DisabledLSOs [numLSOs]bool
	// NewDispatcher makes the rule of a baseline, in which requests wait in one list for all instances.
	// AllowedDevices replaces that of the tables. NewDealer makes the function that returns, with Balancing
	// disabled, the instance that is asked first; without it instances are asked in turn. All three may be nil.
	NewDispatcher  func(s *InstanceControl) Dispatcher
	AllowedDevices [][]int32
	NewDealer      func(seed uint64) func(instances int) int
	// GroupBatches is the size of a group in batches (the paper's delta); 0 means 4, as in the paper.
	GroupBatches float64
	// MemberOrder is the order within a group.
	MemberOrder MemberOrder
	// OneOpenGroup keeps one open group per model for all instances, instead of one per queue.
	OneOpenGroup bool
	// AppendGroups puts new groups at the end of the queue with the least work, as the paper does, instead of
	// where the objective grows least.
	AppendGroups bool
	// ReplanOnViolation plans again only if a violation is expected, as the paper does, instead of at every tick.
	ReplanOnViolation bool
	// ReplanInterval is the time between ticks while instances do something; 0 means a second. With NoReplan,
	// groups keep the order in which they were placed.
	ReplanInterval time.Duration
	NoReplan       bool
	// The next three options help if deadlines cannot be met (appendix A.3). DropLate drops requests whose
	// deadline has passed before they start. QueueLimit drops arrivals while this many requests wait; 0 is no
	// limit. EDFAbove orders queues by deadline while the plan makes more than this share of requests late; 0
	// disables it.
	DropLate   bool
	QueueLimit int
	EDFAbove   float64
	// NewScaler makes the rule that switches instances on and off. If it is nil, all are on.
	NewScaler func(s *InstanceControl) Scaler
	// NoPausePricing pulls requests while there is capacity, even if prompts slow the batch.
	NoPausePricing bool
	// IgnoreSessions places the requests of a session like others, instead of where the memory of an instance holds its context.
	IgnoreSessions bool
	// FollowInstances keeps the estimators near the times of the instances.
	FollowInstances bool
	Objective       Objective // the zero value means RecommendedObjective
	Seed            uint64
}

// TablesOf returns this package's tables in those of a plan. If the plan is of another kind, it returns nil.
func TablesOf(planTables *policy.Tables) *Tables {
	queueTables, _ := planTables.KindTables.(*Tables)
	return queueTables
}

// validate returns an error that describes the first inconsistency of the tables with which the policy could not work, or nil.
// It is called once, when the policy is made. Each model has two estimators on each kind of device: for regular requests and for mega
// prompts (many times longer).
func (t *Tables) validate(planTables *policy.Tables) error {
	kinds := len(planTables.Kinds)
	switch {
	case t.unsupported != nil:
		return t.unsupported
	case len(t.RCT) != 2*len(planTables.Models)*kinds:
		return fmt.Errorf("tables of a queue plan: found %d estimators, expected 2 for each of %d models on %d kinds", len(t.RCT), len(planTables.Models), kinds)
	case len(t.MegaTokens) != len(planTables.Models):
		return fmt.Errorf("tables of a queue plan: found %d limits of mega prompts, expected %d", len(t.MegaTokens), len(planTables.Models))
	case t.MaxSequences != nil && len(t.MaxSequences) != len(planTables.Models)*kinds:
		return fmt.Errorf("tables of a queue plan: found %d limits of sequences, expected %d", len(t.MaxSequences), len(planTables.Models)*kinds)
	case t.Caps != nil && len(t.Caps) != len(planTables.Models)*len(planTables.Devices):
		return fmt.Errorf("tables of a queue plan: found %d caps, expected %d", len(t.Caps), len(planTables.Models)*len(planTables.Devices))
	case t.AllowedDevices != nil && len(t.AllowedDevices) != len(planTables.Networks):
		return fmt.Errorf("tables of a queue plan: found the devices of %d networks, expected %d", len(t.AllowedDevices), len(planTables.Networks))
	}
	for model := range planTables.Models {
		if planTables.Models[model].NumPipelines != 1 {
			return fmt.Errorf("tables of a queue plan: model %d has %d pipelines, expected one", model, planTables.Models[model].NumPipelines)
		}
	}
	return nil
}
