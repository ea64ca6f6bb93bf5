package workers

import (
	"context"
	"os"

	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/policy"
)

const engineONNX = "onnx"

// Limits of a GPU worker's segment. It is locked in memory, so that the GPU copies from and to it directly, and there
// may be GPU memory of the same size beside it.
const (
	gpuSegmentBytes = 256 << 20
	minGPUSlots     = 4
)

// slotCount returns how many slots each stage of a device gets. stride is the bytes of one slot of every stage
// together. On a GPU, slots take up pinned memory, so they are fewer if they are large; elsewhere they cost only
// address space.
func (k *supervisor) slotCount(d *Device, stride int64) int {
	if formats.IsCPU(d.Kind) || d.isRemote || k.core.Options.Engine != engineONNX || stride <= 0 {
		return k.options.Slots // costs address space only
	}
	// However large slots are, there are a few more of them than runs that may be in flight (Depth), so that the next batch
	// can be gathered meanwhile.
	fitting := int(min(gpuSegmentBytes/stride, int64(k.options.Slots)))
	return min(k.options.Slots, max(fitting, minGPUSlots, k.options.Depth+2))
}

// sameGPU returns true if two devices of the plan are (shares of) one GPU of this machine.
func (k *supervisor) sameGPU(a, b int32) bool {
	x, y := &k.core.Tables.Devices[a], &k.core.Tables.Devices[b]
	return x.Kind == y.Kind && x.GPU == y.GPU && !k.devices[a].isRemote && !k.devices[b].isRemote && !formats.IsCPU(k.devices[a].Kind)
}

// gpuReaders returns the devices that run the stage behind a stage of device dev and are shares (parts) of the same GPU,
// which may include dev itself. Tensors to them need not leave the GPU's memory. Stages are numbered in the order of
// their pipelines, so that the stage behind s is s + 1.
func (k *supervisor) gpuReaders(dev int32) []int32 {
	var out []int32
	isListed := map[int32]bool{}
	for s := range k.stages {
		if k.stages[s].isLast || k.devices[dev].loadedStages[s] == nil {
			continue
		}
		for _, to := range k.core.Tables.DevicesOf(int32(s + 1)) {
			if !isListed[to] && k.sameGPU(dev, to) {
				isListed[to] = true
				out = append(out, to)
			}
		}
	}
	return out
}

// shareMemory is called once the workers have started. It lets tensors between stages on one GPU stay in its
// memory: the worker of the earlier stage shares it, and those of later stages map it. If that fails, it logs a
// warning, and the tensors go through the host's memory.
func (k *supervisor) shareMemory(ctx context.Context) {
	if k.core.Options.Engine != engineONNX && os.Getenv(worker.ReplayMemoryEnv) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.options.StartTimeout)
	defer cancel()
	for _, d := range k.ownDevices {
		readers := k.gpuReaders(d.Index)
		if len(readers) == 0 {
			continue
		}

		// The device shares its GPU memory; every reader maps it.
		handle, err := d.Process.ShareMemory(ctx, d.Segment, nil)
		if err != nil {
			k.core.Options.Log.Warn("tensors leave the GPU between stages: its memory cannot be shared", "device", d.Index, "kind", d.Kind, "error", err)
			continue
		}
		d.sharesGPUMemory = true
		for _, to := range readers {
			x := k.devices[to]
			if x == d {
				continue
			}
			if _, err := x.Process.ShareMemory(ctx, d.Segment, handle); err != nil {
				k.core.Options.Log.Warn("tensors leave the GPU between two of its shares", "from", d.Index, "to", to, "kind", d.Kind, "error", err)
				continue
			}
			if x.mapsMemoryOf == nil {
				x.mapsMemoryOf = make([]bool, len(k.devices))
			}
			x.mapsMemoryOf[d.Index] = true
		}
	}
}

// forgetMemory is called when the worker of device d is lost. Its GPU memory is gone with its process: all other workers
// that had mapped it forget that, and so does d for what it had mapped. Batches whose next stage would read its input
// from that memory fail. An input in a tier (kind of memory) that outlives the worker can still be read.
func (w *WorkerBackend) forgetMemory(d *Device) {
	wasShared := d.sharesGPUMemory
	d.sharesGPUMemory, d.mapsMemoryOf = false, nil
	for _, x := range w.OwnDevices {
		if x.mapsMemoryOf != nil {
			x.mapsMemoryOf[d.Index] = false
		}
		if !wasShared || x == d {
			continue
		}
		for _, r := range x.InFlight {
			if r.Batch != nil && r.inputTier != nil && !r.inputTier.outlivesWorker() && r.input.pool != nil && r.input.pool.device == d.Index {
				w.core.Batches.FailBatch(r.Batch, policy.ReasonWorkerLost, nil)
			}
		}
	}
}

// measuredSizes returns the batch sizes, up to maxBatch, at which a stage was measured. Other sizes take as long
// as the next larger one, and on a GPU run padded to it. If the plan does not list them, they are the sizes after
// which the time changes.
func measuredSizes(stage *policy.Stage, maxBatch int) []int {
	var out []int
	if stage.MeasuredBatches != nil {
		for _, b := range stage.MeasuredBatches {
			if b < maxBatch {
				out = append(out, b)
			}
		}
		return append(out, maxBatch)
	}
	infer := stage.Infer
	for b := 1; b < maxBatch && b < len(infer); b++ {
		if infer[b-1] != infer[b] {
			out = append(out, b)
		}
	}
	return append(out, maxBatch)
}
