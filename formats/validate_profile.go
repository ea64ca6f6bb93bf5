package formats

import (
	"fmt"
	"slices"

	"inferplan/formats/document"
)

// Validate checks what the types of a profile cannot say and returns all
// findings, each with its field path.
func (d *Profile) Validate() error {
	var c document.Checker
	c.Header(d, d.Format, FormatProfile)
	devices := map[string]int{}
	for i := range d.Devices {
		c.Name(devices, i, d.Devices[i].Device, "devices[%d].device", i)
		checkPrecision(&c, d.Devices[i].Precision, "devices", i)
		if p := &d.Devices[i]; p.MemoryBytes < 0 || p.CopyGbps < 0 || p.CostSeconds < 0 || p.MemoryGBps < 0 || p.MatmulGflops < 0 {
			c.Failf("a negative figure", "memory_bytes, copy_gbps, cost_seconds, memory_gbps and matmul_gflops of 0 or more", "", "devices[%d]", i)
		}
		if b := d.Devices[i].BetweenRuns; b != nil && (b.Runs < 2 || !(b.Spread >= 0 && b.Spread < 1)) {
			c.Failf(fmt.Sprintf("%d runs with a spread of %s", b.Runs, document.Number(b.Spread)), "at least 2 runs, and a share from 0 to 1", "", "devices[%d].between_runs", i)
		}
	}
	d.FrontEnd.check(&c)
	models := map[string]int{}
	for i := range d.Models {
		c.Name(models, i, d.Models[i].Model, "models[%d].model", i)
		d.Models[i].check(&c, fmt.Sprintf("models[%d]", i), devices)
	}
	checkRecords(&c, d.Records, models)
	checkLLMs(&c, d.LLMs, devices, "llms")
	return c.Err()
}

func checkPrecision(c *document.Checker, p, list string, i int) {
	if p != "" {
		c.OneOf(fmt.Sprintf("%s[%d].precision", list, i), p, PrecisionFP16)
	}
}

func (m *ProfileModel) check(c *document.Checker, path string, devices map[string]int) {
	if m.Source != nil {
		c.SHA(path+".source.sha256", m.Source.SHA256)
	}
	checkBucket(c, m.Bucket, m.Model, path)
	checkTensors(c, m.Inputs, path+".inputs")
	checkTensors(c, m.Outputs, path+".outputs")
	checkConstants(c, m.Constants, path+".constants")
	checkOperators(c, m.Operators, path+".operators")
	c.Some(len(m.Blocks), path+".blocks", "at least one block")
	check := func(f *FP16Check, path string) {
		if f != nil {
			c.Share(path+".fp16.top1_agreement", f.Top1Agreement)
		}
	}
	check(m.FP16, path)
	checkSession(c, m.Session, path+".session_state")
	for k := range m.Loads {
		if _, ok := devices[m.Loads[k].Device]; !ok {
			c.Failf("the device "+document.Quote(m.Loads[k].Device), "a device of the profile", "", "%s.loads[%d].device", path, k)
		}
	}
	blocks := map[string]int{}
	for k := range m.Blocks {
		b, at := &m.Blocks[k], fmt.Sprintf("%s.blocks[%d]", path, k)
		c.Name(blocks, k, b.Name, "%s.name", at)
		checkTensors(c, b.Cut, at+".cut")
		for _, f := range [...]struct {
			name  string
			value int64
		}{{"nodes", int64(b.Nodes)}, {"cut_bytes_fp32", b.CutBytesFP32.Bytes()}, {"cut_bytes_fp16", b.CutBytesFP16.Bytes()}, {"weight_bytes", b.WeightBytes}, {"macs", b.MACs}, {"tensor_bytes", b.TensorBytes}} {
			document.Least(c, f.value, 0, at, "."+f.name)
		}
		check(b.FP16, at)
	}
	type point struct {
		device       string
		share, batch int
	}
	seen := map[point]int{}
	for k := range m.Measurements {
		s := &m.Measurements[k]
		at := fmt.Sprintf("%s.measurements[%d]", path, k)
		s.check(c, len(m.Blocks), devices, at)
		p := point{s.Device, s.Share, s.Batch}
		if first, dup := seen[p]; dup {
			c.Failf(fmt.Sprintf("device %s, share 1/%d, batch %d a second time", document.Quote(s.Device), s.Share, s.Batch),
				"each device, share and batch once", fmt.Sprintf("it stands at index %d already", first), "%s", at)
		} else {
			seen[p] = k
		}
	}
}

// maxBatch bounds batch sizes: plans list a time for every batch up to theirs.
const maxBatch = 1 << 16

func (s *Measurement) check(c *document.Checker, blocks int, devices map[string]int, at string) {
	if _, ok := devices[s.Device]; !ok {
		c.Fail(at+".device", "the device "+document.Quote(s.Device), "a device of the profile's list devices", "")
	}
	c.FailIf(s.Share < 1, at+".share", s.Share, "1 or more: the v of a share 1/v")
	c.FailIf(s.Share > 1 && IsCPU(s.Device), at+".share", s.Share, "1: CPU thread sets have no shares")
	c.FailIf(s.Batch < 1 || s.Batch > maxBatch, at+".batch", s.Batch, "1 to %d", maxBatch)
	document.Least(c, s.MemoryBytes, 0, at, ".memory_bytes")
	c.FailIf(len(s.Blocks) != blocks, at+".blocks", fmt.Sprintf("%d latencies", len(s.Blocks)), "%d, one per block of the model", blocks)
	if s.Whole != nil {
		s.Whole.check(c, func() string { return at + ".whole" })
	}
	for b := range s.Blocks {
		s.Blocks[b].check(c, func() string { return fmt.Sprintf("%s.blocks[%d]", at, b) })
	}
	for i := range s.Ranges {
		s.checkRange(c, blocks, i, fmt.Sprintf("%s.ranges[%d]", at, i))
	}
}

func (s *Measurement) checkRange(c *document.Checker, blocks, i int, path string) {
	r := &s.Ranges[i]
	first, last := r.Blocks[0], r.Blocks[1]
	r.Latency.check(c, func() string { return path + ".latency" })
	switch {
	case first < 0 || last > blocks || last-first < 2 || last-first == blocks:
		c.Fail(path+".blocks", fmt.Sprint(r.Blocks), fmt.Sprintf("[first, last) of two or more of the %d blocks, but not all", blocks),
			"one block stands in blocks, all of them in whole")
	case i > 0 && slices.Compare(s.Ranges[i-1].Blocks[:], r.Blocks[:]) >= 0:
		c.Fail(path+".blocks", fmt.Sprint(r.Blocks), "each range once, ascending", fmt.Sprintf("%v stands before it", s.Ranges[i-1].Blocks))
	}
}

func (l *Latency) check(c *document.Checker, path func() string) {
	if l.WallUS == 0 { // below 0: found with all numbers
		c.Fail(path()+".wall_us", "the number 0", "a positive latency", "raise what rounds to nothing to 1")
	}
	if l.P99US != 0 && l.P99US < l.WallUS {
		c.Fail(path()+".p99_us", "the number "+l.P99US.String(), "at least the median, "+l.WallUS.String(), "")
	}
	if l.Samples < 0 {
		c.Fail(path()+".samples", document.Whole(l.Samples), "0 or more", "")
	}
}
