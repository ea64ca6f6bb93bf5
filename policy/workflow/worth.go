package workflow

import "math"

// What a copy of a network saves is how often it is asked for while the devices of all
// other copies are busy, times its load. Rates are averages over demandOver. What
// follows from them is worked out anew every valuedFor.
const (
	demandOver = 300e9
	valuedFor  = int64(100e6)
)

// demand is how often tasks ask for networks.
type demand struct {
	rates  []float64 // by network, per ns, at a time
	at     []int64
	busy   float64   // share of the devices, on average
	valued int64     // the values hold from then on
	values []float64 // by network: of the only copy
	others []float64 // by the number of other copies: how often all of their devices are busy
}

func newDemand(networks, devices int) demand {
	return demand{rates: make([]float64, networks), at: make([]int64, networks), valued: -1, values: make([]float64, networks), others: make([]float64, devices+1)}
}

// asked notes that a task asks for a service.
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

// value brings what copies save up to date.
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

// others is the share of the devices' time that other services ask for.
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

// worth is what a byte of a network's copy on a device saves.
func (c *cluster) worth(network, place int32) float64 {
	d := &c.demand
	return d.values[network] * d.others[max(0, c.copies[network]-1)] * float64(c.loadTime(network, place)) / float64(max(1, c.fleet.bytes[network]))
}

// loadTime is how long a load takes.
func (c *cluster) loadTime(network, place int32) int64 {
	if times := c.fleet.t.Networks[network].Load; times != nil {
		return int64(times[c.fleet.t.Devices[c.fleet.ids[place]].Kind][0])
	}
	return 0
}
