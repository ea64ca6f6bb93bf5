package workflow

import "math"

// A copy of a network saves as often as tasks need the network while the devices with all other copies are busy, times
// the time of its load. Rates are averages over demandWindow. The values are computed anew every valueLifetime.
const (
	demandWindow  = 300e9        // in ns
	valueLifetime = int64(100e6) // in ns
	// busyShareWindow is the number of tasks over which the busy share is averaged.
	busyShareWindow = 256
)

// networkDemand estimates how often tasks need each network, and what copies of networks on devices save.
type networkDemand struct {
	rates            []float64 // by network: tasks per ns that needed it, averaged up to ratedAt
	ratedAt          []int64   // by network: time in ns of the latest such task
	busyShare        float64   // share of the devices that is busy, on average
	valuedAt         int64     // time in ns at which values were computed; -1 if never
	values           []float64 // by network: tasks per ns that need it, at valuedAt
	othersBusyChance []float64 // by the number of other copies: the chance that the devices of all are busy
}

// newNetworkDemand returns the demand for this many networks on this many devices, before any task is known.
func newNetworkDemand(networks, devices int) networkDemand {
	return networkDemand{rates: make([]float64, networks), ratedAt: make([]int64, networks), valuedAt: -1, values: make([]float64, networks), othersBusyChance: make([]float64, devices+1)}
}

// countTask counts that a task needs a network, while busyShare of the devices is busy. Older tasks lose weight exponentially, over demandWindow.
func (d *networkDemand) countTask(now int64, network int32, busyShare float64) {
	d.rates[network] = d.rates[network]*math.Exp(-float64(now-d.ratedAt[network])/demandWindow) + 1/demandWindow
	d.ratedAt[network] = now
	d.busyShare += (busyShare - d.busyShare) / busyShareWindow
}

// updateValues computes anew what copies of networks save, if the values are older than valueLifetime: the rate of tasks that need each
// network, and for each number n the chance that the devices of n copies are all busy at once.
func (d *networkDemand) updateValues(now int64) {
	if d.valuedAt >= 0 && now < d.valuedAt+valueLifetime {
		return
	}
	d.valuedAt = now
	for network := range d.values {
		d.values[network] = d.rates[network] * math.Exp(-float64(now-d.ratedAt[network])/demandWindow)
	}

	// The devices of n copies are taken to be busy independently of each other.
	allBusyChance := 1.0
	for i := range d.othersBusyChance {
		d.othersBusyChance[i] = allBusyChance
		allBusyChance *= d.busyShare
	}
}

// otherServicesShare returns the share, from 0 to 1, of all demanded device time that services other than this one need.
// Without any demand it returns 0.
func (d *networkDemand) otherServicesShare(services []serviceProfile, service int32) float64 {
	// The demand of a service is the rate of tasks that need its network (values) times the time of one of its tasks on the quickest kind of
	// device. Services that share a network count with all its tasks each.
	totalDemand, demandOfService := 0.0, 0.0
	for serviceIndex := range services {
		profile := &services[serviceIndex]
		serviceDemand := d.values[profile.network] * float64(profile.minTaskTime)
		totalDemand += serviceDemand
		if int32(serviceIndex) == service {
			demandOfService = serviceDemand
		}
	}
	if totalDemand == 0 {
		return 0
	}
	return 1 - demandOfService/totalDemand
}

// copyValue returns what a byte of a network's copy on a device saves, in ns of loading per ns that it is kept:
//
//	values[network] · othersBusyChance[copyCount-1] · loadTime / bytes
//
// It is the rate of tasks that would find the devices of all other copies busy and would load the network elsewhere.
// Copies with lower values are evicted first.
func (c *cluster) copyValue(network, deviceIndex int32) float64 {
	demand := &c.demand
	return demand.values[network] * demand.othersBusyChance[max(0, c.copyCount[network]-1)] * float64(c.tables.loadTime(network, deviceIndex)) / float64(max(1, c.tables.networkBytes[network]))
}
