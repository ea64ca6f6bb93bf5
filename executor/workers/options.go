package workers

import (
	"time"

	"inferplan/engine/worker"
	"inferplan/executor/turn"
)

// Options say where the plan's devices are, and how their workers run.
type Options struct {
	Library string // path of the engine's library; empty: its own search

	// CPUs that workers on CPU devices may take, in order; nil: all of this
	// process but the first. ShareCPUs lets several workers take one CPU where
	// there are too few, which no plan accounts for.
	CPUs      []int
	ShareCPUs bool
	// Places gives the devices of a kind CPUs of their own: kinds such as cpu-a
	// and cpu-b, whose name does not say how many CPUs they have, need one.
	Places map[string]CPUPlace

	// Remote is how many devices of a kind, the last ones of the plan, are those
	// of other hosts, whose workers wait in Lobby (worker.NewLobby).
	Remote map[string]int
	Lobby  *worker.Lobby

	// Execute changes how models are executed on the devices of a kind against what
	// the plan's numbers were measured with; nil: as measured.
	Execute func(kind string, planned worker.Execution) worker.Execution

	// Depth is the number of runs that a worker is sent ahead, at most 8; 0 stands for 2, one runs and
	// one waits in the socket.
	Depth int
	// Slots is the largest number of batches that a stage holds in shared memory; 0 stands for 64.
	// Slots that are not used cost address space only.
	Slots int
	// CacheBytes bounds the models that are kept in this machine's memory for devices
	// that swap them; 0: 8 GiB. What has no room is read from its file whenever it is
	// loaded.
	CacheBytes int64

	StartTimeout time.Duration // of a worker with its models; 0: 5 minutes
	HangTimeout  time.Duration // that a run must last, beside ten times its planned time, until its worker is taken to hang; 0: 1 s

	// Command and Env start workers; see worker.Config. Inside runs the workers
	// as goroutines of this process instead.
	Command []string
	Env     []string
	Inside  bool
}

// CPUPlace says where the devices of one CPU kind run: each takes Threads CPUs
// of the list, in order.
type CPUPlace struct {
	CPUs    []int
	Threads int // per device; 0: n of a kind cpu-<n>, else 1
}

// SetDefaults gives options that are zero their defaults.
func (o *Options) SetDefaults() {
	turn.SetDefault(&o.Depth, 2)
	o.Depth = min(o.Depth, 8) // what a worker of another host takes
	turn.SetDefault(&o.Slots, 64)
	turn.SetDefault(&o.StartTimeout, 5*time.Minute)
	turn.SetDefault(&o.HangTimeout, time.Second)
	turn.SetDefault(&o.CacheBytes, worker.DefaultCache)
}
