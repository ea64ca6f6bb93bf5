package kind

import (
	"fmt"
	"math"
	"strings"

	"inferplan/formats"
	"inferplan/planner/lists"
)

// DeviceNames returns the device kinds of pools as text.
func DeviceNames(pools []formats.Pool) string {
	names := lists.Map(len(pools), func(i int) string { return pools[i].Device })
	return strings.Join(names, ", ")
}

// FormatNumber writes a number with as many digits as people read.
func FormatNumber(v float64) string {
	if a := math.Abs(v); a >= 1000 {
		return fmt.Sprintf("%.0f", v)
	} else if a >= 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// FormatPercent writes a share as a percentage with as many digits as people read.
func FormatPercent(v float64) string {
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
