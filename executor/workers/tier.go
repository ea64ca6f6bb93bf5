package workers

import "inferplan/engine/worker"

// transferTier is a way by which the outputs of a run come to the run of the next stage that reads them.
type tier interface {
	// canReach returns true if a run on a device can read the outputs of one on another.
	reaches(from, to *Device) bool
	// setOutput and setInput complete the commands of the two runs, which say where the tensors are in the segment of the
	// device that produces them.
	made(cmd *worker.Run)
	read(cmd *worker.Run)
	// outlivesWorker returns true if the tensors survive the loss of the worker that produced them.
	lasts() bool
}

// tiers are all tiers, the best first. The last one reaches every device.
var tiers = []tier{gpuMemory{}, sharedMemory{}}

// tierBetween returns the best tier from a device to another.
func tierBetween(from, to *Device) tier {
	for _, t := range tiers {
		if t.reaches(from, to) {
			return t
		}
	}
	return tiers[len(tiers)-1]
}

// sharedMemory is a worker's segment, which all its readers have mapped. The lobby sends it to workers of other hosts,
// and receives theirs into it.
type sharedMemory struct{}

func (sharedMemory) reaches(_, _ *Device) bool { return true }
func (sharedMemory) made(*worker.Run)          {}
func (sharedMemory) read(*worker.Run)          {}
func (sharedMemory) lasts() bool               { return true }

// gpuMemory is GPU memory beside the segment, with the same layout: of the worker itself, or of another one on the same
// GPU, mapped (CUDA IPC).
type gpuMemory struct{}

func (gpuMemory) reaches(from, to *Device) bool {
	return from.shares && (to == from || to.maps != nil && to.maps[from.Index])
}
func (gpuMemory) made(cmd *worker.Run) { cmd.OutDevice = true }
func (gpuMemory) read(cmd *worker.Run) { cmd.InDevice = true }
func (gpuMemory) lasts() bool          { return false }
