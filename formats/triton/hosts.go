package triton

import (
	"fmt"
	"slices"

	"inferplan/formats"
)

// Device is a device of a cluster: its pool, and its number there.
type Device struct{ Pool, Number int }

// Host is a machine of a cluster. A server numbers its GPUs from 0 in this order.
type Host struct {
	Name string
	GPUs []Device
	CPUs []Device // sets of CPU threads, which a server does not number
}

// Hosts returns the hosts of pools. The devices of a pool with a network are on nodes of their own, per_node on each.
// Those of a pool without one are on one host: if shared is true, all such pools on the same, else each on its own.
// GPUs have the order of the pools.
func Hosts(pools []formats.Pool, shared bool) []Host {
	var hosts []Host
	for k := range pools {
		pool := pools[k].WithDefaults()
		for n := range pool.Count {
			name := pool.Device
			switch {
			case pool.NICRate() > 0:
				name = fmt.Sprintf("%s-%d", pool.Device, n/pool.PerNode)
			case shared:
				name = SharedHost
			}
			i := slices.IndexFunc(hosts, func(h Host) bool { return h.Name == name })
			if i < 0 {
				i, hosts = len(hosts), append(hosts, Host{Name: name})
			}
			if formats.IsCPU(pool.Device) {
				hosts[i].CPUs = append(hosts[i].CPUs, Device{k, n})
			} else {
				hosts[i].GPUs = append(hosts[i].GPUs, Device{k, n})
			}
		}
	}
	return hosts
}

// SharedHost is the name of the host of all pools without a network.
const SharedHost = "host"

// OneHost returns the host of all devices of pools, for a repository that is the only one.
func OneHost(pools []formats.Pool) Host {
	local := slices.Clone(pools)
	for k := range local {
		local[k].NICGbps = 0
	}
	return Hosts(local, true)[0]
}
