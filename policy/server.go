package policy

import (
	"time"

	"inferplan/formats"
)

// Server has the configuration of an instance's server, and the costs of each network on it. The simulator runs
// instances by it; policies estimate with it.
type Server struct {
	Costs           []ServerCost // by network; empty for networks that the instance does not run
	BlockTokens     int32        // tokens of a block of KV memory
	ByPriority      bool         // it admits waiting sequences by priority, lower first; else first come, first served
	ReserveAnswer   bool         // it admits a sequence only with room for its whole answer
	SwapKV          bool         // a sequence that has to leave keeps its KV memory in the host's memory; else it is computed again
	PrefixCache     bool         // free blocks serve as a cache of prompt prefixes
	SwapGBps        float64      // 1e9 bytes a second to and from the host's memory; 0 means that swapping costs nothing
	HiddenSwapShare float64      // share of swapping out that runs during iterations
	WarmBytes       int64        // bytes of the host's memory for unloaded networks; the least recently used is removed first
}

// ServerCost has the costs of a network on an instance.
type ServerCost struct {
	Iteration    formats.Iteration
	KVTokens     int64         // tokens of KV memory beside its weights; 0 if the network does not run here
	KVTokenBytes int64         // bytes of KV memory per token
	MaxSequences int32         // sequences that run at once
	UnloadTime   time.Duration // time of unloading, until another network can be loaded
}

// PhysicalDevices returns how many physical devices a device takes: a share of one, one, or the several of an
// instance.
func (t *Tables) PhysicalDevices(device int32) float64 {
	if i := t.InstanceOf(device); i >= 0 && t.Instances[i].DeviceCount > 1 {
		return float64(t.Instances[i].DeviceCount)
	}
	return 1 / float64(t.Devices[device].Share)
}
