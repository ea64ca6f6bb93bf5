package formats

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"inferplan/formats/document"
)

// Cluster says which devices there are.
type Cluster struct {
	Format string `json:"format"`                                                                     // inferplan.cluster/v1
	Host   string `json:"host,omitempty" default:"kinds without a network are on hosts of their own"` // shared: all devices are on one host
	Pools  []Pool `json:"pools"`
	// FrontEnd is the machine that receives requests. If absent, it is the machine on which requests were
	// measured.
	FrontEnd *FrontEnd `json:"front_end,omitempty" default:"the machine where requests were measured"`
}

// FindPool returns the pool of a kind of device, or nil if there is none.
func (c *Cluster) FindPool(device string) *Pool {
	return document.First(c.Pools, func(p *Pool) bool { return p.Device == device })
}

// HostShared says that all devices are on one host. Transfers between devices without nic_gbps then take no
// network time.
const HostShared = "shared"

// Sharing says how a pool's devices are divided between stages.
const (
	// SharingExclusive gives a device, or a share 1/v of it, to one stage.
	SharingExclusive = "exclusive"
	// SharingTime lets every stage placed on the pool run on every device of it,
	// one batch at a time; the default for CPU thread sets, which have no shares.
	SharingTime = "time"
)

// Pool is a set of like devices.
type Pool struct {
	Device        string         `json:"device"` // kind, as in the profile
	Count         int            `json:"count"`
	MaxShares     int            `json:"max_shares,omitempty" default:"1"`                           // shares 1/1..1/max_shares; default 1
	PerNode       int            `json:"per_node,omitempty" default:"1"`                             // devices that share one NIC; default 1
	NICGbps       float64        `json:"nic_gbps,omitempty" default:"no network"`                    // usable rate; if absent, nothing can be sent to other kinds of devices, except on a shared host
	NICEfficiency float64        `json:"nic_efficiency,omitempty" default:"1" check:"positiveShare"` // multiplies nic_gbps; default 1
	Memory        document.Bytes `json:"memory,omitempty" default:"no limit"`                        // per device; if absent, not limited
	USDPerHour    float64        `json:"usd_per_hour,omitempty" check:"nonnegative"`
	Watts         float64        `json:"watts,omitempty" check:"nonnegative"`
	Sharing       string         `json:"sharing,omitempty" check:"exclusive|time"` // exclusive (default) or time
}

// TimeShared returns whether the stages on a pool take turns on its devices, instead of having shares of them. If
// the pool does not say it, they do on CPU thread sets, which have no shares.
func (p *Pool) TimeShared() bool {
	if p.Sharing == "" {
		return IsCPU(p.Device)
	}
	return p.Sharing == SharingTime
}

// NICRate returns the usable rate of the network card of a node, in Gbit/s, or 0 without a network.
func (p *Pool) NICRate() float64 {
	if p.NICEfficiency > 0 {
		return p.NICGbps * p.NICEfficiency
	}
	return p.NICGbps
}

// IsCPU reports whether a device kind is a set of CPU threads, such as cpu-1 or cpu-4.
func IsCPU(device string) bool { return strings.HasPrefix(device, cpuPrefix) }

const cpuPrefix = "cpu-"

// CPUThreads returns the number of threads n of a device kind cpu-<n>. It returns false for kinds that do not say
// how many threads they have.
func CPUThreads(kind string) (int, bool) {
	rest, ok := strings.CutPrefix(kind, cpuPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil && n > 0
}

// Validate checks the rules that the types of a cluster cannot express. It returns all violations, each with its
// field path.
func (d *Cluster) Validate() error {
	var c document.Checker
	c.Values(d, d.Format, FormatCluster, rules)
	c.OptionalWord("host", d.Host, HostShared)
	checkPools(&c, d.Pools)
	return c.Err()
}

// maxCount bounds the devices of a pool: beyond it a count is a mistake, and
// tables per device would exhaust memory.
const maxCount = 1_000_000

// maxShares bounds max_shares for the same reason; MPS serves 48 clients.
const maxShares = 64

// checkPools reports to c what is wrong with a cluster's pools, when a cluster or plan is validated: a pool is a
// named kind of device with a count of 1 or more, and its optional numbers (shares per device, network rate,
// price, power) are within their ranges.
func checkPools(c *document.Checker, pools []Pool) {
	c.NotEmpty(len(pools), "pools", "at least one pool")
	indexByName := map[string]int{}
	for i := range pools {
		p := &pools[i]
		path := fmt.Sprintf("pools[%d]", i)
		c.Name(indexByName, i, p.Device, "pools[%d].device", i)
		c.FailIf(p.Count < 1 || p.Count > maxCount, path+".count", p.Count, "1 to %d devices", maxCount)
		c.FailIf(p.MaxShares < 0 || p.MaxShares > maxShares, path+".max_shares", p.MaxShares, "1 to %d", maxShares)
		c.FailIf(p.MaxShares > 1 && (IsCPU(p.Device) || p.Sharing == SharingTime), path+".max_shares", p.MaxShares, "1: CPU thread sets and time-shared devices have no shares")
		c.FailIf(p.PerNode < 0 || p.PerNode > maxCount, path+".per_node", p.PerNode, "1 or more devices per node")
		c.HintIf(p.NICGbps < 0, path+".nic_gbps", p.NICGbps, "a positive rate", "leave it out where there is no network; host: shared says that all devices are on one host")
	}
}

// WithDefaults returns the pool with its defaults filled in: one share, one device per node, full NIC efficiency.
// CPU thread sets are shared in time, other devices exclusive.
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
