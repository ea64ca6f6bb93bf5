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
	nr, nc, nz := len(m.rows), len(m.vars), len(m.coefs)

	// Two stable counting sorts of the coefficients (a row, a column and a value each): by row, then by column. Then rows
	// ascend within each column.
	byRow := countingSort(m.coefs, nil, nr, func(c *coef) int32 { return c.row })
	byCol := countingSort(m.coefs, byRow, nc, func(c *coef) int32 { return c.col })
	columns := Columns{Start: make([]int32, nc+1), Index: make([]int32, 0, nz), Value: make([]float64, 0, nz)}
	// Go through the columns. Coefficients of the same row follow one another, and are added up.
	next := 0
	var largest []float64 // by entry of the column: the largest term of its sum
	needsScaling := !m.hasUsableCoefficients()
	for j := 0; j < nc; j++ {
		first := len(columns.Index)
		largest = largest[:0]
		for next < nz && int(m.coefs[byCol[next]].col) == j {
			c := m.coefs[byCol[next]]
			next++
			if n := len(columns.Index); n > first && columns.Index[n-1] == c.row {
				columns.Value[n-1] += c.val
				largest[n-1-first] = max(largest[n-1-first], math.Abs(c.val))
				continue
			}
			largest = append(largest, math.Abs(c.val))
			columns.Index = append(columns.Index, c.row)
			columns.Value = append(columns.Value, c.val)
		}
		// Drop the sums that cancelled.
		end := first
		for k := first; k < len(columns.Index); k++ {
			minSum := minCoef
			if needsScaling {
				minSum *= largest[k-first]
			}
			if v := columns.Value[k]; v >= minSum || v <= -minSum {
				columns.Index[end], columns.Value[end] = columns.Index[k], v
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
	for b := 0; b < buckets; b++ {
		nextSlot[b+1] += nextSlot[b]
	}
	sorted := make([]int32, len(coefs))
	for i := range coefs {
		p := int32(i)
		if order != nil {
			p = order[i]
		}
		k := key(&coefs[p])
		sorted[nextSlot[k]] = p
		nextSlot[k]++
	}
	return sorted
}
