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

// servingOperations says, by LSO, which LLM serving operations a policy does.
type servingOperations [numLSOs]bool

// newServingOperations returns which LLM serving operations (pulling, eviction, state swap, warm start, balancing) the options leave enabled.
// Only virtual queues evict requests, and only if they can pull others.
func newServingOperations(opt *Options) (operations servingOperations) {
	for operation := range operations {
		operations[operation] = !opt.DisabledLSOs[operation]
	}
	operations[Eviction] = operations[Eviction] && operations[Pulling] && opt.Rule == VirtualQueues
	return operations
}
