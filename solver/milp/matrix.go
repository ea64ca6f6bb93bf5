package milp

import "math"

// Columns is a constraint matrix in compressed columns: column j's entries are Index[Start[j]:Start[j+1]], rows
// ascending, with values in Value.
type Columns struct {
	Start []int32
	Index []int32
	Value []float64
}

// Columns returns the constraint matrix. Coefficients of the same row and variable are added up in the order in
// which they were added. A sum that cancels is left out: one below the least coefficient that solvers accept or,
// if the model has smaller ones, below that fraction of its largest term. The model must be valid.
func (m *Model) Columns() Columns {
	nr, nc, nz := len(m.rows), len(m.vars), len(m.coefs)
	// Two stable counting sorts: by row, then by column. Then rows ascend within each column.
	byRow := countingSort(m.coefs, nil, nr, func(c *coef) int32 { return c.row })
	byCol := countingSort(m.coefs, byRow, nc, func(c *coef) int32 { return c.col })
	out := Columns{Start: make([]int32, nc+1), Index: make([]int32, 0, nz), Value: make([]float64, 0, nz)}
	at := 0
	var largest []float64 // by coefficient of the column: its largest term
	wide := !m.inRange()
	for j := 0; j < nc; j++ {
		first := len(out.Index)
		largest = largest[:0]
		for at < nz && int(m.coefs[byCol[at]].col) == j {
			c := m.coefs[byCol[at]]
			at++
			if n := len(out.Index); n > first && out.Index[n-1] == c.row {
				out.Value[n-1] += c.val
				largest[n-1-first] = max(largest[n-1-first], math.Abs(c.val))
				continue
			}
			largest = append(largest, math.Abs(c.val))
			out.Index = append(out.Index, c.row)
			out.Value = append(out.Value, c.val)
		}
		// Drop what cancelled.
		keep := first
		for k := first; k < len(out.Index); k++ {
			least := minCoef
			if wide {
				least *= largest[k-first]
			}
			if v := out.Value[k]; v >= least || v <= -least {
				out.Index[keep], out.Value[keep] = out.Index[k], v
				keep++
			}
		}
		out.Index, out.Value = out.Index[:keep], out.Value[:keep]
		out.Start[j+1] = int32(keep)
	}
	return out
}

// countingSort returns the positions of coefs, stably sorted by key. If order is given, it is the order to start
// from.
func countingSort(coefs []coef, order []int32, buckets int, key func(*coef) int32) []int32 {
	next := make([]int32, buckets+1)
	for i := range coefs {
		next[key(&coefs[i])+1]++
	}
	for b := 0; b < buckets; b++ {
		next[b+1] += next[b]
	}
	out := make([]int32, len(coefs))
	for i := range coefs {
		p := int32(i)
		if order != nil {
			p = order[i]
		}
		k := key(&coefs[p])
		out[next[k]] = p
		next[k]++
	}
	return out
}
