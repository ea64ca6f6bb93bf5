package kind

import (
	"fmt"
	"math"
)

// Number writes a figure with the digits that people read.
func Number(v float64) string {
	if a := math.Abs(v); a >= 1000 {
		return fmt.Sprintf("%.0f", v)
	} else if a >= 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// Percent writes a share with the digits that people read.
func Percent(v float64) string {
	switch p := 100 * v; {
	case p == 0:
		return "0 %"
	case p < 0.01:
		return fmt.Sprintf("%.1g %%", p)
	case p < 1:
		return fmt.Sprintf("%.2f %%", p)
	default:
		return fmt.Sprintf("%.1f %%", p)
	}
}
