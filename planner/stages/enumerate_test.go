package stages

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawProblem makes a small problem of random costs, cuts, memory and network.
func drawProblem(t *rapid.T) *Problem {
	p := &Problem{MaxPartitions: rapid.IntRange(1, 3).Draw(t, "partitions")}
	for k := range rapid.IntRange(1, 3).Draw(t, "pools") {
		pool := Pool{
			Kind: string(rune('A' + k)), Count: rapid.IntRange(0, 3).Draw(t, "count"), MaxShares: rapid.IntRange(1, 2).Draw(t, "shares"),
			PerNode: rapid.IntRange(1, 2).Draw(t, "per node"), Gbps: rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "gbps"),
			Memory: rapid.SampledFrom([]int64{0, 60, 150}).Draw(t, "memory"), WholeModelsOnly: rapid.IntRange(0, 3).Draw(t, "off wire") == 3,
		}
		if rapid.Bool().Draw(t, "time") {
			pool.TimeShared, pool.MaxShares = true, 1
		}
		p.Pools = append(p.Pools, pool)
	}
	m := Model{Name: "m", SLO: time.Duration(rapid.IntRange(1, 40).Draw(t, "slo")) * time.Millisecond / 2}
	m.Margin = m.SLO / time.Duration(rapid.IntRange(3, 9).Draw(t, "margin"))
	if m.EveryBatch = rapid.Bool().Draw(t, "every batch"); m.EveryBatch {
		m.BatchWaitMicros = float64(rapid.IntRange(0, 500).Draw(t, "build"))
	}
	blocks := rapid.IntRange(2, 5).Draw(t, "blocks")
	for b := range blocks {
		m.Weights = append(m.Weights, int64(rapid.IntRange(1, 40).Draw(t, "weights")))
		if b > 0 {
			m.CutBytes = append(m.CutBytes, int64(rapid.IntRange(-1, 300).Draw(t, "cut"))*1000)
		}
	}
	for k := range p.Pools {
		shares := make([]ShareCosts, rapid.IntRange(0, p.Pools[k].MaxShares).Draw(t, "measured"))
		for v := range shares {
			for _, batch := range []int{1, 4}[:rapid.IntRange(1, 2).Draw(t, "batches")] {
				c := BatchCost{Batch: batch, Memory: int64(rapid.IntRange(0, 150).Draw(t, "used"))}
				for range blocks {
					c.Blocks = append(c.Blocks, time.Duration(rapid.IntRange(0, 2000).Draw(t, "us"))*time.Microsecond)
				}
				var pieces []MeasuredRange
				for i := range blocks {
					for j := i + 2; j <= blocks; j++ {
						if rapid.IntRange(0, 3).Draw(t, "in one piece") == 0 {
							pieces = append(pieces, MeasuredRange{FirstBlock: i, EndBlock: j, Time: time.Duration(rapid.IntRange(0, 4000).Draw(t, "us of the piece")) * time.Microsecond})
						}
					}
				}
				c.SetPieces(pieces, m.CutBytes)
				shares[v].Batches = append(shares[v].Batches, c)
			}
		}
		m.ShareCosts = append(m.ShareCosts, shares)
	}
	p.Models = []Model{m}
	return p
}

// Every template covers the model's blocks in order and is cut where a cut may be.
// Its latency is the sum of its stages and transfers and within the budget. What it
// needs fits in the memory of its devices. No template is there twice, and none is
// faster than the fastest pipeline of its batch.
func TestTemplatesKeepBudgetAndMemory(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		m := &p.Models[0]
		list, _, err := p.ListTemplates(0)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		quickest := map[int]time.Duration{}
		for i := range list {
			x := &list[i]
			if seen[x.Key()] {
				t.Fatalf("%+v is there twice", x)
			}
			seen[x.Key()] = true
			if len(x.Stages) > p.MaxPartitions || !slices.Contains(m.BatchSizes(), x.Batch) {
				t.Fatalf("%d stages at batch %d", len(x.Stages), x.Batch)
			}
			at, latency, resident := 0, time.Duration(0), make([]int64, len(p.Pools))
			for si := range x.Stages {
				s := &x.Stages[si]
				pool := &p.Pools[s.Pool]
				if s.FirstBlock != at || s.EndBlock <= s.FirstBlock || s.EndBlock < m.NumBlocks() && m.CutBytes[s.EndBlock-1] < 0 {
					t.Fatalf("stage %d of %+v starts or ends at the wrong block", si, x)
				}
				at = s.EndBlock
				xfer := time.Duration(0)
				if si+1 < len(x.Stages) {
					xfer = p.TransferTime(s.Pool, x.Stages[si+1].Pool, m.CutBytes[s.EndBlock-1], x.Batch)
				}
				if s.MaxTime != MaxTime(&m.ShareCosts[s.Pool][s.Share-1], x.Batch, s.FirstBlock, s.EndBlock) || s.TransferTime != xfer {
					t.Fatalf("stage %d of %+v takes another time than its blocks and cut", si, x)
				}
				latency += s.MaxTime + s.TransferTime
				if pool.Count == 0 || s.Share < 1 || s.Share > pool.MaxShares || pool.WholeModelsOnly && len(x.Stages) > 1 {
					t.Fatalf("stage %d of %+v is where it cannot be", si, x)
				}
				if pool.TimeShared {
					resident[s.Pool] += s.Memory
				} else {
					resident[s.Pool] = s.Memory * int64(s.Share)
				}
				if s.Memory < m.WeightBytes(s.FirstBlock, s.EndBlock) || pool.Memory > 0 && resident[s.Pool] > pool.Memory {
					t.Fatalf("stage %d of %+v does not fit in memory", si, x)
				}
				if s.Rate <= 0 || s.Rate > float64(x.Batch)/s.MaxTime.Seconds()*(1+1e-12) || s.Rate != p.StageRate(x, si) {
					t.Fatalf("stage %d of %+v sustains another rate than its inference and NIC", si, x)
				}
			}
			if at != m.NumBlocks() || x.Latency != latency || latency > m.Budget(x.Batch) {
				t.Fatalf("%+v ends at block %d of %d and takes %v of %v", x, at, m.NumBlocks(), latency, m.Budget(x.Batch))
			}
			if best, ok := quickest[x.Batch]; !ok || latency < best {
				quickest[x.Batch] = latency
			}
			if len(x.Stages) > 1 {
				cut++
			}
		}
		for _, batch := range m.BatchSizes() {
			fastest, ok := p.MinLatency(0, batch)
			best, listed := quickest[batch]
			if listed != (ok && fastest <= m.Budget(batch)) || listed && best != fastest {
				t.Fatalf("batch %d: the fastest pipeline takes %v (%v), the fastest listed %v (%v)", batch, fastest, ok, best, listed)
			}
		}
	})
	if cut == 0 {
		t.Error("no template had several stages")
	}
}

// The least memory is what some pipeline needs: with it one fits, with a byte less
// none does.
func TestLeastMemory(t *testing.T) {
	limited := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		fits := func(bytes int64) bool {
			for k := range p.Pools {
				p.Pools[k].Memory = bytes
			}
			return slices.ContainsFunc(p.Models[0].BatchSizes(), func(batch int) bool { _, ok := p.MinLatency(0, batch); return ok })
		}
		least := p.MinMemory(0)
		if least == 0 {
			if fits(0) {
				t.Fatal("a pipeline fits, but there is no least memory")
			}
			return
		}
		if !fits(least) || least > 1 && fits(least-1) {
			t.Fatalf("the least memory is %d: fits %v, with a byte less %v", least, fits(least), fits(least-1))
		}
		limited++
	})
	if limited == 0 {
		t.Error("no problem had a pipeline")
	}
}
