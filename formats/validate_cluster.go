package formats

import (
	"cmp"
	"fmt"

	"inferplan/formats/document"
)

// Validate checks what the types of a cluster cannot say and returns all
// findings, each with its field path.
func (d *Cluster) Validate() error {
	var c document.Checker
	c.Header(d, d.Format, FormatCluster)
	if d.Host != "" {
		c.OneOf("host", d.Host, HostShared)
	}
	checkPools(&c, d.Pools)
	d.FrontEnd.check(&c)
	return c.Err()
}

// maxCount bounds the devices of a pool: beyond it a count is a mistake, and
// tables per device would exhaust memory.
const maxCount = 1_000_000

// maxShares bounds max_shares for the same reason; MPS serves 48 clients.
const maxShares = 64

func checkPools(c *document.Checker, pools []Pool) {
	c.Some(len(pools), "pools", "at least one pool")
	seen := map[string]int{}
	for i := range pools {
		p := &pools[i]
		path := fmt.Sprintf("pools[%d]", i)
		c.Name(seen, i, p.Device, "pools[%d].device", i)
		c.FailIf(p.Count < 1 || p.Count > maxCount, path+".count", p.Count, "1 to %d devices", maxCount)
		c.FailIf(p.MaxShares < 0 || p.MaxShares > maxShares, path+".max_shares", p.MaxShares, "1 to %d", maxShares)
		c.FailIf(p.MaxShares > 1 && (IsCPU(p.Device) || p.Sharing == SharingTime), path+".max_shares", p.MaxShares, "1: CPU thread sets and time-shared devices have no shares")
		c.FailIf(p.PerNode < 0 || p.PerNode > maxCount, path+".per_node", p.PerNode, "1 or more devices per node")
		if p.NICGbps < 0 {
			c.Fail(path+".nic_gbps", document.Number(p.NICGbps), "a positive rate", "leave it out where there is no network; host: shared says that all devices are on one host")
		}
		c.FailIf(p.NICEfficiency < 0 || p.NICEfficiency > 1, path+".nic_efficiency", p.NICEfficiency, "a share above 0, at most 1")
		document.Least(c, p.USDPerHour, 0, path, ".usd_per_hour")
		document.Least(c, p.Watts, 0, path, ".watts")
		if p.Sharing != "" {
			c.OneOf(path+".sharing", p.Sharing, SharingExclusive, SharingTime)
		}
	}
}

// WithDefaults returns the pool with what was left out filled in: one share,
// one device per node, full NIC efficiency; CPU thread sets are shared in time,
// other devices exclusive.
func (p Pool) WithDefaults() Pool {
	p.MaxShares = max(p.MaxShares, 1)
	p.PerNode = max(p.PerNode, 1)
	p.NICEfficiency = cmp.Or(p.NICEfficiency, 1)
	if p.Sharing == "" {
		p.Sharing = SharingExclusive
		if IsCPU(p.Device) {
			p.Sharing = SharingTime
		}
	}
	return p
}
