package templates

import (
	"fmt"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// Complete sets the times, rates and memory of a template from the problem's measurements, as SetCosts does. It serves
// templates that come from elsewhere: a plan that runs, a plan to adopt, a short record in a table. It also returns an
// error if a stage is on a time-shared pool, or if the template breaks the SLO of the model.
func Complete(p *problem.Problem, t *stages.Template) error {
	if err := SetCosts(p, t); err != nil {
		return err
	}
	for i := range t.Stages {
		if p.Pools[t.Stages[i].Pool].TimeShared {
			return fmt.Errorf("stage %d is not on an exclusive pool", i)
		}
	}

	// The SLO also has to cover the wait until the batch is full and the margin that is kept back.
	m := &p.Models[t.Model]
	if totalTime := t.Latency + m.BatchWait(t.Batch) + m.Margin; totalTime > m.SLO {
		return fmt.Errorf("it takes %v with margin and batch building, the SLO of %s is %v", totalTime, m.Name, m.SLO)
	}
	return nil
}

// SetCosts sets the times, rates and memory of a template from the problem's measurements. The model, the batch size
// and the place of each stage (blocks, pool, and v of its share 1/v of a device) must be set in it. It returns an error
// if the stages do not follow one another over all blocks, were not measured on their devices, or are cut where the
// bytes are not known. It does not check the memory: FitsMemory does.
func SetCosts(p *problem.Problem, t *stages.Template) error {
	if t.Model < 0 || t.Model >= len(p.Models) {
		return fmt.Errorf("model %d of %d", t.Model, len(p.Models))
	}
	m := &p.Models[t.Model]
	modelBytes, nextBlock := m.WeightBytes(0, m.NumBlocks()), 0

	// Check each stage and compute its times.
	for i := range t.Stages {
		s := &t.Stages[i]
		switch {
		case s.FirstBlock != nextBlock || s.EndBlock <= s.FirstBlock || s.EndBlock > m.NumBlocks():
			return fmt.Errorf("stage %d holds blocks [%d, %d), expected them from %d on, of %d", i, s.FirstBlock, s.EndBlock, nextBlock, m.NumBlocks())
		case s.Pool < 0 || s.Pool >= len(p.Pools):
			return fmt.Errorf("stage %d is on no pool", i)
		case s.Share < 1 || s.Share > len(m.ShareCosts[s.Pool]) || m.ShareCosts[s.Pool][s.Share-1].CostAt(t.Batch) == nil:
			return fmt.Errorf("stage %d: %s was not measured at batch %d on a share 1/%d of %s", i, m.Name, t.Batch, s.Share, p.Pools[s.Pool].Kind)
		case s.EndBlock < m.NumBlocks() && m.CutBytes[s.EndBlock-1] < 0:
			return fmt.Errorf("stage %d: the size of the cut after block %d is not known", i, s.EndBlock-1)
		}
		nextBlock = s.EndBlock

		// The longest time of a batch counts for latency, the mean time for rates. A replica needs its weights and,
		// beside them, as much as the whole model needed beyond its weights at this batch size.
		costs := &m.ShareCosts[s.Pool][s.Share-1]
		expected := costs.ExpectedTimes(t.Batch)
		s.MaxTime, s.MeanTime = stages.MaxTime(costs, t.Batch, s.FirstBlock, s.EndBlock), expected.Mean(s.FirstBlock, s.EndBlock)
		s.Memory = m.WeightBytes(s.FirstBlock, s.EndBlock) + max(costs.CostAt(t.Batch).Memory-modelBytes, 0)
		if i > 0 {
			t.Stages[i-1].TransferTime = p.TransferTime(t.Stages[i-1].Pool, s.Pool, m.CutBytes[s.FirstBlock-1], t.Batch)
		}
	}
	if nextBlock != m.NumBlocks() {
		return fmt.Errorf("the stages hold %d of %d blocks", nextBlock, m.NumBlocks())
	}

	// The latency of a batch, in execution and transfers, and the rates of the stages.
	t.Latency = 0
	for i := range t.Stages {
		t.Latency += t.Stages[i].MaxTime + t.Stages[i].TransferTime
		t.Stages[i].Rate = p.StageRate(t, i)
	}
	return nil
}

// FitsMemory reports whether each stage of a template fits the memory of its share of a device, where a pool's devices
// have a limit (0 is none).
func FitsMemory(p *problem.Problem, t *stages.Template) bool {
	for i := range t.Stages {
		s := &t.Stages[i]
		if maxBytes := p.Pools[s.Pool].Memory; maxBytes > 0 && s.Memory > maxBytes/int64(s.Share) {
			return false
		}
	}
	return true
}
