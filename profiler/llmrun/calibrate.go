package llmrun

import (
	"math"
	"time"
)

// CPUCost is the CPU time of a server per iteration, and per sequence in it.
type CPUCost struct{ Iteration, Sequence time.Duration }

// FitCPU finds the CPU time of a server per iteration and per sequence with which its simulation is closest to
// recorded runs. It minimises the loss of lossOf: squared relative errors of each request's end-to-end latency and
// time per token. It searches a grid, and then finer ones around the best point.
func FitCPU(runs ...*Run) (CPUCost, error) {
	var bestCost CPUCost
	minLoss := math.Inf(1)

	// Each grid is four times as fine as the last, and spans a step around its best point.
	step := CPUCost{200 * time.Microsecond, 10 * time.Microsecond}
	start, end := CPUCost{}, CPUCost{3 * time.Millisecond, 100 * time.Microsecond}
	for range 4 {
		for iteration := start.Iteration; iteration <= end.Iteration; iteration += step.Iteration {
			for sequence := start.Sequence; sequence <= end.Sequence; sequence += step.Sequence {
				loss, err := lossOf(runs, CPUCost{iteration, sequence})
				if err != nil {
					return CPUCost{}, err
				}
				if loss < minLoss {
					bestCost, minLoss = CPUCost{iteration, sequence}, loss
				}
			}
		}
		start = CPUCost{max(0, bestCost.Iteration-step.Iteration), max(0, bestCost.Sequence-step.Sequence)}
		end = CPUCost{bestCost.Iteration + step.Iteration, bestCost.Sequence + step.Sequence}
		step = CPUCost{step.Iteration / 4, step.Sequence / 4}
	}
	return bestCost, nil
}

// maxSum is the largest sum of both constants in a mean iteration.
const maxSum = 6 * time.Millisecond

// Calibrate fits the two constants of the server's CPU time to runs, as FitCPU does. A single run, whose batches are
// mostly of one size, hardly separates them. Then it fits their sum in the mean iteration, and each constant makes
// half of it. The halves are a convention.
func Calibrate(runs ...*Run) (CPUCost, error) {
	if len(runs) != 1 {
		return FitCPU(runs...)
	}
	_, counts, err := runs[0].Simulate(CPUCost{})
	if err != nil {
		return CPUCost{}, err
	}
	sequences := max(1, float64(counts.Output)/float64(counts.Iterations)) // in a mean iteration, which gives each a token
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

// lossOf returns how badly a model with these constants explains the runs: the sum over the runs of the mean squared
// relative error of a request's end-to-end latency and time per token. Each run is simulated with them. A request of
// one token has no time per token.
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
