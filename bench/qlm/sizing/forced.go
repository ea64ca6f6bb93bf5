package sizing

import (
	"cmp"
	"math"
	"slices"
)

// forced proves that GPUs are too few: so many requests would be late that some of
// them may not. It plays a game of two. One chooses intervals that do not overlap, in
// every run, and wins the work inside beyond what the GPUs have of them. The other
// chooses who is late, which takes their work away. Each answers the mean of what the
// other did before. Where the first wins against every choice of who is late, the
// GPUs are too few. (Any weights of intervals would do: those that weigh no point
// more than once are mixtures of disjoint ones.)
type forced struct {
	list  []due
	late  []int
	runs  int
	step  float64 // seconds
	first []int   // by request: the cell in which it comes
	last  []int   // by request: the cell before whose begin it is due
	byEnd [][]int // requests by run, in order of last

	inside []float64 // by request: rounds in which an interval held it
	spared []float64 // by request: rounds in which it was late
}

// cells are the parts of a run, rounds those of the game.
const (
	cells  = 600
	rounds = 150
)

func newForced(list []due, late []int) *forced {
	f := &forced{list: list, late: late, first: make([]int, len(list)), last: make([]int, len(list)), inside: make([]float64, len(list)), spared: make([]float64, len(list))}
	end := 0.0
	for i := range list {
		end, f.runs = max(end, list[i].To.Seconds()), max(f.runs, list[i].run+1)
	}
	f.step, f.byEnd = end/cells*(1+1e-9), make([][]int, f.runs)
	for i := range list {
		f.first[i] = int(list[i].From.Seconds() / f.step)
		f.last[i] = int(math.Ceil(list[i].To.Seconds() / f.step))
		f.byEnd[list[i].run] = append(f.byEnd[list[i].run], i)
	}
	for _, of := range f.byEnd {
		slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(f.last[a], f.last[b]) })
	}
	return f
}

// tooFew returns whether so many GPUs are proven too few.
func (f *forced) tooFew(gpus float64) bool {
	clear(f.inside)
	clear(f.spared)
	has := 0.0 // of the GPUs, in the intervals of all rounds
	for round := 1; round <= rounds; round++ {
		won := 0.0
		for run := range f.runs {
			w, h := f.choose(run, max(round-1, 1), gpus)
			won, has = won+w, has+h
		}
		if won <= 0 {
			return false
		}
		if f.answer() > has*(1+1e-9) {
			return true
		}
	}
	return false
}

// choose finds the disjoint intervals of a run that win most against who was late so
// far, and marks the requests inside. It returns what they win, and what the GPUs have
// of them.
func (f *forced) choose(run, before int, gpus float64) (won, has float64) {
	var work, best [cells + 1]float64
	var from [cells + 1]int // begin of the interval that ends here; -1: none does
	at, of := 0, f.byEnd[run]
	for k := 1; k <= cells; k++ {
		for ; at < len(of) && f.last[of[at]] <= k; at++ {
			i := of[at]
			work[f.first[i]] += f.list[i].work * (1 - f.spared[i]/float64(before))
		}
		best[k], from[k] = best[k-1], -1
		sum := 0.0
		for i := k - 1; i >= 0; i-- {
			sum += work[i] - gpus*f.step
			if best[i]+sum > best[k] {
				best[k], from[k] = best[i]+sum, i
			}
		}
	}
	var until [cells + 1]int // end of the interval that a cell is in
	for k := cells; k > 0; {
		i := from[k]
		if i < 0 {
			k--
			continue
		}
		for cell := i; cell < k; cell++ {
			until[cell] = k
		}
		has += gpus * f.step * float64(k-i)
		k = i
	}
	for _, i := range of {
		if f.last[i] <= until[f.first[i]] {
			f.inside[i]++
		}
	}
	return best[cells], has
}

// answer makes those late that take most work away from the intervals of all rounds,
// and is the work that is left.
func (f *forced) answer() float64 {
	by, left := make([][]int, len(f.late)), 0.0
	for i := range f.list {
		if x := &f.list[i]; f.inside[i] > 0 {
			left += x.work * f.inside[i]
			by[x.figure] = append(by[x.figure], i)
		}
	}
	for j, of := range by {
		slices.SortFunc(of, func(a, b int) int {
			return cmp.Or(cmp.Compare(f.list[b].work*f.inside[b], f.list[a].work*f.inside[a]), cmp.Compare(a, b))
		})
		for _, i := range of[:min(f.late[j], len(of))] {
			left -= f.list[i].work * f.inside[i]
			f.spared[i]++
		}
	}
	return left
}
