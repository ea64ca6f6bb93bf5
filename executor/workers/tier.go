package workers

import "inferplan/engine/worker"

// transferTier is a way by which the outputs of a run come to the run of the next stage that reads them.
type transferTier interface {
	// canReach returns true if a run on a device can read the outputs of one on another.
	canReach(from, to *Device) bool
	// setOutput and setInput complete the commands of the two runs, which say where the tensors are in the segment of the
	// device that produces them.
	setOutput(cmd *worker.RunCommand)
	setInput(cmd *worker.RunCommand)
	// outlivesWorker returns true if the tensors survive the loss of the worker that produced them.
	outlivesWorker() bool
}

// tiers are all tiers, the best first. The last one reaches every device.
var tiers = []transferTier{gpuMemory{}, sharedMemory{}}

// tierBetween returns the best tier from a device to another.
func tierBetween(from, to *Device) transferTier {
	for _, t := range tiers {
		if t.canReach(from, to) {
			return t
		}
	}
	return tiers[len(tiers)-1]
}

// sharedMemory is a worker's segment, which all its readers have mapped. The join server sends it to workers of other
// hosts, and receives theirs into it.
type sharedMemory struct{}

func (sharedMemory) canReach(_, _ *Device) bool   { return true }
func (sharedMemory) setOutput(*worker.RunCommand) {}
func (sharedMemory) setInput(*worker.RunCommand)  {}
func (sharedMemory) outlivesWorker() bool         { return true }

// gpuMemory is GPU memory beside the segment, with the same layout: of the worker itself, or of another one on the same
// GPU, mapped (CUDA IPC).
type gpuMemory struct{}

func (gpuMemory) canReach(from, to *Device) bool {
	return from.sharesGPUMemory && (to == from || to.mapsMemoryOf != nil && to.mapsMemoryOf[from.Index])
}
func (gpuMemory) setOutput(cmd *worker.RunCommand) { cmd.OutputOnDevice = true }
func (gpuMemory) setInput(cmd *worker.RunCommand)  { cmd.InputOnDevice = true }
func (gpuMemory) outlivesWorker() bool             { return false }
