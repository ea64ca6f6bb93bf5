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

// transferTimes is a histogram with bins of equal relative width.
type transferTimes struct {
	bins  []int64 // nil before the first transfer
	count int64
	sum   time.Duration
}

// transferBin returns the bin of a time in a histogram whose bins double in width with each power of two, so that
// the relative error stays small. Times below transferBins have bins of their own.
func transferBin(d time.Duration) int {
	if d < transferBins {
		return int(max(0, d))
	}
	power := bits.Len64(uint64(d)) - 1
	shift := power - bits.Len(transferBins) + 1
	return (shift+1)*transferBins + int(uint64(d)>>shift) - transferBins
}

// binMiddle returns the time in the middle of a bin.
func binMiddle(bin int) time.Duration {
	if bin < transferBins {
		return time.Duration(bin)
	}
	shift := bin/transferBins - 1
	lower := uint64(transferBins+bin%transferBins) << shift
	return time.Duration(lower + uint64(1)<<shift/2)
}

// grow allocates the bins.
func (t *transferTimes) grow() {
	if t.bins == nil {
		t.bins = make([]int64, 64*transferBins)
	}
}

// add counts a transfer.
func (t *transferTimes) add(d time.Duration) {
	t.grow()
	t.bins[transferBin(d)]++
	t.count++
	t.sum += d
}

// merge adds the transfers of another histogram.
func (t *transferTimes) merge(o *transferTimes) {
	if o.count == 0 {
		return
	}
	t.grow()
	for i, n := range o.bins {
		t.bins[i] += n
	}
	t.count += o.count
	t.sum += o.sum
}

// summary returns the number of transfers, their mean time and the 99th percentile, which is the middle of its bin.
func (t *transferTimes) summary() Transfers {
	if t.count == 0 {
		return Transfers{}
	}
	summary := Transfers{Count: t.count, Mean: t.sum / time.Duration(t.count)}

	// The 99th percentile is the bin that contains the transfer with this rank.
	rank := int64(math.Ceil(0.99 * float64(t.count)))
	for bin, n := range t.bins {
		if rank -= n; rank <= 0 {
			summary.P99 = binMiddle(bin)
			break
		}
	}
	return summary
}
