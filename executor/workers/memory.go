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
	gpuSlotsLeast   = 4
)

// slotCount returns the number of slots for the stages of a device, which together take `stride` bytes each.
func (k *crew) slotsOf(d *Device, stride int64) int {
	if formats.IsCPU(d.Kind) || d.remote || k.c.Options.Engine != engineONNX || stride <= 0 {
		return k.opt.Slots // costs address space only
	}
	fit := int(min(gpuSegmentBytes/stride, int64(k.opt.Slots)))
	return min(k.opt.Slots, max(fit, gpuSlotsLeast, k.opt.Depth+2))
}

// sameGPU returns true if two devices of the plan are (shares of) one GPU of this machine.
func (k *crew) sameGPU(a, b int32) bool {
	x, y := &k.c.Tables.Devices[a], &k.c.Tables.Devices[b]
	return x.Kind == y.Kind && x.GPU == y.GPU && !k.devices[a].remote && !k.devices[b].remote && !formats.IsCPU(k.devices[a].Kind)
}

// gpuReaders returns the devices on the same GPU that read the outputs of a device's stages; that may include the
// device.
func (k *crew) readers(dev int32) []int32 {
	var out []int32
	seen := map[int32]bool{}
	for s := range k.stages {
		if k.stages[s].last || k.devices[dev].known[s] == nil {
			continue
		}
		for _, to := range k.c.Tables.DevicesOf(int32(s + 1)) {
			if !seen[to] && k.sameGPU(dev, to) {
				seen[to] = true
				out = append(out, to)
			}
		}
	}
	return out
}

// shareMemory lets tensors between stages on one GPU stay in its memory. If that fails, it logs a warning, and they go
// through the host's memory.
func (k *crew) shareMemory(ctx context.Context) {
	if k.c.Options.Engine != engineONNX && os.Getenv(worker.ReplayMemoryEnv) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.opt.StartTimeout)
	defer cancel()
	for _, d := range k.own {
		readers := k.readers(d.Index)
		if len(readers) == 0 {
			continue
		}

		// The device shares its GPU memory; every reader maps it.
		handle, err := d.Proc.Share(ctx, d.Segment, nil)
		if err != nil {
			k.c.Options.Log.Warn("tensors leave the GPU between stages: its memory cannot be shared", "device", d.Index, "kind", d.Kind, "error", err)
			continue
		}
		d.shares = true
		for _, to := range readers {
			x := k.devices[to]
			if x == d {
				continue
			}
			if _, err := x.Proc.Share(ctx, d.Segment, handle); err != nil {
				k.c.Options.Log.Warn("tensors leave the GPU between two of its shares", "from", d.Index, "to", to, "kind", d.Kind, "error", err)
				continue
			}
			if x.maps == nil {
				x.maps = make([]bool, len(k.devices))
			}
			x.maps[d.Index] = true
		}
	}
}

// forgetMemory forgets the GPU memory of a lost worker, and what it had mapped. Runs that read from there have failed.
func (w *Workers) forgetMemory(d *Device) {
	shared := d.shares
	d.shares, d.maps = false, nil
	for _, x := range w.Own {
		if x.maps != nil {
			x.maps[d.Index] = false
		}
		if !shared || x == d {
			continue
		}
		for _, r := range x.Flight {
			if r.Batch != nil && r.from != nil && !r.from.lasts() && r.in.pool != nil && r.in.pool.device == d.Index {
				w.c.FailBatch(r.Batch, policy.ReasonWorkerLost, nil)
			}
		}
	}
}

// measuredSizes returns the batch sizes, up to `most`, that a stage was measured with. A size that was not measured
// costs as much as the next larger one, and on a GPU it runs as that.
func sizesOf(stage *policy.Stage, most int) []int {
	var out []int
	if stage.Measured != nil {
		for _, b := range stage.Measured {
			if b < most {
				out = append(out, b)
			}
		}
		return append(out, most)
	}
	infer := stage.Infer
	for b := 1; b < most && b < len(infer); b++ {
		if infer[b-1] != infer[b] {
			out = append(out, b)
		}
	}
	return append(out, most)
}
