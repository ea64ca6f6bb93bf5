package workflow

import "math"

// A copy of a network saves as often as tasks need the network while the devices with all other copies are busy, times
// the time of its load. Rates are averages over demandWindow. The values are computed anew every valueLifetime.
const (
	demandWindow  = 300e9
	valueLifetime = int64(100e6)
)

// networkDemand holds how often tasks need networks, and what copies save.
type networkDemand struct {
	rates            []float64 // by network, per ns, at ratedAt
	ratedAt          []int64
	busyShare        float64   // busy share of the devices, on average
	valuedAt         int64     // when the values were computed; -1 if never
	values           []float64 // by network: tasks per ns that need it
	othersBusyChance []float64 // by the number of other copies: the chance that the devices of all are busy
}

func newNetworkDemand(networks, devices int) networkDemand {
	return networkDemand{rates: make([]float64, networks), ratedAt: make([]int64, networks), valuedAt: -1, values: make([]float64, networks), othersBusyChance: make([]float64, devices+1)}
}

// countDemand counts that a task needs a service.
func (c *cluster) countDemand(now int64, service int32) {
	if !c.options.EvictByValue {
		return
	}
	n := c.tables.services[service].network
	d := &c.demand
	d.rates[n] = d.rates[n]*math.Exp(-float64(now-d.ratedAt[n])/demandWindow) + 1/demandWindow
	d.ratedAt[n] = now
	d.busyShare += (float64(c.busyDevices)/float64(len(c.devices)) - d.busyShare) / 256
}

// updateCopyValues computes the values of copies anew, if they are older than valueLifetime.
func (c *cluster) updateCopyValues(now int64) {
	d := &c.demand
	if d.valuedAt >= 0 && now < d.valuedAt+valueLifetime {
		return
	}
	d.valuedAt = now
	for n := range d.values {
		d.values[n] = d.rates[n] * math.Exp(-float64(now-d.ratedAt[n])/demandWindow)
	}
	allBusyChance := 1.0
	for i := range d.othersBusyChance {
		d.othersBusyChance[i] = allBusyChance
		allBusyChance *= d.busyShare
	}
}

// otherServicesShare returns the share of the demanded device time that other services need.
func (c *cluster) otherServicesShare(service int32) float64 {
	totalDemand, ownDemand := 0.0, 0.0
	for s := range c.tables.services {
		sv := &c.tables.services[s]
		serviceDemand := c.demand.values[sv.network] * float64(sv.minTaskTime)
		if totalDemand += serviceDemand; int32(s) == service {
			ownDemand = serviceDemand
		}
	}
	if totalDemand == 0 {
		return 0
	}
	return 1 - ownDemand/totalDemand
}

// copyValue returns what a byte of a network's copy on a device saves:
//
//	values[network] · othersBusyChance[copyCount-1] · loadTime / bytes
func (c *cluster) copyValue(network, place int32) float64 {
	d := &c.demand
	return d.values[network] * d.othersBusyChance[max(0, c.copyCount[network]-1)] * float64(c.loadTime(network, place)) / float64(max(1, c.tables.bytes[network]))
}

// loadTime returns how long a load of a network takes at a place, in ns.
func (c *cluster) loadTime(network, place int32) int64 {
	if times := c.tables.source.Networks[network].LoadTimes; times != nil {
		return int64(times[c.tables.source.Devices[c.tables.deviceAt[place]].Kind][0])
	}
	return 0
}
