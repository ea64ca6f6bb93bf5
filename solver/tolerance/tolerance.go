package tolerance

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Values are measured values, as far as fresh ones go.
type Values struct {
	Mean      float64
	Deviation float64 // of one value, as far as means of many go
	N         float64 // of them
	Worth     float64 // as many independent values tell as much of the deviation
}

// Independent are at least two values that say nothing of each other.
func Independent(list []float64) Values {
	mean, deviation := stat.MeanStdDev(list, nil)
	n := float64(len(list))
	return Values{mean, deviation, n, n}
}

// Of values that follow each other: the most that they count as alike, and the least that
// they are worth.
const (
	mostAlike  = .9
	leastWorth = 3
)

// Correlated are values in runs of a length. Those of a run follow each other and are alike. At a
// correlation of r, n values are worth n(1-r)/(1+r). Their mean varies as if each varied
// (1+r)/(1-r) times as much (Bayley and Hammersley 1946, of a first-order autoregression).
// Their deviations from their own mean tell too little of that.
//
// A correlation of n values comes out too small by about (1+3r)/n (Kendall 1954). The number is
// the caller's: that of a run is on the safe side, that of all values is not.
func Correlated(list []float64, run, n int) Values {
	v := Values{Mean: stat.Mean(list, nil), N: float64(len(list)), Worth: float64(len(list))}
	squares, products, pairs := 0.0, 0.0, 0.0
	for i, x := range list {
		squares += (x - v.Mean) * (x - v.Mean)
		if i%run > 0 {
			products += (x - v.Mean) * (list[i-1] - v.Mean)
			pairs++
		}
	}
	if squares == 0 {
		return v
	}
	r := products / squares * v.N / pairs
	r = min(max(0, r+(2+3*r)/float64(n)), mostAlike)
	alike := (1 + r) / (1 - r)
	v.Deviation = math.Sqrt(squares / max(v.N-alike, 1) * alike)
	v.Worth = max(v.N/alike, leastWorth)
	return v
}

// Times are the values if there were so many times as many like these.
func (v Values) Times(more float64) Values {
	v.N, v.Worth = more*v.N, more*v.Worth
	return v
}

// SeldomAbove tells whether the mean of so many fresh values is above a limit with a chance of
// that much at most. If it is not so, the answer is yes with a chance of 1 less the
// confidence at most.
func (v Values) SeldomAbove(limit, fresh, chance, confidence float64) bool {
	room := limit - v.Mean
	if v.Deviation == 0 || room <= 0 {
		return v.Deviation == 0 && room >= 0
	}
	root := math.Sqrt(v.N)
	t := distuv.NoncentralT{Nu: v.Worth - 1, Mu: deviations(chance) / math.Sqrt(fresh) * root}
	return t.CDF(room/v.Deviation*root) >= confidence
}

// Wander is by how much the mean of so many fresh values exceeds that of as many others with a
// chance. The estimate is as often too small as too large.
func (v Values) Wander(fresh, chance float64) float64 {
	return deviations(chance) * v.Deviation * math.Sqrt(2/fresh)
}

// deviations is how many deviations a normal value exceeds its mean by with a chance.
func deviations(chance float64) float64 { return distuv.UnitNormal.Quantile(1 - chance) }
