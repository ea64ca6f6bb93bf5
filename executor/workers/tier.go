package workers

import "inferplan/engine/worker"

// tier is a way by which the tensors that a run makes come to the run that reads
// them, of the next stage.
type tier interface {
	// reaches tells whether a run on a device can read what one on another makes.
	reaches(from, to *Device) bool
	// made and read complete the commands of the two runs, which say where the
	// tensors lie in the segment of the device that makes them.
	made(cmd *worker.Run)
	read(cmd *worker.Run)
	// lasts tells whether the tensors outlive the worker that made them.
	lasts() bool
}

// tiers are the ways that there are, the best first. The last reaches everywhere.
var tiers = []tier{gpuMemory{}, sharedMemory{}}

// tierBetween is the best way from a device to another.
func tierBetween(from, to *Device) tier {
	for _, t := range tiers {
		if t.reaches(from, to) {
			return t
		}
	}
	return tiers[len(tiers)-1]
}

// sharedMemory is a worker's segment, which all who read from it have mapped. The
// lobby sends it to workers of other hosts, and takes theirs into it.
type sharedMemory struct{}

func (sharedMemory) reaches(_, _ *Device) bool { return true }
func (sharedMemory) made(*worker.Run)          {}
func (sharedMemory) read(*worker.Run)          {}
func (sharedMemory) lasts() bool               { return true }

// gpuMemory is memory of a GPU beside the segment, laid out alike: of the worker
// itself, or of another on the same GPU, mapped (CUDA IPC).
type gpuMemory struct{}

func (gpuMemory) reaches(from, to *Device) bool {
	return from.shares && (to == from || to.maps != nil && to.maps[from.Index])
}
func (gpuMemory) made(cmd *worker.Run) { cmd.OutDevice = true }
func (gpuMemory) read(cmd *worker.Run) { cmd.InDevice = true }
func (gpuMemory) lasts() bool          { return false }
