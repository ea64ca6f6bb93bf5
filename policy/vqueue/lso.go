package vqueue

// LSO is an LLM serving operation that a policy may do (section 5).
type LSO uint8

// The operations.
const (
	Pulling   LSO = iota // into the running batch; without it batches are filled when they are empty
	Eviction             // from the running batch
	StateSwap            // what is evicted keeps its state in host memory; without it it is computed again
	WarmStart            // models change from host memory; without it plans assume storage
	Balancing            // groups change queues; without it they are dealt in turn and stay
	numLSOs
)

var lsoNames = [numLSOs]string{"pulling", "eviction", "state_swap", "warm_start", "balancing"}

func (l LSO) String() string { return lsoNames[l] }

// operations are the operations of a policy, a type each.
type operations struct {
	pull    pulling
	evict   eviction
	swap    stateSwap
	warm    warmStart
	balance balancing
}

// newOperations has the operations that the options leave on. Only the planned
// rule evicts and moves requests.
func newOperations(opt *Options) operations {
	on := func(l LSO) bool { return !opt.Without[l] }
	planned := opt.Rule == Planned
	return operations{
		pull: pulling{on(Pulling)}, evict: eviction{planned && on(Eviction) && on(Pulling)}, swap: stateSwap{on(StateSwap)},
		warm: warmStart{on(WarmStart)}, balance: balancing{on(Balancing)},
	}
}

// pulling fills the running batch while it runs.
type pulling struct{ on bool }

// fills tells whether an instance takes requests now.
func (o pulling) fills(in *instance) bool { return o.on || len(in.running) == 0 }

// eviction takes requests off the running batch for others, see evict.go.
type eviction struct{ on bool }

// stateSwap keeps the state of what is evicted in the host's memory.
type stateSwap struct{ on bool }

// tag is that of an eviction.
func (o stateSwap) tag() int32 {
	if o.on {
		return 1
	}
	return 0
}

// warmStart has models come from the host's memory.
type warmStart struct{ on bool }

// tier is where load times stand in the tables.
func (o warmStart) tier() int {
	if o.on {
		return 0
	}
	return 1
}

// balancing moves groups between queues, and lets an instance with an empty queue
// serve those of others.
type balancing struct{ on bool }
