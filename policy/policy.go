package policy

import "time"

// Policy decides at run time. One goroutine calls Handle, in the order of time. ev and out belong to the caller,
// and the policy keeps neither.
type Policy interface {
	Handle(now time.Duration, ev *Event, out *Actions)
}

// EventKind says what happened. The order of the constants is the order in which events of one instant are
// handled.
type EventKind uint8

const (
	// BatchFinished: the batch left device Device after stage Hop. Start and End are the actual times of the run.
	// What the batch revealed was reported before. After the last hop the batch's tasks have ended. On an instance
	// Tokens is the number of tokens produced, or 0 if it is not known.
	BatchFinished EventKind = iota
	// BatchReturned: batch Batch ended on Device without a result; Value is a ReturnReason. Its tasks wait again
	// and its slot is free. List has, by task, the number of tokens that it has produced.
	BatchReturned
	// TransferFinished: the batch's cut tensors arrived for stage Hop; Start and End are the actual times. With
	// Batch -1 it answers a Place: all inputs of Task are at Device.
	TransferFinished
	// BatchStarted: the batch began to run on Device at stage Hop. An instance admitted it.
	BatchStarted
	// NetworkLoaded: network Network is on Device, loaded from Start to End. Value is 0, or a ReturnReason if it
	// could not be loaded.
	NetworkLoaded
	// NetworkUnloaded: network Network is no longer on Device. Value is 0, or a ReturnReason if it stays.
	NetworkUnloaded
	// WorkerLost: Device no longer runs anything, and everything on it is lost.
	WorkerLost
	// WorkerBack: Device is empty and ready. For an instance, Value and Limit are the sequences and the tokens of
	// KV memory that its server reports.
	WorkerBack
	// ControlRevealed: it is known how request Req goes on. For a cascade, Value is the level of the answer of
	// batch Batch; the event comes for every request of the batch, in its order, before BatchFinished. With a
	// Control, Value is the number of tasks that follow with TaskRevealed; with 0 the request is over. Key is 1 if
	// the tasks do not follow from the end of a batch but were asked for by a program.
	ControlRevealed
	// TaskRevealed: Task of Req asks for Service. List has the tasks whose outputs it reads; -1 is the client's
	// input. It may run once they have ended. Value is its work in millionths of the usual, 0 for the usual; Key
	// is its item of a fan-out.
	TaskRevealed
	// TokenProgress: Batch has produced Tokens in all. It comes for the first token, then every
	// Instance.ProgressTokens.
	TokenProgress
	// PlanInstalled: the plan that the policy was made for is in force.
	PlanInstalled
	// ReplanResult: the search of the Replan with tag Value returned List. An empty list means that it found
	// nothing in time.
	ReplanResult
	// Arrival: request Req of model Model wants its answer by Deadline. Without a Control it reveals the one task
	// of Req, whose slot is Req. Tokens is the length of the prompt, Limit the most tokens to produce, Key the
	// session. With Value 1 the request was promised an answer, so it is not dropped for want of room or of
	// devices. Without Tokens, Value is the number of further samples of the same client request that come at
	// once.
	Arrival
	// Cancel: the client of request Req no longer waits for it.
	Cancel
	// Timer: the time of a Wake action has come. Value is the Wake's tag.
	Timer

	// NumEvents is the number of kinds.
	NumEvents
)

// ReturnReason says why a batch came back, or why a network could not be loaded.
type ReturnReason int64

const (
	// ReturnEvicted: the policy asked for it.
	ReturnEvicted ReturnReason = 1 + iota
	// ReturnFull: the instance, or the device's memory, had no room.
	ReturnFull
	// ReturnFailed: the engine or server failed.
	ReturnFailed
	// ReturnNotLoaded: the network is not on the device.
	ReturnNotLoaded
	// ReturnRefused: the engine or server cannot do this at run time.
	ReturnRefused
)

// Event is one thing that happened. Which fields are set depends on Kind; the others are zero. If requests have
// one task each (without a Control), Task is Req, and Service is Model.
type Event struct {
	Kind      EventKind
	Hop       int16 // stage position within the pipeline, from 0
	Model     int32 // model of the request; -1 for a batch of several
	Req       int32 // request slot
	Task      int32 // task slot
	Service   int32 // service of the task
	Network   int32 // network on a device
	Batch     int32 // batch slot
	Device    int32
	Tokens    int32
	Limit     int32
	Client    int32         // Arrival: the request's client, see ClientNumber; 0 if unknown
	Value     int64         // kind-specific
	Key       int64         // kind-specific
	ArrivedAt time.Duration // Arrival: when the request came in (<= now)
	Deadline  time.Duration // Arrival: absolute time
	Start     time.Duration // finished work: actual start
	End       time.Duration // finished work: actual end
	List      []int32       // kind-specific; it belongs to the caller and is valid during the call
}

// ClientNumber returns the number by which events name a client: a hash of its name, which is that of its key, else
// its address. The client without a name has number 0.
func ClientNumber(name string) int32 {
	if name == "" {
		return 0
	}
	const offsetBasis, prime = 2166136261, 16777619 // of the 32-bit FNV-1a hash
	hash := uint32(offsetBasis)
	for i := range len(name) {
		hash = (hash ^ uint32(name[i])) * prime
	}
	return int32(max(hash>>1, 1)) // of 31 bits, and never 0
}

// ActionKind says what the interpreter is to do.
type ActionKind uint8

const (
	// Dispatch: run batch Batch of Size tasks (Tasks) along Hops. If Hops end before the pipeline does,
	// BatchFinished of the last hop returns the tasks: they wait for a Dispatch to the later stages, whose first
	// hop begins with the transfer from the device of the last task. Only the simulator runs parts of pipelines.
	// To an instance: one task with one hop, and Tag is its priority among those that wait there, lower first.
	Dispatch ActionKind = iota
	// Drop: answer request Req with Reason at once, wherever its tasks are. Batches that hold some run on; the
	// policy forgets those that wait. At is the time from which on asking again is worthwhile, or 0 if unknown.
	Drop
	// Wake: send a Timer event with Tag at At. Each Tag has at most one pending wake; a new one replaces it, and
	// At < 0 cancels it.
	Wake
	// Abort: forget batch Batch, whatever still runs of it. Its tasks remain pending with the policy, and its slot
	// is free again.
	Abort
	// Load: load Network on Device. Loads of a device run one after the other, beside its batches; NetworkLoaded
	// follows. With Network -1: load the state of session Key.
	Load
	// Unload: unload Network from Device, once no batch there runs it. A load that has not begun is cancelled.
	// NetworkUnloaded follows, unless a later Load cancels the Unload.
	Unload
	// Evict: remove Batch from its instance; with Tag 1 its state is kept in the host's memory. BatchReturned
	// follows.
	Evict
	// SwitchMode: mode Tag (a gear) is in force.
	SwitchMode
	// Replan: run the function that Searcher.Search returns for Tag beside the loop; ReplanResult follows. A
	// further Replan with the same tag replaces the first.
	Replan
	// Complete: the last answer of request Req is its answer (cascades).
	Complete
	// Place: bring the inputs of Task to Device, as soon as they exist. A further Place sends them to another
	// device. TransferFinished follows.
	Place

	// NumActions is the number of kinds.
	NumActions
)

// DropReason says why a request was dropped.
type DropReason uint8

const (
	// ReasonNone is no reason.
	ReasonNone DropReason = iota
	// ReasonDeadline: even a batch of one could no longer meet the deadline.
	ReasonDeadline
	// ReasonQueueFull: the queue's limit was reached.
	ReasonQueueFull
	// ReasonWorkerLost: the devices that could have run it in time are lost.
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

// String returns the name that the reason has in reports, metrics and protocol errors.
func (r DropReason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// DropReasons returns all reasons that a drop may have, in the order of their constants.
func DropReasons() []DropReason {
	reasons := make([]DropReason, 0, numReasons-1)
	for r := ReasonDeadline; r < numReasons; r++ {
		reasons = append(reasons, r)
	}
	return reasons
}

// Action is one thing to do. Dispatch names its tasks and hops as ranges of the buffer:
// Tasks[TaskFirst:TaskFirst+Size], Hops[HopFirst:HopFirst+HopCount].
type Action struct {
	Kind      ActionKind
	Reason    DropReason
	HopCount  int16
	Pipeline  int32 // also determines the service of a batch
	Model     int32 // of the requests; -1 for several
	Req       int32
	Task      int32
	Network   int32
	Batch     int32
	Size      int32
	Device    int32
	Tag       int32
	TaskFirst int32
	HopFirst  int32
	Key       int64
	At        time.Duration
}

// Hop is one stage of a batch's path with the times reserved for it. The interpreter takes devices and links from
// it, but runs work first-in first-out and never holds it back for a reserved start.
type Hop struct {
	Stage     int32 // index into Tables.Stages
	Device    int32
	Uplink    int32 // links of the transfer into this stage; -1 if there is none
	Downlink  int32
	XferStart time.Duration
	XferEnd   time.Duration
	Start     time.Duration
	End       time.Duration
}

// Actions is the buffer to which Handle appends. It belongs to the caller, who resets it. Reusing one buffer makes
// the loop free of allocation.
type Actions struct {
	List  []Action
	Tasks []int32
	Hops  []Hop
}

// Reset empties the buffer for the next call of Handle and keeps its memory.
func (a *Actions) Reset() {
	a.List, a.Tasks, a.Hops = a.List[:0], a.Tasks[:0], a.Hops[:0]
}

// BatchOf returns the tasks of a Dispatch action, and the hops (a device for each stage) along which they go.
func (a *Actions) BatchOf(act *Action) ([]int32, []Hop) {
	return a.Tasks[act.TaskFirst : act.TaskFirst+act.Size], a.Hops[act.HopFirst : act.HopFirst+int32(act.HopCount)]
}
