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
	// are the actual times of the run. What the batch revealed was told before.
	// After the last hop the batch's tasks have ended. On an instance Tokens is what was
	// produced; 0: not known.
	BatchFinished EventKind = iota
	// BatchReturned: batch Batch ended on Device without a result; Value is a
	// Return. Its tasks wait again and its slot is free. List has, per task, the
	// tokens that it has produced.
	BatchReturned
	// TransferFinished: the batch's cut tensors arrived for stage Hop; Start and
	// End are the actual times. With Batch -1 it answers a Place: all that Task
	// reads is at Device.
	TransferFinished
	// BatchStarted: the batch began to run on Device at stage Hop. On an instance:
	// it was admitted.
	BatchStarted
	// NetworkLoaded: network Network is on Device, loaded from Start to End.
	// Value is 0, or a Return where it could not be loaded.
	NetworkLoaded
	// NetworkUnloaded: network Network is no longer on Device. Value is 0, or a
	// Return where it stays.
	NetworkUnloaded
	// WorkerLost: Device no longer runs anything; what was on it is gone.
	WorkerLost
	// WorkerBack: Device is empty and ready. Of an instance: Value sequences and
	// Limit tokens of KV memory, as its server says.
	WorkerBack
	// ControlRevealed: what decides the way of request Req on is known. Of a
	// cascade: Value is the level of the answer of batch Batch; it comes for every
	// request of the batch, in its order, before BatchFinished. With a Control:
	// Value tasks follow with TaskRevealed; 0: the request is over. Key is 1 where
	// that does not come from the end of a batch: a program has asked for them.
	ControlRevealed
	// TaskRevealed: Task of Req asks for Service. List has the tasks that it
	// reads, -1 the client's input. It may run once they have ended. Value is its
	// work in millionths of the usual, 0 the usual; Key its item of a fan-out.
	TaskRevealed
	// TokenProgress: Batch has produced Tokens: the first, then every
	// Instance.Progress.
	TokenProgress
	// PlanInstalled: the plan that the policy was made for is in force.
	PlanInstalled
	// ReplanResult: the search of the Replan with tag Value came back with List;
	// an empty one: with nothing in time.
	ReplanResult
	// Arrival: request Req of model Model wants its answer by Deadline. Without a
	// Control it reveals the one task of Req, whose slot is Req. Tokens is the
	// length of the prompt, Limit the most to produce, Key the session. Value 1: it was
	// promised an answer, so it is not dropped for want of room or of devices. Without Tokens
	// Value is how many more samples of the same client request come at once.
	Arrival
	// Cancel: nobody waits for request Req any more.
	Cancel
	// Timer: the time asked for with a Wake action has come. Value is the
	// Wake's tag.
	Timer

	// NumEvents is the number of kinds.
	NumEvents
)

// Return says why a batch came back, or a network could not be loaded.
type Return int64

const (
	// ReturnEvicted: the policy asked for it.
	ReturnEvicted Return = 1 + iota
	// ReturnFull: the instance, or the device's memory, had no room.
	ReturnFull
	// ReturnFailed: the engine or server failed.
	ReturnFailed
	// ReturnNotLoaded: the network is not on the device.
	ReturnNotLoaded
	// ReturnRefused: what executes cannot do this at run time.
	ReturnRefused
)

// Event is one thing that happened. Which fields are set depends on Kind; the
// others are zero. Where requests have one task each (there is no Control), Task
// is Req, and Service is Model.
type Event struct {
	Kind     EventKind
	Hop      int16 // stage position within the pipeline, from 0
	Model    int32 // what is served; -1 of a batch of several
	Req      int32 // request slot
	Task     int32 // task slot
	Service  int32 // what a task asks for
	Network  int32 // what a device holds
	Batch    int32 // batch slot
	Device   int32
	Tokens   int32
	Limit    int32
	Client   int32         // Arrival: whose request it is, see ClientNumber; 0: not known
	Value    int64         // kind-specific
	Key      int64         // kind-specific
	Arrived  time.Duration // Arrival: when the request came in (<= now)
	Deadline time.Duration // Arrival: absolute
	Start    time.Duration // finished work: actual start
	End      time.Duration // finished work: actual end
	List     []int32       // kind-specific; the caller's, for the call alone
}

// ClientNumber is the number of a client in events: a hash of its name, which is that
// of its key, else its address. 0 is the client without a name.
func ClientNumber(name string) int32 {
	if name == "" {
		return 0
	}
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return int32(max(h>>1, 1))
}

// ActionKind says what to do.
type ActionKind uint8

const (
	// Dispatch: run batch Batch of Size tasks (Tasks) along Hops. Where Hops end
	// before the pipeline does, BatchFinished of the last of them hands the
	// tasks back: they wait for a Dispatch to the stages behind it, whose first
	// hop begins with the transfer from where the last task is. Only the
	// simulator runs parts of pipelines. To an instance: one task with one hop, and
	// Tag is its priority among those that wait there, lower first.
	Dispatch ActionKind = iota
	// Drop: answer request Req with Reason at once, wherever its tasks are.
	// Batches that hold some run on; the policy forgets those that wait. At: when
	// asking again is worth it; 0: not known.
	Drop
	// Wake: send a Timer event with Tag at At. Each Tag has at most one pending
	// wake; a new one replaces it, and At < 0 cancels it.
	Wake
	// Abort: forget batch Batch, whatever still runs of it; its tasks are
	// still pending with the policy, its slot is free again.
	Abort
	// Load: Network on Device. Loads of a device run one after the other, beside
	// its batches; NetworkLoaded follows. With Network -1: the state of session
	// Key.
	Load
	// Unload: Network off Device, once no batch there runs it. A load that has not
	// begun is taken back. NetworkUnloaded follows, unless a Load comes before and
	// takes the Unload back.
	Unload
	// Evict: Batch leaves its instance; with Tag 1 its state is kept in the host's
	// memory. BatchReturned follows.
	Evict
	// SwitchMode: mode Tag (a gear) is in force.
	SwitchMode
	// Replan: run what Searcher.Search returns for Tag beside the loop;
	// ReplanResult follows. A further Replan with the same tag takes the place of
	// the first.
	Replan
	// Complete: the last answer of request Req is its answer (cascades).
	Complete
	// Place: bring what Task reads to Device, as soon as it is there; again: to
	// another. TransferFinished follows.
	Place

	// NumActions is the number of kinds.
	NumActions
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

// Action is one thing to do. Dispatch names its tasks and hops as ranges of
// the buffer: Tasks[TaskFirst:TaskFirst+Size], Hops[HopFirst:HopFirst+HopCount].
type Action struct {
	Kind      ActionKind
	Reason    Reason
	HopCount  int16
	Pipeline  int32 // also says which service a batch is of
	Model     int32 // of the requests; -1: of several
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
	List  []Action
	Tasks []int32
	Hops  []Hop
}

// Reset empties the buffer and keeps its memory.
func (a *Actions) Reset() {
	a.List, a.Tasks, a.Hops = a.List[:0], a.Tasks[:0], a.Hops[:0]
}

// Dispatched returns the tasks and hops of a Dispatch action.
func (a *Actions) Dispatched(act *Action) ([]int32, []Hop) {
	return a.Tasks[act.TaskFirst : act.TaskFirst+act.Size], a.Hops[act.HopFirst : act.HopFirst+int32(act.HopCount)]
}
