package workflow

import "math"

// A copy of a network saves as often as tasks need the network while the devices with all other copies are busy, times
// the time of its load. Rates are averages over demandWindow. The values are computed anew every valueLifetime.
const (
	demandOver = 300e9
	valuedFor  = int64(100e6)
)

// networkDemand holds how often tasks need networks, and what copies save.
type demand struct {
	rates  []float64 // by network, per ns, at ratedAt
	at     []int64
	busy   float64   // busy share of the devices, on average
	valued int64     // when the values were computed; -1 if never
	values []float64 // by network: tasks per ns that need it
	others []float64 // by the number of other copies: the chance that the devices of all are busy
}

func newDemand(networks, devices int) demand {
	return demand{rates: make([]float64, networks), at: make([]int64, networks), valued: -1, values: make([]float64, networks), others: make([]float64, devices+1)}
}

// countDemand counts that a task needs a service.
func (c *cluster) asked(now int64, service int32) {
	if !c.opt.Worth {
		return
	}
	n := c.fleet.services[service].network
	d := &c.demand
	d.rates[n] = d.rates[n]*math.Exp(-float64(now-d.at[n])/demandOver) + 1/demandOver
	d.at[n] = now
	d.busy += (float64(c.running)/float64(len(c.devices)) - d.busy) / 256
}

// updateCopyValues computes the values of copies anew, if they are older than valueLifetime.
func (c *cluster) value(now int64) {
	d := &c.demand
	if d.valued >= 0 && now < d.valued+valuedFor {
		return
	}
	d.valued = now
	for n := range d.values {
		d.values[n] = d.rates[n] * math.Exp(-float64(now-d.at[n])/demandOver)
	}
	all := 1.0
	for i := range d.others {
		d.others[i] = all
		all *= d.busy
	}
}

// otherServicesShare returns the share of the demanded device time that other services need.
func (c *cluster) others(service int32) float64 {
	all, own := 0.0, 0.0
	for s := range c.fleet.services {
		sv := &c.fleet.services[s]
		asked := c.demand.values[sv.network] * float64(sv.least)
		if all += asked; int32(s) == service {
			own = asked
		}
	}
	if all == 0 {
		return 0
	}
	return 1 - own/all
}

// copyValue returns what a byte of a network's copy on a device saves:
//
//	values[network] · othersBusyChance[copies-1] · loadTime / bytes
func (c *cluster) worth(network, place int32) float64 {
	d := &c.demand
	return d.values[network] * d.others[max(0, c.copies[network]-1)] * float64(c.loadTime(network, place)) / float64(max(1, c.fleet.bytes[network]))
}

// loadTime returns how long a load of a network takes at a place, in ns.
func (c *cluster) loadTime(network, place int32) int64 {
	if times := c.fleet.t.Networks[network].Load; times != nil {
		return int64(times[c.fleet.t.Devices[c.fleet.ids[place]].Kind][0])
	}
	return 0
}
