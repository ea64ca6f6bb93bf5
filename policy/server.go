package policy

import (
	"time"

	"inferplan/formats"
)

// Server says how the server of an instance is set up, and what each network
// costs on it. The simulator runs instances by it; policies estimate with it.
type Server struct {
	Costs    []ServerCost // by network
	Block    int32        // tokens of a block of KV memory
	Priority bool         // waiting sequences by priority, lower first; else first come, first served
	Reserve  bool         // a sequence is admitted with room for its whole answer
	Swap     bool         // one that has to leave keeps its KV in the host's memory; else it computes it anew
	Prefix   bool         // free blocks are a cache of prefixes
	SwapGBps float64      // 1e9 bytes a second to and from the host's memory; 0: swapping costs nothing
	Hidden   float64      // share of swapping out that iterations hide
	Warm     int64        // bytes of the host's memory for networks that wait; the least recently used goes first
}

// ServerCost is what a network costs on an instance.
type ServerCost struct {
	Iteration formats.Iteration
	KV        int64         // tokens of KV memory beside its weights; 0: it does not run here
	KVBytes   int64         // of a token
	Sequences int32         // at once
	Leaves    time.Duration // until another network can come
}

// Takes is how many physical devices a device is: a share of one, one, or the
// several of an instance.
func (t *Tables) Takes(device int32) float64 {
	if i := t.InstanceOf(device); i >= 0 && t.Instances[i].Devices > 1 {
		return float64(t.Instances[i].Devices)
	}
	return 1 / float64(t.Devices[device].Share)
}
