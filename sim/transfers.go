package sim

import (
	"math"
	"math/bits"
	"time"
)

// Transfers summarises the times that batches' tensors took from the end of a stage to the
// next device, waiting for links included. If tensors waited at the stage for a decision, the
// time counts from the decision.
type Transfers struct {
	Count     int64
	Mean, P99 time.Duration
}

// transferBins is the number of bins for each power of two of nanoseconds. Percentiles are
// exact to 1.6 %.
const transferBins = 64

// transferTimes is a histogram of times of transfers with bins of equal relative width.
type transferTimes struct {
	bins  []int64 // nil before the first transfer
	count int64
	sum   time.Duration
}

// transferBin returns the bin of the histogram of transfer times in which a time counts. Each power of two of
// nanoseconds has transferBins bins of equal width, so that the relative error stays small. Times below transferBins
// have bins of their own.
func transferBin(duration time.Duration) int {
	if duration < transferBins {
		return int(max(0, duration))
	}
	power := bits.Len64(uint64(duration)) - 1

	// A bin of this power of two is 2^shift nanoseconds wide, so duration>>shift is from transferBins to 2*transferBins - 1.
	shift := power - bits.Len(transferBins) + 1
	return (shift+1)*transferBins + int(uint64(duration)>>shift) - transferBins
}

// binMiddle returns the time in the middle of a bin, the inverse of transferBin.
func binMiddle(bin int) time.Duration {
	if bin < transferBins {
		return time.Duration(bin)
	}
	shift := bin/transferBins - 1
	binStart, binWidth := uint64(transferBins+bin%transferBins)<<shift, uint64(1)<<shift
	return time.Duration(binStart + binWidth/2)
}

// grow allocates the bins, at the first time that is counted.
func (t *transferTimes) grow() {
	if t.bins == nil {
		t.bins = make([]int64, 64*transferBins)
	}
}

// add counts a transfer that took this long.
func (t *transferTimes) add(duration time.Duration) {
	t.grow()
	t.bins[transferBin(duration)]++
	t.count++
	t.sum += duration
}

// merge adds the transfers that another histogram has counted.
func (t *transferTimes) merge(other *transferTimes) {
	if other.count == 0 {
		return
	}
	t.grow()
	for i, count := range other.bins {
		t.bins[i] += count
	}
	t.count += other.count
	t.sum += other.sum
}

// summary returns the number of transfers, their mean time and the 99th percentile, which is the middle of its bin.
func (t *transferTimes) summary() Transfers {
	if t.count == 0 {
		return Transfers{}
	}
	summary := Transfers{Count: t.count, Mean: t.sum / time.Duration(t.count)}

	// The 99th percentile is the bin that contains the transfer with this rank.
	rank := int64(math.Ceil(0.99 * float64(t.count)))
	for bin, count := range t.bins {
		rank -= count
		if rank <= 0 {
			summary.P99 = binMiddle(bin)
			break
		}
	}
	return summary
}
