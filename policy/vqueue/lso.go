package vqueue

// LSO is an LLM serving operation that a policy may do (section 5).
type LSO uint8

const (
	Pulling   LSO = iota // requests join the running batch; without it a batch is filled only when it is empty
	Eviction             // requests are removed from the running batch
	StateSwap            // an evicted request keeps its state in host memory; without it the state is computed again
	WarmStart            // networks are loaded from host memory; without it plans assume storage
	Balancing            // groups change queues; without it they are dealt to queues in turn and stay
	numLSOs
)

var lsoNames = [numLSOs]string{"pulling", "eviction", "state_swap", "warm_start", "balancing"}

// String returns the operation's name in parameters.
func (l LSO) String() string { return lsoNames[l] }

// lsoSet has the operations of a policy, a type each.
type operations struct {
	pull    pulling
	evict   eviction
	swap    stateSwap
	warm    warmStart
	balance balancing
}

// newLSOSet returns the operations that the options leave enabled. Only virtual queues evict requests.
func newOperations(opt *Options) operations {
	on := func(l LSO) bool { return !opt.Without[l] }
	planned := opt.Rule == Planned
	return operations{
		pull: pulling{on(Pulling)}, evict: eviction{planned && on(Eviction) && on(Pulling)}, swap: stateSwap{on(StateSwap)},
		warm: warmStart{on(WarmStart)}, balance: balancing{on(Balancing)},
	}
}

// pullOperation adds requests to the running batch while it runs.
type pulling struct{ on bool }

// takesNow reports whether an instance takes requests now.
func (o pulling) fills(in *instance) bool { return o.on || len(in.running) == 0 }

// evictOperation removes requests from the running batch in favour of others, see evict.go.
type eviction struct{ on bool }

// swapOperation keeps the state of evicted requests in the host's memory.
type stateSwap struct{ on bool }

// evictTag returns the tag of an Evict action.
func (o stateSwap) tag() int32 {
	if o.on {
		return 1
	}
	return 0
}

// warmOperation assumes that networks are loaded from the host's memory.
type warmStart struct{ on bool }

// loadTier returns the index of load times in the tables: 0 warm, 1 cold.
func (o warmStart) tier() int {
	if o.on {
		return 0
	}
	return 1
}

// balanceOperation moves groups between queues, and lets an instance with an empty queue serve groups of other
// queues.
type balancing struct{ on bool }
