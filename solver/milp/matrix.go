package milp

import "math"

// Columns is a constraint matrix in compressed columns: column j's entries are Index[Start[j]:Start[j+1]], rows
// ascending, with values in Value.
type Columns struct {
	Start []int32
	Index []int32
	Value []float64
}

// Columns returns the constraint matrix. Coefficients of the same row and variable are summed in the order in which they
// were added. A sum below minCoef (the least coefficient that solvers accept) counts as cancelled and is left out. If
// single coefficients of the model are out of the accepted range, which Scaling then mends, a sum counts as cancelled if
// it is below minCoef times its largest term. The model must be valid.
func (m *Model) Columns() Columns {
	numRows, numVars, numCoefs := len(m.rows), len(m.vars), len(m.coefs)

	// Two stable counting sorts of the coefficients (a row, a column and a value each): by row, then by column. Then rows
	// ascend within each column.
	byRow := countingSort(m.coefs, nil, numRows, func(c *coef) int32 { return c.row })
	byColumn := countingSort(m.coefs, byRow, numVars, func(c *coef) int32 { return c.col })
	columns := Columns{Start: make([]int32, numVars+1), Index: make([]int32, 0, numCoefs), Value: make([]float64, 0, numCoefs)}

	// Go through the columns. Coefficients of the same row follow one another, and are added up.
	next := 0                  // position in byColumn of the next coefficient
	var largestTerms []float64 // by entry of the column: the largest term of its sum
	needsScaling := !m.hasUsableCoefficients()
	for j := 0; j < numVars; j++ {
		first := len(columns.Index) // index of the column's first entry
		largestTerms = largestTerms[:0]
		for next < numCoefs && int(m.coefs[byColumn[next]].col) == j {
			added := m.coefs[byColumn[next]]
			next++
			if last := len(columns.Index) - 1; last >= first && columns.Index[last] == added.row {
				columns.Value[last] += added.val
				largestTerms[last-first] = max(largestTerms[last-first], math.Abs(added.val))
				continue
			}
			largestTerms = append(largestTerms, math.Abs(added.val))
			columns.Index = append(columns.Index, added.row)
			columns.Value = append(columns.Value, added.val)
		}

		// Drop the sums that cancelled, and move the others up.
		end := first
		for k := first; k < len(columns.Index); k++ {
			minSum := minCoef
			if needsScaling {
				minSum *= largestTerms[k-first]
			}
			if sum := columns.Value[k]; sum >= minSum || sum <= -minSum {
				columns.Index[end], columns.Value[end] = columns.Index[k], sum
				end++
			}
		}
		columns.Index, columns.Value = columns.Index[:end], columns.Value[:end]
		columns.Start[j+1] = int32(end)
	}
	return columns
}

// countingSort returns the positions of coefs, stably sorted by key, a number from 0 to buckets-1. If order is given, it
// lists the positions in the order to start from; nil stands for the order of coefs.
func countingSort(coefs []coef, order []int32, buckets int, key func(*coef) int32) []int32 {
	// nextSlot[k] is the place in the result of the next position with key k: at first the number of smaller keys.
	nextSlot := make([]int32, buckets+1)
	for i := range coefs {
		nextSlot[key(&coefs[i])+1]++
	}
	for bucket := 0; bucket < buckets; bucket++ {
		nextSlot[bucket+1] += nextSlot[bucket]
	}
	sorted := make([]int32, len(coefs))
	for i := range coefs {
		position := int32(i)
		if order != nil {
			position = order[i]
		}
		bucket := key(&coefs[position])
		sorted[nextSlot[bucket]] = position
		nextSlot[bucket]++
	}
	return sorted
}
