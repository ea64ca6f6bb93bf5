package profiler

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
	"inferplan/formats/document"
)

// ceilings are the highest rates that a device reaches.
type ceilings struct {
	memoryGBps   float64 // bytes read and written by a copy, 1e9 a second
	matmulGflops float64
}

// copyTimer is an engine that can time copies of its devices itself, in bytes per second: from pinned host memory,
// to it, and inside the device (each byte counted once).
type copyTimer interface {
	CopyRates(d engine.Device) (toDevice, toHost, inDevice float64, err error)
}

// Sizes of the matrix product: large enough to reach the device's full rate, small enough to take little time.
const (
	matmulCPU = 1024
	matmulGPU = 4096
)

// measureCeilings measures the rates of a device. Those that it cannot measure stay 0. hostCopy returns the copy rate
// of host memory, in gigabits per second. They are the ceilings of the roofline model: bytes read and written per
// second, and floating-point operations per second.
func measureCeilings(ctx context.Context, p loadTarget, hostCopy func() float64) (c ceilings) {
	if _, ok := p.eng.(Prober); !ok {
		return c // an engine that does not execute models
	}
	if e, ok := p.eng.(copyTimer); ok && !p.dev.IsCPU() {
		if _, _, inDevice, err := e.CopyRates(p.dev); err == nil {
			c.memoryGBps = roundRate(2 * inDevice / 1e9) // a copied byte is read and written
		}
	} else if p.dev.IsCPU() {
		c.memoryGBps = roundRate(readAndWritten(hostCopy()))
	}
	if flops, err := matmulRate(ctx, p); err == nil {
		c.matmulGflops = roundRate(flops / 1e9)
	}
	return c
}

// HostCopyGBps returns the rate of a large copy by one core, bytes read plus bytes written, in 1e9 bytes a second.
func HostCopyGBps() float64 { return readAndWritten(hostCopyGbps()) }

// readAndWritten converts the rate of a copy, in gigabits per second, to the bytes that it reads and writes, in
// 1e9 a second.
func readAndWritten(gbps float64) float64 { return 2 * gbps / 8 }

// roundRate rounds a measured rate to four significant digits. It returns 0 for what is no positive number.
func roundRate(x float64) float64 {
	if x <= 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-3)
	return math.Round(x/unit) * unit
}

// MatmulRate measures the floating-point operations per second of a large float32 matrix product on a device, the
// best of several.
func MatmulRate(ctx context.Context, eng engine.Engine, d engine.Device, o engine.Options) (float64, error) {
	return matmulRate(ctx, loadTarget{eng: eng, dev: d, options: o})
}

// matmulRate measures how many floating-point operations per second a large matrix product reaches on a target's
// device, in the target's precision (float32 or float16): the best of several runs.
func matmulRate(ctx context.Context, p loadTarget) (float64, error) {
	prober, ok := p.eng.(Prober)
	if !ok {
		return 0, fmt.Errorf("engine %s cannot probe shapes", p.eng.Info().Name)
	}
	size := matmulGPU
	if p.dev.IsCPU() {
		size = matmulCPU
	}

	// Load a model with one large product.
	m, err := graph.MatMul(size, 1)
	if err != nil {
		return 0, err
	}
	chain, err := m.Chain(ctx, prober.Probe, graph.ChainOptions{})
	if err != nil {
		return 0, err
	}
	p.options.CUDAGraph = false
	blk, err := p.loadSlice(ctx, chain.WholeModel(), 0, 1, graph.SliceOptions{})
	if err != nil {
		return 0, err
	}
	c := chainOf(blk)
	defer c.close()
	b, err := bindChain(c.blocks, size, nil) // with as many rows as the matrix, so both factors are square
	if err != nil {
		return 0, err
	}
	c.bound = map[int]*boundModel{size: {blocks: b}}

	// Take the fastest of several runs, without the first two.
	fastest := time.Duration(0)
	for i := range 8 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t, err := b[0].RunN(1)
		if err != nil {
			return 0, err
		}
		cpu, wall := t.PerRun()
		if isTimedByCPU(p.dev) {
			wall = cpu // time that other processes took is not the device's
		}
		if i > 1 && (fastest == 0 || wall < fastest) {
			fastest = wall
		}
	}
	if fastest <= 0 {
		return 0, fmt.Errorf("a product of %d x %d took no time", size, size)
	}
	return 2 * math.Pow(float64(size), 3) / fastest.Seconds(), nil // size³ multiplications, each with an addition
}

// chainOf returns a loaded model of one block.
func chainOf(b engine.Block) *loadedModel { return &loadedModel{blocks: []engine.Block{b}} }

// workCounter is a model that can count its own work.
type workCounter interface {
	countWork(ctx context.Context, p Prober) (*graph.WorkCounts, error)
}

// countWork counts for the profile how many multiplications (MACs) a model's blocks compute and how many bytes they
// move, by its graph.
func (g *jobGroup) countWork(ctx context.Context, j *modelJob) error {
	m, ok := j.m.(workCounter)
	b, isGraph := j.cut.(*graph.Blocks)
	p, probes := g.run.options.Engine.(Prober)
	if !ok || !isGraph || !probes || j.countedWork(b.Len()) {
		return nil
	}
	counts, err := m.countWork(ctx, p)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		// The counts are only for information. A model without them is measured all the same.
		g.run.progress.warn(j.info.name, fmt.Sprintf("%s: its work is not counted: %v", j.info.name, err))
		return nil
	}
	for i := range j.entry.Blocks {
		w := counts.WorkOf(b, i, i+1)
		j.entry.Blocks[i].MACs, j.entry.Blocks[i].TensorBytes = w.MACs, w.Bytes
	}
	return nil
}

// countedWork reports whether the profile's entry has the work of n blocks already.
func (j *modelJob) countedWork(n int) bool {
	return len(j.entry.Blocks) == n && slices.ContainsFunc(j.entry.Blocks, func(b formats.Block) bool { return b.TensorBytes > 0 })
}

// RooflineRow compares a block's latency with the shortest possible on the device: the longer of computing its
// products at the rate of a large matrix product, and moving its bytes at the rate of a copy.
type RooflineRow struct {
	Model    string          `json:"model"`
	Device   string          `json:"device"`
	Batch    int             `json:"batch"`
	Block    int             `json:"block"` // -1 for the whole model
	Wall     document.Micros `json:"wall_us"`
	Floor    document.Micros `json:"floor_us"`
	Bound    string          `json:"bound"`    // compute or memory, whichever takes longer
	Fraction float64         `json:"fraction"` // floor over wall
	// Reason says why the block is far from the roofline, if it is: launch (the host is the bottleneck) or
	// kernels.
	Reason string `json:"far,omitempty"`
}

// A block is far from the roofline (its shortest possible time) if that is less than farFraction of its time. Blocks of
// at most farMinTime are never called far, because starting a kernel (a program of the GPU) takes too large a part of
// their time.
const (
	farFraction = 0.15
	farMinTime  = 50 * time.Microsecond
	launchBound = 0.8 // share of the host's time for launching in a run's time from which on the device waits for the host
)

// RooflineRows returns a row for every block and whole model of a profile, at share 1, on devices whose highest rates
// are known. The row of a whole model has block -1. Blocks whose bytes are not counted have none.
func RooflineRows(p *formats.Profile) []RooflineRow {
	var out []RooflineRow
	for i := range p.Models {
		m := &p.Models[i]
		for k := range m.Measurements {
			s := &m.Measurements[k]
			d := slices.IndexFunc(p.Devices, func(d formats.ProfileDevice) bool { return d.Device == s.Device })
			if d < 0 || s.Share != 1 || p.Devices[d].MemoryGBps <= 0 || p.Devices[d].MatmulGflops <= 0 || len(s.Blocks) != len(m.Blocks) {
				continue
			}
			row := func(block int, l formats.Latency, macs, tensors, weights int64) {
				if tensors == 0 || l.WallUS <= 0 {
					return
				}
				out = append(out, rooflineRow(&p.Devices[d], m.Model, s.Batch, block, l, macs, tensors, weights))
			}

			// Add a row for each block and, with the sums over the blocks, for the whole model.
			var macs, tensors, weights int64
			for b, l := range s.Blocks {
				x := &m.Blocks[b]
				row(b, l, x.MACs, x.TensorBytes, x.WeightBytes)
				macs, tensors, weights = macs+x.MACs, tensors+x.TensorBytes, weights+x.WeightBytes
			}
			if s.WholeModel != nil {
				row(-1, *s.WholeModel, macs, tensors, weights)
			}
		}
	}
	return out
}

// rooflineRow computes the shortest possible time of a block on a device, and the part of the measured time l that it
// is. The block (-1 for the whole model) computes macs multiplications and moves the bytes of tensors for each sample,
// and reads the bytes of weights once per run. If it is far from that time, the row has a reason: the host launches too
// slowly, or the kernels (the GPU's programs) are slow.
func rooflineRow(d *formats.ProfileDevice, model string, batch, block int, l formats.Latency, macs, tensors, weights int64) RooflineRow {
	// Seconds at the highest rates of the device. A multiplication counts with its addition.
	computeTime := 2 * float64(macs) * float64(batch) / (d.MatmulGflops * 1e9)
	memoryTime := (float64(tensors)*float64(batch) + float64(weights)) / (d.MemoryGBps * 1e9)
	if d.Precision == formats.PrecisionFP16 {
		memoryTime /= 2 // tensors and weights are counted in float32, which is twice as large
	}

	// The longer of the two bounds the block's time.
	r := RooflineRow{Model: model, Device: d.Device, Batch: batch, Block: block, Wall: l.WallUS, Bound: "compute"}
	if memoryTime > computeTime {
		r.Bound = "memory"
	}
	floor := time.Duration(max(computeTime, memoryTime) * float64(time.Second))
	r.Floor = document.Micros(floor)
	r.Fraction = math.Round(1e4*float64(floor)/float64(l.WallUS.D())) / 1e4
	if r.Fraction < farFraction && l.WallUS.D() > farMinTime {
		r.Reason = "kernels"
		if l.HostUS > 0 && float64(l.HostUS) >= launchBound*float64(l.WallUS) {
			r.Reason = "launch"
		}
	}
	return r
}

// noteRoofline notes in the profile which of a model's blocks take much longer than the highest rates of the device
// allow, the worst four.
func (r *runner) noteRoofline(j *modelJob) {
	single := &formats.Profile{Models: []formats.ProfileModel{*j.entry}}
	for _, d := range r.profile.Devices {
		if d.Device == r.dev.Kind {
			single.Devices = append(single.Devices, d)
		}
	}

	// Compute the rows of this model on this device, and keep the blocks that are far off.
	rows := RooflineRows(single)
	rows = slices.DeleteFunc(rows, func(row RooflineRow) bool { return row.Reason == "" || row.Block < 0 || row.Device != r.dev.Kind })
	subject := fmt.Sprintf("blocks of %s far below the roofline of %s", j.info.name, r.dev.Kind)
	if len(rows) == 0 {
		r.setNote(subject, "")
		return
	}

	// Name the four that are furthest off.
	slices.SortStableFunc(rows, func(a, b RooflineRow) int { return cmp.Compare(a.Fraction, b.Fraction) })
	var parts []string
	for _, row := range rows[:min(4, len(rows))] {
		parts = append(parts, fmt.Sprintf("block %d at batch %d reaches %.1f %% (%s)", row.Block, row.Batch, 100*row.Fraction, map[string]string{
			"launch": "the host launches too slowly", "kernels": "small kernels, or tensors that change their layout",
		}[row.Reason]))
	}
	if omitted := len(rows) - 4; omitted > 0 {
		parts = append(parts, fmt.Sprintf("%d more", omitted))
	}
	r.setNote(subject, subject+noteSep+strings.Join(parts, ", "))
}
