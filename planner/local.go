package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Machine describes the local machine, as the engine reports it.
type Machine struct {
	Cores int         // CPUs this process may use
	GPUs  []LocalGPUs // by kind
}

// LocalGPUs counts the GPUs of one kind.
type LocalGPUs struct {
	Kind        string
	Count       int
	MemoryBytes int64 // per GPU
}

// LocalCluster returns the cluster that is assumed if none is given: the devices of machine m on which the profile was
// measured. CPU devices are thread sets, each a group of as many cores as the profile measured with; one core is left
// to the front end (the server process that takes in requests). A thread set is not divided into shares: the models
// take turns on it. The strings are the assumptions made, for the plan. If the machine has none of the measured
// devices, it returns an error.
func LocalCluster(profile *formats.Profile, m Machine) (*formats.Cluster, []string, error) {
	maxShares := measuredShares(profile)
	c := &formats.Cluster{Format: formats.FormatCluster, Host: formats.HostShared}

	// GPUs that the profile has measured. maxShares has no entry for a kind that was not measured.
	var assumptions []string
	for _, g := range m.GPUs {
		shares := maxShares[g.Kind]
		if shares == 0 {
			continue
		}
		c.Pools = append(c.Pools, formats.Pool{
			Device: g.Kind, Count: g.Count, MaxShares: shares, PerNode: g.Count, Memory: document.Bytes(g.MemoryBytes),
		})
		assumptions = append(assumptions, fmt.Sprintf("cluster: the %d %s of this machine", g.Count, g.Kind))
	}

	// CPU thread sets of the first measured size.
	kinds := slices.Sorted(maps.Keys(maxShares))
	for _, k := range kinds {
		n, ok := formats.CPUThreads(k) // threads, or false for a GPU
		if !ok {
			continue
		}
		count := max((m.Cores-1)/n, 0)
		if count == 0 && n == 1 {
			count = 1 // a machine with one core serves on that core
		}
		if count == 0 {
			continue
		}
		c.Pools = append(c.Pools, formats.Pool{Device: k, Count: count, PerNode: count, Sharing: formats.SharingTime})
		assumptions = append(assumptions, fmt.Sprintf("cluster: %d x %s of this machine's %d cores (one is left to the front end); models take turns on them", count, k, m.Cores))
		break // thread sets of another size would use the same cores twice
	}
	if len(c.Pools) == 0 {
		for i := range profile.LLMs {
			for _, instance := range profile.LLMs[i].Instances {
				kinds = append(kinds, instance.Device)
			}
		}
		slices.Sort(kinds)
		kinds = slices.Compact(kinds)
		return nil, nil, fmt.Errorf("this machine has none of the devices that the profile measured (%s); "+
			"type 'plan profile' here, or give a cluster file with --cluster", strings.Join(kinds, ", "))
	}
	return c, assumptions, nil
}

// measuredShares returns, by device kind, the largest v for which the profile measured a model on a share 1/v of a
// device.
func measuredShares(p *formats.Profile) map[string]int {
	maxShares := map[string]int{}
	for i := range p.Models {
		for _, m := range p.Models[i].Measurements {
			maxShares[m.Device] = max(maxShares[m.Device], m.Share, 1)
		}
	}
	return maxShares
}

// AssumedWorkload returns the workload that is assumed if none is given: that of the first
// method that has one.
func AssumedWorkload(profile *formats.Profile, slo document.SLO) (*formats.Workload, []string) {
	for _, m := range methods {
		if m.Workload != nil {
			return m.Workload(profile, slo)
		}
	}
	return nil, nil
}
