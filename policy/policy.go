package policy

import "time"

// Policy decides. Handle is called in time order by one goroutine; ev and out
// belong to the caller, and the policy keeps neither.
type Policy interface {
	Handle(now time.Duration, ev *Event, out *Actions)
}

// EventKind says what happened. The order of the constants is the order in
// which events of one instant are handled.
type EventKind uint8

const (
	// BatchFinished: the batch left device Device after stage Hop. Start and End
	// are the actual times of the run. After the last hop the batch's requests
	// are complete.
	BatchFinished EventKind = iota
	// TransferFinished: the batch's cut tensors arrived for stage Hop; Start and
	// End are the actual times.
	TransferFinished
	// BatchStarted: the batch began to run on Device at stage Hop.
	BatchStarted
	// ModelLoaded and ModelUnloaded: model Model on Device.
	ModelLoaded
	ModelUnloaded
	// WorkerLost: Device no longer runs anything; what was on it is gone.
	WorkerLost
	// WorkerBack: Device is empty and ready.
	WorkerBack
	// ControlRevealed: what decides the way of request Req on is known. Of a gear
	// plan: Value is the level of the answer of batch Batch (see Gears); it comes
	// for every request of the batch, in its order, before BatchFinished. Of a
	// workflow: the next segment.
	ControlRevealed
	// TokenProgress: an LLM instance produced tokens.
	TokenProgress
	// PlanInstalled: the plan that the policy was made for is in force.
	PlanInstalled
	// ReplanResult: an asynchronous re-plan came back.
	ReplanResult
	// Arrival: request Req of model Model wants its answer by Deadline.
	Arrival
	// Cancel: nobody waits for request Req any more.
	Cancel
	// Timer: the time asked for with a Wake action has come. Value is the
	// Wake's tag.
	Timer
)

// Event is one thing that happened. Which fields are set depends on Kind; the
// others are zero.
type Event struct {
	Kind     EventKind
	Hop      int16 // stage position within the pipeline, from 0
	Model    int32
	Req      int32 // request slot
	Batch    int32 // batch slot
	Device   int32
	Value    int64         // kind-specific
	Arrived  time.Duration // Arrival: when the request came in (<= now)
	Deadline time.Duration // Arrival: absolute
	Start    time.Duration // finished work: actual start
	End      time.Duration // finished work: actual end
}

// ActionKind says what to do.
type ActionKind uint8

const (
	// Dispatch: run batch Batch of Size requests (Reqs) along Hops. Where Hops end
	// before the pipeline does, BatchFinished of the last of them hands the
	// requests back: they wait for a Dispatch to the stages behind it, whose first
	// hop begins with the transfer from where the last request is. Only the
	// simulator runs parts of pipelines.
	Dispatch ActionKind = iota
	// Drop: answer request Req with Reason at once.
	Drop
	// Wake: send a Timer event with Tag at At. Each Tag has at most one pending
	// wake; a new one replaces it, and At < 0 cancels it.
	Wake
	// Abort: forget batch Batch, whatever still runs of it; its requests are
	// still pending with the policy, its slot is free again.
	Abort
	// Load, Unload and Evict: model Model on Device.
	Load
	Unload
	Evict
	// SwitchGear: gear Tag is in force.
	SwitchGear
	// Replan: start an asynchronous re-plan.
	Replan
	// Complete: the last answer of request Req is its answer (gear plans).
	Complete
)

// Reason says why a request was dropped.
type Reason uint8

const (
	// ReasonNone is no reason.
	ReasonNone Reason = iota
	// ReasonDeadline: even a batch of one could no longer meet the deadline.
	ReasonDeadline
	// ReasonQueueFull: the queue's limit was reached.
	ReasonQueueFull
	// ReasonWorkerLost: the devices that could have run it in time are gone.
	ReasonWorkerLost
	// ReasonCancelled: the client went away.
	ReasonCancelled
	// ReasonDraining: the server is shutting down.
	ReasonDraining
	// ReasonFailed: the engine failed on the batch.
	ReasonFailed
	numReasons
)

var reasonNames = [numReasons]string{"", "deadline", "queue_full", "worker_lost", "cancelled", "draining", "failed"}

// String is the reason's name in reports, metrics and protocol errors.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// Reasons lists the reasons that a drop may carry, in order.
func Reasons() []Reason {
	out := make([]Reason, 0, numReasons-1)
	for r := ReasonDeadline; r < numReasons; r++ {
		out = append(out, r)
	}
	return out
}

// Action is one thing to do. Dispatch names its requests and hops as ranges of
// the buffer: Reqs[ReqFirst:ReqFirst+Size], Hops[HopFirst:HopFirst+HopCount].
type Action struct {
	Kind     ActionKind
	Reason   Reason
	HopCount int16
	Pipeline int32
	Model    int32
	Req      int32
	Batch    int32
	Size     int32
	Device   int32
	Tag      int32
	ReqFirst int32
	HopFirst int32
	At       time.Duration
}

// Hop is one stage of a batch's path with what was reserved for it. The
// interpreter takes devices and links from it but runs work first-in first-out
// and never holds it back for a reserved start.
type Hop struct {
	Stage     int32 // index into Tables.Stages
	Device    int32
	Uplink    int32 // links of the transfer into this stage; -1 without one
	Downlink  int32
	XferStart time.Duration
	XferEnd   time.Duration
	Start     time.Duration
	End       time.Duration
}

// Actions is the buffer that Handle appends to. The caller resets it and owns
// it; reusing one buffer makes the loop free of allocation.
type Actions struct {
	List []Action
	Reqs []int32
	Hops []Hop
}

// Reset empties the buffer and keeps its memory.
func (a *Actions) Reset() {
	a.List, a.Reqs, a.Hops = a.List[:0], a.Reqs[:0], a.Hops[:0]
}

// Dispatched returns the requests and hops of a Dispatch action.
func (a *Actions) Dispatched(act *Action) ([]int32, []Hop) {
	return a.Reqs[act.ReqFirst : act.ReqFirst+act.Size], a.Hops[act.HopFirst : act.HopFirst+int32(act.HopCount)]
}
