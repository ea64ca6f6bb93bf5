package llmrun

import (
	"math"
	"time"
)

// CPUCost is the CPU time of a server per iteration, and per sequence in it.
type CPU struct{ Iteration, Sequence time.Duration }

// FitCPU finds the two constants with which the model is closest to the runs: the smallest mean of squared
// relative errors of end-to-end latency and of time per token, request by request. All runs have the same weight.
// It searches a grid, and then finer ones around the best point.
func Free(runs ...*Run) (CPU, error) {
	var best CPU
	least := math.Inf(1)
	step := CPU{200 * time.Microsecond, 10 * time.Microsecond}
	from, to := CPU{}, CPU{3 * time.Millisecond, 100 * time.Microsecond}
	for range 4 {
		for a := from.Iteration; a <= to.Iteration; a += step.Iteration {
			for b := from.Sequence; b <= to.Sequence; b += step.Sequence {
				loss, err := lossOf(runs, CPU{a, b})
				if err != nil {
					return CPU{}, err
				}
				if loss < least {
					best, least = CPU{a, b}, loss
				}
			}
		}
		from = CPU{max(0, best.Iteration-step.Iteration), max(0, best.Sequence-step.Sequence)}
		to = CPU{best.Iteration + step.Iteration, best.Sequence + step.Sequence}
		step = CPU{step.Iteration / 4, step.Sequence / 4}
	}
	return best, nil
}

// maxSum is the largest sum of both constants in a mean iteration.
const mostSum = 6 * time.Millisecond

// Calibrate does the same. For a single run, whose batches are mostly of one size, the two constants can hardly be
// separated. Then it fits their sum in the mean iteration, and each constant makes half of it. The halves are a
// convention.
func Calibrate(runs ...*Run) (CPU, error) {
	if len(runs) != 1 {
		return Free(runs...)
	}
	_, counts, err := runs[0].Simulate(CPU{})
	if err != nil {
		return CPU{}, err
	}
	sequences := max(1, float64(counts.Output)/float64(counts.Iterations))
	var best CPU
	least := math.Inf(1)
	for sum := time.Duration(0); sum <= mostSum; sum += 20 * time.Microsecond {
		c := CPU{sum / 2, time.Duration(float64(sum) / 2 / sequences)}
		loss, err := lossOf(runs, c)
		if err != nil {
			return CPU{}, err
		}
		if loss < least {
			best, least = c, loss
		}
	}
	return best, nil
}

func lossOf(runs []*Run, c CPU) (float64, error) {
	sum := 0.0
	for _, r := range runs {
		out, _, err := r.Simulate(c)
		if err != nil {
			return 0, err
		}
		each := 0.0
		for i, q := range r.Requests {
			each += square((out[i].End.Seconds()-q.Queued)/max(q.Last-q.Queued, 1e-9) - 1)
			if q.Output > 1 && q.Last > q.First {
				each += square(out[i].TPOT(int32(q.Output)).Seconds()/((q.Last-q.First)/float64(q.Output-1)) - 1)
			}
		}
		sum += each / float64(len(out))
	}
	return sum, nil
}

func square(x float64) float64 { return x * x }
