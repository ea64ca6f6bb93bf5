package llmrun

import (
	"math"
	"time"
)

// CPUCost is the CPU time of a server per iteration, and per sequence in it.
type CPUCost struct{ Iteration, Sequence time.Duration }

// FitCPU finds the two constants with which the model is closest to the runs: the smallest mean of squared
// relative errors of end-to-end latency and of time per token, request by request. All runs have the same weight.
// It searches a grid, and then finer ones around the best point.
func FitCPU(runs ...*Run) (CPUCost, error) {
	var bestCost CPUCost
	minLoss := math.Inf(1)
	step := CPUCost{200 * time.Microsecond, 10 * time.Microsecond}
	start, to := CPUCost{}, CPUCost{3 * time.Millisecond, 100 * time.Microsecond}
	for range 4 {
		for a := start.Iteration; a <= to.Iteration; a += step.Iteration {
			for b := start.Sequence; b <= to.Sequence; b += step.Sequence {
				loss, err := lossOf(runs, CPUCost{a, b})
				if err != nil {
					return CPUCost{}, err
				}
				if loss < minLoss {
					bestCost, minLoss = CPUCost{a, b}, loss
				}
			}
		}
		start = CPUCost{max(0, bestCost.Iteration-step.Iteration), max(0, bestCost.Sequence-step.Sequence)}
		to = CPUCost{bestCost.Iteration + step.Iteration, bestCost.Sequence + step.Sequence}
		step = CPUCost{step.Iteration / 4, step.Sequence / 4}
	}
	return bestCost, nil
}

// maxSum is the largest sum of both constants in a mean iteration.
const maxSum = 6 * time.Millisecond

// Calibrate does the same. For a single run, whose batches are mostly of one size, the two constants can hardly be
// separated. Then it fits their sum in the mean iteration, and each constant makes half of it. The halves are a
// convention.
func Calibrate(runs ...*Run) (CPUCost, error) {
	if len(runs) != 1 {
		return FitCPU(runs...)
	}
	_, counts, err := runs[0].Simulate(CPUCost{})
	if err != nil {
		return CPUCost{}, err
	}
	sequences := max(1, float64(counts.Output)/float64(counts.Iterations))
	var bestCost CPUCost
	minLoss := math.Inf(1)
	for sum := time.Duration(0); sum <= maxSum; sum += 20 * time.Microsecond {
		c := CPUCost{sum / 2, time.Duration(float64(sum) / 2 / sequences)}
		loss, err := lossOf(runs, c)
		if err != nil {
			return CPUCost{}, err
		}
		if loss < minLoss {
			bestCost, minLoss = c, loss
		}
	}
	return bestCost, nil
}

func lossOf(runs []*Run, c CPUCost) (float64, error) {
	sum := 0.0
	for _, r := range runs {
		outcomes, _, err := r.Simulate(c)
		if err != nil {
			return 0, err
		}
		runLoss := 0.0
		for i, q := range r.Requests {
			runLoss += square((outcomes[i].LastToken.Seconds()-q.QueuedAt)/max(q.LastTokenAt-q.QueuedAt, 1e-9) - 1)
			if q.Output > 1 && q.LastTokenAt > q.FirstTokenAt {
				runLoss += square(outcomes[i].TPOT(int32(q.Output)).Seconds()/((q.LastTokenAt-q.FirstTokenAt)/float64(q.Output-1)) - 1)
			}
		}
		sum += runLoss / float64(len(outcomes))
	}
	return sum, nil
}

func square(x float64) float64 { return x * x }
