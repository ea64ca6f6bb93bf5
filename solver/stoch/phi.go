package stoch

import "math"

const (
	phiLimit        = 6.0 // the table reaches from -phiLimit to phiLimit
	phiCellsPerUnit = 128 // entries of the table per standard deviation
)

// phiTable holds the normal distribution function at multiples of 1/phiCellsPerUnit.
var phiTable = func() (t [2*phiLimit*phiCellsPerUnit + 2]float64) {
	for i := range t {
		t[i] = 0.5 * math.Erfc(-(float64(i)/phiCellsPerUnit-phiLimit)/math.Sqrt2)
	}
	return t
}()

// Phi returns the standard normal distribution function by linear interpolation in a table, within 2e-6 of the true
// value (BenchmarkPhi and BenchmarkErfc compare the times). Beyond phiLimit on either side it is 0 or 1; for NaN it is
// 0.
func Phi(z float64) float64 {
	if !(z > -phiLimit) {
		return 0
	}
	if z >= phiLimit {
		return 1
	}
	position := (z + phiLimit) * phiCellsPerUnit // in the table, with a fraction
	cell := int(position)
	valueBelow := phiTable[cell]
	return valueBelow + (position-float64(cell))*(phiTable[cell+1]-valueBelow)
}
