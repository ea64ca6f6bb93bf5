package workers

import (
	"cmp"
	"time"

	"inferplan/engine/worker"
)

// Options say where the plan's devices are, and how their workers run.
type Options struct {
	Library string // path of the engine's library; if empty, it is searched

	// CPUs are those that workers on CPU devices may use, in order. If nil, they are all CPUs of this process except the
	// first. ShareCPUs lets several workers use one CPU if there are too few; no plan accounts for that.
	CPUs      []int
	ShareCPUs bool
	// CPUPlaces gives the devices of a kind CPUs of their own. Kinds whose name does not say how many CPUs they have, such
	// as cpu-a and cpu-b, need one.
	CPUPlaces map[string]CPUPlace

	// Remote is the number of devices of a kind, the last ones of the plan, that are on other hosts. Their workers wait in
	// Lobby (worker.NewJoinServer).
	Remote map[string]int
	// AllRemote puts all devices of any plan on other hosts. Remote is then empty.
	AllRemote bool
	Lobby     *worker.JoinServer

	// OverrideExecution changes how models are executed on the devices of a kind, compared to how the plan's numbers were
	// measured. It may be nil.
	OverrideExecution func(kind string, planned worker.Execution) worker.Execution

	// Depth is the number of runs that a worker is sent ahead, at most 8. 0 stands for 2: one runs, and one waits in the
	// socket.
	Depth int
	// Slots is the largest number of batches that a stage holds in shared memory. 0 stands for 64. Unused slots cost address
	// space only.
	Slots int
	// CacheBytes bounds the models that are kept in this machine's memory for devices that swap them. 0 stands for 8 GiB.
	// Models without space there are read from their files at each load.
	CacheBytes int64

	StartTimeout time.Duration // of a worker with its models; 0 stands for 5 minutes
	HangTimeout  time.Duration // a worker is assumed to hang after this, and after ten times the planned time of its run; 0 stands for 1 s

	// Command and Env start workers; see worker.Config. InProcess runs the workers as goroutines of this process instead.
	Command   []string
	Env       []string
	InProcess bool
}

// CPUPlace says where the devices of one CPU kind run: each takes Threads CPUs
// of the list, in order.
type CPUPlace struct {
	CPUs    []int
	Threads int // per device; 0 stands for n of a kind cpu-<n>, otherwise 1
}

// SetDefaults sets options that are zero to their defaults.
func (o *Options) SetDefaults() {
	o.Depth = cmp.Or(o.Depth, 2)
	o.Depth = min(o.Depth, 8) // the limit of workers on other hosts
	o.Slots = cmp.Or(o.Slots, 64)
	o.StartTimeout = cmp.Or(o.StartTimeout, 5*time.Minute)
	o.HangTimeout = cmp.Or(o.HangTimeout, time.Second)
	o.CacheBytes = cmp.Or(o.CacheBytes, worker.DefaultCache)
}
