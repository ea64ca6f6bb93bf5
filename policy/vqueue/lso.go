package vqueue

import (
	"math"

	"inferplan/policy"
)

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

// Memory is what an operation takes at most beside the running batch of an
// instance, in bytes.
type Memory struct{ Device, Host int64 }

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

// memory is none: what is pulled is counted with the batch.
func (pulling) memory(*policy.Server) Memory { return Memory{} }

// eviction takes requests off the running batch for others, see evict.go.
type eviction struct{ on bool }

// memory is none: what is evicted is computed again.
func (eviction) memory(*policy.Server) Memory { return Memory{} }

// stateSwap keeps the state of what is evicted in the host's memory.
type stateSwap struct{ on bool }

// tag is that of an eviction.
func (o stateSwap) tag() int32 {
	if o.on {
		return 1
	}
	return 0
}

// memory is the state of a whole batch, of the network with the largest.
func (stateSwap) memory(s *policy.Server) Memory {
	most := int64(0)
	for i := range s.Costs {
		most = max(most, s.Costs[i].KV*s.Costs[i].KVBytes)
	}
	return Memory{Host: most}
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

// memory is the weights of the networks that the instance may run, but for the
// smallest, which is loaded: as far as the host has room.
func (warmStart) memory(t *policy.Tables, s *policy.Server) Memory {
	sum, least := int64(0), int64(math.MaxInt64)
	for n := range s.Costs {
		if bytes := t.Networks[n].Bytes; s.Costs[n].KV > 0 {
			sum, least = sum+bytes, min(least, bytes)
		}
	}
	return Memory{Host: min(max(sum-least, 0), s.Warm)}
}

// balancing moves groups between queues, and lets an instance with an empty queue
// serve those of others.
type balancing struct{ on bool }

// memory is none: what has begun stays.
func (balancing) memory(*policy.Server) Memory { return Memory{} }

// Takes is the memory that each operation takes at most on an instance whose server
// the tables know.
func Takes(t *policy.Tables, device int32) (out [numLSOs]Memory) {
	s := t.Instances[t.InstanceOf(device)].Server
	out[Pulling], out[Eviction], out[StateSwap] = pulling{}.memory(s), eviction{}.memory(s), stateSwap{}.memory(s)
	out[WarmStart], out[Balancing] = warmStart{}.memory(t, s), balancing{}.memory(s)
	return out
}
