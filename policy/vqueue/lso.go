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

// String returns the operation's name in the parameters of plans.
func (l LSO) String() string { return lsoNames[l] }

// servingOperations has the LLM serving operations of a policy, a type each.
type servingOperations struct {
	pull    pullOperation
	evict   evictOperation
	swap    swapOperation
	warm    warmOperation
	balance balanceOperation
}

// newServingOperations returns which LLM serving operations (pulling, eviction, state swap, warm start, balancing) the options leave enabled.
// Only virtual queues evict requests, and only if they can pull others.
func newServingOperations(opt *Options) servingOperations {
	isEnabled := func(operation LSO) bool { return !opt.DisabledLSOs[operation] }
	usesVirtualQueues := opt.Rule == VirtualQueues
	return servingOperations{
		pull: pullOperation{isEnabled(Pulling)}, evict: evictOperation{usesVirtualQueues && isEnabled(Eviction) && isEnabled(Pulling)}, swap: swapOperation{isEnabled(StateSwap)},
		warm: warmOperation{isEnabled(WarmStart)}, balance: balanceOperation{isEnabled(Balancing)},
	}
}

// pullOperation adds requests to the running batch while it runs.
type pullOperation struct{ enabled bool }

// takesNow reports whether an instance takes requests now: always if pulling (joining the running batch) is enabled, else only while nothing runs.
func (o pullOperation) takesNow(instance *instance) bool {
	return o.enabled || len(instance.runningBatches) == 0
}

// evictOperation removes requests from the running batch in favour of others, see evict.go.
type evictOperation struct{ enabled bool }

// swapOperation keeps the state of evicted requests in the host's memory.
type swapOperation struct{ enabled bool }

// evictTag returns the tag of an Evict action: 1 if the instance is to keep the request's KV state in host memory, else 0.
func (o swapOperation) evictTag() int32 {
	if o.enabled {
		return 1
	}
	return 0
}

// warmOperation assumes that networks are loaded from the host's memory.
type warmOperation struct{ enabled bool }

// loadTier returns the index in a network's load times that plans assume: 0 for a warm load, from host memory, and 1 for a cold one, from storage.
func (o warmOperation) loadTier() int {
	if o.enabled {
		return 0
	}
	return 1
}

// balanceOperation moves groups between queues, and lets an instance with an empty queue serve groups of other
// queues.
type balanceOperation struct{ enabled bool }
